#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "conformance/clause.hpp"
#include "emm/manager_entry.hpp"
#include "plugin/standin.hpp"

namespace emm::conformance {

class Own;

/// Who is judged, and where.
struct Subject {
  std::string manager = "default";  ///< As a person named it.
  ManagerFactory factory{};
  Scope promise =
      Scope::all;  ///< What it is held to: all, host or deflt, each with those before it.
  Profile profile = Profile::standard;
  std::string device = "sim";  ///< As `--device` takes it.
  std::uint64_t seed = 0;      ///< Of everything random.
  /// The device is a simulated one behind the stand-in for libcuda.so.1, which tells of the
  /// manager's calls. Null: it is what it says.
  const plugin::StandIns* standins = nullptr;
  const Own* own = nullptr;  ///< emmctl's own parts; null: as they are.
  /// How long a clause waits for another thread before it says that it hangs.
  std::chrono::milliseconds patience{20'000};
};

/// What a bundled manager promises, by its name; of others Scope::all.
Scope promise_of(std::string_view manager) noexcept;

}  // namespace emm::conformance
