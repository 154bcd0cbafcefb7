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

class Own;

/// What a manager can hold, found out by filling a fresh one.
struct Capacity {
  bool device_memory = false;  ///< Whether it offers memalloc at all.
  /// Bytes from the device at which it refuses although the device has more; none: it takes what
  /// there is.
  std::optional<std::uint64_t> limit{};
  /// The largest block that it gives; larger ones it refuses although the device has room for two.
  /// None: it gives all sizes that were tried.
  std::optional<std::uint64_t> block{};
};

/// Who is judged, and where.
struct Subject {
  std::string manager = "default";  ///< As a person named it.
  ManagerFactory factory{};
  /// Finds the same manager with other options; null where it has no name to find it by.
  std::function<Result<ManagerFactory>(std::string_view options)> with_options{};
  Scope promise =
      Scope::all;  ///< What it is held to: all, host or deflt, each with those before it.
  Profile profile = Profile::standard;
  bool foreign = false;  ///< A manager of a shared object, behind emm_plugin.h.
  bool is_pair = false;  ///< Two functions of a library (torch:, cupy:), which answer no codes.
  /// A shared object without this slot keeps no idle memory, or does not let go of it when told.
  bool has_trim = true;
  std::string device = "sim";  ///< As `--device` takes it.
  std::uint64_t seed = 0;      ///< Of everything random.
  /// The device is a simulated one behind the stand-in for libcuda.so.1, which tells of the
  /// manager's calls. Null: it is what it says.
  const plugin::StandIns* standins = nullptr;
  const Own* own = nullptr;  ///< emmctl's own parts; null: as they are.
  /// Whether random programs and sweeps take minutes, to find what is rare.
  bool thorough = false;
  /// What the manager can hold, once somebody has found out; shared by the copies of this.
  std::shared_ptr<std::optional<Capacity>> capacity = std::make_shared<std::optional<Capacity>>();
  /// How long a clause waits for another thread before it says that it hangs.
  std::chrono::milliseconds patience{20'000};
};

/// The device of a subject. What the options of a simulated one leave open is as the suite has it:
/// two devices of `capacity`, and the subject's seed.
std::string device_of(const Subject& subject, std::string_view capacity = "1GiB");

/// What a bundled manager promises, by its name; of others Scope::all.
Scope promise_of(std::string_view manager) noexcept;

}  // namespace emm::conformance
