// What a line of each log costs, to a file.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>

#include "log/writer.hpp"
#include "trace/operation.hpp"

namespace emm::log {
namespace {

trace::Trace one_allocation() {
  trace::Trace trace;
  trace::Operation operation;
  operation.op = trace::Op::memalloc;
  operation.members = trace::Members(trace::Member::id, trace::Member::size);
  operation.id = trace::Id::of(std::uint64_t{1'234'567});
  operation.size = 4096;
  const bool good = trace.on_header({}) && trace.on_operation(operation) && trace.finish();
  EMM_ASSERT(good);
  return trace;
}

void write(benchmark::State& state, const char* format) {
  const auto trace = one_allocation();
  const auto path = (std::filesystem::temp_directory_path() / "emm_log_bench.csv").string();
  std::uint64_t lines = 0;
  for (auto _ : state) {
    auto log = open_log(path, format, trace);
    if (!log) return state.SkipWithError("cannot write");
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      (*log)->on_record({.seq = 0,
                         .begin_ns = 1'000 * i,
                         .end_ns = 1'000 * i + 777,
                         .pointer = 0x7f0000000000 + 512 * i,
                         .size = 1 + i * 37,
                         .id = 0,
                         .thread = 0,
                         .stream = 0,
                         .op = i % 2 == 0 ? trace::Op::memalloc : trace::Op::free},
                        {.live_bytes = i << 9,
                         .live_count = i,
                         .reserved_bytes = 1 << 30,
                         .free_bytes = 1 << 29,
                         .total_bytes = 1 << 30});
    }
    lines += 100'000;
    if (!(*log)->finish()) return state.SkipWithError("cannot write");
  }
  std::remove(path.c_str());
  state.SetItemsProcessed(static_cast<std::int64_t>(lines));
  state.counters["ns/line"] = benchmark::Counter(
      static_cast<double>(lines) * 1e-9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(write, rmm, "rmm")->Name("log/rmm")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(write, rmm_legacy, "rmm-legacy")
    ->Name("log/rmm-legacy")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(write, emm, "emm")->Name("log/emm")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace emm::log

BENCHMARK_MAIN();
