#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace emm::conformance {

class Bench;

/// How binding a clause is. Normative text is `must`. What Numba's code does where the text is
/// silent is `should`. An oddity of that code is a `quirk`: it is judged only for Numba's profile,
/// and never for a foreign manager.
enum class Level : std::uint8_t { must, should, quirk };

/// Which managers a clause applies to. The values are those of emm::Promise, in the same
/// order.
enum class Scope : std::uint8_t {
  all,    ///< Every manager.
  host,   ///< Managers that are NBEP-7's HostOnlyCUDAMemoryManager for host memory.
  deflt,  ///< Numba's default manager.
};

std::string_view name(Level level) noexcept;  ///< "must", "should", "quirk"
std::string_view name(Scope scope) noexcept;  ///< "every manager", "host-only and below", "default"

/// What most clauses see of a real device's memory. Many fill the device, and a driver takes 0.6 s
/// to give 139 GiB and take them back (H200, driver 580).
inline constexpr std::uint64_t kDeviceRoom = std::uint64_t{8} << 30;

/// One rule that can be judged.
struct Clause {
  /// The catalogue's id, as PD-11. A clause beyond the catalogue has a name, as live/overlap.
  std::string_view id;
  std::string_view rule;    ///< One sentence.
  std::string_view source;  ///< Where the rule comes from.
  Level level;
  Scope scope;
  /// Ids, separated by spaces, of the clauses that may also fail when this rule is broken; no
  /// others may. A leading `*` says that this clause judges all rules at once, or is watched
  /// throughout, and may fail together with any other; `**` that it judges all rules at once.
  std::string_view may_fail_with{};
  /// Why a manager in a shared object cannot be judged, because emm_plugin.h lacks something.
  /// Empty: it can be.
  std::string_view not_through_abi{};
  /// Why a class of Python's cannot be judged, because NBEP 7 lacks something. Empty: it can be.
  std::string_view not_of_class{};
  /// Asks what only a class of Python's can do wrong. Other managers are not asked.
  bool of_class = false;
  /// Asks for many GiB where a device has them. The others see no more than kDeviceRoom of a real
  /// device.
  bool wants_all_memory = false;
  /// Judges with Bench::expect. Makes everything that it needs, and leaves no thread running.
  void (*check)(Bench& bench);
};

/// Answers whether `other` may fail too when the rule of `clause` is broken.
bool may_also_fail(const Clause& other, const Clause& clause) noexcept;

/// The clauses of one file.
struct ClauseGroup {
  std::string_view title;
  std::span<const Clause> clauses;
};

std::span<const ClauseGroup* const> clause_groups();

/// Returns null when there is no clause of that name.
const Clause* find_clause(std::string_view id) noexcept;

/// Answers whether `id` matches `glob`: `*` is any text, `?` any character, and all else stands for
/// itself.
bool matches(std::string_view glob, std::string_view id) noexcept;

/// A clause of the contract that no clause here judges, and why.
struct Unjudged {
  std::string_view id;
  std::string_view rule;
  std::string_view source;
  std::string_view why;
};
std::span<const Unjudged> unjudged_clauses() noexcept;

}  // namespace emm::conformance
