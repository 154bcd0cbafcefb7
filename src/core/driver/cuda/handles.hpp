#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver/types.hpp"

namespace emm::cuda {

/// libcuda's handles are pointers; Driver's are numbers.
inline std::uint64_t number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

template <class Handle>
Handle handle_of(std::uint64_t value) {
  return reinterpret_cast<Handle>(value);  // NOLINT
}

inline CUstream native(StreamHandle stream) { return handle_of<CUstream>(stream.value); }
inline CUevent native(EventHandle event) { return handle_of<CUevent>(event.value); }
inline CUcontext native(ContextHandle context) { return handle_of<CUcontext>(context.value); }
inline CUmemoryPool native(PoolHandle pool) { return handle_of<CUmemoryPool>(pool.value); }

}  // namespace emm::cuda
