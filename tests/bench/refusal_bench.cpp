// A refusal beside a success: what `max` refuses costs about a microsecond, on eight streams too.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/units.hpp"
#include "driver/device_entry.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"

namespace emm {
namespace {

/// A pool of 64 MiB, full: of 1 MiB blocks, or of 256 KiB blocks of which every second has been
/// freed; an equal share of it on each of the streams. Or the same of blocks 16 times as large, in
/// 1 GiB.
struct FullPool {
  FullPool(bool in_holes, std::uint64_t streams, bool is_large = false) {
    manager =
        *find_manager(is_large ? "pool:max=1GiB" : "pool:max=64MiB")
             ->make(
                 {.driver = device.driver.get(), .runtime = nullptr, .clock = &platform->clock()});
    const auto size = (in_holes ? 256_KiB : 1_MiB) * (is_large ? 16 : 1);
    const auto count = (is_large ? 1_GiB : 64_MiB) / size;
    for (std::uint64_t at = 0; at < count; ++at) {
      pieces.push_back(*manager->memalloc(size, {at / (count / streams) * 0x100}));
    }
    for (std::size_t at = 0; in_holes && at < pieces.size(); at += 2) pieces[at] = {};
  }

  std::unique_ptr<Platform> platform = *open_platform("sim:capacity=1GiB,costs=none", {});
  OpenedDevice device = *platform->open(0);
  std::unique_ptr<MemoryManager> manager;
  std::vector<MemoryPointer> pieces;
};

void ask(benchmark::State& state, bool in_holes, std::uint64_t size, std::uint64_t streams) {
  FullPool pool(in_holes, streams);
  for (auto _ : state) {
    auto memory = pool.manager->memalloc(size);
    benchmark::DoNotOptimize(memory);
  }
}
BENCHMARK_CAPTURE(ask, request_and_free, true, 256_KiB, 1);
BENCHMARK_CAPTURE(ask, refused_beyond_max_of_1_stream, false, 256_KiB, 1);
BENCHMARK_CAPTURE(ask, refused_beyond_max_of_8_streams, false, 256_KiB, 8);
BENCHMARK_CAPTURE(ask, refused_for_holes_of_1_stream, true, 16_MiB, 1);
BENCHMARK_CAPTURE(ask, refused_for_holes_of_8_streams, true, 16_MiB, 8);

/// `count` requests and frees, and one that is refused: less the same without it.
void ask_after(benchmark::State& state, int count, bool refused, std::uint64_t streams,
               bool is_large = false) {
  FullPool pool(true, streams, is_large);
  for (auto _ : state) {
    for (int i = 0; i < count; ++i) auto freed = pool.manager->memalloc(256_KiB);
    if (!refused) continue;
    auto memory = pool.manager->memalloc(16_MiB);
    benchmark::DoNotOptimize(memory);
  }
}
BENCHMARK_CAPTURE(ask_after, one_of_1_stream, 1, true, 1);
BENCHMARK_CAPTURE(ask_after, one_of_8_streams, 1, true, 8);
BENCHMARK_CAPTURE(ask_after, ten_alone, 10, false, 1);
BENCHMARK_CAPTURE(ask_after, ten_of_1_stream, 10, true, 1);
BENCHMARK_CAPTURE(ask_after, ten_of_8_streams, 10, true, 8);
BENCHMARK_CAPTURE(ask_after, a_hundred_alone, 100, false, 1);
BENCHMARK_CAPTURE(ask_after, a_hundred_of_1_stream, 100, true, 1);
BENCHMARK_CAPTURE(ask_after, a_hundred_of_8_streams, 100, true, 8);
BENCHMARK_CAPTURE(ask_after, a_hundred_alone_with_128_large_holes, 100, false, 1, true);
BENCHMARK_CAPTURE(ask_after, a_hundred_with_128_large_holes, 100, true, 1, true);

}  // namespace
}  // namespace emm

BENCHMARK_MAIN();
