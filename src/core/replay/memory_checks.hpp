#pragma once

#include <cstdint>

#include "replay/content.hpp"
#include "replay/context_set.hpp"
#include "replay/holdings.hpp"
#include "replay/judge.hpp"
#include "replay/replay_clock.hpp"
#include "replay/replay_state.hpp"

namespace emm::replay {

/// Checks the memory that a manager gives: its address, its size, and with `verify` its content
/// when it ends. Each mistake becomes a violation. One thread at a time.
class MemoryChecks {
 public:
  MemoryChecks(ReplayState& state, ReplayClock& clock, ContextSet& contexts, Holdings& held,
               Judge& judge) noexcept
      : state_(state), clock_(clock), contexts_(contexts), held_(held), judge_(judge) {}

  static bool has_address(const Live& live) noexcept {
    return live.size > 0 && live.memory.device_pointer().value != 0;
  }
  /// Answers whether check() may find something. Takes no lock.
  static bool is_suspect(const trace::Event& event, const Live& live) noexcept {
    const auto address = live.memory.device_pointer().value;
    return (address % kAlignment) != 0 || address == 0 || live.memory.size() != event.size ||
           event.detail != 0;
  }
  /// Checks the memory that `event` has made in this entry.
  void check(const trace::Event& event, std::uint32_t slot);
  void check(const trace::Event& event, const HostAllocation& host);
  void report_overlap(const Live& live, AllocId other);
  /// Erases the range of memory that has ended from its device's address map.
  void erase_address(Live& live);

  /// Fills the memory with its pattern, if options.verify is set. Waits for `stream`, the memory's
  /// own, since earlier work there may still write to the memory for an earlier owner.
  void fill(const Live& live, StreamHandle stream);
  /// Compares the memory with its pattern, if options.verify is set.
  void check_content(const Live& live);
  void check_content(AllocId id, const HostAllocation& host);

 private:
  static constexpr std::uint64_t kAlignment = 256;  ///< Unless the trace asks for another.

  bool has_content(const Live& live) const noexcept;
  void report_content(AllocId id, std::uint64_t size, std::uint64_t address,
                      const Difference& difference);

  ReplayState& state_;
  ReplayClock& clock_;
  ContextSet& contexts_;
  Holdings& held_;
  Judge& judge_;
};

}  // namespace emm::replay
