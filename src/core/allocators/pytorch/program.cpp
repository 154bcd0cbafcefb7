#include "allocators/pytorch/program.hpp"

#include <algorithm>
#include <map>

namespace emm::allocators::pytorch {
namespace {

using Kind = Step::Kind;

/// Tells a listener of each call, and passes it on.
class ToldMemory final : public DeviceMemory {
 public:
  ToldMemory(DeviceMemory& device, const std::function<void(const DeviceCall&)>& told)
      : device_(device), told_(told) {}

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    const auto made = device_.allocate(size);
    told_({.kind = DeviceCall::Kind::allocate, .refused = !made, .size = size});
    return made;
  }
  void free(std::uint64_t address, std::uint64_t size) override {
    device_.free(address, size);
    told_({.kind = DeviceCall::Kind::free, .size = size});
  }
  std::optional<std::uint64_t> reserve(std::uint64_t size) override {
    const auto made = device_.reserve(size);
    told_({.kind = DeviceCall::Kind::reserve, .refused = !made, .size = size});
    return made;
  }
  void release(std::uint64_t address, std::uint64_t size) override {
    device_.release(address, size);
    told_({.kind = DeviceCall::Kind::release, .size = size});
  }
  bool map(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    const auto made = device_.map(address, size, granule);
    told_({.kind = DeviceCall::Kind::map, .refused = !made, .size = size, .granule = granule});
    return made;
  }
  void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    device_.unmap(address, size, granule);
    told_({.kind = DeviceCall::Kind::unmap, .size = size, .granule = granule});
  }

 private:
  DeviceMemory& device_;
  const std::function<void(const DeviceCall&)>& told_;
};

}  // namespace

Program program_of(const Recording& recording, const Settings& settings) {
  Program program;
  program.settings = settings;
  program.recorded = check_one_step(recording, settings);
  program.allocations = recording.allocations();
  program.before = state_before(recording, program.recorded);
  std::vector<bool> is_before(program.allocations, false);
  for (const auto& block : program.before.blocks) is_before[block.allocation] = true;
  const auto& pools = program.recorded.pools;
  const auto& steps = recording.steps();
  auto outside = program.recorded.outside.begin();
  const auto outside_end = program.recorded.outside.end();
  std::vector<Call> late;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    for (; outside != outside_end && outside->before <= i; ++outside) {
      Call call{.pool = outside->pool, .event = step.event};
      call.kind = outside->what == Release::empty_cache ? Call::Kind::empty_cache
                  : outside->at_once                    ? Call::Kind::drop
                                                        : Call::Kind::unused;
      if (outside->what == Release::unexplained) continue;
      program.calls.push_back(call);
    }
    Call call{.allocation = step.allocation,
              .size = step.size,
              .stream = step.stream,
              .event = step.event};
    switch (step.kind) {
      case Kind::segment_begin:
        if (!step.preexisting) program.segments.emplace_back(step.address, step.size);
        continue;
      case Kind::segment_end:
        continue;
      case Kind::alloc:
        call.kind = Call::Kind::alloc;
        call.is_before = is_before[step.allocation];
        call.pool = pools[step.allocation];
        call.may_follow_empty_cache = program.recorded.retried.count(i) != 0;
        break;
      case Kind::refused:
        call.kind = Call::Kind::refused;
        if (const auto found = program.recorded.refused_pools.find(i);
            found != program.recorded.refused_pools.end())
          call.pool = found->second;
        break;
      case Kind::free:
        call.kind = step.delayed ? Call::Kind::free_later : Call::Kind::free;
        break;
      case Kind::complete:
        call.kind = Call::Kind::complete;
        if (program.recorded.synchronised.count(i) != 0) {
          // In the model, too, a retry waits for this free, so its call follows the request.
          late.push_back(call);
          continue;
        }
        break;
    }
    program.calls.push_back(call);
    if (step.kind == Kind::alloc || step.kind == Kind::refused) {
      program.calls.insert(program.calls.end(), late.begin(), late.end());
      late.clear();
    }
  }
  return program;
}

trace::PoolSteps pool_steps_of(const Program& program, std::uint32_t device) {
  using StepKind = trace::PoolStep::Kind;
  trace::PoolSteps made{.device = device};
  std::map<PoolId, PrivatePool> numbers;
  for (const auto& call : program.calls) {
    if (!call.pool.is_default()) numbers[call.pool];
  }
  // PyTorch releases pools in the order of their ids.
  for (auto& [id, number] : numbers) number = PrivatePool{static_cast<std::uint32_t>(++made.pools)};
  numbers[PoolId{}] = {};
  made.steps.push_back({.before = 0, .kind = StepKind::use, .pool = {}});
  PrivatePool now{};
  std::uint64_t least = 0;  // A free that a retry waited for comes after that request.
  for (const auto& call : program.calls) {
    const auto pool = numbers[call.pool];
    const auto add = [&](StepKind kind) {
      made.steps.push_back({.before = std::max(call.event, least),
                            .kind = kind,
                            .pool = pool,
                            .free = call.allocation});
    };
    switch (call.kind) {
      case Call::Kind::alloc:
      case Call::Kind::refused:
        made.requests += pool != PrivatePool{} ? 1 : 0;
        if (pool != now) add(StepKind::use);
        now = pool;
        least = call.event + 1;
        break;
      case Call::Kind::empty_cache:
        add(StepKind::release_idle);
        break;
      case Call::Kind::unused:
        add(StepKind::unused);
        break;
      case Call::Kind::drop:
        add(StepKind::drop);
        break;
      case Call::Kind::free:
        break;
      case Call::Kind::free_later:
        ++made.delays;
        add(StepKind::delay);
        break;
      case Call::Kind::complete:
        add(StepKind::complete);
        break;
    }
  }
  if (made.steps.size() == 1) made.steps.clear();
  return made;
}

Outcome run(const Program& program, const RunOptions& options) {
  MadeUpMemory source(options.addresses, options.capacity, &program.segments);
  ToldMemory told(source, options.told);
  DeviceMemory& device = source;
  Allocator allocator(options.settings, options.told ? told : device);
  Outcome outcome;
  std::vector<Block*> blocks(program.allocations, nullptr);
  std::vector<std::uint64_t> sizes(program.allocations, 0);
  allocator.on_completed([&](Block& block) { blocks[block.owner] = nullptr; });
  std::uint64_t live = 0;
  // From here on the allocator is in another state than the recorded one was, so that later figures
  // are no longer comparable.
  const auto differs = [&] {
    if (outcome.differs) return;
    outcome.differs = true;
    outcome.peak_until_differs = allocator.counts().peak_reserved;
  };
  const auto failed = [&](const Call& call) {
    ++outcome.refused;
    if (call.kind == Call::Kind::alloc) differs();
    if (outcome.fails_at) return;
    outcome.fails_at = call.event;
    outcome.failed_size = call.size;
  };
  const auto ended = [&] {
    outcome.counts = allocator.counts();
    if (!outcome.differs) outcome.peak_until_differs = outcome.counts.peak_reserved;
    outcome.reserved = allocator.heap().reserved();
    outcome.alike = source.alike();
    return outcome;
  };
  if (!program.before.segments.empty()) {
    allocator.begin_with(program.before, [&](const State::Used& used, Block& block) {
      block.owner = used.allocation;
      blocks[used.allocation] = &block;
      sizes[used.allocation] = used.requested;
      live += used.requested;
    });
    outcome.peak_live = live;
    if (!source.begin_with(allocator.heap())) {
      outcome.fails_at = program.before.event;
      outcome.failed_size = allocator.heap().reserved();
      if (options.stop_at_failure) return ended();
    }
  }
  for (const auto& call : program.calls) {
    switch (call.kind) {
      case Call::Kind::alloc: {
        if (call.is_before) break;
        if (call.may_follow_empty_cache && options.open_retries_are_empty_cache)
          allocator.empty_cache();
        auto* const block = allocator.allocate(call.size, call.stream, call.pool);
        if (block == nullptr) {
          failed(call);
          if (options.stop_at_failure) {
            return ended();
          }
          break;
        }
        block->owner = call.allocation;
        blocks[call.allocation] = block;
        sizes[call.allocation] = call.size;
        live += call.size;
        outcome.peak_live = std::max(outcome.peak_live, live);
        break;
      }
      // The program did without this memory. Where it is served now, it is freed at once: what the
      // program would have done with it is not known.
      case Call::Kind::refused: {
        auto* const block = allocator.allocate(call.size, call.stream, call.pool);
        if (block == nullptr) {
          if (!options.refused_are_needed) {
            ++outcome.refused;
            break;
          }
          failed(call);
          if (options.stop_at_failure) {
            return ended();
          }
          break;
        }
        ++outcome.served_more;
        differs();
        if (options.refused_are_needed)
          outcome.peak_live = std::max(outcome.peak_live, live + call.size);
        allocator.free(block);
        break;
      }
      case Call::Kind::free:
      case Call::Kind::free_later:
        live -= sizes[call.allocation];
        if (blocks[call.allocation] == nullptr) break;
        if (call.kind == Call::Kind::free_later) {
          allocator.free_later(blocks[call.allocation]);
        } else {
          allocator.free(std::exchange(blocks[call.allocation], nullptr));
        }
        sizes[call.allocation] = 0;
        break;
      case Call::Kind::complete:
        if (blocks[call.allocation] == nullptr) break;
        allocator.complete(std::exchange(blocks[call.allocation], nullptr));
        break;
      case Call::Kind::empty_cache:
        allocator.empty_cache();
        break;
      case Call::Kind::unused:
        allocator.set_unused(call.pool);
        break;
      case Call::Kind::drop:
        allocator.drop(call.pool);
        break;
    }
  }
  return ended();
}

FreeRun free_run(const Program& program, std::optional<LimitRange> limit) {
  FreeRun found;
  auto first = true;
  const auto take = [&](Range& range, std::uint64_t value) {
    range.low = first ? value : std::min(range.low, value);
    range.high = std::max(range.high, value);
  };
  std::vector<Settings> settings{program.settings};
  if (limit) {
    settings.push_back(program.settings);
    settings.front().known_limit = limit->least;
    settings.back().known_limit = limit->below - 1;
  }
  for (const auto addresses : {Addresses::recorded, Addresses::driver, Addresses::first_fit,
                               Addresses::ascending, Addresses::descending}) {
    for (const auto open : {false, true}) {
      if (open && program.recorded.retried.empty()) continue;
      for (const auto& of : settings) {
        const auto counts =
            run(program,
                {.settings = of, .addresses = addresses, .open_retries_are_empty_cache = open})
                .counts;
        take(found.peak_reserved, counts.peak_reserved);
        take(found.retries, counts.retries);
        take(found.ooms, counts.ooms);
        take(found.device_allocs, counts.device_allocs);
        take(found.device_frees, counts.device_frees);
        first = false;
      }
    }
  }
  // If the limit is unknown, an apparent empty_cache() may have been a retry.
  if (program.settings.limit() == kNoLimit) {
    found.retries.high += static_cast<std::uint64_t>(
        std::count_if(program.calls.begin(), program.calls.end(),
                      [](const Call& call) { return call.kind == Call::Kind::empty_cache; }));
  }
  return found;
}

}  // namespace emm::allocators::pytorch
