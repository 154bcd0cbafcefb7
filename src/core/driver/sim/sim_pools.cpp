#include "driver/call.hpp"
#include "driver/sim/sim_driver.hpp"

// Stream-ordered memory.
namespace emm {

using sim::Answer;
using sim::Nothing;

/// Makes a call of the platform's pools, if the context's state allows.
template <class Value, class Ask>
Result<Value> SimDriver::ask_pools(Call call, Ask&& question) {
  using Given = std::conditional_t<std::is_void_v<Value>, Nothing, Value>;
  Answer<Given> answer{.native = state()};
  if (answer.native == sim::kSuccess) {
    if constexpr (std::is_void_v<Value>) {
      answer.native = question(platform_.pools());
    } else {
      answer = question(platform_.pools());
    }
  }
  return platform_.conclude(call, answer);
}

Result<PoolHandle> SimDriver::mem_pool_create(std::uint64_t max_size) {
  return ask_pools<PoolHandle>(Call::mem_pool_create, [&](auto& pools) {
    return Answer<PoolHandle>{sim::kSuccess, pools.create(asker(), max_size)};
  });
}

Status SimDriver::mem_pool_destroy(PoolHandle pool) {
  return ask_pools<void>(Call::mem_pool_destroy, [&](auto& pools) { return pools.destroy(pool); });
}

Result<PoolHandle> SimDriver::device_get_default_mem_pool() {
  return ask_pools<PoolHandle>(Call::device_get_default_mem_pool, [&](auto& pools) {
    return Answer<PoolHandle>{sim::kSuccess, pools.default_pool(asker())};
  });
}

Status SimDriver::mem_pool_trim_to(PoolHandle pool, std::uint64_t keep) {
  return ask_pools<void>(Call::mem_pool_trim_to,
                         [&](auto& pools) { return pools.trim(pool, keep); });
}

Status SimDriver::mem_pool_set_attribute(PoolHandle pool, PoolAttribute attribute,
                                         std::uint64_t value) {
  return ask_pools<void>(Call::mem_pool_set_attribute,
                         [&](auto& pools) { return pools.set(pool, attribute, value); });
}

Result<std::uint64_t> SimDriver::mem_pool_get_attribute(PoolHandle pool, PoolAttribute attribute) {
  return ask_pools<std::uint64_t>(Call::mem_pool_get_attribute,
                                  [&](auto& pools) { return pools.get(pool, attribute); });
}

Result<DevicePtr> SimDriver::mem_alloc_async(std::uint64_t size, StreamHandle stream) {
  return ask_pools<DevicePtr>(Call::mem_alloc_async, [&](auto& pools) {
    return pools.allocate(asker(), size, pools.default_pool(asker()), stream);
  });
}

Result<DevicePtr> SimDriver::mem_alloc_from_pool_async(std::uint64_t size, PoolHandle pool,
                                                       StreamHandle stream) {
  return ask_pools<DevicePtr>(Call::mem_alloc_from_pool_async, [&](auto& pools) {
    return pools.allocate(asker(), size, pool, stream);
  });
}

// Measured: it also takes memory from cuMemAlloc, and frees it when the stream reaches the free.
Status SimDriver::mem_free_async(DevicePtr ptr, StreamHandle stream) {
  return ask_pools<void>(Call::mem_free_async, [&](auto& pools) -> std::int32_t {
    auto& scheduler = platform_.scheduler();
    if (const auto native = scheduler.check(asker(), stream); native != sim::kSuccess || !ptr)
      return native;
    auto* owner = platform_.device_at(ptr.value);
    if (owner == nullptr) return pools.free(asker(), ptr, stream);
    const auto begun = owner->begin_free(owner == &device_ ? context_ : ContextHandle{}, ptr);
    if (begun.native != sim::kSuccess) return begun.native;
    return scheduler.put(asker(), stream, {.kind = sim::Work::Kind::free, .to = ptr});
  });
}

}  // namespace emm
