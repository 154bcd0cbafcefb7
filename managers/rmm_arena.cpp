#include "allocators/rmm_arena.hpp"

#include "managers/model_manager.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<MemoryManager>> make_rmm_arena(const ManagerContext& context,
                                                      Options options) {
  constexpr std::string_view kOwner = "manager rmm-arena";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  const auto size = options.bytes("arena_size", allocators::RmmArena::kSuperblock);
  std::optional<std::uint64_t> arena;
  if (options.has("arena_size")) arena = size;
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (size < allocators::RmmArena::kSuperblock)
    return fail(Errc::usage, "{}: arena_size is {}, expected 1 MiB or more", kOwner, size);
  return make_model_manager(context, *host, [arena](allocators::DeviceMemory& memory) {
    return std::make_unique<allocators::RmmArena>(arena, memory);
  });
}

}  // namespace

extern constinit const ManagerEntry rmm_arena_manager{
    .name = "rmm-arena",
    .summary = "RMM's arena_memory_resource, rule by rule: a model of 24.12 to 26.06",
    .options =
        "arena_size=<half of what is free>, profile=standard|numba, count=10, ratio=0.2, "
        "capacity=<the device's>",
    .promise = Promise::host_only,
    .fills_device = false,
    .preallocation = {.what = "half of what is free", .unless = {"arena_size"}},
    .make = make_rmm_arena,
};

}  // namespace emm
