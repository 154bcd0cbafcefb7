#include "conformance/clause.hpp"

#include <algorithm>
#include <array>

namespace emm::conformance {

std::string_view name(Level level) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"must", "should", "quirk"};
  return kNames[static_cast<std::size_t>(level)];
}

std::string_view name(Scope scope) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"every manager", "host-only and below",
                                                   "default"};
  return kNames[static_cast<std::size_t>(scope)];
}

bool may_also_fail(const Clause& other, const Clause& clause) noexcept {
  if (&clause == &other || other.may_fail_with.starts_with('*')) return true;
  for (auto rest = clause.may_fail_with; !rest.empty();) {
    const auto end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == other.id) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

const Clause* find_clause(std::string_view id) noexcept {
  for (const auto* group : clause_groups()) {
    for (const auto& clause : group->clauses) {
      if (clause.id == id) return &clause;
    }
  }
  return nullptr;
}

bool matches(std::string_view glob, std::string_view id) noexcept {
  if (glob.empty()) return id.empty();
  if (glob.front() == '*') {
    return matches(glob.substr(1), id) || (!id.empty() && matches(glob, id.substr(1)));
  }
  return !id.empty() && (glob.front() == '?' || glob.front() == id.front()) &&
         matches(glob.substr(1), id.substr(1));
}

}  // namespace emm::conformance
