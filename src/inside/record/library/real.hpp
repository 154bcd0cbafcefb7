#pragma once

#include <cstddef>
#include <cstdint>

namespace emm::record {

/// Functions of the real driver that the recorder itself calls.
struct Real {
  std::int32_t (*driver_get_version)(int*);
  std::int32_t (*device_get_count)(int*);
  std::int32_t (*device_get)(int*, int);
  std::int32_t (*device_get_name)(char*, int, int);
  std::int32_t (*device_total_mem)(std::size_t*, int);
  std::int32_t (*ctx_get_current)(std::uint64_t*);
  std::int32_t (*ctx_get_device)(int*);
  std::int32_t (*mem_get_info)(std::size_t*, std::size_t*);
  std::int32_t (*mem_free)(std::uint64_t);
  std::int32_t (*primary_ctx_get_state)(int, unsigned*, int*);
};
const Real& real() noexcept;
const char* real_path() noexcept;
/// Finds these functions and the wrapped ones in the driver at `path`.
void find_real(void* library, const char* path) noexcept;
/// Answers whether the program reaches the driver through the library that `emmctl record` wrote.
bool has_forwarding_library() noexcept;

}  // namespace emm::record
