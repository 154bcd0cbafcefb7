#pragma once

#include <cstdint>

namespace emm::cuda {

/// libcuda's handles are pointers; the seam's are numbers.
inline std::uint64_t number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

template <class Handle>
Handle handle_of(std::uint64_t value) {
  return reinterpret_cast<Handle>(value);  // NOLINT
}

}  // namespace emm::cuda
