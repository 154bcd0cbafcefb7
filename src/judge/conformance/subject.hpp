#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "conformance/clause.hpp"
#include "emm/manager_entry.hpp"
#include "plugin/standin.hpp"

namespace emm::conformance {

/// What a manager can hold, measured by filling a fresh one.
struct Capacity {
  bool device_memory = false;  ///< It offers memalloc.
  /// Bytes taken from the device at which it refuses although the device has more. None: it takes
  /// everything.
  std::optional<std::uint64_t> limit{};
  /// The largest block that it gives. It refuses larger ones although the device has room for two.
  /// None: it gives every size that was tried.
  std::optional<std::uint64_t> block{};
};

/// Which manager is judged, and where.
struct Subject {
  std::string manager = "default";  ///< As the user named it.
  ManagerFactory factory{};
  /// Makes the same manager with other options. Null when it has no name.
  std::function<Result<ManagerFactory>(std::string_view options)> with_options{};
  /// What it is held to: all, host or deflt. Each includes those before it.
  Scope promise = Scope::all;
  Profile profile = Profile::standard;
  bool foreign = false;   ///< The manager is in a shared object, behind emm_plugin.h.
  bool is_pair = false;   ///< The manager is a library's pair of functions (torch:, cupy:), which
                          ///< return no codes.
  bool is_class = false;  ///< The manager is an NBEP 7 class of Python's.
  /// A shared object without the trim slot keeps no idle memory, or cannot be told to release it.
  bool has_trim = true;
  std::string device = "sim";  ///< As `--device` takes it.
  /// The device that what it can hold is measured on. Empty: `device`.
  std::string measured_on{};
  std::uint64_t seed = 0;  ///< The seed of everything random.
  /// The stand-in for libcuda.so.1, which reports the manager's calls. Null: there is none.
  const plugin::StandIns* standins = nullptr;
  /// Behind the stand-in is a real driver, not a simulated device: classes of Python's alone.
  bool standin_is_over_driver = false;
  /// Random programs and sweeps take minutes, to find rare failures.
  bool thorough = false;
  /// What the manager can hold, once it was measured. All copies of the subject share it.
  std::shared_ptr<std::optional<Capacity>> capacity = std::make_shared<std::optional<Capacity>>();
  /// How long a clause waits for another thread before it reports a hang.
  std::chrono::milliseconds patience{20'000};
};

/// Returns the device of a subject. Options that a simulated one leaves open get the suite's
/// values: two devices of `capacity` and the subject's seed.
std::string device_of(const Subject& subject, std::string_view capacity = "1GiB");

/// Returns what a bundled manager promises, and Scope::all for others.
Scope promise_of(std::string_view manager) noexcept;

}  // namespace emm::conformance
