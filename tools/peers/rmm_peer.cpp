// Measures RMM's pool over cudaMalloc, which begins empty.
#if __has_include(<rmm/mr/cuda_memory_resource.hpp>)
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#else
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#endif

#include <exception>

#include "tools/peers/cuda_streams.hpp"
#include "tools/peers/peer_main.hpp"

namespace emm::peers {
namespace {

class RmmPool {
 public:
  struct Memory {
    void* pointer = nullptr;
    std::size_t size = 0;
  };

  explicit RmmPool(std::uint32_t streams) : streams_(streams), pool_(&upstream_, 0) {}

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    try {
      memory = {.pointer = pool_.allocate_async(size, rmm::cuda_stream_view(streams_[stream])),
                .size = size};
    } catch (const std::exception&) {  // rmm::out_of_memory
      memory = {};
    }
    return memory.pointer != nullptr;
  }
  void free(Memory& memory, std::uint16_t stream) {
    if (memory.pointer != nullptr) {
      pool_.deallocate_async(memory.pointer, memory.size, rmm::cuda_stream_view(streams_[stream]));
    }
    memory = {};
  }
  void synchronize() { good(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  std::uint64_t reserved_peak() const {
    return pool_.pool_size();
  }  // The pool releases nothing before its end.
  void restart_peak() {}
  std::optional<std::uint64_t> device_free() { return free_on_device(); }
  void* handle(std::uint16_t stream) const { return streams_[stream]; }

 private:
  CudaStreams streams_;
  rmm::mr::cuda_memory_resource upstream_;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool_;
};

int run(int argc, char** argv) {
  PeerArguments arguments;
  arguments.name = "RMM pool";
  if (!arguments.parse(argc, argv, [](std::string_view, const char*) { return false; })) return 2;
  if (!device_is_here()) return kNotHere;
  return measure(arguments,
                 [](std::uint32_t streams) { return std::make_unique<RmmPool>(streams); });
}

}  // namespace
}  // namespace emm::peers

int main(int argc, char** argv) {
  try {
    return emm::peers::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
