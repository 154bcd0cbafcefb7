#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace emm::conformance {

class Bench;

/// What the contract says of a clause: normative text is `must`; behaviour of Numba's code where
/// the text is silent is `should`; a quirk of that code is judged by the profile, and never on a
/// foreign manager.
enum class Level : std::uint8_t { must, should, quirk };

/// The managers that a clause is asked of. The first three are the values of emm::Promise, in its
/// order.
enum class Scope : std::uint8_t {
  all,    ///< Every manager.
  host,   ///< Those that are NBEP-7's HostOnlyCUDAMemoryManager for host memory.
  deflt,  ///< Numba's default manager.
  own,  ///< emmctl's context, pointers, IPC and selection; judged once, on no manager of anybody's.
};

std::string_view name(Level level) noexcept;  ///< "must", "should", "quirk"
std::string_view name(
    Scope scope) noexcept;  ///< "every manager", "host-only and below", "default", "emmctl"

/// One rule that can be judged.
struct Clause {
  std::string_view id;    ///< The catalogue's, as PD-11; or of what is beyond it, as live/overlap.
  std::string_view rule;  ///< One sentence.
  std::string_view source;  ///< Where the rule is from.
  Level level;
  Scope scope;
  /// Ids, with spaces between, of the clauses that may fail with this one where its rule is broken;
  /// no others may. A `*` at the front says that this clause judges all rules at once, or is
  /// watched throughout, and may fail with any other.
  std::string_view may_fail_with{};
  /// Why a manager of a shared object cannot be asked, because of what emm_plugin.h lacks; empty:
  /// it can.
  std::string_view not_through_abi{};
  /// Judges by Bench::expect. Makes what it needs, and leaves no thread behind.
  void (*check)(Bench& bench);
};

/// Whether `other` may fail where the rule of `clause` is broken.
bool may_also_fail(const Clause& other, const Clause& clause) noexcept;

/// The clauses of one file.
struct ClauseGroup {
  std::string_view title;
  std::span<const Clause> clauses;
};

std::span<const ClauseGroup* const> clause_groups();

/// Null where there is none of that name.
const Clause* find_clause(std::string_view id) noexcept;

/// Whether `id` is what `glob` says: `*` is any text, `?` any character, all else itself.
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
