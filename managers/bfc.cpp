#include "allocators/bfc.hpp"

#include "managers/model_manager.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<MemoryManager>> make_bfc(const ManagerContext& context, Options options) {
  constexpr std::string_view kOwner = "manager bfc";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  allocators::BfcSettings settings;
  settings.memory_fraction = options.number("memory_fraction", settings.memory_fraction);
  const auto limit = options.bytes("limit", 0);
  if (options.has("limit")) settings.limit = limit;
  settings.preallocate = options.flag("preallocate", settings.preallocate);
  settings.garbage_collection = options.flag("garbage_collection", settings.garbage_collection);
  settings.fragmentation_fraction =
      options.number("fragmentation_fraction", settings.fragmentation_fraction);
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  for (const auto& [name, value] :
       {std::pair("memory_fraction", settings.memory_fraction),
        std::pair("fragmentation_fraction", settings.fragmentation_fraction)}) {
    if (!(value >= 0 && value <= 1))
      return fail(Errc::usage, "{}: {} is {}, expected a number from 0 to 1", kOwner, name, value);
  }
  return make_model_manager(context, *host, [settings](allocators::DeviceMemory& memory) {
    return std::make_unique<allocators::BfcPool>(settings, memory);
  });
}

}  // namespace

extern constinit const ManagerEntry bfc_manager{
    .name = "bfc",
    .summary = "the BFC allocator of JAX and TensorFlow, rule by rule: a model of XLA's, 2026",
    .options =
        "memory_fraction=0.75, limit=<that fraction>, preallocate=true, garbage_collection=false, "
        "fragmentation_fraction=0, profile=standard|numba, count=10, ratio=0.2, "
        "capacity=<the device's>",
    .promise = Promise::host_only,
    .fills_device = false,
    .variants = {"preallocate=false,garbage_collection=true"},
    .make = make_bfc,
};

}  // namespace emm
