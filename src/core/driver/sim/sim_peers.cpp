#include "driver/call.hpp"
#include "driver/sim/memory_access.hpp"
#include "driver/sim/sim_driver.hpp"

// Access between devices.
namespace emm {

using sim::Answer;
using sim::Nothing;

/// Enables or disables access of this device to another's memory. Documented: 201 if no device has
/// the context, 217 if the devices cannot be peers. Measured: a device is not its own peer.
std::int32_t SimDriver::set_peer_access(ContextHandle peer, bool enable) {
  if (const auto native = state(); native != sim::kSuccess) return native;
  const auto* other = platform_.device_of(peer);
  if (other == nullptr) return sim::kInvalidContext;
  if (other == &device_ || !platform_.options().peers)
    return enable ? sim::kPeerAccessUnsupported : sim::kPeerAccessNotEnabled;
  if (device_.set_reach(other->ordinal(), enable)) return sim::kSuccess;
  return enable ? sim::kPeerAccessAlreadyEnabled : sim::kPeerAccessNotEnabled;
}

Status SimDriver::ctx_enable_peer_access(ContextHandle peer) {
  return platform_.conclude(Call::ctx_enable_peer_access, {.native = set_peer_access(peer, true)});
}

Status SimDriver::ctx_disable_peer_access(ContextHandle peer) {
  return platform_.conclude(Call::ctx_disable_peer_access,
                            {.native = set_peer_access(peer, false)});
}

// Documented: the copy is serialized with all work of the three contexts.
Status SimDriver::memcpy_peer(DevicePtr to, ContextHandle to_context, DevicePtr from,
                              ContextHandle from_context, std::uint64_t size) {
  Answer<Nothing> answer{.native = state(), .value = {}, .size = size};
  for (const auto context : {context_, to_context, from_context}) {
    if (answer.native != sim::kSuccess) break;
    const auto* device = platform_.device_of(context);
    if (device == nullptr) {
      answer.native = sim::kInvalidContext;
    } else {
      platform_.scheduler().finish(device->ordinal());
      answer.native = device->state(context);
    }
  }
  if (answer.native == sim::kSuccess && size != 0)
    answer.native = sim::MemoryAccess(platform_, to, from).copy(to, from, size);
  return platform_.conclude(Call::memcpy_peer, answer);
}

}  // namespace emm
