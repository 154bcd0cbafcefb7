#include "driver/sim/perform.hpp"

#include "driver/call.hpp"
#include "driver/sim/memory_access.hpp"
#include "driver/sim/sim_platform.hpp"

namespace emm::sim {

std::uint64_t perform(SimPlatform& platform, Asker asker, const Work& work) {
  auto& device = platform.device(asker.device);
  std::int32_t native = kSuccess;
  auto call = Call::memset_d8;
  switch (work.kind) {
    case Work::Kind::fill:
      native =
          MemoryAccess(platform, work.to).by(asker.device).fill(work.to, work.value, work.size);
      break;
    case Work::Kind::copy:
      native = MemoryAccess(platform, work.to, work.from).copy(work.to, work.from, work.size);
      call = Call::memcpy_dtod;
      break;
    case Work::Kind::free:
      device.end_free(work.to);
      return 0;
    default:
      return 0;
  }
  if (native != kSuccess) device.fault(asker.context);
  return platform.options().costs ? work_ns(call, work.size) : 0;
}

}  // namespace emm::sim
