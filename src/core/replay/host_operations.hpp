#pragma once

#include <map>

#include "replay/host_buffers.hpp"
#include "replay/replay_core.hpp"

namespace emm::replay {

/// The operations on page-locked host memory, and the frees of memory that a reset has ended.
class HostOperations {
 public:
  explicit HostOperations(ReplayCore& core) noexcept : core_(core), buffers_(core.state.trace) {}

  void memhostalloc(const trace::Event& event);
  void mempin(const trace::Event& event);
  /// Frees host memory. False if `event` names none.
  bool free(const trace::Event& event);
  /// Frees device memory that a reset has ended. The finalizer runs and must do nothing.
  void free_ended(const trace::Event& event, std::uint32_t slot);

 private:
  using Hosts = std::map<std::uint32_t, HostAllocation>;

  /// Adds the memory that `event` has made. `shared` means that other pins may have the same bytes.
  void add(const trace::Event& event, ContextState& context, Result<HostMemory> memory, bool shared,
           Times times);
  void free(const trace::Event& event, Hosts::iterator host);

  ReplayCore& core_;
  HostBuffers buffers_;
};

}  // namespace emm::replay
