#include "driver/call.hpp"
#include "driver/sim/sim_driver.hpp"

// Virtual memory. No call waits for running work (measured). Programs cannot change the mappings of
// a pool.
namespace emm {

using sim::Answer;
using sim::Nothing;

/// Makes a call of the platform's virtual memory, if the context's state allows.
template <class Value, class Ask>
Result<Value> SimDriver::ask_memory(Call call, Ask&& question) {
  using Given = std::conditional_t<std::is_void_v<Value>, Nothing, Value>;
  Answer<Given> answer{.native = state()};
  if (answer.native == sim::kSuccess) answer = question(platform_.virtual_memory());
  return platform_.conclude(call, answer);
}

Result<std::uint64_t> SimDriver::mem_get_allocation_granularity() {
  return platform_.conclude(Call::mem_get_allocation_granularity,
                            Answer<std::uint64_t>{state(), sim::kPageBytes});
}

Result<DevicePtr> SimDriver::mem_address_reserve(std::uint64_t size, std::uint64_t alignment,
                                                 DevicePtr at) {
  return ask_memory<DevicePtr>(Call::mem_address_reserve, [&](auto& memory) {
    return memory.reserve(asker(), size, alignment, at);
  });
}

Status SimDriver::mem_address_free(DevicePtr ptr, std::uint64_t size) {
  return ask_memory<void>(Call::mem_address_free,
                          [&](auto& memory) { return memory.free(ptr, size); });
}

Result<PhysicalHandle> SimDriver::mem_create(std::uint64_t size) {
  return ask_memory<PhysicalHandle>(Call::mem_create,
                                    [&](auto& memory) { return memory.create(asker(), size); });
}

Status SimDriver::mem_release(PhysicalHandle handle) {
  return ask_memory<void>(Call::mem_release, [&](auto& memory) { return memory.release(handle); });
}

Status SimDriver::mem_map(DevicePtr ptr, std::uint64_t size, std::uint64_t offset,
                          PhysicalHandle handle) {
  return ask_memory<void>(Call::mem_map,
                          [&](auto& memory) { return memory.map(ptr, size, offset, handle); });
}

Status SimDriver::mem_unmap(DevicePtr ptr, std::uint64_t size) {
  return ask_memory<void>(Call::mem_unmap, [&](auto& memory) {
    if (platform_.pools().owns(ptr)) return Answer<Nothing>{.native = sim::kInvalidValue};
    return memory.unmap(ptr, size);
  });
}

Status SimDriver::mem_set_access(DevicePtr ptr, std::uint64_t size, AccessFlags access) {
  return ask_memory<void>(Call::mem_set_access, [&](auto& memory) {
    if (platform_.pools().owns(ptr)) return Answer<Nothing>{.native = sim::kInvalidValue};
    return memory.set_access(ordinal(), ptr, size, access);
  });
}

}  // namespace emm
