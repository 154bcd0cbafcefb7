// Measures cudaMallocAsync, the driver's stream-ordered pool, set to release nothing.
#include "tools/peers/cuda_streams.hpp"
#include "tools/peers/peer_main.hpp"

namespace emm::peers {
namespace {

class DriverPool {
 public:
  using Memory = void*;

  explicit DriverPool(std::uint32_t streams) : streams_(streams) {
    std::uint64_t all = ~std::uint64_t{0};
    good(cudaDeviceGetDefaultMemPool(&pool_, 0), "cudaDeviceGetDefaultMemPool");
    good(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all),
         "release threshold");
  }
  DriverPool(const DriverPool&) = delete;
  DriverPool& operator=(const DriverPool&) = delete;
  ~DriverPool() {
    synchronize();
    good(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    return cudaMallocAsync(&memory, size, streams_[stream]) == cudaSuccess || (memory = nullptr);
  }
  void free(Memory& memory, std::uint16_t stream) {
    if (memory != nullptr) good(cudaFreeAsync(memory, streams_[stream]), "cudaFreeAsync");
    memory = nullptr;
  }
  void synchronize() { good(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  std::uint64_t reserved_peak() const {
    std::uint64_t bytes = 0;
    good(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &bytes), "reserved");
    return bytes;
  }
  void restart_peak() {
    std::uint64_t none = 0;
    good(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &none), "reserved");
  }
  std::optional<std::uint64_t> device_free() { return free_on_device(); }
  void* handle(std::uint16_t stream) const { return streams_[stream]; }

 private:
  CudaStreams streams_;
  cudaMemPool_t pool_ = nullptr;
};

int run(int argc, char** argv) {
  PeerArguments arguments;
  arguments.name = "cudaMallocAsync";
  if (!arguments.parse(argc, argv, [](std::string_view, const char*) { return false; })) return 2;
  if (!device_is_here()) return kNotHere;
  return measure(arguments,
                 [](std::uint32_t streams) { return std::make_unique<DriverPool>(streams); });
}

}  // namespace
}  // namespace emm::peers

int main(int argc, char** argv) { return emm::peers::run(argc, argv); }
