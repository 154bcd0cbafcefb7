#include "trial/device_time.hpp"

#include "driver/call.hpp"
#include "driver/sim/latency.hpp"

namespace emm::trial {

std::uint64_t device_ns(const allocators::pytorch::DeviceCall& call) noexcept {
  using Kind = allocators::pytorch::DeviceCall::Kind;
  constexpr std::int32_t kSuccess = 0, kOutOfMemory = 2;  // CUresults
  const auto result = call.refused ? kOutOfMemory : kSuccess;
  const auto pieces = call.granule == 0 ? 0 : call.size / call.granule;
  const auto each = [&](Call of) { return sim::latency_ns(of, call.granule, kSuccess); };
  switch (call.kind) {
    case Kind::allocate:
      return sim::latency_ns(Call::mem_alloc, call.size, result);
    case Kind::free:
      return sim::latency_ns(Call::mem_free, call.size, kSuccess);
    case Kind::reserve:
      return sim::latency_ns(Call::mem_address_reserve, call.size, result);
    case Kind::release:
      return sim::latency_ns(Call::mem_address_free, call.size, kSuccess);
    case Kind::map:
      // A device without room refuses the first piece that it cannot give. The pieces before it are
      // not counted.
      if (call.refused) return sim::latency_ns(Call::mem_create, call.granule, result);
      return pieces * (each(Call::mem_create) + each(Call::mem_map)) +
             sim::latency_ns(Call::mem_set_access, call.size, kSuccess);
    case Kind::unmap:
      break;
  }
  return sim::latency_ns(Call::ctx_synchronize, 0, kSuccess) +
         pieces * (each(Call::mem_unmap) + each(Call::mem_release));
}

}  // namespace emm::trial
