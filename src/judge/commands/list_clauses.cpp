#include "base/text_format.hpp"
#include "cli/listing.hpp"
#include "conformance/clause.hpp"

namespace emm {
namespace {

using cli::Rows;

Rows clauses() {
  Rows rows{{"clause", "asked of", "level", "rule"}};
  for (const auto* group : conformance::clause_groups()) {
    for (const auto& clause : group->clauses) {
      const auto asked_of = clause.of_class ? "classes of Python's" : name(clause.scope);
      rows.push_back({std::string(clause.id), std::string(asked_of),
                      std::string(name(clause.level)), std::string(clause.rule)});
    }
  }
  for (const auto& clause : conformance::unjudged_clauses()) {
    rows.push_back(
        {std::string(clause.id), "nobody", std::string(clause.why), std::string(clause.rule)});
  }
  return rows;
}

/// The groups of clauses, with a pattern that names those of each.
Rows groups_of_clauses() {
  Rows rows{{"clauses", "what they judge", "the first"}};
  for (const auto* group : conformance::clause_groups()) {
    if (group->clauses.empty()) continue;
    constexpr std::string_view kBeyond = "Beyond the catalogue: ";
    auto title = std::string(group->title);
    if (title.starts_with(kBeyond)) title.erase(0, kBeyond.size());
    rows.push_back(
        {text::format("{}", group->clauses.size()), title, std::string(group->clauses.front().id)});
  }
  return rows;
}

}  // namespace

extern constinit const cli::Listing clauses_listing{"clauses", clauses, 4, groups_of_clauses};

}  // namespace emm
