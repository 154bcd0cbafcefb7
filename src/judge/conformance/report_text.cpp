#include <map>

#include "base/text.hpp"
#include "conformance/suite.hpp"

namespace emm::conformance {
namespace {

using Kind = Verdict::Kind;

/// Puts a plugin's words on one line and removes what a terminal would interpret.
std::string on_one_line(std::string_view words) {
  return text::printable(words, std::string::npos);
}

std::string failure(const Judged& one) {
  const auto& [clause, verdict, ns] = one;
  auto out = text::format("FAILED {} ({}): {}\n", clause->id, name(clause->level), clause->rule);
  out += text::format("  done      {}\n  seen      {}\n  expected  {}\n  source    {}\n",
                      on_one_line(verdict.words), on_one_line(verdict.seen),
                      on_one_line(verdict.expected), clause->source);
  std::string_view calls = verdict.calls;
  for (std::string_view head = "  calls     "; !calls.empty(); head = "            ") {
    const auto end = calls.find('\n');
    out += text::format("{}{}\n", head, calls.substr(0, end));
    calls.remove_prefix(end == std::string_view::npos ? calls.size() : end + 1);
  }
  if (!verdict.trace.empty())
    out += text::format("  replay    emmctl replay TRACE {}\n", verdict.options);
  return out;
}

}  // namespace

std::string to_text(const Report& report) {
  const auto subject = on_one_line(report.subject.manager);
  std::string out;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::fail) out += failure(one);
  }
  std::map<std::string, std::string> unjudged;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::pass || one.verdict.kind == Kind::fail) continue;
    auto& ids =
        unjudged[text::format("{}: {}", name(one.verdict.kind), on_one_line(one.verdict.words))];
    ids += text::format("{}{}", ids.empty() ? "" : " ", one.clause->id);
  }
  for (const auto& [why, ids] : unjudged) out += text::format("{}\n  {}\n", why, ids);
  std::string failed;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::fail)
      failed += text::format("{}{}", failed.empty() ? " (" : ", ", one.clause->id);
  }
  if (!failed.empty()) failed += ")";
  out +=
      text::format("{}: {} clauses, {} passed, {} failed{}, {} not applicable, {} inconclusive\n",
                   report.own ? std::string_view("emmctl") : std::string_view(subject),
                   report.judged.size(), report.count(Kind::pass), report.count(Kind::fail), failed,
                   report.count(Kind::not_applicable), report.count(Kind::inconclusive));
  return out;
}

}  // namespace emm::conformance
