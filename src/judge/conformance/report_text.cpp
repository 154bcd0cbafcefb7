#include <algorithm>
#include <cctype>
#include <map>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "conformance/findings.hpp"
#include "conformance/numba_words.hpp"
#include "conformance/suite.hpp"

namespace emm::conformance {
namespace {

using Kind = Verdict::Kind;

/// Puts a plugin's words on one line and removes what a terminal would interpret.
std::string on_one_line(std::string_view words) {
  return text::printable(words, std::string::npos);
}

std::string file_of(const Judged& one) {
  std::string name(one.clause->id);
  std::replace(name.begin(), name.end(), '/', '-');
  return name + ".json";
}

/// Lines, the first of them behind `head`.
std::string rows(std::string_view head, std::string_view lines) {
  std::string out;
  const std::string room(head.size(), ' ');
  for (; !lines.empty(); head = room) {
    const auto end = lines.find('\n');
    out += text::format("{}{}\n", head, on_one_line(lines.substr(0, end)));
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  }
  return out;
}

std::string failure(const Report& report, const Judged& one) {
  const auto& clause = one.clause;
  const auto& verdict = one.verdict;
  auto out = text::format("FAILED {} ({}): {}\n", clause->id, name(clause->level), clause->rule);
  out += text::format("  done      {}\n  seen      {}\n  expected  {}\n  source    {}\n",
                      on_one_line(verdict.words), on_one_line(verdict.seen),
                      on_one_line(verdict.expected), clause->source);
  if (report.subject.is_class) {
    out += rows("  python    ", verdict.story);
    if (const auto* const words = find_numba_words(clause->id); words != nullptr)
      out += text::format("  then      {}\n  nbep 7    {}\n", words->then, words->sentence);
  }
  out += rows("  calls     ", verdict.calls);
  const auto* seen_in = one.seen_in != nullptr ? one.seen_in : clause;
  if (!report.again.empty())
    out += text::format("  again     {} --clause {} --more\n", report.again, seen_in->id);
  if (!verdict.trace.empty() && !report.traces.empty())
    out += text::format("  replay    emmctl replay {} {}\n",
                        text::shell_word(report.traces + "/" + file_of(one)), verdict.options);
  return out;
}

/// Why clauses were not judged, with their ids. `inconclusive_alone` leaves out those that are not
/// applicable, and those that a finding has kept from it.
std::map<std::string, std::string> why_unjudged(const Report& report, bool inconclusive_alone) {
  std::map<std::string, std::string> unjudged;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::pass || one.verdict.kind == Kind::fail) continue;
    if (one.verdict.words == kInterrupted) continue;  // told_interrupt() counts them
    if (inconclusive_alone && (one.verdict.kind != Kind::inconclusive || one.behind != nullptr))
      continue;
    auto& ids =
        unjudged[text::format("{}: {}", name(one.verdict.kind), on_one_line(one.verdict.words))];
    ids += text::format("{}{}", ids.empty() ? "" : " ", one.clause->id);
  }
  return unjudged;
}

std::string counts(const Report& report, std::string_view failed) {
  return text::format("{} clauses, {} passed, {} failed{}, {} not applicable, {} inconclusive\n",
                      report.judged.size(), report.count(Kind::pass), report.count(Kind::fail),
                      failed, report.count(Kind::not_applicable), report.count(Kind::inconclusive));
}

std::string told_interrupt(const Report& report) {
  if (!report.interrupted()) return {};
  return text::format("interrupted: {} of {} clauses were judged\n", report.reached(),
                      report.judged.size());
}

std::size_t count_words(std::string_view text) {
  std::size_t count = 0;
  bool inside = false;
  for (const char c : text) {
    const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
    count += !is_space && !inside;
    inside = !is_space;
  }
  return count;
}

/// The first `most` words.
std::string cut_to_words(std::string_view text, std::size_t most) {
  std::size_t words = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && ++words == most) return std::string(text.substr(0, i)) + " ...";
  }
  return std::string(text);
}

std::string ids_of(const std::vector<const Judged*>& clauses, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < clauses.size() && i < most; ++i)
    out += text::format("{}{}", i == 0 ? "" : ", ", clauses[i]->clause->id);
  if (clauses.size() > most) out += text::format(" and {} more", clauses.size() - most);
  return out;
}

std::string head_of(const Finding& finding, std::size_t words) {
  return text::format("FAILED {}: {}\n", finding.shown->clause->id,
                      cut_to_words(on_one_line(finding.says), words));
}

/// A line has at most `most` words.
std::string brief_finding(const Report& report, const Finding& finding, std::size_t most) {
  constexpr std::size_t kHead = 20, kIds = 4;  // words; ids
  const auto& verdict = finding.shown->verdict.kind == Kind::fail ? finding.shown->verdict
                                                                  : finding.shown->shown_behind;
  auto out = head_of(finding, kHead);
  const auto row = [&](std::string_view head, std::string_view words) {
    if (!words.empty())
      out += text::format("  {}{}\n", head, cut_to_words(on_one_line(words), most));
  };
  const bool is_harm = verdict.expected.starts_with(kNoHarm);
  if (!is_harm) row("done      ", verdict.words);
  std::string_view seen = verdict.seen;
  if (finding.says.find(seen) != std::string::npos) seen = {};
  if (seen.starts_with(finding.says)) {  // what it says besides
    seen.remove_prefix(finding.says.size());
    seen.remove_prefix(std::min(seen.find_first_not_of(",; "), seen.size()));
  }
  row("seen      ", seen);
  if (!is_harm) row("expected  ", verdict.expected);
  if (report.subject.is_class && !verdict.story.empty()) {
    // The traceback ends with the exception, which is what was seen; the line before it raised it.
    std::vector<std::string_view> lines;
    for (std::string_view rest = verdict.story; !rest.empty();) {
      const auto end = std::min(rest.find('\n'), rest.size());
      lines.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    const bool is_traceback = !lines.front().ends_with(" ran:");
    row("python    ", lines[lines.size() - (is_traceback && lines.size() > 1 ? 2 : 1)]);
    if (const auto* const words = find_numba_words(finding.shown->clause->id); words != nullptr)
      row("then      ", words->then);
  }
  std::string breaks;
  if (finding.failed.size() > 1)
    breaks = text::format("{} clauses: {}", finding.failed.size(), ids_of(finding.failed, kIds));
  if (!finding.unjudged.empty())
    breaks += text::format("{}{} cannot be judged for it", breaks.empty() ? "" : "; ",
                           finding.unjudged.size());
  if (!breaks.empty()) out += text::format("  breaks    {}\n", breaks);
  if (!report.again.empty()) out += text::format("  again     {}\n", command_of(report, finding));
  return out;
}

/// The counts, and why clauses were not judged: with their ids if there is room, else with how
/// many.
std::string brief_without_failures(const Report& report, std::size_t most, std::size_t words) {
  const auto head =
      on_one_line(report.subject.manager) + ": " + counts(report, {}) + told_interrupt(report);
  const auto why = why_unjudged(report, false);
  std::string whole;
  for (const auto& [reason, ids] : why) whole += text::format("{}\n  {}\n", reason, ids);
  if (count_words(head) + count_words(whole) <= most) return head + whole;

  const std::string_view more = "--more shows which clauses were not judged.\n";
  constexpr std::size_t kRest = 4;  // words of the line that counts the rest
  auto room = most - std::min(most, count_words(head) + count_words(more) + kRest);
  std::string out;
  std::size_t shown = 0;
  for (const auto& [reason, ids] : why) {
    const auto line = text::format("{} ({})\n", cut_to_words(reason, words), count_words(ids));
    if (count_words(line) > room) break;
    room -= count_words(line);
    out += line;
    ++shown;
  }
  if (shown < why.size()) out += text::format("and {} more reasons\n", why.size() - shown);
  return text::format("{}{}{}", head, out, more);
}

}  // namespace

std::string to_text(const Report& report) {
  std::string out;
  const auto findings = findings_of(report);
  for (const auto& finding : findings) {
    out += text::format("finding: {}\n  {}\n", on_one_line(finding.says),
                        ids_of(finding.failed, finding.failed.size()));
  }
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::fail) out += failure(report, one);
  }
  for (const auto& [why, ids] : why_unjudged(report, false))
    out += text::format("{}\n  {}\n", why, ids);
  out += told_interrupt(report);
  std::string failed;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::fail)
      failed += text::format("{}{}", failed.empty() ? " (" : ", ", one.clause->id);
  }
  if (!failed.empty()) failed += ")";
  return out + on_one_line(report.subject.manager) + ": " + counts(report, failed);
}

std::string to_brief_text(const Report& report) {
  // Bytes of the line, and words of a rule that it quotes.
  constexpr std::size_t kMost = 120, kHeadWords = 12;
  if (report.count(Kind::fail) == 0) return brief_without_failures(report, kMost, kHeadWords);
  const auto findings = findings_of(report);
  std::string end;
  end += text::format("{}: {}, {}", on_one_line(report.subject.manager),
                      findings.size() == 1 ? std::string("1 finding")
                                           : text::format("{} findings", findings.size()),
                      counts(report, {}));
  end += "--more shows each clause, what was not judged and why, and the calls.\n";

  // Findings are shown in full while there is room, then by their heads, then counted.
  std::string out;
  auto room = kMost - count_words(end);
  const auto add = [&](const std::string& words, std::size_t kept) {
    const auto takes = count_words(words);
    if (takes + kept > room) return false;
    room -= takes;
    out += words;
    return true;
  };
  constexpr std::size_t kRest = 6;  // words of the line that counts the rest
  const auto interrupt = told_interrupt(report);
  room -= count_words(interrupt);
  std::size_t shown = 0;
  for (; shown < findings.size(); ++shown) {
    const auto& finding = findings[shown];
    const std::size_t kept = shown + 1 == findings.size() ? 0 : kRest;
    const auto left = shown == 0 || kept == 0 ? kept : kept + kHeadWords;
    // The words that a short line leaves out may be those that name the cause.
    const auto add_whole = [&](std::size_t most, std::size_t others) {
      return add(brief_finding(report, finding, most), others);
    };
    const auto heads = kept == 0 ? 0 : kept + kHeadWords;
    if (!add_whole(40, heads) && !add_whole(24, heads) && !add_whole(16, heads) &&
        !add_whole(10, left) && !add(head_of(finding, kHeadWords), kept))
      break;
  }
  if (shown < findings.size())
    add(text::format("and {} more findings\n", findings.size() - shown), 0);
  if (const auto why = why_unjudged(report, true); !why.empty()) {
    add(text::format("{}{}\n", cut_to_words(why.begin()->first, kHeadWords),
                     why.size() > 1 ? text::format(" (and {} more)", why.size() - 1) : ""),
        0);
  }
  return out + interrupt + end;
}

}  // namespace emm::conformance
