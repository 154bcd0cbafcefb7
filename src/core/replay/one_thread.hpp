#pragma once

#include <cstdint>
#include <optional>

#include "replay/execute.hpp"

namespace emm::replay {

/// What a pass does beside the operations. Each combination is compiled into a separate loop.
namespace feature {
inline constexpr unsigned checks = 1;
inline constexpr unsigned times = 2;    ///< A time for each operation.
inline constexpr unsigned watched = 4;  ///< A log, content, stream order or pace.
}  // namespace feature

/// The Access of execute() if one thread replays the whole trace or all other threads are stopped.
/// `F` is a sum of features.
template <unsigned F>
class OneThread {
 public:
  static constexpr bool kShowsAtOnce = true;

  OneThread(ReplayCore& core, Operations& operations) noexcept
      : core_(core), operations_(operations) {}

  ReplayCore& core() noexcept { return core_; }
  Operations& operations() noexcept { return operations_; }
  static constexpr bool checks() noexcept { return (F & feature::checks) != 0; }
  static constexpr bool latency() noexcept { return (F & feature::times) != 0; }
  static constexpr bool watched() noexcept { return (F & feature::watched) != 0; }
  static constexpr bool timed() noexcept { return latency() || watched(); }

  static constexpr bool await(const trace::Event&) noexcept { return true; }
  static void executed(const trace::Event&) noexcept {}
  static void request_failed(AllocId) noexcept {}
  static void allocation_done() noexcept {}
  template <class Rare>
  void rarely(Rare rare) {
    rare();
  }

  ContextState* context(ContextId id) { return core_.contexts.use(id); }
  StreamHandle stream(ContextState& context, const trace::Event& event) {
    return context.stream(index(event.stream), event.thread);
  }
  std::uint64_t now() const noexcept { return core_.now(); }
  LiveSet::Cache& cache() noexcept { return core_.held.live.cache(); }

  void add_alloc_time(std::uint64_t ns) noexcept { core_.accounts.alloc_times.add(ns); }
  void add_free_time(std::uint64_t ns) noexcept { core_.accounts.free_times.add(ns); }
  void allocated(std::uint64_t size) noexcept { core_.accounts.add_device_memory(size); }
  void freed(std::uint64_t size, bool succeeded) noexcept {
    core_.accounts.remove_device_memory(size);
    if (succeeded) [[likely]]
      ++core_.accounts.pass.frees;
  }
  void succeeded_as_recorded() noexcept {
    if (core_.state.pass == 0) ++core_.judge.summary.outcomes.succeeded_as_recorded;
  }
  void measure(ContextState& context) {
    core_.accounts.measure_reserved(context);
    if (core_.judge.has_reports()) [[unlikely]]
      core_.judge.judge_reports(core_.accounts.pass);
  }

  std::optional<std::uint32_t> insert_address(ContextState& context, const Live& live) {
    return context.device_state->insert(live.memory.device_pointer().value, live.size,
                                        static_cast<std::uint32_t>(live.id));
  }
  void erase_address(ContextState& context, const Live& live) {
    context.device_state->erase(live.memory.device_pointer().value, live.size,
                                static_cast<std::uint32_t>(live.id));
  }
  static constexpr std::uint64_t record_place() noexcept { return 0; }
  void record(std::uint64_t, const trace::Event& event, trace::Outcome outcome, Times times,
              std::uint64_t address, std::uint64_t size, trace::Op freed_kind) {
    core_.log.add(event, outcome, times, address, size, freed_kind);
  }

 private:
  ReplayCore& core_;
  Operations& operations_;
};

/// Executes the events [begin, end) on this thread. Returns the index behind the last executed
/// event.
std::size_t execute_range(ReplayCore& core, Operations& operations, std::size_t begin,
                          std::size_t end);

}  // namespace emm::replay
