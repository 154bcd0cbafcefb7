#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

namespace emm::peers {

/// Says on stderr what went wrong; true where nothing did.
inline bool good(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

/// Is there a device? Makes its context, which is no allocator's cost.
inline bool device_is_here() { return good(cudaFree(nullptr), "no CUDA device"); }

inline std::optional<std::uint64_t> free_on_device() {
  std::size_t free = 0, total = 0;
  if (!good(cudaMemGetInfo(&free, &total), "cudaMemGetInfo")) return std::nullopt;
  return free;
}

/// The default stream, and others that do not wait for it.
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
