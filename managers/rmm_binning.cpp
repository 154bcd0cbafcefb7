#include "allocators/rmm_binning.hpp"

#include "managers/model_manager.hpp"
#include "managers/rmm_options.hpp"

namespace emm {
namespace {

Result<std::unique_ptr<MemoryManager>> make_rmm_binning(const ManagerContext& context,
                                                        Options options) {
  constexpr std::string_view kOwner = "manager rmm-binning";
  // Exponents: of RMM's alignment, 256 bytes, and of 1 TiB.
  constexpr std::uint64_t kLeast = 8, kMost = 40;
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  const auto pool = read_rmm_pool(options, kOwner);
  if (!pool) return pool.error();
  allocators::RmmBinningSettings settings{.pool = *pool};
  const auto least = options.count("min_size_exponent", settings.min_size_exponent);
  const auto most = options.count("max_size_exponent", settings.max_size_exponent);
  settings.over_pool = options.choice("upstream", "pool", {"pool", "cuda"}) == "pool";
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (least < kLeast || most > kMost || least > most)
    return fail(Errc::usage, "{}: exponents {} to {}, expected a range from {} to {}", kOwner,
                least, most, kLeast, kMost);
  settings.min_size_exponent = static_cast<unsigned>(least);
  settings.max_size_exponent = static_cast<unsigned>(most);
  return make_model_manager(context, *host, [settings](allocators::DeviceMemory& memory) {
    return std::make_unique<allocators::RmmBinning>(settings, memory);
  });
}

}  // namespace

extern constinit const ManagerEntry rmm_binning_manager{
    .name = "rmm-binning",
    .summary = "RMM's binning_memory_resource over its pool, rule by rule",
    .options =
        "min_size_exponent=18, max_size_exponent=22, upstream=pool|cuda, "
        "initial_pool_size=<half of what is free>, maximum_pool_size=<none>, "
        "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .fills_device = false,
    .preallocation = {.what = "half of what is free",
                      .unless = {"initial_pool_size", "upstream=cuda"}},
    .variants = {"upstream=cuda"},
    .make = make_rmm_binning,
};

}  // namespace emm
