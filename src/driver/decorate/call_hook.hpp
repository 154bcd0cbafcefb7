#pragma once

#include <cstdint>
#include <string>

#include "driver/types.hpp"

namespace emm {

/// One call of the seam, as a hook sees it. What a call does not have is 0.
struct CallEvent {
  Call call{};
  std::uint64_t pointer =
      0;  ///< The address or the handle that the call is about; of a copy, its target.
  std::uint64_t other =
      0;                   ///< Flags, the value of a memset, or the source of a copy on the device.
  std::uint64_t size = 0;  ///< Bytes asked for; of memset_d32, 4 times its count.
  StreamHandle stream{};   ///< On which the call puts work, or memory in order.
  std::int32_t native = 0;   ///< The answer: 0 is success. Not known before the call.
  std::uint64_t result = 0;  ///< The address, handle or number that came back.
};

/// "mem_alloc(4096) -> 0x1000000000000", "mem_free(0x1000000000000) -> CUDA_ERROR_INVALID_VALUE".
std::string to_text(const CallEvent& event);

/// What a decorator does around each call of a driver and of its runtime. Any thread may call.
class CallHook {
 public:
  virtual ~CallHook() = default;
  /// A code other than 0 is the call's answer: it is not made, and after() does not come.
  virtual std::int32_t before(const CallEvent&) { return 0; }
  virtual void after(const CallEvent&) {}
};

}  // namespace emm
