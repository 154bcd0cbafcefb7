#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"

namespace emm {

/// The driver calls, for ledgers, faults and costs: the rows of calls.def. The names are those of
/// Driver's methods.
enum class Call : std::uint8_t {
#define EMM_CALL(result, name, ...) name,
#define EMM_RUNTIME_CALL(name, ...) name,
#include "driver/calls.def"
};
inline constexpr std::size_t kCallCount = 0
#define EMM_CALL(...) +1
#define EMM_RUNTIME_CALL(...) +1
#include "driver/calls.def"
    ;

struct CallInfo {
  std::string_view name;     ///< The name for `--fault`: "mem_alloc".
  const char* cuda_name;     ///< CUDA's name: "cuMemAlloc".
  std::string_view shape;    ///< The format in a call log; calls.def explains the letters.
  std::int32_t usual_fault;  ///< A CUresult with which the real call may fail.
};
const CallInfo& call_info(Call call) noexcept;

/// The kind of a CUresult; driver_error if there is no special one.
Errc meaning_of(std::int32_t native) noexcept;

/// The error of a driver call that returned the CUresult `native`.
Error driver_error(Call call, std::int32_t native) noexcept;

}  // namespace emm
