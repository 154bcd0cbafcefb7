#include "allocators/rmm_pool.hpp"

#include "managers/model_manager.hpp"
#include "managers/rmm_options.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<MemoryManager>> make_rmm_pool(const ManagerContext& context,
                                                     Options options) {
  constexpr std::string_view kOwner = "manager rmm-pool";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  const auto settings = read_rmm_pool(options, kOwner);
  if (!settings) return settings.error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return make_model_manager(context, *host, [pool = *settings](allocators::DeviceMemory& memory) {
    return std::make_unique<allocators::RmmPool>(pool, memory);
  });
}

}  // namespace

extern constinit const ManagerEntry rmm_pool_manager{
    .name = "rmm-pool",
    .summary = "RMM's pool_memory_resource, rule by rule: a model of 24.12 to 26.06",
    .options =
        "initial_pool_size=<half of what is free>, maximum_pool_size=<none>, "
        "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .fills_device = false,
    .preallocation = {.what = "half of what is free", .unless = {"initial_pool_size"}},
    .variants = {"initial_pool_size=0"},
    .make = make_rmm_pool,
};

}  // namespace emm
