#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emm/memory_pointer.hpp"
#include "log/summary.hpp"
#include "replay/live_set.hpp"
#include "replay/peer.hpp"
#include "replay/replay_state.hpp"

namespace emm::replay {

/// Page-locked memory that is held, or pinned pageable memory.
struct HostAllocation {
  HostMemory memory;
  std::uint64_t size = 0;
  std::uint64_t log_address = 0;  ///< The address that logs show.
  trace::Op made_by = trace::Op::memhostalloc;
  ContextId context{};
  bool ended = false;   ///< A reset has ended it.
  bool filled = false;  ///< It has its pattern, and no other pin has the same bytes.
};

HostRange range_of(const HostMemory& memory);

/// An IPC handle that was opened.
struct Import {
  Peer* peer = nullptr;  ///< Null if opened in this process.
  std::uint32_t opening = 0;
  std::uint32_t handle = 0;
  std::uint64_t size = 0;
  std::uint64_t address = 0;
};

/// A request for memory that failed.
struct RefusedRequest {
  std::uint64_t bytes = 0;  ///< Bytes of device memory.
  trace::Outcome outcome = trace::Outcome::none;
};

/// The memory that a replay holds, of every kind. By AllocId.
struct Holdings {
  Holdings(const trace::Trace& trace, const ReplayOptions& options)
      : live(trace.alloc_count(),
             options.threads == ReplayOptions::Threads::trace ? 1 : trace.threads().size() + 1) {}

  LiveSet live;
  std::map<std::uint32_t, HostAllocation> hosts;
  std::map<std::uint32_t, Import> imports;
  std::map<std::uint32_t, RefusedRequest> refused;
  std::vector<std::uint64_t> reset_at;  ///< The event behind the last reset, by context.

  /// How the request for `id` failed; none if it did not.
  trace::Outcome refused_outcome(AllocId id) const {
    const auto found = refused.find(static_cast<std::uint32_t>(id));
    return found == refused.end() ? trace::Outcome::none : found->second.outcome;
  }
  /// The ten biggest allocations, and where they were made.
  std::vector<log::Holder> biggest(const ReplayState& state) const;
};

/// "a1 (4096 bytes at 0x7f00)"
std::string describe(const trace::Trace& trace, const Live& live);

}  // namespace emm::replay
