#include "base/text.hpp"
#include "cli/listing.hpp"
#include "conformance/clause.hpp"

namespace emm {
namespace {

using cli::Rows;

std::string cell(std::string_view value) { return std::string(value); }

Rows clauses() {
  Rows rows{{"clause", "asked of", "level", "rule"}};
  for (const auto* group : conformance::clause_groups()) {
    for (const auto& clause : group->clauses) {
      rows.push_back(
          {cell(clause.id), cell(name(clause.scope)), cell(name(clause.level)), cell(clause.rule)});
    }
  }
  for (const auto& clause : conformance::unjudged_clauses()) {
    rows.push_back({cell(clause.id), "nobody", cell(clause.why), cell(clause.rule)});
  }
  return rows;
}

/// The groups of clauses, with a pattern that names those of each.
Rows groups_of_clauses() {
  Rows rows{{"clauses", "what they judge", "the first"}};
  for (const auto* group : conformance::clause_groups()) {
    if (group->clauses.empty()) continue;
    constexpr std::string_view kBeyond = "Beyond the catalogue: ";
    auto title = cell(group->title);
    if (title.starts_with(kBeyond)) title.erase(0, kBeyond.size());
    rows.push_back(
        {text::format("{}", group->clauses.size()), title, cell(group->clauses.front().id)});
  }
  return rows;
}

}  // namespace

extern constinit const cli::Listing clauses_listing{"clauses", clauses, 4, groups_of_clauses};

}  // namespace emm
