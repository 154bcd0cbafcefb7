// A C++ program with a cudart that is linked in statically: threads, streams, cudaMalloc and
// cudaMallocAsync. What it wrote is copied from block to block and read at the end.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

namespace {

void must(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
  std::exit(1);
}

struct Block {
  unsigned char* at;
  std::size_t size;
};

std::uint64_t hash_of(const std::vector<unsigned char>& bytes, std::uint64_t hash) {
  for (const auto byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

/// Each thread works on a stream of its own; by turns its blocks are the device's and the stream's.
/// One that waits for nothing is freed where its work is: with `default_stream` all is on that.
std::uint64_t work(unsigned seed, int rounds, bool default_stream) {
  cudaStream_t stream = nullptr;
  if (!default_stream) must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::mt19937 random(seed);
  std::vector<Block> kept;
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto end = [&](std::size_t index) {
    const auto block = kept[index];
    std::vector<unsigned char> bytes(block.size < 4096 ? block.size : 4096);
    must(cudaMemcpyAsync(bytes.data(), block.at + (block.size - bytes.size()), bytes.size(),
                         cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    hash = hash_of(bytes, hash);
    must(random() % 2 == 0 ? cudaFree(block.at) : cudaFreeAsync(block.at, stream));
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (int i = 0; i < rounds; ++i) {
    Block made{nullptr, std::size_t{1} + random() % (random() % 10 == 0 ? 8u << 20 : 200'000u)};
    void* at = nullptr;
    must(random() % 2 == 0 ? cudaMalloc(&at, made.size) : cudaMallocAsync(&at, made.size, stream));
    made.at = static_cast<unsigned char*>(at);
    must(cudaMemsetAsync(made.at, static_cast<int>(random() % 256), made.size, stream));
    if (!kept.empty()) {
      const auto& from = kept[random() % kept.size()];
      const auto size = from.size < made.size ? from.size : made.size;
      must(cudaMemcpyAsync(made.at, from.at, size / 2, cudaMemcpyDeviceToDevice, stream));
    }
    kept.push_back(made);
    if (kept.size() > 40) end(random() % kept.size());
  }
  while (!kept.empty()) end(kept.size() - 1);
  if (stream != nullptr) must(cudaStreamDestroy(stream));
  return hash;
}

}  // namespace

int main() {
  must(cudaSetDevice(0));
  (void)work(1, 100, true);
  const auto begun = std::chrono::steady_clock::now();
  auto hash = work(2, 6000, true);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  // Threads on streams of their own wait for their work before each free, so they need no wait of
  // cuMemFree's.
  constexpr int kThreads = 4;
  std::uint64_t hashes[kThreads] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back(
        [&hashes, t] { hashes[t] = work(10 + static_cast<unsigned>(t), 1500, false); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto one : hashes) hash = (hash ^ one) * 0x100000001b3u;
  std::printf("{\"seconds\": %.6f, \"digest\": \"%016llx\"}\n", took.count(),
              static_cast<unsigned long long>(hash));
  return 0;
}
