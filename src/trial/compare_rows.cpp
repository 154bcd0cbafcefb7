#include "trial/compare_rows.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/lifetimes.hpp"

namespace emm::trial {
namespace {

constexpr std::string_view kAsRecorded = "as recorded";

/// What the recorded manager held at most, where the trace has it.
std::optional<std::uint64_t> recorded_peak(const trace::Trace& trace) {
  const inspect::Lifetimes lifetimes(trace);
  std::uint64_t held = 0, most = 0;
  const auto change = [&](AllocId id, bool begins) {
    const auto& each = lifetimes[id];
    if (each.what != inspect::Lifetime::What::backing) return;
    held = begins ? held + each.size : held - each.size;
    most = std::max(most, held);
  };
  lifetimes.walk([&](std::uint32_t, AllocId id) { change(id, true); },
                 [&](std::uint32_t, AllocId id) { change(id, false); }, [](std::uint32_t) {});
  return most == 0 ? std::nullopt : std::optional(most);
}

std::uint64_t number_of(const format::JsonValue& of, std::string_view name) {
  const auto* member = of.find(name);
  return member != nullptr ? member->as_u64().value_or(0) : 0;
}
std::string text_of(const format::JsonValue& of, std::string_view name) {
  const auto* member = of.find(name);
  return std::string(member != nullptr ? member->as_string().value_or("") : "");
}
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
                    .peak_live = number_of(each, "peak_live_bytes"),
                    .no_wait = 0,
                    .peak_reserved = number_of(each, "peak_reserved_bytes"),
                    .failures = number_of(each, "failures"),
                    .hazards = number_of(each, "hazards"),
                    .violations = number_of(each, "violations"),
                    .warm = interval_of(each, "ns_per_event"),
                    .first = interval_of(each, "first_ns_per_event")});
  }
}

std::string ratio(std::uint64_t bytes, std::uint64_t of) {
  return of == 0 ? std::string()
                 : text::fixed(static_cast<double>(bytes) / static_cast<double>(of), 3);
}

std::string in_markdown(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '|' || c == '\\') out.push_back('\\');
    out.push_back(c == '\n' ? ' ' : c);
  }
  return out;
}

std::string in_csv(std::string_view words) {
  if (words.find_first_of("\",\n\r") == std::string_view::npos) return std::string(words);
  std::string out = "\"";
  for (const char c : words) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
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

/// What a gate may measure, with the interval of what is not exact.
struct Measure {
  std::string_view name;
  MedianInterval (*of)(const ComparedRow& row);
  bool bytes;
};
constexpr MedianInterval exact(std::uint64_t value) {
  const auto number = static_cast<double>(value);
  return {.median = number, .low = number, .high = number, .confidence = 1};
}
constexpr std::array<Measure, 6> kMeasures{{
    {"reserved", [](const ComparedRow& row) { return exact(row.peak_reserved); }, true},
    {"ns_per_event", [](const ComparedRow& row) { return row.warm; }, false},
    {"first_ns_per_event", [](const ComparedRow& row) { return row.first; }, false},
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

std::string shown(const Measure& measure, double value) {
  if (measure.bytes) return units::bytes(static_cast<std::uint64_t>(value));
  return text::fixed(value,
                     value == static_cast<double>(static_cast<std::uint64_t>(value)) ? 0 : 2);
}

}  // namespace

std::vector<ComparedRow> rows_of(const Comparison& comparison, const trace::Trace& trace) {
  std::vector<ComparedRow> rows;
  std::uint64_t live = 0, no_wait = 0;
  for (const auto& need : comparison.needs) {
    live += need.peak_live;
    no_wait += need.no_wait;
  }
  if (const auto recorded = recorded_peak(trace)) {
    rows.push_back({.trace = trace.source(),
                    .device = comparison.device,
                    .manager = std::string(kAsRecorded),
                    .peak_live = live,
                    .no_wait = no_wait,
                    .peak_reserved = *recorded,
                    .timed = false});
  }
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
                    .first = each.first});
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
      "failures |\n| --- |{} --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
      devices ? " device |" : "", devices ? " --- |" : "");
  for (const auto& row : rows) {
    out += text::format("| {} |", in_markdown(file_name(row.trace)));
    if (devices) out += text::format(" {} |", in_markdown(row.device));
    out += text::format(" {} | {} | {} | {} | {} | {} | {} |\n", in_markdown(row.manager),
                        units::bytes(row.peak_reserved), ratio(row.peak_reserved, row.peak_live),
                        ratio(row.peak_reserved, row.no_wait),
                        row.timed ? text::fixed(row.warm.median, 1) : "",
                        row.timed ? text::fixed(row.first.median, 1) : "",
                        row.timed ? text::grouped(row.failures) : "");
  }
  return out;
}

std::string to_csv(const std::vector<ComparedRow>& rows) {
  std::string out =
      "trace,device,manager,peak_live_bytes,no_wait_need_bytes,peak_reserved_bytes,"
      "ns_per_event,ns_per_event_low,ns_per_event_high,first_ns_per_event,failures,hazards,"
      "violations\n";
  for (const auto& row : rows) {
    out += text::format("{},{},{},{},{},{},", in_csv(row.trace), in_csv(row.device),
                        in_csv(row.manager), row.peak_live, row.no_wait, row.peak_reserved);
    if (row.timed) {
      out += text::format("{},{},{},{},{},{},{}\n", row.warm.median, row.warm.low, row.warm.high,
                          row.first.median, row.failures, row.hazards, row.violations);
    } else {
      out += ",,,,,,\n";
    }
  }
  return out;
}

Result<Gate> Gate::parse(const std::string& words) {
  Gate gate;
  gate.words_ = words;
  const auto sign = words.find_first_of("<>");
  const auto name = text::trim(std::string_view(words).substr(0, sign));
  const auto* measure = measure_of(name);
  if (sign == std::string::npos || measure == nullptr) {
    std::vector<std::string_view> known;
    for (const auto& each : kMeasures) known.push_back(each.name);
    return fail(Errc::usage, "--fail-if {}: expected < or > between one of {} and a bound", words,
                text::join(known));
  }
  gate.measure_ = measure->name;
  gate.above_ = words[sign] == '>';
  gate.or_equal_ = sign + 1 < words.size() && words[sign + 1] == '=';
  auto bound = text::trim(std::string_view(words).substr(sign + (gate.or_equal_ ? 2 : 1)));
  gate.relative_ = bound.ends_with('x');
  if (gate.relative_) bound.remove_suffix(1);
  auto number = text::to_double(bound);
  if (!number && measure->bytes && !gate.relative_) {
    if (const auto bytes = units::parse_bytes(bound)) number = static_cast<double>(*bytes);
  }
  if (!number || !(*number >= 0)) {
    return fail(Errc::usage,
                "--fail-if {}: expected a bound such as 1.02x of the baseline, or a {}", words,
                measure->bytes ? "size" : "number");
  }
  gate.bound_ = *number;
  return gate;
}

Result<std::vector<std::string>> Gate::failures(const std::vector<ComparedRow>& rows,
                                                const std::vector<ComparedRow>& baseline,
                                                const std::string& baseline_path) const {
  std::vector<std::string> out;
  const auto& measure = *measure_of(measure_);
  const bool with_device = several_devices(rows) && several_devices(baseline);
  for (const auto& row : rows) {
    if (!row.timed) continue;
    auto bound = bound_;
    std::string than = shown(measure, bound);
    if (relative_) {
      const auto* before = find(baseline, row, with_device);
      if (before == nullptr) {
        return fail(Errc::usage, "--baseline {}: expected {} on {} in it", baseline_path,
                    row.manager, row.trace);
      }
      const auto value = measure.of(*before);
      // The bound lies where the saved interval is most lenient.
      bound *= above_ ? value.high : value.low;
      than = text::format("{}, {} times the baseline's {}", shown(measure, bound),
                          text::fixed(bound_, 3), shown(measure, value.median));
    }
    const auto value = measure.of(row);
    const auto sure = above_ ? value.low : value.high;
    const bool fails = or_equal_ ? (above_ ? sure >= bound : sure <= bound)
                                 : (above_ ? sure > bound : sure < bound);
    if (!fails) continue;
    out.push_back(text::format("--fail-if {}: {} on {}: {} is {}, {} than {}", words_, row.manager,
                               row.trace, measure_, shown(measure, value.median),
                               or_equal_ ? "no better"
                               : above_  ? "more"
                                         : "less",
                               than));
  }
  return out;
}

}  // namespace emm::trial
