#include <algorithm>
#include <array>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/report_parts.hpp"
#include "trial/compare_rows.hpp"
#include "trial/setting.hpp"

namespace emm::trial {
namespace {

using units::short_bytes;

constexpr std::size_t kManagersShown = 8;  // rows; --more has the rest

using Row = const ComparedRow*;

bool serves_all(Row row) {
  return row->left_out.empty() && row->hazards == 0 && row->violations == 0;
}

/// The better one first: who serves more, then who reserves less, then who is faster.
bool is_better(Row a, Row b) {
  if (serves_all(a) != serves_all(b)) return serves_all(a);
  if (!serves_all(a) && a->failures != b->failures) return a->failures < b->failures;
  if (a->peak_reserved != b->peak_reserved) return a->peak_reserved < b->peak_reserved;
  return a->warm.median < b->warm.median;
}

std::string of_live(Row row) {
  if (row->peak_live == 0) return "-";
  return text::fixed(static_cast<double>(row->peak_reserved) / static_cast<double>(row->peak_live),
                     3);
}

std::string served(Row row) {
  if (!row->timed) return {};
  std::vector<std::string> words;
  if (!row->left_out.empty()) words.push_back(row->left_out);
  if (row->hazards != 0) words.push_back(inspect::counted(row->hazards, "hazard"));
  if (row->violations > row->hazards)
    words.push_back(inspect::counted(row->violations - row->hazards, "violation"));
  return words.empty() ? "served" : text::join(words);
}

bool is_simulated(Row row) { return row->device.starts_with("sim"); }

std::string time_of(Row row) {
  const auto ns = row->warm.median;
  // A manager that keeps its memory calls the driver no more once it is warm.
  if (row->timed && ns == 0 && is_simulated(row)) return "0";
  if (!row->timed || ns == 0) return "-";
  return text::fixed(ns, ns < 10 ? 2 : ns < 100 ? 1 : 0);
}

/// Rows of one trace on one device.
using Group = std::vector<Row>;

std::vector<Group> groups_of(const std::vector<ComparedRow>& rows) {
  std::vector<Group> groups;
  for (const auto& row : rows) {
    if (groups.empty() || groups.back().front()->trace != row.trace ||
        groups.back().front()->device != row.device)
      groups.emplace_back();
    groups.back().push_back(&row);
  }
  return groups;
}

/// The managers that ran, the best first.
Group ranked(const Group& group) {
  Group ran;
  std::copy_if(group.begin(), group.end(), std::back_inserter(ran),
               [](Row row) { return row->timed; });
  std::stable_sort(ran.begin(), ran.end(), is_better);
  if (ran.empty() || !serves_all(ran.front())) return ran;
  std::vector<Cost> costs;
  for (const auto* row : ran) {
    if (!serves_all(row)) break;
    costs.push_back({.bytes = static_cast<double>(row->peak_reserved), .ns = row->warm.median});
  }
  const auto best = ran.begin() + static_cast<std::ptrdiff_t>(best_of(costs));
  std::rotate(ran.begin(), best, best + 1);
  return ran;
}

/// Says why the first is not `least`, which reserves least. Empty if it is.
std::string why_first(Row first, Row least) {
  if (least == first) return {};
  return text::format(" {} reserves {} and takes {} ns of {} an event, not {}.", least->manager,
                      short_bytes(least->peak_reserved), time_of(least),
                      is_simulated(least) ? "driver calls" : "time", time_of(first));
}

std::string answer(const Group& ran) {
  const auto* best = ran.front();
  const auto name = format::file_name(best->trace);
  const auto bytes = short_bytes(best->peak_reserved);
  if (!serves_all(best)) {
    return text::format("No manager serves all of {}; {} comes nearest: {}.", name, best->manager,
                        served(best));
  }
  const auto times = best->peak_live == 0 ? std::string()
                                          : text::format(", {} times the live peak", of_live(best));
  if (ran.size() == 1)
    return text::format("{} serves {} and reserves {}{}.", best->manager, name, bytes, times);
  const auto same = std::count_if(ran.begin(), ran.end(), [&](Row row) {
    return serves_all(row) && row->peak_reserved == best->peak_reserved;
  });
  if (same > 1 && static_cast<std::size_t>(same) == ran.size())
    return text::format("{} managers reserve {} for {}{}.",
                        ran.size() == 2 ? std::string("Both") : text::format("All {}", ran.size()),
                        bytes, name, times);
  const auto* const least = *std::min_element(ran.begin(), ran.end(), is_better);
  return text::format("{} reserves {} for {}: {}{}.{}", best->manager,
                      beside_least(best->peak_reserved, least->peak_reserved), name, bytes, times,
                      why_first(best, least));
}

std::string who_does_not(const Group& ran) {
  std::vector<std::string> names;
  for (const auto* row : ran) {
    if (!serves_all(row)) names.push_back(row->manager);
  }
  constexpr std::size_t kNamed = 3;  // managers that a sentence still reads well with
  if (names.empty() || !serves_all(ran.front())) return {};
  const auto more = names.size() > kNamed ? names.size() - kNamed : 0;
  if (more != 0) names.resize(kNamed);
  return text::format("Not all is served by {}{}.", text::join(names),
                      more == 0 ? std::string() : text::format(" and {} more", more));
}

void add_managers(const Group& group, format::Brief& out) {
  const bool simulated = is_simulated(group.front());
  out.sides = "lrrrl";
  out.rows = {{"manager", "reserved", "/live", simulated ? "driver ns" : "ns/event", ""}};
  auto rows = ranked(group);
  const auto recorded =
      std::find_if(group.begin(), group.end(), [](Row row) { return !row->timed; });
  if (recorded != group.end()) rows.push_back(*recorded);
  const auto ran = rows.size() - (recorded == group.end() ? 0 : 1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto* row = rows[i];
    if (i < kManagersShown || i >= ran)
      out.rows.push_back(
          {row->manager, short_bytes(row->peak_reserved), of_live(row), time_of(row), served(row)});
    if (i + 1 == ran && ran > kManagersShown)
      out.rows.push_back({text::format("{} more", ran - kManagersShown), "", "", "", ""});
  }
}

/// The best manager of each comparison.
void add_comparisons(const std::vector<Group>& groups, format::Brief& out) {
  out.sides = "lrlrrl";
  out.rows = {{"trace", "capacity", "best", "reserved", "/live", ""}};
  for (const auto& group : groups) {
    if (out.rows.size() > kManagersShown) {
      out.rows.push_back(
          {text::format("{} more", groups.size() - kManagersShown), "", "", "", "", ""});
      return;
    }
    const auto ran = ranked(group);
    if (ran.empty()) continue;
    constexpr std::string_view kCapacity = "capacity=";
    const auto& device = ran.front()->device;
    const auto at = device.find(kCapacity);
    const auto digits = at == device.npos ? std::string() : device.substr(at + kCapacity.size());
    const auto capacity = text::to_u64(std::string_view(digits).substr(0, digits.find(',')));
    out.rows.push_back({format::file_name(ran.front()->trace),
                        capacity ? short_bytes(*capacity) : "-", ran.front()->manager,
                        short_bytes(ran.front()->peak_reserved), of_live(ran.front()),
                        served(ran.front())});
  }
}

}  // namespace

std::string preallocation_words(const std::vector<ComparedRow>& rows) {
  std::vector<std::string> names;
  std::string_view what;
  for (const auto& row : rows) {
    const auto of = preallocated(row.manager);
    if (of.empty() || !row.timed) continue;
    if (what.empty()) what = of;
    if (of == what && std::find(names.begin(), names.end(), row.manager) == names.end())
      names.push_back(row.manager);
  }
  std::string words;
  if (!names.empty())
    words = text::format("{} {} {} before the first request", text::join(names),
                         names.size() == 1 ? "takes" : "take", what);
  // Another model may take another part.
  std::vector<ComparedRow> others;
  for (const auto& row : rows) {
    const auto of = preallocated(row.manager);
    if (!of.empty() && of != what) others.push_back(row);
  }
  const auto rest = others.empty() ? std::string() : preallocation_words(others);
  return rest.empty() ? words : words + "; " + rest;
}

format::Brief brief(const std::vector<ComparedRow>& rows,
                    const std::vector<std::string>& not_compared) {
  format::Brief out;
  const auto groups = groups_of(rows);
  if (groups.empty()) return out;
  if (groups.size() == 1) {
    const auto ran = ranked(groups.front());
    if (ran.empty()) return out;
    out.answer.push_back(answer(ran));
    out.answer.push_back(who_does_not(ran));
    out.command = text::format("emmctl fit {} --manager {}", text::shell_word(ran.front()->trace),
                               text::shell_word(ran.front()->manager));
    add_managers(groups.front(), out);
  } else {
    out.answer.push_back(text::format("{} comparisons, and the best manager of each:",
                                      text::grouped(groups.size())));
    add_comparisons(groups, out);
  }
  auto last = preallocation_words(rows);
  if (!last.empty()) last += '.';
  if (!not_compared.empty())
    last = text::format(
        "Not compared: {}, which take memory before the first request; --manager all does.",
        text::join(not_compared));
  out.answer.push_back(last);
  out.more = "each verdict against the first manager, and the failures";
  return out;
}

}  // namespace emm::trial
