// Measures PyTorch's caching allocator, called from C++ as PyTorch calls it: no Python is in the
// loop. PYTORCH_CUDA_ALLOC_CONF chooses its kind (native, expandable segments).
#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>

#include "tools/peers/cuda_streams.hpp"
#include "tools/peers/peer_main.hpp"

namespace emm::peers {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

class TorchAllocator {
 public:
  using Memory = void*;

  explicit TorchAllocator(std::uint32_t streams) : streams_(streams), allocator_(*caching::get()) {}
  TorchAllocator(const TorchAllocator&) = delete;
  TorchAllocator& operator=(const TorchAllocator&) = delete;
  ~TorchAllocator() {
    synchronize();
    allocator_.emptyCache();
  }

  bool allocate(Memory& memory, std::uint64_t size, std::uint16_t stream) {
    try {
      memory = allocator_.raw_alloc_with_stream(size, streams_[stream]);
    } catch (const std::exception&) {  // c10::OutOfMemoryError
      memory = nullptr;
    }
    return memory != nullptr;
  }
  void free(Memory& memory, std::uint16_t) {
    if (memory != nullptr) allocator_.raw_delete(memory);
    memory = nullptr;
  }
  void synchronize() { good(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
  std::uint64_t reserved_peak() const {
    constexpr std::size_t kAggregate = 0;
    return static_cast<std::uint64_t>(allocator_.getDeviceStats(0).reserved_bytes[kAggregate].peak);
  }
  void restart_peak() { allocator_.resetPeakStats(0); }
  std::optional<std::uint64_t> device_free() { return free_on_device(); }
  void* handle(std::uint16_t stream) const { return streams_[stream]; }

 private:
  CudaStreams streams_;
  caching::CUDAAllocator& allocator_;
};

int run(int argc, char** argv) {
  PeerArguments arguments;
  arguments.name = "PyTorch";
  if (!arguments.parse(argc, argv, [](std::string_view, const char*) { return false; })) return 2;
  if (!device_is_here()) return kNotHere;
  caching::init(1);
  return measure(arguments,
                 [](std::uint32_t streams) { return std::make_unique<TorchAllocator>(streams); });
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
