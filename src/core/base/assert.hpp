#pragma once

#include <cstdio>
#include <cstdlib>

namespace emm {
[[noreturn]] inline void assertion_failed(const char* condition, const char* file,
                                          int line) noexcept {
  std::fprintf(stderr, "emmctl: %s:%d: a bug of ours: expected %s\n", file, line, condition);
  std::fflush(nullptr);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  std::abort();  // a fuzzer keeps the input
#else
  std::_Exit(70);
#endif
}
}  // namespace emm

/// Checks a condition that only a bug of ours can make false. On in every build; ends the process
/// with exit code 70.
#define EMM_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : ::emm::assertion_failed(#condition, __FILE__, __LINE__))
