#pragma once

#include <cstdint>

/// Shared parts of the answers to the functions of CUDA's libraries. They have CUDA's declarations,
/// but with plain types. A handle is a small object of its own, so that there is no table that
/// could run over, and what was destroyed is gone.
namespace emm::standin {

using Status = int;  // cublasStatus_t, ncclResult_t, ...; 0 is success in each

/// What a program may set at a handle, and ask it for.
struct LibraryHandle {
  void* stream = nullptr;
  int modes[4] = {};
};

inline Status create(LibraryHandle** out) {
  *out = new LibraryHandle;
  return 0;
}
inline Status destroy(LibraryHandle* handle) {
  delete handle;
  return 0;
}

/// The major version of the CUDA whose libraries the program has.
int cuda_version() noexcept;

}  // namespace emm::standin
