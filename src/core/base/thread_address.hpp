#pragma once

#include <cstdint>

namespace emm {

/// A number of the calling thread, not 0, that no other thread has while it lives. A later thread
/// may have it again.
inline std::uintptr_t thread_address() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  // In a shared library the address of a thread_local variable costs a call; this is one load. The
  // thread control block begins with its own address (System V ABI for x86-64).
  std::uintptr_t control_block;
  asm("mov %%fs:0, %0" : "=r"(control_block));
  return control_block;
#else
  static thread_local char here;
  return reinterpret_cast<std::uintptr_t>(&here);
#endif
}

}  // namespace emm
