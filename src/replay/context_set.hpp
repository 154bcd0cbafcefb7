#pragma once

#include <map>
#include <memory>
#include <vector>

#include "replay/context_state.hpp"
#include "replay/live_set.hpp"
#include "replay/replay_clock.hpp"
#include "replay/replay_state.hpp"

namespace emm::replay {

/// The contexts of a trace, by ContextId, and the devices that they are on.
class ContextSet {
 public:
  /// `order` may be null. Where `logged`, a context that is opened measures its device's capacity.
  /// What is handed in outlives this, but for `live`, which is used while threads replay.
  ContextSet(ReplayState& state, ReplayClock& clock, Stack& stack, order::Checker* order,
             const LiveSet& live, bool logged);

  ContextState& operator[](ContextId id) noexcept { return *contexts_[index(id)]; }
  const ContextState& operator[](ContextId id) const noexcept { return *contexts_[index(id)]; }
  /// The context, opened at its first use. Null where it could not be made, which ends the run.
  ContextState* use(ContextId id) {
    auto& context = *contexts_[index(id)];
    return context.open() || open(context) ? &context : nullptr;
  }
  const std::vector<std::unique_ptr<ContextState>>& all() const noexcept { return contexts_; }
  /// Calls `each` with every context that is open.
  template <class Each>
  void for_each_open(Each each) const {
    for (const auto& context : contexts_) {
      if (context->open()) each(*context);
    }
  }
  std::size_t size() const noexcept { return contexts_.size(); }
  /// Is another context on the device of `context` open?
  bool shares_device(const ContextState& context) const noexcept;
  /// Opens every context and makes every stream of the trace that no stream_create makes, before
  /// threads use them at once.
  void open_all();

  std::map<std::uint32_t, DeviceState>& devices() noexcept { return devices_; }
  ManagerReports& reports() noexcept { return reports_; }

 private:
  bool open(ContextState& context);

  ReplayState& state_;
  ReplayClock& clock_;
  Stack& stack_;
  const LiveSet& live_;
  const bool logged_;
  ManagerReports reports_;  ///< Outlives the contexts, whose managers report while they end.
  std::vector<std::unique_ptr<ContextState>> contexts_;
  std::map<std::uint32_t, DeviceState> devices_;  ///< By ordinal.
};

}  // namespace emm::replay
