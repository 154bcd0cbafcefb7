#include "allocators/pytorch/pool.hpp"
#include "managers/model_manager.hpp"

namespace emm {
namespace {

namespace pytorch = allocators::pytorch;

Result<std::unique_ptr<MemoryManager>> make_pytorch(const ManagerContext& context,
                                                    Options options) {
  constexpr std::string_view kOwner = "manager pytorch";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  pytorch::Settings settings;
  if (auto read = read_options(options, settings); !read) return std::move(read).error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return make_model_manager(
      context, *host,
      [settings](allocators::DeviceMemory& memory) {
        return std::make_unique<pytorch::PytorchPool>(settings, memory);
      },
      settings.host);
}

}  // namespace

extern constinit const ManagerEntry pytorch_manager{
    .name = "pytorch",
    .summary = "PyTorch's caching allocator, rule by rule: a model of c10's, version 2.11",
    .options =
        "max_split_size_mb, max_non_split_rounding_mb, large_segment_size_mb, "
        "garbage_collection_threshold, roundup_power2_divisions=N|[256:1;512:2;>:8], "
        "expandable_segments=True|False, pinned_max_round_threshold_mb, "
        "pinned_max_cached_size_mb, pinned_reserve_segment_size_mb, fraction, total=<the "
        "device's>, limit=<what a fraction of it comes to>, version=2.11, "
        "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>",
    .promise = Promise::contract,  // Page-locked memory is kept, not queued.
    .variants = {"expandable_segments=True"},
    .make = make_pytorch,
};

}  // namespace emm
