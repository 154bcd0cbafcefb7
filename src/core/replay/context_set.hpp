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
  /// `order` may be null. With `logged`, a context measures its device's capacity when it opens.
  /// All arguments must outlive this, except `live`, which must live while threads replay.
  ContextSet(ReplayState& state, ReplayClock& clock, Stack& stack, stream_order::Checker* order,
             const LiveSet& live, bool logged);

  ContextState& operator[](ContextId id) noexcept { return *contexts_[index(id)]; }
  const ContextState& operator[](ContextId id) const noexcept { return *contexts_[index(id)]; }
  /// Returns the context, and opens it at its first use. Null if it cannot be made; that ends the
  /// run.
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
  /// Answers whether another context on the device of `context` is open.
  bool shares_device(const ContextState& context) const noexcept;
  /// Opens every context, and makes every stream that no stream_create of the trace makes. Called
  /// before threads use them.
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
