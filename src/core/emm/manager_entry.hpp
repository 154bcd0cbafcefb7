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
#include "emm/manager_observer.hpp"
#include "emm/manager_pointer.hpp"

namespace emm {

class Driver;   // driver/driver.hpp
class Runtime;  // driver/driver.hpp

/// What a manager is built on. All of it must outlive the manager.
struct ManagerContext {
  Driver* driver = nullptr;  ///< Null only in a probe (SEL-3), which reads only interface_version.
  Runtime* runtime = nullptr;  ///< Null if the device has no cudart.
  Clock* clock = nullptr;
  ManagerObserver* observer = nullptr;  ///< May be null.
  Profile profile = Profile::standard;
  int shown_ordinal = 0;  ///< The user's number of the device, for file names and messages; the
                          ///< driver's may differ.
};

/// How much of Numba's behaviour a manager promises beyond NBEP 7's text. Each level includes those
/// above it.
enum class Promise : std::uint8_t {
  contract,       ///< None.
  host_only,      ///< That of NBEP 7's HostOnlyCUDAMemoryManager, for host memory.
  numba_default,  ///< That of Numba's own manager.
};
std::string_view name(Promise promise) noexcept;  ///< "any", "host-only", "default"

/// Memory that a model takes from the device before the first request, as its library does.
struct Preallocation {
  std::string_view what;                     ///< "half of what is free". Empty if it takes none.
  std::array<std::string_view, 2> unless{};  ///< Options that change it, as a spec has them.
};

/// A bundled manager, as `--manager NAME:key=value` finds it. Clauses, tools and tests ask the
/// entry and know no manager by name.
struct ManagerEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view options;  ///< Known keys with defaults, for help.
  Promise promise = Promise::contract;
  bool device_memory = true;  ///< False if memalloc() always returns not_supported.
  /// The manager serves requests as long as the device has memory. False for a model of a library
  /// that refuses sooner.
  bool fills_device = true;
  /// A limit of the manager's counts bytes as they were requested. False for a model of a library
  /// that counts what it takes of the device.
  bool limits_requested = true;
  Preallocation preallocation{};
  /// Options that change its behaviour: it is also judged with each of them. Unused places are
  /// empty.
  std::array<std::string_view, 2> variants{};
  /// Makes the manager from `options`; returns the usage errors of Options::finish(). Touches no
  /// device.
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
/// The bundled manager that "NAME[:key=value,...]" names; null if there is none.
const ManagerEntry* find_entry(std::string_view spec) noexcept;
/// What the bundled manager of this spec takes before the first request; empty if nothing, and if
/// its options change it.
std::string_view preallocated(std::string_view spec) noexcept;
/// All specs under which the bundled manager is judged: its name, then one for each variant.
std::vector<std::string> judged_specs(const ManagerEntry& entry);
std::span<const AdaptorEntry* const> bundled_adaptors();

/// Makes a manager for each context from a description.
struct ManagerFactory {
  std::string name;  ///< As given: "pool:max=8GiB".
  std::function<Result<std::unique_ptr<MemoryManager>>(const ManagerContext&)> make;
  /// How long one call of a manager in a shared object may take. Such a manager runs in a separate
  /// process, where it can do no harm. Empty for all other managers.
  std::optional<std::chrono::milliseconds> apart{};
};

/// Finds a bundled manager by "NAME[:key=value,...]", else a manager in a shared object, as
/// plugin::find_plugin takes it. `adaptors` have the first form, innermost first. Checks the
/// options with a probe. Error usage, which lists the known names and the files tried.
Result<ManagerFactory> find_manager(std::string_view spec,
                                    std::span<const std::string> adaptors = {});

}  // namespace emm
