#include "emm/selection.hpp"

#include <cstdlib>
#include <mutex>

#include "emm/memory_manager.hpp"

namespace emm {
namespace {

struct Selection {
  std::mutex mutex;
  std::optional<ManagerFactory> current;
};

Selection& selection() {
  static auto& setting = *new Selection;
  return setting;
}

Status probe(const ManagerFactory& factory) {
  const auto manager = factory.make({});
  if (!manager) return manager.error();
  const auto version = (*manager)->interface_version();
  if (version == kInterfaceVersion) return {};
  return fail(Errc::version_mismatch, "EMM Plugin interface has version {} - version {} required",
              version, kInterfaceVersion);
}

Result<ManagerFactory> probed(std::string_view spec) {
  auto factory = find_manager(spec);
  if (!factory) return factory;
  if (auto fits = probe(*factory); !fits) return std::move(fits).error();
  return factory;
}

}  // namespace

Status set_memory_manager(ManagerFactory factory) {
  if (auto fits = probe(factory); !fits) return fits;
  auto& setting = selection();
  const std::lock_guard lock(setting.mutex);
  setting.current = std::move(factory);
  return {};
}

Result<ManagerFactory> get_memory_manager() {
  auto& setting = selection();
  const std::lock_guard lock(setting.mutex);
  if (setting.current) return *setting.current;
  const auto* variable = std::getenv("EMM_MEMORY_MANAGER");
  const std::string_view spec = variable != nullptr && *variable != '\0' ? variable : "default";
  auto factory = probed(spec);
  if (!factory) {
    return fail(factory.error().code, "Failed to use memory manager from {}: {}", spec,
                describe(factory.error()));
  }
  setting.current = *factory;
  return factory;
}

void unset_memory_manager() noexcept {
  auto& setting = selection();
  const std::lock_guard lock(setting.mutex);
  setting.current.reset();
}

}  // namespace emm
