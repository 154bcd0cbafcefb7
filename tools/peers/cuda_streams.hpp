#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

namespace emm::peers {

/// Prints an error on stderr; true where there is none.
inline bool good(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

/// Whether there is a device. Makes its context, so that no allocator pays for that.
inline bool device_is_here() { return good(cudaFree(nullptr), "no CUDA device"); }

inline std::optional<std::uint64_t> free_on_device() {
  std::size_t free = 0, total = 0;
  if (!good(cudaMemGetInfo(&free, &total), "cudaMemGetInfo")) return std::nullopt;
  return free;
}

/// The default stream, and further streams that do not wait for it.
class CudaStreams {
 public:
  explicit CudaStreams(std::uint32_t count) : streams_(count, nullptr) {
    for (std::uint32_t i = 1; i < count; ++i) {
      good(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking), "cudaStreamCreate");
    }
  }
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;
  ~CudaStreams() {
    for (const auto stream : streams_) {
      if (stream != nullptr) good(cudaStreamDestroy(stream), "cudaStreamDestroy");
    }
  }
  cudaStream_t operator[](std::uint16_t stream) const { return streams_[stream]; }

 private:
  std::vector<cudaStream_t> streams_;
};

}  // namespace emm::peers
