#include "trial/compare_text.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "log/writer.hpp"
#include "trial/compare_rows.hpp"
#include "trial/verdict.hpp"

namespace emm::trial {
namespace {

using text::fixed;

/// Shows three significant digits.
std::string short_number(double value) {
  return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

double over(std::uint64_t bytes, std::uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(of);
}

/// The sign beside a ratio below 1 and its meaning, in the order of Below.
struct Mark {
  std::string_view sign, name, words;
};
constexpr std::array<Mark, 4> kMarks{{
    {"!", "not_served", "less: not all that the trace asks for was served"},
    {"~", "not_counted",
     "less than is live: it serves some with memory that the device does not count"},
    {"?", "hazard",
     "less: it handed on memory that another stream could still use; those are its hazards"},
    {"*", "waits",
     "less: it waits for work on other streams, or has them wait, in an order that the trace does "
     "not have"},
}};
const Mark& mark_of(Below why) { return kMarks.at(static_cast<std::size_t>(why)); }

/// A manager's reserved bytes on one device, with the bounds of that device.
struct DeviceReserve {
  const log::Summary& judged;
  std::uint64_t reserved = 0;
  const inspect::MemoryNeed& need;

  std::optional<Below> below(std::uint64_t bound) const {
    return below_bound(judged, reserved, bound, need.peak_live);
  }
  std::string ratio(std::uint64_t bound) const {
    if (bound == 0) return "-";
    const auto why = below(bound);
    return fixed(over(reserved, bound), 3) + std::string(why ? mark_of(*why).sign : "");
  }
};

DeviceReserve reserve_of(const Contestant& contestant, const inspect::MemoryNeed& need) {
  const auto& judged = contestant.judged;
  for (const auto& [device, reserved] : judged.peak_reserved_by_device) {
    if (device == need.device) return {.judged = judged, .reserved = reserved, .need = need};
  }
  // The bytes are not known by device.
  const auto all = judged.peak_reserved_by_device.empty() ? judged.pass.peak_reserved_bytes : 0;
  return {.judged = judged, .reserved = all, .need = need};
}

/// Answers whether a manager that never waits needs more than the peak live.
bool streams_matter(const Comparison& comparison) {
  return std::any_of(comparison.needs.begin(), comparison.needs.end(),
                     [](const inspect::MemoryNeed& need) { return need.no_wait > need.peak_live; });
}

/// Writes "1.52", and the interval if its ends differ.
std::string times_of(const MedianInterval& interval) {
  const auto low = short_number(interval.low), high = short_number(interval.high);
  auto words = short_number(interval.median);
  if (low != high) words += text::format(" [{}-{}]", low, high);
  return words;
}

/// No time on a simulated clock means no driver call: that is not shown as a time.
std::string time_of(const MedianInterval& interval, bool simulated) {
  return simulated && interval.median == 0 ? std::string("-") : times_of(interval);
}
std::string simulated_time(double ns) { return ns == 0 ? std::string("-") : short_number(ns); }

/// Answers whether the device is simulated but the clock is not.
bool is_beside_model(const Comparison& comparison) {
  return comparison.contestants.front().simulated_ns.has_value();
}

std::string verdict_of(const Contestant& contestant) {
  const auto& pass = contestant.judged.pass;
  std::vector<std::string> words;
  if (pass.failures != 0) words.push_back(inspect::counted(pass.failures, "failure"));
  if (contestant.judged.refused_again != 0)
    words.push_back(
        text::format("{} refused again", text::grouped(contestant.judged.refused_again)));
  if (pass.hazards != 0) words.push_back(inspect::counted(pass.hazards, "hazard"));
  if (contestant.judged.violation_count > pass.hazards) {
    words.push_back(
        inspect::counted(contestant.judged.violation_count - pass.hazards, "violation"));
  }
  std::uint64_t declined = 0;
  for (const auto& each : contestant.judged.declined) declined += each.count;
  if (declined != 0) words.push_back(text::format("declines {}", text::grouped(declined)));
  return words.empty() ? "served" : text::join(words);
}

using Rows = std::vector<std::vector<std::string>>;

/// Appends a space to numbers without a sign, in columns where other numbers have one.
void line_up_signs(Rows& rows) {
  const auto has_sign = [](const std::string& cell) {
    return cell.find_first_of("!~?*") == cell.size() - 1;
  };
  for (std::size_t column = 1; column < rows.front().size(); ++column) {
    if (std::none_of(rows.begin(), rows.end(), [&](const auto& row) {
          return !row[column].empty() && has_sign(row[column]);
        }))
      continue;
    for (auto& row : rows) {
      if (row[column].empty() || !has_sign(row[column])) row[column] += ' ';
    }
  }
}

void add_ratios(std::vector<std::string>& row, const DeviceReserve& held, bool streams) {
  row.push_back(held.ratio(held.need.peak_live));
  if (streams) row.push_back(held.ratio(held.need.no_wait));
}

/// Longer names of managers do not stand in the head of a column.
constexpr std::size_t kNameInHead = 12;

/// With several devices, the bytes of each device stand in a table of their own.
Rows rows(const Comparison& comparison, const std::optional<RecordedPeak>& recorded) {
  const bool streams = streams_matter(comparison), one_device = comparison.needs.size() == 1;
  const bool simulated = comparison.clock == "simulated", beside = is_beside_model(comparison);
  Rows out{{"",
            simulated ? "driver ns"
            : beside  ? "ns here"
                      : "ns/event",
            "first",
            text::format("over {}", comparison.contestants.front().manager.size() <= kNameInHead
                                        ? std::string_view(comparison.contestants.front().manager)
                                        : "1st"),
            "reserved"}};
  if (one_device) {
    out[0].emplace_back("/live");
    if (streams) out[0].emplace_back("/no-wait");
  }
  out[0].emplace_back();
  for (const auto& each : comparison.contestants) {
    const auto first =
        simulated ? simulated_time(each.first.median) : short_number(each.first.median);
    std::vector<std::string> row{each.manager, time_of(each.warm, simulated), first,
                                 each.over_first.median > 0 ? times_of(each.over_first) : "-",
                                 units::bytes(each.judged.pass.peak_reserved_bytes)};
    if (one_device) add_ratios(row, reserve_of(each, comparison.needs.front()), streams);
    row.push_back(verdict_of(each));
    out.push_back(std::move(row));
  }
  if (beside) {
    out.front().insert(out.front().begin() + 1, "driver ns");
    for (std::size_t i = 0; i < comparison.contestants.size(); ++i) {
      out[i + 1].insert(out[i + 1].begin() + 1,
                        simulated_time(*comparison.contestants[i].simulated_ns));
    }
  }
  if (recorded) {
    std::vector<std::string> row(out.front().size());
    row.front() = recorded->name;
    const auto at = static_cast<std::size_t>(
        std::find(out.front().begin(), out.front().end(), "reserved") - out.front().begin());
    row[at] = units::bytes(recorded->bytes);
    if (one_device) {
      const auto& need = comparison.needs.front();
      const auto of = [&](std::uint64_t bound) {
        const auto why = recorded->below(bound, need.peak_live);
        return bound == 0 ? std::string("-")
                          : fixed(over(recorded->bytes, bound), 3) +
                                std::string(why ? mark_of(*why).sign : "");
      };
      row[at + 1] = of(need.peak_live);
      if (streams) row[at + 2] = of(need.no_wait);
    }
    out.insert(out.begin() + 1, std::move(row));
  }
  for (const auto& each : comparison.cut_off) {
    std::vector<std::string> row(out.front().size(), "-");
    row.front() = each.manager;
    row.back() = "cut off";
    out.push_back(std::move(row));
  }
  line_up_signs(out);
  return out;
}

/// Formats a table of at most 80 columns. If it is wider, each manager's name and verdict get a
/// line of their own.
std::string table(Rows rows) {
  constexpr std::size_t kWidth = 80;  // columns
  std::string sides(rows.front().size(), 'r');
  sides.front() = sides.back() = 'l';
  auto out = format::columns(sides, rows);
  std::size_t widest = 0;
  for (std::size_t at = 0, end = 0; (end = out.find('\n', at)) != out.npos; at = end + 1)
    widest = std::max(widest, end - at);
  if (widest <= kWidth) return out;
  std::vector<std::string> headings;
  for (auto& row : rows) {
    headings.push_back(
        row.front().empty()
            ? std::string()
            : text::format(row.back().empty() ? "  {}\n" : "  {}: {}\n", row.front(), row.back()));
    row.front().clear();
    row.pop_back();
  }
  sides.pop_back();
  const auto figures = format::columns(sides, rows);
  out.clear();
  std::size_t at = 0;
  for (const auto& heading : headings) {
    const auto end = figures.find('\n', at) + 1;
    out += heading + figures.substr(at, end - at);
    at = end;
  }
  return out;
}

std::string bounds_of(const inspect::MemoryNeed& need) {
  auto out = text::format("peak live {}", units::bytes(need.peak_live));
  if (need.no_wait > need.peak_live)
    out += text::format(", no-wait need {}", units::bytes(need.no_wait));
  return out;
}

std::string devices_tables(const Comparison& comparison) {
  const bool streams = streams_matter(comparison);
  std::string out;
  for (const auto& need : comparison.needs) {
    out += text::format("device {}: {}\n", need.device, bounds_of(need));
    Rows of{{"", "reserved", "/live"}};
    if (streams) of[0].emplace_back("/no-wait");
    for (const auto& each : comparison.contestants) {
      const auto held = reserve_of(each, need);
      std::vector<std::string> row{each.manager, units::bytes(held.reserved)};
      add_ratios(row, held, streams);
      of.push_back(std::move(row));
    }
    line_up_signs(of);
    out += format::columns(streams ? "lrrr" : "lrr", of);
  }
  return out;
}

/// Indents the first line by two characters, the others by four.
std::string indented(std::string_view words, std::size_t width) {
  std::string out = "  ";
  for (const auto letter : format::wrapped(words, width - 4))
    out += letter == '\n' ? std::string("\n    ") : std::string(1, letter);
  out.erase(out.size() - 4);
  return out;
}

/// Explains the signs that stand beside ratios.
std::string footnotes(const Comparison& comparison, const std::optional<RecordedPeak>& recorded,
                      std::size_t width) {
  std::string out;
  const auto shown = [&](Below why) {
    for (const auto& need : comparison.needs) {
      for (const auto& each : comparison.contestants) {
        const auto held = reserve_of(each, need);
        if (held.below(need.peak_live) == why || held.below(need.no_wait) == why) return true;
      }
      if (recorded && comparison.needs.size() == 1 &&
          (recorded->below(need.peak_live, need.peak_live) == why ||
           recorded->below(need.no_wait, need.peak_live) == why)) {
        return true;
      }
    }
    return false;
  };
  for (const auto why : {Below::waits, Below::not_served, Below::hazard, Below::not_counted}) {
    const auto& mark = mark_of(why);
    if (!shown(why)) continue;
    out += indented(text::format("{} {}", mark.sign, mark.words), width);
  }
  return out;
}

/// Says why verdicts of the table are inconclusive: a sentence for each manager and reason.
std::string doubts(const Comparison& comparison,
                   const std::vector<std::vector<PairVerdict>>& verdicts, std::size_t width) {
  std::string out;
  for (std::size_t i = 1; i < verdicts.size(); ++i) {
    for (const auto doubt :
         {Doubt::other_work, Doubt::few_rounds, Doubt::wide_interval, Doubt::no_time}) {
      const auto is_there =
          std::find_if(verdicts[i].begin(), verdicts[i].end(), [&](const PairVerdict& verdict) {
            return verdict.place == std::size_t{0} && verdict.doubt == doubt;
          });
      if (is_there == verdicts[i].end()) continue;
      out += indented(text::format("{} is inconclusive: {}", comparison.contestants[i].manager,
                                   doubt_words(*is_there)),
                      width);
    }
  }
  return out;
}

/// Compares each manager with the first, by measure.
std::string verdict_table(const Comparison& comparison, std::size_t width) {
  if (comparison.contestants.size() < 2) return {};
  struct Column {
    std::string_view measure, head;
  };
  std::vector<Column> shown{{"ns_per_event", "time"}, {"first_ns_per_event", "first"}};
  if (!comparison.contestants.front().instructions.empty())
    shown.push_back({"instructions_per_event", "instructions"});
  shown.push_back({"reserved", "reserved"});
  shown.push_back({"failures", "failures"});
  Rows table{{text::format("against {}", comparison.contestants.front().manager)}};
  for (const auto& column : shown) table[0].emplace_back(column.head);
  const auto verdicts = verdicts_of(comparison);
  for (std::size_t i = 1; i < verdicts.size(); ++i) {
    table.push_back({comparison.contestants[i].manager});
    for (const auto& column : shown) {
      for (const auto& verdict : verdicts[i]) {
        if (verdict.place == std::size_t{0} && verdict.measure == column.measure)
          table.back().push_back(in_words(verdict));
      }
    }
  }
  constexpr std::size_t kWidth = 80;  // columns
  auto out = format::columns(std::string(table[0].size(), 'l'), table);
  std::size_t widest = 0;
  for (std::size_t at = 0, end = 0; (end = out.find('\n', at)) != out.npos; at = end + 1)
    widest = std::max(widest, end - at);
  if (widest > kWidth) {
    out = text::format("  {}\n", table[0][0]);
    for (std::size_t i = 1; i < table.size(); ++i) {
      out += text::format("  {}\n", table[i][0]);
      for (std::size_t column = 1; column < table[i].size(); ++column)
        out += text::format("    {}  {}\n", table[0][column], table[i][column]);
    }
  }
  return text::format("\nwithin {} % is the same:\n",
                      fixed(100 * comparison.threshold, comparison.threshold < 0.01 ? 1 : 0)) +
         out + doubts(comparison, verdicts, width);
}

std::string heading(const Comparison& comparison, const trace::Trace& trace) {
  auto out = text::format("{}: {} events", text::printable(trace.source(), std::string::npos),
                          text::grouped(comparison.contestants.front().judged.pass.events));
  const auto& needs = comparison.needs;
  if (needs.size() == 1) {
    out += ", " + bounds_of(needs.front());
  } else if (needs.size() > 1) {
    out += text::format(" on {} devices", needs.size());
  }
  return out + '\n';
}

/// `below` returns why the reserved bytes are less than a bound.
template <class BelowBound>
void ratios_to_json(format::JsonWriter& json, const inspect::MemoryNeed& need,
                    std::uint64_t reserved, const BelowBound& below) {
  const auto why = [&](std::string_view name, std::uint64_t bound) {
    const auto found = below(bound);
    json.member(name, found ? std::optional(mark_of(*found).name) : std::nullopt);
  };
  json.member("device", need.device).member("peak_reserved_bytes", reserved);
  json.member("reserved_over_peak_live", over(reserved, need.peak_live));
  why("below_peak_live", need.peak_live);
  json.member("reserved_over_no_wait_need", over(reserved, need.no_wait));
  why("below_no_wait_need", need.no_wait);
}

}  // namespace

std::string to_text(const Comparison& comparison, const trace::Trace& trace, int width,
                    bool all_frames) {
  const auto& first = comparison.contestants.front();
  auto out = heading(comparison, trace);
  out += text::format("device {}\n", comparison.device);
  const bool simulated = comparison.clock == "simulated";
  constexpr std::string_view kModel =
      "what the driver's calls of an event would cost on an H200, by a model";
  auto how = simulated ? text::format("simulated: {}", kModel)
                       : text::format("{} clock", comparison.clock);
  if (is_beside_model(comparison)) {
    how += text::format("; driver ns: {}; ns here: what an event takes on this host, measured",
                        kModel);
  }
  how += comparison.rounds > 1 ? text::format("; {} turns of ", comparison.rounds) : "; ";
  how += text::format("{} passes each, and \"first\" is the first pass", comparison.passes + 1);
  if (!simulated && comparison.rounds > 1) {
    how += text::format("; in brackets where the median lies with {} %",
                        fixed(100 * first.warm.confidence, 1));
  }
  if (comparison.engine) {
    how +=
        text::format(". The replay itself takes {} ns of each event", times_of(*comparison.engine));
  }
  out += format::wrapped(how, static_cast<std::size_t>(width)) + '\n';
  const auto recorded = recorded_peak(trace);
  out += table(rows(comparison, recorded));
  if (comparison.needs.size() > 1) out += devices_tables(comparison);
  const auto narrow = static_cast<std::size_t>(std::min(width, 80));
  out += footnotes(comparison, recorded, narrow);
  if (const auto words = preallocation_words(rows_of(comparison, trace)); !words.empty())
    out += indented(words, narrow);
  out += verdict_table(comparison, narrow);
  for (const auto& each : comparison.contestants) {
    if (!each.judged.first_failure) continue;
    out += log::failure_to_text(text::format("\n{} fails", each.manager),
                                *each.judged.first_failure, width, all_frames);
    out.pop_back();
  }
  return out;
}

std::string to_json(const Comparison& comparison, const trace::Trace& trace) {
  format::JsonAnswer json("emmctl.compare/2", 2);
  json.member("trace", trace.source());
  json.member("device", comparison.device).member("clock", comparison.clock);
  if (!comparison.cut_off.empty())
    json.values("cut_off", comparison.cut_off, [](const auto& each) { return each.words; });
  json.member("events", comparison.contestants.front().judged.pass.events);
  json.member("threshold", comparison.threshold).member("rounds", comparison.rounds);
  json.member("passes", comparison.passes).member("needs", comparison.needs);
  json.member("engine_ns_per_event", comparison.engine).key("managers").begin_array();
  for (const auto& each : comparison.contestants) {
    const auto& pass = each.judged.pass;
    json.begin_object().member("manager", each.manager).member("exit_code", each.exit_code);
    json.member("ns_per_event", each.warm).member("first_ns_per_event", each.first);
    json.member("over_first_manager", each.over_first);
    if (!each.instructions.empty())
      json.member("instructions_per_event", median_interval(each.instructions));
    json.member("rounds_ns_per_event", each.warm_ns);
    json.member("peak_live_bytes", pass.peak_live_bytes);
    json.member("peak_requested_bytes", pass.peak_requested_bytes);
    json.member("peak_reserved_bytes", pass.peak_reserved_bytes);
    json.objects("devices", comparison.needs, [&](const inspect::MemoryNeed& need) {
      const auto held = reserve_of(each, need);
      ratios_to_json(json, held.need, held.reserved,
                     [&](std::uint64_t bound) { return held.below(bound); });
    });
    json.member("failures", pass.failures).member("hazards", pass.hazards);
    json.member("violations", each.judged.violation_count);
    json.objects("declined", each.judged.declined, [&](const log::Declined& declined) {
      json.member("op", declined.op).member("count", declined.count);
    });
    json.member("first_failure", each.judged.first_failure).end_object();
  }
  for (const auto& each : comparison.cut_off) {
    json.begin_object().member("manager", each.manager).member("exit_code", each.exit_code);
    json.member("cut_off", each.words).end_object();
  }
  json.end_array();
  const auto recorded = recorded_peak(trace);
  json.object("recorded", recorded, [&](const auto& peak) {
    json.member("manager", peak.name).member("peak_reserved_bytes", peak.bytes);
    const bool has_one = comparison.needs.size() == 1;
    json.objects("devices", inspect::first_of(comparison.needs, has_one ? 1 : 0),
                 [&](const inspect::MemoryNeed& need) {
                   ratios_to_json(json, need, peak.bytes, [&](std::uint64_t bound) {
                     return peak.below(bound, need.peak_live);
                   });
                 });
  });
  json.key("verdicts").begin_array();
  const auto verdicts =
      recorded ? verdicts_of(comparison, recorded->bytes, recorded->name) : verdicts_of(comparison);
  for (const auto& own : verdicts) {
    for (const auto& verdict : own) {
      json.begin_object().member("manager", verdict.manager).member("against", verdict.against);
      json.member("measure", verdict.measure).member("verdict", verdict.standing);
      json.member("doubt", verdict.doubt).member("ratio", verdict.ratio).end_object();
    }
  }
  json.end_array();
  return json.finish();
}

}  // namespace emm::trial
