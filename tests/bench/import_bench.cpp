// How fast other tools' recordings are imported: from memory, one thread; to nothing, and to
// trace::Trace.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "base/prng.hpp"
#include "base/text.hpp"
#include "exchange/exporters/torch_pickle.hpp"
#include "exchange/importer.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "format/rmm_csv.hpp"
#include "trace/generate.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kRows = 500'000;

/// Allocations and frees in turns, `live` at once, of four threads and three streams, as RMM logs
/// them.
std::string rmm_log(std::uint64_t live_max) {
  namespace rmm = format::rmm;
  constexpr std::uint64_t kStreams[] = {0, 0x55aabbcc0010, 0x55aabbcc0020};
  std::string out = std::string(rmm::kHeader) + '\n';
  Prng random(1);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::uint64_t next = 0x7f0000000000;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    rmm::Row row{.thread = 23150 + random.below(4), .time_ns = 36'000'000'000'000 + 3'000 * i};
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
    out += text::format("{},{},{},{}\n", i, lower, lower + 1 + random.below(2000),
                        random.log_uniform(256, 64 << 20));
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

/// rmm.csv_log()'s, as a manager logged it from a notebook.
std::string rmm_legacy_log() {
  std::string out = std::string(format::rmm::kLegacyHeader) + '\n';
  Prng random(1);
  std::vector<std::uint64_t> live;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    const auto frees = live.size() == 1000;
    const auto at = frees ? random.below(live.size()) : live.size();
    if (!frees) live.push_back(0x7f0000000000 + 512 * i);
    out += text::format("{},0,{},0,{},{},16945512448,{},{}.{},{}.{},{}e-06,notebook.py:{}\n",
                        frees ? "Free" : "Alloc", text::hex(live[at]),
                        random.log_uniform(256, 64 << 20), 16'000'000'000 - i, live.size(),
                        i / 9000, 100 + i % 899, i / 9000, 101 + i % 899, 1 + random.below(9),
                        random.below(300));
    if (!frees) continue;
    live[at] = live.back();
    live.pop_back();
  }
  return out;
}

/// A snapshot of PyTorch's, some 25 MB of it.
std::string torch_snapshot(const trace::TorchFrames& frames, std::uint64_t events) {
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  trace::TorchPickleWriter writer(*sink, frames);
  EMM_ASSERT(trace::generate({.kind = "log-uniform", .events = events}, writer));
  return out;
}

template <class Sink>
void import_text(benchmark::State& state, const char* format, const std::string& text) {
  const auto importer = trace::find_importer(format);
  EMM_ASSERT(importer);
  std::uint64_t rows = 0;
  for (auto _ : state) {
    Sink sink;
    const auto source = format::ByteSource::memory(text);
    const auto counts = (*importer)->read(*source, sink, {});
    EMM_ASSERT(counts && counts->used == counts->rows);
    rows = counts->rows;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * rows));
}

void RmmCsv(benchmark::State& state) {
  import_text<Nothing>(state, "rmm-csv", rmm_log(static_cast<std::uint64_t>(state.range(0))));
}
void RmmCsvToTrace(benchmark::State& state) {
  import_text<trace::Trace>(state, "rmm-csv", rmm_log(static_cast<std::uint64_t>(state.range(0))));
}
void RmmLegacyCsv(benchmark::State& state) {
  import_text<Nothing>(state, "rmm-legacy-csv", rmm_legacy_log());
}
void RmmLegacyCsvToTrace(benchmark::State& state) {
  import_text<trace::Trace>(state, "rmm-legacy-csv", rmm_legacy_log());
}
void DsaCsv(benchmark::State& state) {
  import_text<Nothing>(state, "dsa-csv", placement_problem());
}
void DsaCsvToTrace(benchmark::State& state) {
  import_text<trace::Trace>(state, "dsa-csv", placement_problem());
}

// Most bytes are rows; most are stacks; most are frames that no two stacks share.
void TorchRows(benchmark::State& state) {
  import_text<trace::Trace>(state, "torch-pickle",
                            torch_snapshot({.stacks = 500, .frames = 2000}, 320'000));
}
void TorchStacks(benchmark::State& state) {
  import_text<trace::Trace>(
      state, "torch-pickle",
      torch_snapshot({.stacks = 500, .depth = 24, .frames = 2000, .own = true}, 180'000));
}
void TorchFramesOfTheirOwn(benchmark::State& state) {
  import_text<trace::Trace>(state, "torch-pickle",
                            torch_snapshot({.depth = 32, .frames = 0, .own = true}, 40'000));
}

// The argument: allocations live at once.
BENCHMARK(RmmCsv)->Arg(1000)->Arg(50'000)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RmmCsvToTrace)->Arg(1000)->Arg(50'000)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RmmLegacyCsv)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RmmLegacyCsvToTrace)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(DsaCsv)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(DsaCsvToTrace)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(TorchRows)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(TorchStacks)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(TorchFramesOfTheirOwn)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace emm

BENCHMARK_MAIN();
