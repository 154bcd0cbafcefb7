#include "allocators/cupy.hpp"

#include <charconv>

#include "base/units.hpp"
#include "managers/model_manager.hpp"

namespace emm {
namespace {

using allocators::CupySettings;

constexpr std::string_view kOwner = "manager cupy";

/// Reads bytes or "NN%", the syntax of CUPY_GPU_MEMORY_LIMIT.
Status read_limit(std::string_view text, CupySettings& settings) {
  const auto refuse = [&] {
    return fail(Errc::usage, "{}: limit is \"{}\", expected bytes or 0% to 100%", kOwner, text);
  };
  if (!text.ends_with('%')) {
    const auto bytes = units::parse_bytes(text);
    if (!bytes) return refuse();
    settings.limit = *bytes;
    return {};
  }
  double percent = 0;
  const auto* const end = text.data() + text.size() - 1;
  const auto [at, bad] = std::from_chars(text.data(), end, percent);
  if (bad != std::errc() || at != end || !(percent >= 0 && percent <= 100)) return refuse();
  settings.limit_fraction = percent / 100;
  return {};
}

Result<std::unique_ptr<MemoryManager>> make_cupy(const ManagerContext& context, Options options) {
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  CupySettings settings;
  if (auto read = read_limit(options.text("limit", "0"), settings); !read)
    return std::move(read).error();
  settings.flushes_too_large = options.choice("version", "14.1", {"14.1", "13"}) == "13";
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return make_model_manager(context, *host, [settings](allocators::DeviceMemory& memory) {
    return std::make_unique<allocators::CupyPool>(settings, memory);
  });
}

}  // namespace

extern constinit const ManagerEntry cupy_manager{
    .name = "cupy",
    .summary = "CuPy's MemoryPool, rule by rule: a model of versions 13.0 to 14.2",
    .options =
        "limit=BYTES|NN%, version=14.1|13 (13: also 14.0), profile=standard|numba, count=10, "
        "ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .limits_requested = false,
    .make = make_cupy,
};

}  // namespace emm
