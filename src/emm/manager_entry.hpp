#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/options.hpp"
#include "base/result.hpp"
#include "driver/types.hpp"
#include "emm/manager_observer.hpp"

namespace emm {

class Driver;         // driver/driver.hpp
class MemoryManager;  // emm/memory_manager.hpp: only who makes or uses one needs it
class Runtime;        // driver/driver.hpp

/// What a manager is built over. All of it outlives the manager.
struct ManagerContext {
  Driver* driver =
      nullptr;  ///< Null only in a probe (SEL-3), which reads interface_version and no more.
  Runtime* runtime = nullptr;  ///< Null where the device has no cudart.
  Clock* clock = nullptr;
  ManagerObserver* observer = nullptr;  ///< May be null.
  Profile profile = Profile::standard;
  int shown_ordinal = 0;  ///< What the user calls the device, for file names and messages; the
                          ///< driver may number it otherwise.
};

/// How much of Numba's behaviour a manager promises beside NBEP 7's text. Each level includes those
/// before it.
enum class Promise : std::uint8_t {
  contract,       ///< None.
  host_only,      ///< That of NBEP 7's HostOnlyCUDAMemoryManager, for host memory.
  numba_default,  ///< That of Numba's own manager.
};
std::string_view name(Promise promise) noexcept;  ///< "any", "host-only", "default"

/// A bundled manager: what `--manager NAME:key=value` finds. Nothing else knows one by its name:
/// clauses, tools and tests ask the entry.
struct ManagerEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view options;  ///< Known keys with defaults, for help.
  Promise promise = Promise::contract;
  bool device_memory = true;  ///< False where memalloc() always answers not_supported.
  /// Serves as long as the device has memory. The model of a library that refuses sooner does not.
  bool fills_device = true;
  /// Options with which it behaves otherwise: it is judged with each of them, too. Empty at the
  /// end.
  std::array<std::string_view, 2> variants{};
  /// Reads its options, and returns usage errors of Options::finish(). Touches no device.
  Result<std::unique_ptr<MemoryManager>> (*make)(const ManagerContext& context, Options options);
};

/// A bundled adaptor: what `--adaptor NAME:key=value` puts over a manager.
struct AdaptorEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view options;
  Result<std::unique_ptr<MemoryManager>> (*make)(const ManagerContext& context,
                                                 std::unique_ptr<MemoryManager> upstream,
                                                 Options options);
};

std::span<const ManagerEntry* const> bundled_managers();
/// The bundled manager that "NAME[:key=value,...]" names; null where there is none.
const ManagerEntry* find_entry(std::string_view spec) noexcept;
/// All specs under which the bundled manager is judged: its name, then one for each variant.
std::vector<std::string> judged_specs(const ManagerEntry& entry);
std::span<const AdaptorEntry* const> bundled_adaptors();

/// A manager by description, to be made once for each context.
struct ManagerFactory {
  std::string name;  ///< As given: "pool:max=8GiB".
  std::function<Result<std::unique_ptr<MemoryManager>>(const ManagerContext&)> make;
  /// How long one call of a manager in a shared object may take. Such a manager is made only in a
  /// process of its own, where it can do no harm. Empty for all others.
  std::optional<std::chrono::milliseconds> apart{};
};

/// "NAME[:key=value,...]" of a bundled manager; else a manager in a shared object, as
/// plugin::find_plugin takes it. And adaptors of the first form, innermost first. Options are
/// checked here, by a probe. Errors: usage, listing the known names and the files tried.
Result<ManagerFactory> find_manager(std::string_view spec,
                                    std::span<const std::string> adaptors = {});

}  // namespace emm
