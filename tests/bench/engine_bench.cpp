// The engine with a manager that does nothing: what a replay itself costs, per event.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>

#include "../replay/fake_device.hpp"
#include "base/prng.hpp"
#include "base/text_format.hpp"
#include "emm/context.hpp"
#include "format/byte_sink.hpp"
#include "replay/engine.hpp"
#include "replay/null_manager.hpp"
#include "trace/generate.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"
#include "trace/streamed_trace.hpp"
#include "trace/writer.hpp"

namespace emm::replay {
namespace {

constexpr std::size_t kEvents = 1'000'000;

class NullStack final : public Stack {
 public:
  Result<std::unique_ptr<Context>> make_context(std::uint32_t, ManagerObserver* observer,
                                                stream_order::Checker*) override {
    device_.driver = std::make_unique<FakeDriver>();
    return Context::create(device_, clock_, factory_, observer);
  }
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<Peer>> start_peer(std::uint32_t) override {
    return Error{.code = Errc::not_supported};
  }
  std::string describe_manager() const override { return "null"; }
  std::string describe_device() const override { return "null"; }

 private:
  const ManagerFactory factory_ = null_manager();
  OpenedDevice device_;
  SteadyClock clock_;
};

/// Half allocations, half frees, in which `live` allocations are live and one of them, at random,
/// goes for each that comes.
trace::Trace steady(std::size_t live) {
  trace::Trace trace;
  Prng random(7);
  std::vector<std::uint64_t> alive;
  bool good = static_cast<bool>(trace.on_header({}));
  const auto add = [&](trace::Op op, std::uint64_t id, std::uint64_t size) {
    trace::Operation operation;
    operation.op = op;
    operation.members = op == trace::Op::free
                            ? trace::Members(trace::Member::id)
                            : trace::Members(trace::Member::id, trace::Member::size);
    operation.id = trace::Id::of(id);
    operation.size = size;
    good = good && trace.on_operation(operation);
  };
  for (std::uint64_t id = 0; id < kEvents / 2; ++id) {
    if (alive.size() == live) {
      const auto victim = static_cast<std::size_t>(random.below(live));
      add(trace::Op::free, alive[victim], 0);
      alive[victim] = id;
    } else {
      alive.push_back(id);
    }
    add(trace::Op::memalloc, id, random.between(1, 60'000));
  }
  for (const auto id : alive) add(trace::Op::free, id, 0);
  good = good && trace.finish();
  EMM_ASSERT(good);
  return trace;
}

/// A compact file of so many events, with 1,000 live, gone with the program.
const std::string& compact_file(std::uint64_t events) {
  struct File {
    explicit File(std::uint64_t of)
        : path((std::filesystem::temp_directory_path() /
                text::format("emm_bench_{}_{}.emmb", ::getpid(), of))
                   .string()) {
      auto sink = format::ByteSink::open(path);
      EMM_ASSERT(sink &&
                 trace::generate({.kind = "log-uniform", .events = of},
                                 *trace::make_compact_writer(**sink)) &&
                 (*sink)->close());
    }
    ~File() { std::filesystem::remove(path); }
    std::string path;
  };
  static const File file(events);
  return file.path;
}

/// From the file, in two readings: the first is timed too where it says so. The processor time is
/// that of all threads.
void stream(benchmark::State& state, ReplayOptions options, bool first_reading) {
  constexpr std::uint64_t kLong = 10'000'000;
  const auto& path = compact_file(kLong);
  for (auto _ : state) {
    if (!first_reading) state.PauseTiming();
    auto streamed = trace::StreamedTrace::open(
        path,
        [](format::ByteSource& source, trace::OperationSink& sink) {
          auto read = trace::read(source, sink);
          return read ? Status() : Status(read.error());
        },
        nullptr);
    if (!first_reading) state.ResumeTiming();
    options.need = [&](std::size_t begin, std::size_t end) {
      return (*streamed)->need(begin, end);
    };
    NullStack stack;
    auto summary = Engine((*streamed)->trace(), stack, options).run();
    if (!summary || summary->violation_count != 0)
      state.SkipWithError("the null manager was accused");
  }
  state.counters["ns/event"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kLong) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void streamed_bare(benchmark::State& state) { stream(state, {.checks = false}, false); }
void streamed_checks(benchmark::State& state) { stream(state, {}, false); }
void streamed_twice(benchmark::State& state) { stream(state, {}, true); }
BENCHMARK(streamed_bare)
    ->Name("engine/streamed_bare")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK(streamed_checks)
    ->Name("engine/streamed_checks")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK(streamed_twice)
    ->Name("engine/streamed_checks_and_first_reading")
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void replay(benchmark::State& state, const ReplayOptions& options) {
  const auto trace = steady(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    NullStack stack;
    auto summary = Engine(trace, stack, options).run();
    if (!summary || summary->violation_count != 0)
      state.SkipWithError("the null manager was accused");
    benchmark::DoNotOptimize(summary);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * trace.size()));
  state.counters["ns/event"] =
      benchmark::Counter(static_cast<double>(state.iterations() * trace.size()) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void bare(benchmark::State& state) { replay(state, {.checks = false}); }
void latencies(benchmark::State& state) { replay(state, {.checks = false, .latency = true}); }
void checks(benchmark::State& state) { replay(state, {}); }

/// Every thread the same: half allocations, half frees of its own, a hundred live.
trace::Trace threaded(std::uint64_t threads) {
  trace::Trace trace;
  Prng random(7);
  bool good = static_cast<bool>(trace.on_header({}));
  const auto add = [&](trace::Op op, std::uint64_t thread, std::uint64_t id, std::uint64_t size) {
    trace::Operation operation;
    operation.op = op;
    operation.members = trace::Members(trace::Member::id, trace::Member::thread);
    if (op == trace::Op::memalloc) operation.members.add(trace::Member::size);
    operation.id = trace::Id::of(id);
    operation.thread = trace::Id::of(thread);
    operation.size = size;
    good = good && trace.on_operation(operation);
  };
  constexpr std::uint64_t kLive = 100;
  const auto rounds = kEvents / 2 / threads;
  for (std::uint64_t round = 0; round < rounds + kLive; ++round) {
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      if (round < rounds)
        add(trace::Op::memalloc, thread, round * threads + thread, random.between(1, 60'000));
      if (round >= kLive) add(trace::Op::free, thread, (round - kLive) * threads + thread, 0);
    }
  }
  good = good && trace.finish();
  EMM_ASSERT(good);
  return trace;
}

/// Events of all threads together; the time is the replay's own, without the start of its threads.
void threads(benchmark::State& state) {
  const auto trace = threaded(static_cast<std::uint64_t>(state.range(0)));
  double ns = 0;
  for (auto _ : state) {
    NullStack stack;
    auto summary = Engine(trace, stack, {.threads = ReplayOptions::Threads::recorded}).run();
    if (!summary || summary->violation_count != 0) {
      state.SkipWithError("the null manager was accused");
      return;
    }
    ns += summary->pass.ns_per_event;
    state.SetIterationTime(static_cast<double>(summary->pass.elapsed_ns) * 1e-9);
  }
  state.counters["ns/event"] = benchmark::Counter(ns, benchmark::Counter::kAvgIterations);
}

BENCHMARK(threads)
    ->Name("engine/threads")
    ->Arg(1)
    ->Arg(2)
    ->Arg(16)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(bare)->Name("engine/bare")->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(latencies)->Name("engine/latencies")->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(checks)->Name("engine/checks")->Arg(1000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace emm::replay

BENCHMARK_MAIN();
