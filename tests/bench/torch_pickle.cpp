// Makes a large snapshot, imports it, and says how long that took and how much memory it had: 10 s and three times
// its size is what a snapshot of 1 GB may take.
//
//   torch_pickle_bench FILE [events=N] [stacks=N] [depth=N] [frames=N] [own] [seed=N]
//   torch_pickle_bench FILE            reads a file that is there
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "trace/exporters/torch_pickle.hpp"
#include "trace/generate.hpp"
#include "trace/importer.hpp"

namespace {

using namespace emm;

class Counting final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const trace::Operation& operation) override {
    ++operations;
    frames += operation.frames.size();
    return {};
  }
  std::uint64_t operations = 0, frames = 0;
};

Status make(const std::string& path, int argc, char** argv) {
  trace::GenerateOptions options;
  options.kind = "log-uniform";
  options.events = 11'000'000;
  trace::TorchFrames frames{.stacks = 5000, .depth = 16, .frames = 2000, .own = false, .seed = 1};
  for (int i = 2; i < argc; ++i) {
    const std::string_view word(argv[i]);
    const auto key = word.substr(0, word.find('='));
    const auto value = word == key ? 0 : text::to_u64(word.substr(key.size() + 1)).value_or(0);
    if (key == "events") options.events = value;
    if (key == "stacks") frames.stacks = value;
    if (key == "depth") frames.depth = value;
    if (key == "frames") frames.frames = value;
    if (key == "own") frames.own = true;
    if (key == "seed") options.seed = frames.seed = value;
  }
  auto sink = format::ByteSink::open(path);
  if (!sink) return std::move(sink).error();
  trace::TorchPickleWriter writer(**sink, frames);
  if (auto done = trace::generate(options, writer); !done) return done;
  std::printf("rows %llu, stacks %llu of %llu frames, distinct frames %llu%s, seed %llu\n",
              static_cast<unsigned long long>(writer.rows()), static_cast<unsigned long long>(frames.stacks),
              static_cast<unsigned long long>(frames.depth), static_cast<unsigned long long>(frames.frames),
              frames.own ? ", each allocation its own stack" : "", static_cast<unsigned long long>(frames.seed));
  return (*sink)->close();
}

Status import(const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  auto source = format::ByteSource::open(path);
  if (!source) return std::move(source).error();
  auto importer = trace::find_importer("torch-pickle");
  if (!importer) return std::move(importer).error();
  Counting sink;
  auto counts = (*importer)->read(**source, sink, {});
  if (!counts) return std::move(counts).error();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
  const auto busy = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  const auto size = static_cast<double>(std::filesystem::file_size(path));
  const auto peak = static_cast<double>(usage.ru_maxrss) * 1024;
  std::printf("%.0f MB: %.2f s (%.2f s of a processor), %.0f MB/s, peak RSS %.0f MB, %.2f times the file; %llu rows, %llu operations, %llu frames\n",
              size / 1e6, took.count(), busy, size / 1e6 / took.count(), peak / 1e6, peak / size,
              static_cast<unsigned long long>(counts->rows), static_cast<unsigned long long>(sink.operations),
              static_cast<unsigned long long>(sink.frames));
  for (const auto& note : counts->notes) std::printf("note: %s\n", note.c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto done = argc > 2 ? make(argv[1], argc, argv) : import(argv[1]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", describe(done.error()).c_str());
  return 1;
}
