#include <algorithm>
#include <tuple>

#include "base/text.hpp"
#include "conformance/findings.hpp"
#include "conformance/numba_words.hpp"
#include "conformance/suite.hpp"
#include "format/json_writer.hpp"
#include "format/xml.hpp"

namespace emm::conformance {
namespace {

using Kind = Verdict::Kind;

/// Makes a plugin's words safe to show on a terminal, on one line.
std::string shown(std::string_view words) { return text::printable(words, std::string::npos); }

/// Escapes `text` for an XML attribute or element, line by line.
std::string xml(std::string_view text) {
  std::string lines;
  for (bool first = true; first || !text.empty(); first = false) {
    const auto end = std::min(text.find('\n'), text.size());
    lines += shown(text.substr(0, end));
    if (end < text.size()) lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return format::xml_escaped(lines);
}

std::string told(const Verdict& verdict) {
  return text::format("{}: {}, expected {}", verdict.words, verdict.seen, verdict.expected);
}

}  // namespace

std::string to_json(const Report& report, bool times) {
  format::JsonAnswer json("emmctl.conformance/1", 2);
  json.member("subject", report.subject.manager).member("device", report.subject.device);
  json.member("profile", report.subject.profile == Profile::numba ? "numba" : "standard");
  json.member("seed", report.subject.seed);
  for (const auto kind : {Kind::pass, Kind::fail, Kind::not_applicable, Kind::inconclusive}) {
    std::string key(name(kind));
    for (auto& c : key) c = c == ' ' ? '_' : c;
    json.member(key, report.count(kind));
  }
  json.member("interrupted", report.interrupted());
  json.objects("findings", findings_of(report), [&](const auto& finding) {
    const auto id_of = [](const Judged* one) { return one->clause->id; };
    json.member("says", finding.says).member("clause", finding.shown->clause->id);
    json.values("failed", finding.failed, id_of).values("unjudged", finding.unjudged, id_of);
    if (!report.again.empty()) json.member("again", command_of(report, finding));
  });
  json.objects("clauses", report.judged, [&](const Judged& one) {
    const auto& [clause, verdict, ns] = std::tie(one.clause, one.verdict, one.ns);
    json.member("id", clause->id).member("rule", clause->rule).member("source", clause->source);
    json.member("level", clause->level);
    json.member("scope", clause->of_class ? "classes of Python's" : name(clause->scope));
    json.member("verdict", verdict.kind);
    if (times) json.member("ns", ns);
    if (verdict.kind == Kind::fail) {
      const auto* const words = find_numba_words(clause->id);
      json.member("done", verdict.words).member("seen", verdict.seen);
      json.member("expected", verdict.expected).member("calls", verdict.calls);
      json.member("python", verdict.story);
      json.member("then", words != nullptr ? words->then : std::string_view());
      json.member("nbep7", words != nullptr ? words->sentence : std::string_view());
      if (!verdict.trace.empty())
        json.member("replay_options", verdict.options).member("trace", verdict.trace);
    } else if (!verdict.words.empty()) {
      json.member("why", verdict.words);
    }
  });
  return json.finish();
}

std::string to_junit(const Report& report, bool times) {
  auto out = text::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"emmctl conformance {}\" "
      "tests=\"{}\" failures=\"{}\" "
      "skipped=\"{}\">\n",
      xml(report.subject.manager), report.judged.size(), report.count(Kind::fail),
      report.count(Kind::not_applicable) + report.count(Kind::inconclusive));
  if (report.interrupted()) {
    out += text::format(
        "  <properties>\n    <property name=\"interrupted\" value=\"{} of {} clauses were "
        "judged\"/>\n  </properties>\n",
        report.reached(), report.judged.size());
  }
  for (const auto& one : report.judged) {
    const auto& [clause, verdict, ns] = std::tie(one.clause, one.verdict, one.ns);
    out += text::format("  <testcase classname=\"{}\" name=\"{}\"", name(clause->level),
                        xml(clause->id));
    if (times) out += text::format(" time=\"{}\"", text::fixed(static_cast<double>(ns) / 1e9, 6));
    if (verdict.kind == Kind::pass) {
      out += "/>\n";
    } else if (verdict.kind == Kind::fail) {
      out += text::format(
          ">\n    <failure message=\"{}\">{}\n{}</failure>\n  </testcase>\n",
          xml(shown(told(verdict))), xml(clause->rule),
          xml(verdict.story.empty() ? verdict.calls : verdict.story + "\n" + verdict.calls));
    } else {
      out += text::format(">\n    <skipped message=\"{}: {}\"/>\n  </testcase>\n",
                          name(verdict.kind), xml(shown(verdict.words)));
    }
  }
  return out + "</testsuite>\n";
}

std::string to_tap(const Report& report) {
  auto out = text::format("TAP version 13\n1..{}\n", report.judged.size());
  if (report.interrupted())
    out += text::format("# interrupted: {} of {} clauses were judged\n", report.reached(),
                        report.judged.size());
  for (std::size_t i = 0; i < report.judged.size(); ++i) {
    const auto& [clause, verdict, ns] =
        std::tie(report.judged[i].clause, report.judged[i].verdict, report.judged[i].ns);
    out += text::format("{} {} - {} {}", verdict.kind == Kind::fail ? "not ok" : "ok", i + 1,
                        clause->id, clause->rule);
    if (verdict.kind == Kind::not_applicable || verdict.kind == Kind::inconclusive) {
      out += text::format(" # SKIP {}: {}", name(verdict.kind), shown(verdict.words));
    }
    out += '\n';
    if (verdict.kind == Kind::fail) out += text::format("# {}\n", shown(told(verdict)));
  }
  return out;
}

}  // namespace emm::conformance
