#pragma once

#include "driver/call.hpp"
#include "driver/driver.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm {

/// The driver API over one context of a simulated device. sim::SimDevice and the tables of the
/// platform execute the calls. This class finds the owner of an address, adds the cost of the call
/// to the clock, and turns the answer into a Result. Any thread may call.
///
/// After primary_ctx_reset every call returns 709 (measured), except ctx_pop_current, which only
/// pops the thread's stack.
class SimDriver final : public Driver {
 public:
  SimDriver(SimPlatform& platform, sim::SimDevice& device, ContextHandle context) noexcept
      : platform_(platform), device_(device), context_(context) {}

#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  DeviceIdentity device_identity() const noexcept override { return platform_.identity(ordinal()); }
  std::string_view device_name() const noexcept override { return platform_.device_name(); }
  int device_ordinal() const noexcept override { return ordinal(); }
  bool can_map_host_memory() const noexcept override { return true; }
  ContextHandle context_handle() const noexcept override { return context_; }
  std::uint64_t held_bytes() const noexcept override { return device_.held_bytes(context_); }
  std::uint64_t largest_free_bytes() const noexcept override {
    return device_.largest_free_bytes(context_);
  }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  int ordinal() const noexcept { return device_.ordinal(); }
  sim::Asker asker() const noexcept { return {ordinal(), context_}; }
  /// Returns 0, or the code for every call in the context.
  std::int32_t state() const { return device_.state(context_); }
  /// Wait for the work before a call on the legacy stream, or for all work; then return state().
  std::int32_t finish_before();
  std::int32_t finish_all();
  /// Called after the host has waited for work: pools release idle memory. Returns state().
  std::int32_t synchronized();
  /// Puts work on a stream if its addresses belong to memory.
  Status put(Call call, StreamHandle stream, const sim::Work& work);
  template <class Ask>
  Status ask(Call call, Ask&& question);
  std::int32_t set_peer_access(ContextHandle peer, bool enable);
  template <class Value, class Ask>
  Result<Value> ask_pools(Call call, Ask&& question);
  template <class Value, class Ask>
  Result<Value> ask_memory(Call call, Ask&& question);
  Status set(Call call, DevicePtr ptr, std::uint32_t value, std::uint64_t size);

  SimPlatform& platform_;
  sim::SimDevice& device_;
  const ContextHandle context_;
};

}  // namespace emm
