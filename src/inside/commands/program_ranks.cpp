#include "commands/program_ranks.hpp"

#include <algorithm>
#include <fstream>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"

namespace emm::cli {
namespace {

constexpr std::size_t kShownRanks = 16;  // rows that a reader compares at a glance; --json has all

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

std::string with_bytes(std::uint64_t bytes) {
  return text::format("{} ({} bytes)", units::bytes(bytes), text::grouped(bytes));
}

/// One sentence for each rank that ended, though several wait for it.
void add_gone(std::vector<std::string>& all, const std::string& words) {
  const auto who = words.substr(0, words.find(", and "));
  for (const auto& known : all) {
    if (known.starts_with(who)) return;
  }
  all.push_back(words);
}

}  // namespace

ProgramRanks ranks_in(const std::string& folder, const std::vector<standin::ProcessReport>& reports,
                      const ProgramValues& values, int all, std::string_view card) {
  ProgramRanks found;
  found.all = all;
  for (const auto& report : reports) {
    found.copies += report.copies;
    found.nothing += report.nothing;
    found.has_nccl = found.has_nccl || report.communicators != 0;
    if (report.ranks < 2) continue;
    for (std::uint64_t i = 0; i < report.devices; ++i) {
      const auto& device = report.device[i];
      if (device.peak == 0 && device.refused == 0) continue;
      ProgramRank rank{.rank = report.rank,
                       .process = report.process,
                       .device = i,
                       .capacity = device.total - device.context,
                       .peak = device.peak,
                       .refused = device.refused,
                       .libraries = device.libraries,
                       .first_refused = device.first_refused_size,
                       .first_refused_held = device.first_refused_held};
      for (const auto& peak : values.peaks) {
        if (peak.process != report.process) continue;
        rank.reserved += peak.reserved;
        rank.allocated += peak.allocated;
      }
      rank.nccl = nccl_memory(report, card);
      found.ranks.push_back(rank);
    }
  }
  if (found.ranks.size() < 2 && all == 0) found.ranks.clear();
  std::stable_sort(found.ranks.begin(), found.ranks.end(), [](const auto& a, const auto& b) {
    if ((a.refused != 0) != (b.refused != 0)) return a.refused != 0;
    if (a.peak != b.peak) return a.peak > b.peak;
    return a.rank < b.rank;
  });
  std::ifstream stuck(folder + "/ranks.stuck");
  for (std::string line; std::getline(stuck, line);) {
    const auto fields = fields_of(line);
    if (fields.size() == 2 && fields[0] == "quiet")
      found.quiet_s = text::to_u64(fields[1]).value_or(0);
    if (fields.size() == 6 && fields[0] == "rank")
      found.waiting.push_back({.rank = text::to_u64(fields[1]).value_or(0),
                               .process = text::to_u64(fields[2]).value_or(0),
                               .what = fields[3],
                               .missing = fields[4],
                               .line = fields[5]});
  }
  std::stable_sort(found.waiting.begin(), found.waiting.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::ifstream said(folder + "/ranks.said");
  for (std::string line; std::getline(said, line);) {
    const auto fields = fields_of(line);
    if (fields.size() != 2) continue;
    if (fields[0] == "gone") add_gone(found.gone, fields[1]);
    // The others say the same of themselves.
    if (fields[0] == "mismatch" && found.differing.empty()) found.differing.push_back(fields[1]);
    if (fields[0] == "absent" && std::find(found.differing.begin(), found.differing.end(),
                                           fields[1]) == found.differing.end())
      found.differing.push_back(fields[1]);
  }
  return found;
}

void say_ranks(Console& console, const ProgramRanks& ranks, std::string_view card) {
  const auto& first = ranks.ranks.front();
  const auto where = text::format("device {}, a simulated {}", first.device, card);
  if (first.refused == 0) {
    console.say(
        text::format("{}it fits on each of {} ranks{}: rank {}, the tightest, takes at most {} of "
                     "the {} of {}; {} "
                     "are left",
                     ranks.is_cut() ? "so far " : "", ranks.ranks.size(),
                     ranks.all != 0 ? text::format(" that ran, of {}", ranks.all) : std::string(),
                     first.rank, with_bytes(first.peak), units::bytes(first.capacity), where,
                     units::bytes(first.capacity - std::min(first.peak, first.capacity))));
    return;
  }
  const auto refused = std::count_if(ranks.ranks.begin(), ranks.ranks.end(),
                                     [](const ProgramRank& one) { return one.refused != 0; });
  const auto wanted = first.first_refused_held + first.first_refused;
  console.say(text::format(
      "it does not fit as it is: rank {} was refused {} {} for want of memory; the first was of "
      "{}, when it held {} of {} of {}{}{}",
      first.rank, first.refused, first.refused == 1 ? "request" : "requests",
      with_bytes(first.first_refused), units::bytes(first.first_refused_held),
      with_bytes(first.capacity), where,
      wanted > first.capacity ? ": it lacked " + units::bytes(wanted - first.capacity)
                              : std::string(),
      refused > 1 ? text::format("; {} of {} ranks were refused some", refused, ranks.ranks.size())
                  : std::string()));
}

void say_nccl(Console& console, const ProgramRanks& ranks) {
  if (!ranks.has_nccl) return;
  const ProgramRank* most = nullptr;  // that for which most was measured
  for (const auto& one : ranks.ranks) {
    if (one.nccl.measured != 0 && (most == nullptr || one.nccl.bytes > most->nccl.bytes))
      most = &one;
  }
  if (most == nullptr) {
    console.say(
        "besides, NCCL takes memory of a real card outside of the allocator, which is not counted "
        "here: nobody has measured it for such communicators");
    return;
  }
  console.say(text::format(
      "besides, NCCL takes memory of a real card outside of the allocator: on rank {} {} for {} of "
      "its communicators, as measured ({}){}",
      most->rank, units::bytes(most->nccl.bytes), most->nccl.measured, most->nccl.source,
      most->nccl.unknown != 0 ? text::format("; what {} more take is not known", most->nccl.unknown)
                              : std::string()));
}

void show_ranks(Console& console, const ProgramRanks& ranks) {
  const bool has_torch = std::any_of(ranks.ranks.begin(), ranks.ranks.end(),
                                     [](const ProgramRank& one) { return one.reserved != 0; });
  std::vector<std::vector<std::string>> rows{
      {"rank", "device", "process", "peak", "left", "refused"}};
  std::string columns = "lllrrr";
  if (has_torch) {
    rows.front().insert(rows.front().end(), {"PyTorch reserved", "allocated"});
    columns += "rr";
  }
  for (const auto& one : ranks.ranks) {
    if (rows.size() > kShownRanks) break;
    rows.push_back({text::format("{}", one.rank), text::format("{}", one.device),
                    text::format("{}", one.process), units::bytes(one.peak),
                    units::bytes(one.capacity - std::min(one.peak, one.capacity)),
                    text::format("{}", one.refused)});
    if (has_torch)
      rows.back().insert(rows.back().end(),
                         {text::grouped(one.reserved), text::grouped(one.allocated)});
  }
  console.aside(format::columns(columns, rows));
  if (ranks.ranks.size() > kShownRanks)
    console.say(text::format("and {} ranks more, none of which takes more",
                             ranks.ranks.size() - kShownRanks));
}

void say_absent(Console& console, const ProgramRanks& ranks) {
  if (ranks.copies == 0 && ranks.nothing == 0) return;
  const auto counted = [](std::uint64_t count, std::string_view one, std::string_view more) {
    return text::format("{} {}", text::grouped(count), count == 1 ? one : more);
  };
  std::vector<std::string> words;
  if (ranks.copies != 0)
    words.push_back(counted(ranks.copies, "small collective took a rank's own values for theirs",
                            "small collectives took a rank's own values for theirs"));
  if (ranks.nothing != 0)
    words.push_back(counted(ranks.nothing, "receive or root of theirs gave nothing",
                            "receives or roots of theirs gave nothing"));
  console.say(
      text::format("ranks that do not run were answered for: {}; sizes that depend on what "
                   "they would give may be others",
                   text::join(words)));
}

void say_waits(Console& console, const ProgramRanks& ranks) {
  constexpr std::size_t kNamed = 3;  // the first are the cause of the others
  for (const auto& words : ranks.differing) console.say(words);
  for (std::size_t i = 0; i < ranks.gone.size() && i < kNamed; ++i) console.say(ranks.gone[i]);
  if (ranks.waiting.empty()) return;
  console.say(
      text::format("no rank went on for {} s, and they were ended: they wait for one another, or "
                   "for what does not come",
                   ranks.quiet_s));
  const bool has_lines = std::any_of(ranks.waiting.begin(), ranks.waiting.end(),
                                     [](const WaitingRank& one) { return !one.line.empty(); });
  std::vector<std::vector<std::string>> rows{{"rank", "process", "waits in", "for"}};
  if (has_lines) rows.front().emplace_back("line");
  for (const auto& one : ranks.waiting) {
    if (rows.size() > kShownRanks) break;
    rows.push_back({text::format("{}", one.rank), text::format("{}", one.process),
                    one.what.empty() ? "nothing of NCCL's" : one.what, one.missing});
    if (has_lines) rows.back().push_back(one.line);
  }
  console.aside(format::columns(has_lines ? "lllll" : "llll", rows));
}

}  // namespace emm::cli
