// How fast other tools' recordings are imported: from memory, one thread; to nothing, and to trace::Trace.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/prng.hpp"
#include "base/text.hpp"
#include "format/byte_source.hpp"
#include "format/rmm_csv.hpp"
#include "trace/importer.hpp"
#include "trace/trace.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kRows = 500'000;

/// Allocations and frees in turns, `live` at once, of four threads and three streams, as RMM logs them.
std::string rmm_log(std::uint64_t live_max) {
  namespace rmm = format::rmm;
  constexpr std::uint64_t kStreams[] = {0, 0x55aabbcc0010, 0x55aabbcc0020};
  std::string out = std::string(rmm::kHeader) + '\n';
  Prng random(1);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::uint64_t next = 0x7f0000000000;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    rmm::Row row{.thread = 23150 + random.below(4), .time_us = 36'000'000'000 + 3 * i};
    row.stream = kStreams[random.below(3)];
    if (live.size() == live_max) {
      const auto at = random.below(live.size());
      row.action = rmm::Action::free;
      row.pointer = live[at].first;
      row.size = live[at].second;
      live[at] = live.back();
      live.pop_back();
    } else {
      row.size = random.log_uniform(256, 64 << 20);
      row.pointer = next;
      next += (row.size + 511) / 512 * 512;
      live.emplace_back(row.pointer, row.size);
    }
    append(out, row);
  }
  return out;
}

std::string placement_problem() {
  std::string out = "id,lower,upper,size\n";
  Prng random(1);
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const auto lower = random.below(kRows * 2);
    out += text::format("{},{},{},{}\n", i, lower, lower + 1 + random.below(2000), random.log_uniform(256, 64 << 20));
  }
  return out;
}

struct Nothing final : trace::OperationSink {
  std::uint64_t operations = 0;
  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const trace::Operation&) override {
    ++operations;
    return {};
  }
};

template <class Sink>
void import_text(benchmark::State& state, const char* format, const std::string& text) {
  const auto importer = trace::find_importer(format);
  EMM_ASSERT(importer);
  for (auto _ : state) {
    Sink sink;
    const auto source = format::ByteSource::memory(text);
    const auto counts = (*importer)->read(*source, sink, {});
    EMM_ASSERT(counts && counts->used == kRows);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kRows));
}

void RmmCsv(benchmark::State& state) {
  import_text<Nothing>(state, "rmm-csv", rmm_log(static_cast<std::uint64_t>(state.range(0))));
}
void RmmCsvToTrace(benchmark::State& state) {
  import_text<trace::Trace>(state, "rmm-csv", rmm_log(static_cast<std::uint64_t>(state.range(0))));
}
void DsaCsv(benchmark::State& state) { import_text<Nothing>(state, "dsa-csv", placement_problem()); }

// The argument: allocations live at once.
BENCHMARK(RmmCsv)->Arg(1000)->Arg(50'000)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RmmCsvToTrace)->Arg(1000)->Arg(50'000)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(DsaCsv)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace emm

BENCHMARK_MAIN();
