#pragma once

#include <cstdint>

#include "standin/library_memory.hpp"

/// Shared parts of the answers to the functions of CUDA's libraries. They have CUDA's declarations,
/// but with plain types. A handle is a small object of its own, so that there is no table that
/// could run over, and what was destroyed is gone.
namespace emm::standin {

using Status = int;  // cublasStatus_t, ncclResult_t, ...; 0 is success in each

/// What a program may set at a handle, and ask it for.
struct LibraryHandle {
  void* stream = nullptr;
  int modes[4] = {};
  void* holder = nullptr;  ///< Where its memory was taken, if it took any.
};

inline Status create(LibraryHandle** out) {
  *out = new LibraryHandle;
  return 0;
}
inline Status destroy(LibraryHandle* handle) {
  delete handle;
  return 0;
}

/// A handle for which the library takes memory of the device. `refused`: what it returns where
/// there is none.
inline Status create(LibraryHandle** out, LibraryTaker taker, Status refused) {
  void* holder = nullptr;
  constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  if (emm_standin_take_for_library(taker, &holder) == kOutOfMemory) return refused;
  *out = new LibraryHandle{.holder = holder};
  return 0;
}
inline Status destroy(LibraryHandle* handle, LibraryTaker taker) {
  if (handle != nullptr) emm_standin_release_of_library(taker, handle->holder);
  return destroy(handle);
}

/// The major version of the CUDA whose libraries the program has.
int cuda_version() noexcept;

}  // namespace emm::standin
