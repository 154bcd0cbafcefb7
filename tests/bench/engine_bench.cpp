// The engine with a manager that does nothing: what a replay itself costs, per event.
#include <benchmark/benchmark.h>

#include "../replay/fake_device.hpp"
#include "base/prng.hpp"
#include "replay/engine.hpp"

namespace emm::replay {
namespace {

constexpr std::size_t kEvents = 1'000'000;

/// Hands out the addresses of a table that is larger than what is live, one after the other.
class NullManager final : public MemoryManager {
 public:
  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle) override {
    next_ = (next_ + 1) % kPlaces;
    return MemoryPointer(
        {FakeDriver::kBase + kStride * ((next_ * 40503) % kPlaces)}, size,
        Lifetime(
            {.run = [](void*, std::uint64_t, StreamHandle) noexcept {}, .self = this, .cookie = 0},
            {}));
  }
  Result<HostMemory> memhostalloc(std::uint64_t, HostAllocFlags) override {
    return Error{.code = Errc::not_supported};
  }
  Result<HostMemory> mempin(HostRange, HostRegisterFlags, std::shared_ptr<const void>) override {
    return Error{.code = Errc::not_supported};
  }
  Result<IpcHandle> get_ipc_handle(MemoryView) override {
    return Error{.code = Errc::not_supported};
  }
  Result<MemoryInfo> get_memory_info() override { return Error{.code = Errc::not_supported}; }
  void reset() noexcept override {}
  DeferCleanup defer_cleanup() override { return {}; }

 private:
  static constexpr std::uint64_t kPlaces = 1 << 20;
  static constexpr std::uint64_t kStride = 1 << 16;
  std::uint64_t next_ = 0;
};

class NullStack final : public Stack {
 public:
  Result<std::unique_ptr<Context>> make_context(std::uint32_t, ManagerObserver* observer,
                                                order::Checker*) override {
    device_.driver = std::make_unique<FakeDriver>();
    const ManagerFactory factory{
        .name = "null",
        .make = [](const ManagerContext&) -> Result<std::unique_ptr<MemoryManager>> {
          return std::make_unique<NullManager>();
        }};
    return Context::create(device_, clock_, factory, observer);
  }
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<Peer>> start_peer(std::uint32_t) override {
    return Error{.code = Errc::not_supported};
  }
  std::string describe_manager() const override { return "null"; }
  std::string describe_device() const override { return "null"; }

 private:
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

BENCHMARK(bare)->Name("engine/bare")->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(latencies)->Name("engine/latencies")->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(checks)->Name("engine/checks")->Arg(1000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace emm::replay

BENCHMARK_MAIN();
