#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "standin/machine.hpp"

/// Shared parts of the stand-in's functions. These have CUDA's declarations, but with plain types,
/// so that the build needs no CUDA header: a handle is a number as wide as a pointer.
namespace emm::standin {

using Code = std::int32_t;      // CUresult
using Device = int;             // CUdevice
using Address = std::uint64_t;  // CUdeviceptr
using Handle = std::uint64_t;   // CUstream, CUevent, CUmemoryPool, ...
using ContextPtr = Machine::Context*;

/// Makes `call` with the driver of the calling thread's context, and returns the code.
template <class MakeCall>
Code in_context(MakeCall call) {
  if (Machine::started() == nullptr) return Machine::stray(Machine::kNotInitialized);
  auto* context = Machine::current();
  if (context == nullptr) return Machine::stray(Machine::kInvalidContext);
  const auto answer = call(*context->device.driver);
  return answer ? Machine::kSuccess : answer.error().native;
}

/// Makes a call that returns a value, and passes the value to `take`.
template <class MakeCall, class Take>
Code in_context(MakeCall call, Take take) {
  return in_context([&](Driver& driver) {
    auto answer = call(driver);
    if (answer) take(*answer);
    return answer;
  });
}

/// Makes a query. False becomes the code "not ready".
template <class MakeCall>
Code ask(MakeCall call) {
  bool yes = false;
  const auto code = in_context(call, [&](bool answer) { yes = answer; });
  return code == 0 && !yes ? Machine::kNotReady : code;
}

inline StreamHandle stream(Handle value) { return {value}; }

}  // namespace emm::standin
