#include "managers/host_only.hpp"

namespace emm {
namespace {

/// NBEP-7's NumbaCUDAMemoryManager: each memalloc calls cuMemAlloc, and the free waits in the
/// queue.
class DefaultManager final : public HostOnlyManager {
 public:
  using HostOnlyManager::HostOnlyManager;

  Status initialize() override {
    if (profile() == Profile::standard) return HostOnlyManager::initialize();
    if (deallocations().memory_capacity().value_or(0) != 0) return {};  // INI-4: 0 is numba's unset
    const auto info = get_memory_info();
    if (!info) return info.error();
    deallocations().set_memory_capacity(info->total);
    return {};
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle) override {
    auto ptr = attempt_allocation([&] { return driver().mem_alloc(size); });
    if (!ptr) return std::move(ptr).error();
    auto lifetime = hand_out({.address = ptr->value, .size = size, .kind = MemoryKind::device});
    if (!lifetime) return std::move(lifetime).error();
    return MemoryPointer(*ptr, size, *std::move(lifetime));
  }

  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    return ipc_handle_from_address_range(driver(), memory);
  }
};

Result<std::unique_ptr<MemoryManager>> make_default(const ManagerContext& context,
                                                    Options options) {
  constexpr std::string_view kOwner = "manager default";
  const auto settings = HostOnlyManager::read_settings(context, options, kOwner);
  if (!settings) return settings.error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return std::make_unique<DefaultManager>(context, *settings);
}

}  // namespace

extern constinit const ManagerEntry default_manager{
    .name = "default",
    .summary = "One driver allocation a request, deferred deallocation: Numba's own manager",
    .options = HostOnlyManager::kOptions,
    .promise = Promise::numba_default,
    .variants = {"profile=numba"},
    .make = make_default,
};

}  // namespace emm
