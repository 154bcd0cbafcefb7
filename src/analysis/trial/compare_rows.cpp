#include "trial/compare_rows.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/csv_line.hpp"
#include "format/svg.hpp"
#include "format/xml.hpp"
#include "trace/lifetimes.hpp"

namespace emm::trial {
namespace {

MedianInterval interval_of(const format::JsonValue& of, std::string_view name) {
  MedianInterval interval;
  const auto* member = of.find(name);
  if (member == nullptr) return interval;
  const auto number = [&](std::string_view which) {
    const auto* value = member->find(which);
    return value != nullptr ? value->as_double().value_or(0) : 0;
  };
  interval.median = number("median");
  interval.low = number("low");
  interval.high = number("high");
  interval.confidence = number("confidence");
  return interval;
}

void add_rows(std::vector<ComparedRow>& rows, const format::JsonValue& comparison) {
  const auto* managers = comparison.find("managers");
  if (managers == nullptr) return;
  for (const auto& each : managers->elements) {
    if (each.find("cut_off") != nullptr) continue;
    rows.push_back({.trace = text_of(comparison, "trace"),
                    .device = text_of(comparison, "device"),
                    .manager = text_of(each, "manager"),
                    .peak_live = count_of(each, "peak_live_bytes"),
                    .no_wait = 0,
                    .peak_reserved = count_of(each, "peak_reserved_bytes"),
                    .failures = count_of(each, "failures"),
                    .hazards = count_of(each, "hazards"),
                    .violations = count_of(each, "violations"),
                    .warm = interval_of(each, "ns_per_event"),
                    .first = interval_of(each, "first_ns_per_event"),
                    .instructions = interval_of(each, "instructions_per_event")});
  }
}

std::string ratio(std::uint64_t bytes, std::uint64_t of) {
  return of == 0 ? std::string()
                 : text::fixed(static_cast<double>(bytes) / static_cast<double>(of), 3);
}

/// A manager that makes no driver calls takes no time by a driver whose clock is a model.
std::string time_of(const MedianInterval& interval) {
  return interval.median == 0 ? std::string("-") : text::fixed(interval.median, 1);
}

std::string in_markdown(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '|' || c == '\\') out.push_back('\\');
    out.push_back(c == '\n' ? ' ' : c);
  }
  return out;
}

/// Returns the verdicts against the first manager: "time worse 1.05, reserved same".
std::string against_first(const ComparedRow& row) {
  std::vector<std::string> words;
  for (const auto& verdict : row.verdicts) {
    if (verdict.place != std::size_t{0}) continue;
    if (verdict.measure == "ns_per_event") words.push_back("time " + in_words_with_doubt(verdict));
    if (verdict.measure == "reserved") words.push_back("reserved " + in_words_with_doubt(verdict));
  }
  return text::join(words, ", ");
}
std::string_view standing_of(const ComparedRow& row, std::string_view measure) {
  for (const auto& verdict : row.verdicts) {
    if (verdict.place == std::size_t{0} && verdict.measure == measure)
      return name(verdict.standing);
  }
  return {};
}

bool several_devices(const std::vector<ComparedRow>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& row) { return row.device != rows.front().device; });
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

const ComparedRow* find(const std::vector<ComparedRow>& rows, const ComparedRow& row,
                        bool with_device) {
  // The same file may have been given by another path.
  for (const bool whole_path : {true, false}) {
    for (const auto& each : rows) {
      const bool same_trace =
          whole_path ? each.trace == row.trace : file_name(each.trace) == file_name(row.trace);
      if (same_trace && each.manager == row.manager && (!with_device || each.device == row.device))
        return &each;
    }
  }
  return nullptr;
}

/// A measure of a gate. Exact values are intervals of length 0.
struct Measure {
  std::string_view name;
  MedianInterval (*of)(const ComparedRow& row);
  bool bytes;
};
constexpr MedianInterval exact(std::uint64_t value) {
  const auto number = static_cast<double>(value);
  return {.median = number, .low = number, .high = number, .confidence = 1};
}
constexpr std::array<Measure, 7> kMeasures{{
    {"reserved", [](const ComparedRow& row) { return exact(row.peak_reserved); }, true},
    {"ns_per_event", [](const ComparedRow& row) { return row.warm; }, false},
    {"first_ns_per_event", [](const ComparedRow& row) { return row.first; }, false},
    {"instructions_per_event", [](const ComparedRow& row) { return row.instructions; }, false},
    {"failures", [](const ComparedRow& row) { return exact(row.failures); }, false},
    {"hazards", [](const ComparedRow& row) { return exact(row.hazards); }, false},
    {"violations", [](const ComparedRow& row) { return exact(row.violations); }, false},
}};
const Measure* measure_of(std::string_view name) {
  for (const auto& measure : kMeasures) {
    if (measure.name == name) return &measure;
  }
  return nullptr;
}

/// The names of the measures, for Condition::parse().
const std::vector<MeasureName>& measure_names() {
  static const auto names = [] {
    std::vector<MeasureName> all;
    for (const auto& measure : kMeasures) all.push_back({measure.name, measure.bytes});
    return all;
  }();
  return names;
}

}  // namespace

std::optional<RecordedPeak> recorded_peak(const trace::Trace& trace) {
  const auto most = trace::Lifetimes(trace).peak_of(trace::Lifetime::MemoryKind::backing);
  if (most == 0) return std::nullopt;
  const auto& header = trace.header();
  const bool torch = header.framework.starts_with("torch") || header.tool.starts_with("torch");
  bool refused = false;
  for (std::size_t event = 0; event < trace.size() && !refused; ++event)
    refused = trace::is_refused(trace[event]);
  return RecordedPeak{
      .name = torch ? "PyTorch as recorded" : "as recorded", .bytes = most, .refused = refused};
}

std::optional<Below> RecordedPeak::below(std::uint64_t bound, std::uint64_t peak_live) const {
  if (bytes >= bound) return std::nullopt;
  if (refused) return Below::not_served;
  return bytes < peak_live ? Below::not_counted : Below::waits;
}

std::vector<ComparedRow> rows_of(const Comparison& comparison, const trace::Trace& trace) {
  std::vector<ComparedRow> rows;
  std::uint64_t live = 0, no_wait = 0;
  for (const auto& need : comparison.needs) {
    live += need.peak_live;
    no_wait += need.no_wait;
  }
  const auto recorded = recorded_peak(trace);
  auto verdicts =
      recorded ? verdicts_of(comparison, recorded->bytes, recorded->name) : verdicts_of(comparison);
  if (recorded) {
    rows.push_back({.trace = trace.source(),
                    .device = comparison.device,
                    .manager = recorded->name,
                    .peak_live = live,
                    .no_wait = no_wait,
                    .peak_reserved = recorded->bytes,
                    .timed = false});
  }
  auto verdict = verdicts.begin();
  for (const auto& each : comparison.contestants) {
    rows.push_back({.trace = trace.source(),
                    .device = comparison.device,
                    .manager = each.manager,
                    .peak_live = live,
                    .no_wait = no_wait,
                    .peak_reserved = each.judged.pass.peak_reserved_bytes,
                    .failures = each.judged.pass.failures,
                    .hazards = each.judged.pass.hazards,
                    .violations = each.judged.violation_count,
                    .warm = each.warm,
                    .first = each.first,
                    .instructions = each.instructions.empty()
                                        ? MedianInterval()
                                        : median_interval(each.instructions)});
    rows.back().left_out = not_served(each.judged);
    rows.back().verdicts = std::move(*verdict++);
  }
  return rows;
}

Result<std::vector<ComparedRow>> rows_of(const format::JsonValue& json, const std::string& path) {
  std::vector<ComparedRow> rows;
  const auto schema = text_of(json, "schema");
  if (schema == "emmctl.compare/2") {
    add_rows(rows, json);
  } else if (schema == "emmctl.compare-set/1") {
    if (const auto* all = json.find("comparisons")) {
      for (const auto& each : all->elements) add_rows(rows, each);
    }
  } else {
    return fail(Errc::parse_error, "{}: expected what emmctl compare --json wrote", path);
  }
  return rows;
}

std::string to_markdown(const std::vector<ComparedRow>& rows) {
  const bool devices = several_devices(rows);
  std::string out = text::format(
      "| trace |{} manager | reserved | of live | of no-wait need | ns an event | first pass | "
      "failures | verdict |\n| --- |{} --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
      devices ? " device |" : "", devices ? " --- |" : "");
  for (const auto& row : rows) {
    out += text::format("| {} |", in_markdown(file_name(row.trace)));
    if (devices) out += text::format(" {} |", in_markdown(row.device));
    out +=
        text::format(" {} | {} | {} | {} | {} | {} | {} | {} |\n", in_markdown(row.manager),
                     units::bytes(row.peak_reserved), ratio(row.peak_reserved, row.peak_live),
                     ratio(row.peak_reserved, row.no_wait), row.timed ? time_of(row.warm) : "",
                     row.timed ? time_of(row.first) : "",
                     row.timed ? text::grouped(row.failures) : "", in_markdown(against_first(row)));
  }
  return out;
}

std::string to_csv(const std::vector<ComparedRow>& rows) {
  std::string out =
      "trace,device,manager,peak_live_bytes,no_wait_need_bytes,peak_reserved_bytes,"
      "ns_per_event,ns_per_event_low,ns_per_event_high,first_ns_per_event,failures,hazards,"
      "violations,ns_verdict,reserved_verdict\n";
  for (const auto& row : rows) {
    out += text::format("{},{},{},{},{},{},", format::csv_field(row.trace),
                        format::csv_field(row.device), format::csv_field(row.manager),
                        row.peak_live, row.no_wait, row.peak_reserved);
    if (row.timed) {
      out +=
          text::format("{},{},{},{},{},{},{},{},{}\n", row.warm.median, row.warm.low, row.warm.high,
                       row.first.median, row.failures, row.hazards, row.violations,
                       standing_of(row, "ns_per_event"), standing_of(row, "reserved"));
    } else {
      out += ",,,,,,,,\n";
    }
  }
  return out;
}

Result<Gate> Gate::parse(const std::string& words) {
  Gate gate;
  gate.words_ = words;
  if (const auto is = words.find(" is "); is != std::string::npos) {
    const auto* measure = measure_of(text::trim(std::string_view(words).substr(0, is)));
    const auto standing = text::trim(std::string_view(words).substr(is + 4));
    for (const auto each : {Standing::better, Standing::worse, Standing::inconclusive}) {
      if (standing == name(each)) gate.standing_ = each;
    }
    if (measure == nullptr || !gate.standing_) {
      return fail(Errc::usage,
                  "--fail-if {}: expected a measure, and better, worse or inconclusive", words);
    }
    gate.measure_ = measure->name;
    return gate;
  }
  auto condition = Condition::parse(words, measure_names());
  if (!condition) return std::move(condition).error();
  gate.measure_ = condition->measure();
  gate.condition_ = std::move(*condition);
  return gate;
}

Result<std::vector<GateFailure>> Gate::failures(const std::vector<ComparedRow>& rows,
                                                const std::vector<ComparedRow>& baseline,
                                                const std::string& baseline_path,
                                                std::vector<std::string>& passed) const {
  std::vector<GateFailure> out;
  const auto& measure = *measure_of(measure_);
  const bool with_device = several_devices(rows) && several_devices(baseline);
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const auto& row = rows[place];
    if (!row.timed) continue;
    if (standing_) {
      for (const auto& verdict : row.verdicts) {
        if (verdict.place != std::size_t{0} || verdict.measure != measure_) continue;
        if (verdict.standing != *standing_) {
          passed.push_back(text::format("--fail-if {}: passes: {} on {}: {} is {} against {}",
                                        words_, row.manager, row.trace, measure_,
                                        in_words_with_doubt(verdict), verdict.against));
          continue;
        }
        out.push_back({place, text::format("--fail-if {}: {} on {}: {} is {} against {}", words_,
                                           row.manager, row.trace, measure_,
                                           in_words_with_doubt(verdict), verdict.against)});
      }
      continue;
    }
    auto bound = condition_->bound();
    std::string than = condition_->shown(bound), against;
    if (condition_->is_relative()) {
      const auto* before = find(baseline, row, with_device);
      if (before == nullptr) {
        return fail(Errc::usage, "--baseline {}: expected {} on {} in it", baseline_path,
                    row.manager, row.trace);
      }
      const auto value = measure.of(*before);
      // The bound lies at the lenient end of the saved interval.
      bound *= condition_->above() ? value.high : value.low;
      than = text::format("{}, {} times the baseline's {}", condition_->shown(bound),
                          text::fixed(condition_->bound(), 3), condition_->shown(value.median));
      against = text::format(", against {} of {}", condition_->shown(value.median), baseline_path);
    }
    const auto value = measure.of(row);
    if (!condition_->holds(value.low, value.high, bound)) {
      passed.push_back(text::format("--fail-if {}: passes: {} on {}: {} is {}{}", words_,
                                    row.manager, row.trace, measure_,
                                    condition_->shown(value.median), against));
      continue;
    }
    out.push_back(
        {place, text::format("--fail-if {}: {} on {}: {} is {}, {} than {}", words_, row.manager,
                             row.trace, measure_, condition_->shown(value.median),
                             condition_->or_equal() ? "no better"
                             : condition_->above()  ? "more"
                                                    : "less",
                             than)});
  }
  return out;
}

namespace {

using format::Svg;

// The picture is drawn in these SVG units.
constexpr double kSvgWidth = 900, kSvgLeft = 210, kSvgBars = 260, kSvgGap = 330, kSvgLine = 22;
constexpr std::string_view kBytesBar = "#4e79a7", kRecordedBar = "#9aa0a6", kTimeBar = "#f28e2b",
                           kLiveLine = "#222222";

std::string cut_to(std::string_view words, std::size_t most) {
  if (words.size() <= most) return std::string(words);
  return "..." + std::string(words.substr(words.size() - (most - 3)));
}

}  // namespace

std::string to_svg(const std::vector<ComparedRow>& rows) {
  std::size_t groups = 0;
  const auto begins = [&](std::size_t at) {
    return at == 0 || rows[at].trace != rows[at - 1].trace ||
           rows[at].device != rows[at - 1].device;
  };
  for (std::size_t at = 0; at < rows.size(); ++at) groups += begins(at) ? 1 : 0;
  Svg svg(kSvgWidth,
          20 + 58 * static_cast<double>(groups) + kSvgLine * static_cast<double>(rows.size()),
          "Managers side by side");
  double y = 10;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    if (begins(at)) {
      y += 20;
      svg.text({12, y},
               cut_to(file_name(rows[at].trace), 60) +
                   (several_devices(rows) ? ", " + cut_to(rows[at].device, 60) : ""),
               {.size = 14, .bold = true});
      y += 20;
      svg.text({kSvgLeft, y},
               text::format("reserved; the line is the peak of what was live, {}",
                            units::bytes(rows[at].peak_live)),
               {.size = 11, .fill = "#666666"});
      svg.text({kSvgLeft + kSvgGap + 30, y}, "ns an event", {.size = 11, .fill = "#666666"});
      y += 18;
    }
    double most_bytes = 1, most_ns = 1;
    auto from = at, to = at;
    while (!begins(from)) --from;
    while (to + 1 < rows.size() && !begins(to + 1)) ++to;
    for (auto i = from; i <= to; ++i) {
      most_bytes = std::max(
          most_bytes, static_cast<double>(std::max(rows[i].peak_reserved, rows[i].peak_live)));
      most_ns = std::max(most_ns, rows[i].warm.high);
    }
    const auto& row = rows[at];
    svg.text({kSvgLeft - 8, y + 4}, cut_to(row.manager, 32), {.anchor = Svg::Anchor::end});
    const auto bytes = kSvgBars / most_bytes;
    const auto width = bytes * static_cast<double>(row.peak_reserved);
    svg.rectangle({kSvgLeft, y - 8}, width, 15, row.timed ? kBytesBar : kRecordedBar);
    const auto live = kSvgLeft + bytes * static_cast<double>(row.peak_live);
    svg.line({live, y - 11}, {live, y + 10}, kLiveLine, 1.5);
    const auto failed = row.failures == 0
                            ? std::string()
                            : text::format(", {} failed", text::grouped(row.failures));
    svg.text({std::max(kSvgLeft + width, live) + 6, y + 4},
             units::bytes(row.peak_reserved) + failed, {.size = 11});
    if (row.timed) {
      const auto left = kSvgLeft + kSvgGap + 30, ns = (kSvgBars - 60) / most_ns;
      svg.rectangle({left, y - 8}, ns * row.warm.median, 15, kTimeBar);
      if (row.warm.high > row.warm.low)
        svg.line({left + ns * row.warm.low, y}, {left + ns * row.warm.high, y}, kLiveLine, 2);
      const auto ratio = standing_of(row, "ns_per_event");
      const auto words =
          time_of(row.warm) + (ratio.empty() ? std::string() : text::format(", {}", ratio));
      svg.text({left + ns * row.warm.high + 6, y + 4}, words, {.size = 11});
    }
    y += kSvgLine;
  }
  return svg.finish();
}

std::string to_junit(const std::vector<ComparedRow>& rows, const std::vector<Gate>& gates,
                     const std::vector<std::vector<GateFailure>>& failures) {
  std::string cases;
  std::size_t count = 0, failed = 0, skipped = 0;
  const auto xml = [](std::string_view words) {
    return format::xml_escaped(text::printable(words, std::string::npos));
  };
  const auto add = [&](const ComparedRow& row, std::string_view what, std::string_view inside) {
    ++count;
    cases += text::format("  <testcase classname=\"{}\" name=\"{}: {}\"", xml(row.trace),
                          xml(row.manager), xml(what));
    cases += inside.empty() ? "/>\n" : text::format(">{}</testcase>\n", inside);
  };
  const auto failure = [&](std::string_view words) {
    ++failed;
    return text::format("<failure message=\"{}\"/>", xml(words));
  };
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const auto& row = rows[at];
    if (!row.timed) continue;
    const auto bad = row.failures + row.violations;
    add(row, "serves the trace",
        bad == 0
            ? std::string()
            : failure(text::format("{} failures, {} violations", row.failures, row.violations)));
    for (const auto& verdict : row.verdicts) {
      const auto words = xml(in_words_with_doubt(verdict));
      if (verdict.standing == Standing::inconclusive) ++skipped;
      add(row, text::format("{} against {}", verdict.measure, verdict.against),
          verdict.standing == Standing::inconclusive
              ? text::format("<skipped message=\"{}\"/>", words)
              : text::format("<system-out>{}</system-out>", words));
    }
    for (std::size_t gate = 0; gate < gates.size(); ++gate) {
      const auto& of = failures[gate];
      const auto found = std::find_if(of.begin(), of.end(),
                                      [&](const GateFailure& each) { return each.row == at; });
      add(row, "--fail-if " + gates[gate].words(),
          found == of.end() ? std::string() : failure(found->words));
    }
  }
  return text::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"emmctl compare\" "
      "tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n{}</testsuite>\n",
      count, failed, skipped, cases);
}

}  // namespace emm::trial
