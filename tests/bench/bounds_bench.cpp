// What the bounds, the greedy layouts and the search take. Recordings are found through
// EMM_EXTRA_TRACES; a benchmark that lacks its recording says so.
#include <benchmark/benchmark.h>

#include <string>

#include "base/prng.hpp"
#include "bounds/bounds.hpp"
#include "bounds/greedy.hpp"
#include "bounds/solve.hpp"
#include "tests/bounds/dsa_file.hpp"

namespace emm::bounds {
namespace {

// Log-uniform sizes; nine of ten buffers live briefly, most of the others for a while, a few for
// long.
std::vector<Buffer> generational(std::size_t count) {
  Prng random(11);
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < count; ++i) {
    const auto kind = random.below(100);
    const auto life_max = kind < 90 ? count / 200 : kind < 99 ? count / 10 : count;
    const auto lower = std::uint64_t{i};
    buffers.push_back({.lower = lower,
                       .upper = lower + 1 + random.below(life_max + 1),
                       .size = random.log_uniform(512, std::uint64_t{64} << 20),
                       .alignment = 1});
  }
  return buffers;
}

// Many at once: each lives for up to half of the trace.
std::vector<Buffer> crowded(std::size_t count) {
  Prng random(12);
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < count; ++i) {
    buffers.push_back({.lower = i,
                       .upper = i + 1 + random.below(count / 2),
                       .size = random.log_uniform(512, std::uint64_t{64} << 20),
                       .alignment = 1});
  }
  return buffers;
}

void run_greedy(benchmark::State& state, const std::vector<Buffer>& buffers) {
  std::uint64_t bound = 0;
  std::uint64_t height = 0;
  for (auto _ : state) {
    bound = requested_bound(buffers);
    benchmark::DoNotOptimize(aligned_bound(buffers, 512));
    benchmark::DoNotOptimize(paged_bound(buffers));
    const auto greedy = place_greedily(buffers);
    if (greedy) height = greedy->layout.height;
  }
  state.counters["buffers"] = static_cast<double>(buffers.size());
  state.counters["over_bound_percent"] =
      (static_cast<double>(height) / static_cast<double>(bound) - 1) * 100;
}

void greedy_generational(benchmark::State& state) {
  run_greedy(state, generational(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(greedy_generational)->Arg(20'000)->Arg(60'000)->Unit(benchmark::kMillisecond);

void greedy_crowded(benchmark::State& state) {
  run_greedy(state, crowded(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(greedy_crowded)->Arg(20'000)->Arg(60'000)->Unit(benchmark::kMillisecond);

void greedy_recorded(benchmark::State& state, const char* name) {
  const auto buffers = read_dsa_file(extra_traces() + "/dsa/" + name);
  if (!buffers) return state.SkipWithError("no such recording; set EMM_EXTRA_TRACES");
  run_greedy(state, *buffers);
}
BENCHMARK_CAPTURE(greedy_recorded, resnet50, "resnet50.csv")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(greedy_recorded, G_1, "G_1.csv.gz")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(greedy_recorded, pangu_2_6B, "pangu_2.6B.csv.gz")->Unit(benchmark::kMillisecond);

void solve_minimalloc(benchmark::State& state) {
  const auto name = std::string(1, static_cast<char>('A' + state.range(0)));
  state.SetLabel(name);
  const auto buffers = read_dsa_file(extra_traces() + "/dsa/" + name + ".1048576.csv");
  if (!buffers) return state.SkipWithError("no such recording; set EMM_EXTRA_TRACES");
  Solution solution;
  for (auto _ : state) solution = solve(*buffers, 1'048'576);
  if (solution.outcome != Solution::Outcome::placed) return state.SkipWithError("not placed");
  state.counters["nodes"] = static_cast<double>(solution.nodes);
  const auto greedy = place_greedily(*buffers);
  state.counters["greedy_over_bound_percent"] =
      (static_cast<double>(greedy->layout.height) / static_cast<double>(requested_bound(*buffers)) -
       1) *
      100;
}
BENCHMARK(solve_minimalloc)->DenseRange(0, 10)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace emm::bounds

BENCHMARK_MAIN();
