#include "allocators/bfc.hpp"

#include "managers/model_manager.hpp"

namespace emm {
namespace {

/// Reads the options of ONNX Runtime's arena, under its names. Any of them makes the pool that
/// arena: nothing is preallocated, and there is no limit but gpu_mem_limit.
Status read_arena(Options& options, std::string_view owner, allocators::BfcSettings& settings) {
  constexpr std::string_view kOfArena[] = {
      "arena_extend_strategy",          "initial_chunk_size_bytes",      "initial_chunk_size",
      "max_dead_bytes_per_chunk",       "max_power_of_two_extend_bytes", "gpu_mem_limit",
      "initial_growth_chunk_size_bytes"};
  std::string_view given;
  for (const auto name : kOfArena) {
    if (options.has(name)) given = name;
  }
  const auto strategy = options.choice("arena_extend_strategy", "kNextPowerOfTwo",
                                       {"kNextPowerOfTwo", "kSameAsRequested", "0", "1"});
  // Both names are in use. Help shows the second.
  const auto* const first_name =
      options.has("initial_chunk_size") ? "initial_chunk_size" : "initial_chunk_size_bytes";
  const auto first = options.bytes(first_name, std::uint64_t{1} << 20);
  const auto dead = options.bytes("max_dead_bytes_per_chunk", settings.dead_bytes);
  const auto largest = options.bytes("max_power_of_two_extend_bytes", std::uint64_t{1} << 30);
  const auto limit = options.bytes("gpu_mem_limit", ~std::uint64_t{0} >> 1);
  options.bytes("initial_growth_chunk_size_bytes", 0);
  if (given.empty()) return {};
  if (given == "initial_growth_chunk_size_bytes") {
    return fail(Errc::usage,
                "{}: {} counts after the arena was shrunk, which is not modelled: expected another "
                "option of the arena",
                owner, given);
  }
  for (const std::string_view of_xla : {"memory_fraction", "limit", "preallocate",
                                        "garbage_collection", "fragmentation_fraction"}) {
    if (options.has(of_xla)) {
      return fail(Errc::usage,
                  "{}: {} is of XLA's allocator and {} of ONNX Runtime's: expected options of one",
                  owner, of_xla, given);
    }
  }
  if (first < 256)
    return fail(Errc::usage, "{}: {} is {}, expected 256 or more", owner, first_name, first);
  settings.limit = limit;
  settings.preallocate = false;
  settings.first_region = first;
  settings.dead_bytes = dead;
  settings.grows_as_asked = strategy == "kSameAsRequested" || strategy == "1";
  settings.largest_doubled = largest;
  return {};
}

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
  if (auto read = read_arena(options, kOwner, settings); !read) return std::move(read).error();
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
        "fragmentation_fraction=0; or as ONNX Runtime's arena "
        "arena_extend_strategy=kNextPowerOfTwo "
        "(or kSameAsRequested), initial_chunk_size_bytes=1MiB, max_dead_bytes_per_chunk=128MiB, "
        "max_power_of_two_extend_bytes=1GiB, gpu_mem_limit=<none>; profile=standard|numba, "
        "count=10, ratio=0.2, "
        "capacity=<the device's>",
    .promise = Promise::host_only,
    .fills_device = false,
    .preallocation = {.what = "its fraction of the device",
                      .unless = {"preallocate=false", "arena_extend_strategy"}},
    .variants = {"preallocate=false,garbage_collection=true"},
    .make = make_bfc,
};

}  // namespace emm
