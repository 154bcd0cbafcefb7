#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

/// Shared parts of the stand-in for libcudart.
namespace emm::standin::cudart {

using Code = int;
using Stream = void*;
using Address = std::uint64_t;

inline Address address(const void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr); }

// CudaError_t.
inline constexpr Code kSuccess = 0, kInvalidValue = 1, kInvalidDevice = 101, kNotReady = 600;

/// What cudaRuntimeGetVersion answers: of the cudart that the program has.
inline std::atomic<int> program_version{13000};

/// Keeps a failure for cudaGetLastError. "Not ready" is not a failure.
Code conclude(Code code);
/// Makes the primary context of the thread's device current, unless a context is already current.
Code enter();

template <class MakeCall>
Code in_context(MakeCall call) {
  if (const auto code = enter(); code != kSuccess) return conclude(code);
  return conclude(call());
}

/// cudaMemcpyKind: which sides a copy's ends are on, perhaps decided by the addresses.
enum Kind {
  host_to_host = 0,
  host_to_device = 1,
  device_to_host = 2,
  device_to_device = 3,
  by_address = 4
};
/// Decides it where `kind` does not.
int kind_of(int kind, const void* to, const void* from);

}  // namespace emm::standin::cudart
