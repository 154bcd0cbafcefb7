// How fast the trace format is read, through to trace::Trace: files in the page cache, one thread.
#include <benchmark/benchmark.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "format/hash64.hpp"
#include "trace/compact/block_decoder.hpp"
#include "trace/generate.hpp"
#include "trace/reader.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kEvents = 400'000;

/// Allocations and frees in turns, 1000 live, as a recorder writes them (about 150 bytes a line) or
/// as briefly as the format allows (about 40).
std::string lines_of(bool recorded) {
  std::string out = R"({"format":"emmctl-trace","version":"1.0"})"
                    "\n";
  Prng random(1);
  std::vector<std::uint64_t> live;
  std::uint64_t id = 0;
  std::uint64_t time_ns = 300'000;
  for (std::uint64_t seq = 0; seq < kEvents; ++seq) {
    time_ns += random.below(4000);
    const bool frees = live.size() == 1000;
    out += frees ? R"({"op":"free")" : R"({"op":"memalloc")";
    if (recorded) {
      out += text::format(
          R"(,"seq":{},"time_ns":{},"duration_ns":{},"thread":{},"context":"c1","device":0,"api":"{}")",
          seq, time_ns, 90 + random.below(3000), 2750 + random.below(8),
          frees ? "cuMemFree_v2" : "cuMemAlloc_v2");
    }
    if (frees) {
      const auto at = random.below(live.size());
      out += text::format(R"(,"id":{})", live[at]);
      live[at] = live.back();
      live.pop_back();
    } else {
      out += text::format(R"(,"id":{},"size":{})", id, random.log_uniform(512, 64 << 20));
      if (recorded)
        out += text::format(R"(,"addr":"{}")",
                            text::hex(0x7f0000000000 + (random.below(1 << 20) << 9)));
      live.push_back(id++);
    }
    out += "}\n";
  }
  return out;
}

class File {
 public:
  File(const char* name, std::string_view bytes)
      : path_((std::filesystem::temp_directory_path() /
               text::format("emm_bench_{}_{}", ::getpid(), name))
                  .string()) {
    auto sink = format::ByteSink::open(path_);
    EMM_ASSERT(sink && (*sink)->write(bytes) && (*sink)->close());
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void read_trace(benchmark::State& state, const char* name, bool recorded) {
  const auto text = lines_of(recorded);
  const File file(name, text);
  for (auto _ : state) {
    auto source = format::ByteSource::open(file.path());
    trace::Trace trace;
    auto read = trace::read(**source, trace);
    EMM_ASSERT(read && trace.size() == kEvents);
    state.counters["bytes_an_event"] =
        static_cast<double>(trace.memory_bytes()) / static_cast<double>(kEvents);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kEvents));
  state.counters["bytes_a_line"] = static_cast<double>(text.size()) / static_cast<double>(kEvents);
}

void Lines150(benchmark::State& state) { read_trace(state, "lines.jsonl", true); }
void Lines40(benchmark::State& state) { read_trace(state, "brief.jsonl", false); }
void Lines150Gzip(benchmark::State& state) { read_trace(state, "lines.jsonl.gz", true); }
void Lines150Zstd(benchmark::State& state) { read_trace(state, "lines.jsonl.zst", true); }

/// zlib alone on the file of Lines150Gzip: what that is measured against.
void ZlibAlone(benchmark::State& state) {
  const auto text = lines_of(true);
  const File file("zlib.jsonl.gz", text);
  std::vector<char> buffer(256 << 10);
  for (auto _ : state) {
    auto* const in = gzopen(file.path().c_str(), "rb");
    gzbuffer(in, 128 << 10);
    std::size_t size = 0;
    for (;;) {
      const int got = gzread(in, buffer.data(), static_cast<unsigned>(buffer.size()));
      if (got <= 0) break;
      size += static_cast<std::size_t>(got);
    }
    gzclose(in);
    EMM_ASSERT(size == text.size());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

/// The blocks of a compact file, one core, to operations that nobody keeps.
void decode(benchmark::State& state, const std::string& file) {
  std::vector<std::string_view> blocks;
  for (std::size_t at = trace::compact::kFileHeadBytes;;) {
    trace::compact::ChunkHead head;
    std::memcpy(&head, file.data() + at, sizeof head);
    at += sizeof head;
    if (head.tag == trace::compact::kIndexTag) break;
    if (head.tag == trace::compact::kBlockTag)
      blocks.push_back(std::string_view(file).substr(at, head.bytes));
    at += head.bytes;
  }
  trace::compact::BlockDecoder decoder;
  std::uint64_t operations = 0;
  for (auto _ : state) {
    for (const auto block : blocks) {
      auto hash = format::hash64(block);
      benchmark::DoNotOptimize(hash);
      EMM_ASSERT(decoder.load(block).empty());
      while (auto* operation = decoder.next()) {
        benchmark::DoNotOptimize(operation);
        ++operations;
      }
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(operations));
  state.counters["bytes_an_event"] =
      static_cast<double>(file.size() * state.iterations()) / static_cast<double>(operations);
}

void CompactGpt2(benchmark::State& state) {
  auto source =
      format::ByteSource::open(EMM_SOURCE_DIR "/traces/torch/torch_gpt2_train_varlen.jsonl.gz");
  std::string file;
  const auto sink = format::ByteSink::to_string(file);
  EMM_ASSERT(source && trace::read(**source, *trace::make_compact_writer(*sink)));
  decode(state, file);
}
void CompactGenerated(benchmark::State& state) {
  std::string file;
  const auto sink = format::ByteSink::to_string(file);
  EMM_ASSERT(trace::generate({.kind = "log-uniform", .events = kEvents},
                             *trace::make_compact_writer(*sink)));
  decode(state, file);
}
BENCHMARK(CompactGpt2)->Unit(benchmark::kMillisecond);
BENCHMARK(CompactGenerated)->Unit(benchmark::kMillisecond);

BENCHMARK(Lines150)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(Lines40)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(ZlibAlone)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(Lines150Gzip)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(Lines150Zstd)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace emm

BENCHMARK_MAIN();
