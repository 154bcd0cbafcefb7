#pragma once

#include <cstdint>
#include <string>

#include "driver/call.hpp"
#include "driver/types.hpp"

namespace emm {

/// A driver call as a hook sees it. Members that a call does not have are 0.
struct CallEvent {
  Call call{};
  std::uint64_t pointer = 0;  ///< The address or handle of the call; the target of a copy.
  std::uint64_t other =
      0;  ///< The flags, the value of a memset, or the source of a copy on the device.
  std::uint64_t size = 0;    ///< Requested bytes; for memset_d32, 4 times the count.
  StreamHandle stream{};     ///< The stream of the call's work, or of stream-ordered memory.
  std::int32_t native = 0;   ///< The result code; 0 is success. Unknown before the call.
  std::uint64_t result = 0;  ///< The returned address, handle or number.
};

/// "mem_alloc(4096) -> 0x1000000000000", "mem_free(0x1000000000000) -> CUDA_ERROR_INVALID_VALUE".
std::string to_text(const CallEvent& event);

/// Called around each call of a driver and of its runtime. Any thread may call.
class CallHook {
 public:
  virtual ~CallHook() = default;
  /// A code other than 0 becomes the call's result: the call is not made, and after() is not
  /// called.
  virtual std::int32_t before(const CallEvent&) { return 0; }
  virtual void after(const CallEvent&) {}
};

}  // namespace emm
