#include "trial/compare_text.hpp"

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/json_writer.hpp"
#include "inspect/columns.hpp"
#include "inspect/places.hpp"
#include "log/writer.hpp"

namespace emm::trial {
namespace {

using text::fixed;
using text::format;

/// Three digits that matter.
std::string short_number(double value) {
  return fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

double over(std::uint64_t bytes, std::uint64_t of) {
  return of == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(of);
}

std::string ratio_of(std::uint64_t bytes, std::uint64_t of) {
  return of == 0 ? std::string("-") : fixed(over(bytes, of), 3);
}

/// "1.52", and how sure that is where it is not.
std::string times_of(const Spread& spread) {
  const auto low = short_number(spread.low), high = short_number(spread.high);
  auto words = short_number(spread.median);
  if (low != high) words += format(" [{}-{}]", low, high);
  return words;
}

/// Of a clock that is a model, no time is no driver call: that is not said as a time.
std::string time_of(const Spread& spread, bool simulated) {
  return simulated && spread.median == 0 ? std::string("-") : times_of(spread);
}
std::string simulated_time(double ns) { return ns == 0 ? std::string("-") : short_number(ns); }

/// Is the device simulated, and the clock not?
bool is_beside_model(const Comparison& comparison) {
  return comparison.contestants.front().simulated_ns.has_value();
}

std::string verdict_of(const Contestant& contestant) {
  const auto& pass = contestant.judged.pass;
  std::vector<std::string> words;
  if (pass.failures != 0) words.push_back(inspect::counted(pass.failures, "failure"));
  if (pass.hazards != 0) words.push_back(inspect::counted(pass.hazards, "hazard"));
  if (contestant.judged.violation_count > pass.hazards) {
    words.push_back(
        inspect::counted(contestant.judged.violation_count - pass.hazards, "violation"));
  }
  std::uint64_t declined = 0;
  for (const auto& each : contestant.judged.declined) declined += each.count;
  if (declined != 0) words.push_back(format("declines {}", text::grouped(declined)));
  return words.empty() ? "served" : text::join(words);
}

std::vector<std::vector<std::string>> rows(const Comparison& comparison) {
  const bool simulated = comparison.clock == "simulated", beside = is_beside_model(comparison);
  std::vector<std::vector<std::string>> out{
      {"", simulated ? "driver ns" : beside ? "ns here" : "ns/event", "first pass",
       "over " + comparison.contestants.front().manager, "reserved", "/live", "/bound", ""}};
  for (const auto& each : comparison.contestants) {
    const auto& pass = each.judged.pass;
    out.push_back({each.manager, time_of(each.warm, simulated),
                   simulated ? simulated_time(each.first.median) : short_number(each.first.median),
                   each.over_first.median > 0 ? times_of(each.over_first) : "-",
                   units::bytes(pass.peak_reserved_bytes),
                   ratio_of(pass.peak_reserved_bytes, pass.peak_live_bytes),
                   ratio_of(pass.peak_reserved_bytes, comparison.bound), verdict_of(each)});
  }
  if (!beside) return out;
  for (std::size_t row = 0; row < out.size(); ++row) {
    out[row].insert(out[row].begin() + 1,
                    row == 0 ? "driver ns"
                             : simulated_time(*comparison.contestants[row - 1].simulated_ns));
  }
  return out;
}

void spread_to_json(format::JsonWriter& json, std::string_view name, const Spread& spread) {
  json.key(name).begin_object().member("median", spread.median).member("low", spread.low);
  json.member("high", spread.high).member("confidence", spread.confidence).end_object();
}

}  // namespace

std::string to_text(const Comparison& comparison, const trace::Trace& trace, int width,
                    bool all_frames) {
  const auto& first = comparison.contestants.front();
  auto out =
      format("{}: {} events, peak live {}, bound {}\n",
             text::printable(trace.source(), std::string::npos),
             text::grouped(first.judged.pass.events),
             units::bytes(first.judged.pass.peak_requested_bytes), units::bytes(comparison.bound));
  out += format("device {}\n", comparison.device);
  const bool simulated = comparison.clock == "simulated";
  constexpr std::string_view kModel =
      "what the driver's calls of an event would cost on an H200, by a model";
  auto how = simulated ? format("simulated: {}", kModel) : format("{} clock", comparison.clock);
  if (is_beside_model(comparison)) {
    how += format("; driver ns: {}; ns here: what an event takes on this host, measured", kModel);
  }
  how += format("; {} of {} passes, of which the first is apart",
                inspect::counted(comparison.rounds, "turn"), comparison.passes + 1);
  if (!simulated && comparison.rounds > 1) {
    how += format("; in brackets where the median lies with {} %",
                  fixed(100 * first.warm.confidence, 1));
  }
  if (comparison.engine) {
    how += format(". The replay itself takes {} ns of each event", times_of(*comparison.engine));
  }
  out += inspect::wrapped(how, static_cast<std::size_t>(width)) + '\n';
  out += inspect::columns(is_beside_model(comparison) ? "lrrrrrrrl" : "lrrrrrrl", rows(comparison));
  for (const auto& each : comparison.contestants) {
    if (!each.judged.first_failure) continue;
    out +=
        log::failure_to_text(format("\n{} fails", each.manager), *each.judged.first_failure, width,
                             all_frames);
    out.pop_back();
  }
  return out;
}

std::string to_json(const Comparison& comparison, const trace::Trace& trace) {
  std::string out;
  format::JsonWriter json(out, 2);
  const auto numbers = [&](std::string_view name, const std::vector<double>& values) {
    json.key(name).begin_array();
    for (const auto value : values) json.value(value);
    json.end_array();
  };
  json.begin_object().member("schema", "emmctl.compare/1").member("trace", trace.source());
  json.member("device", comparison.device).member("clock", comparison.clock);
  json.member("events", comparison.contestants.front().judged.pass.events);
  json.member("rounds", comparison.rounds).member("passes", comparison.passes);
  json.member("bound_bytes", comparison.bound);
  if (comparison.engine) {
    spread_to_json(json, "engine_ns_per_event", *comparison.engine);
  } else {
    json.key("engine_ns_per_event").null();
  }
  json.key("managers").begin_array();
  for (const auto& each : comparison.contestants) {
    const auto& pass = each.judged.pass;
    json.begin_object().member("manager", each.manager).member("exit_code", each.exit_code);
    spread_to_json(json, "ns_per_event", each.warm);
    spread_to_json(json, "first_ns_per_event", each.first);
    spread_to_json(json, "over_first_manager", each.over_first);
    numbers("rounds_ns_per_event", each.warm_ns);
    json.member("peak_live_bytes", pass.peak_live_bytes);
    json.member("peak_requested_bytes", pass.peak_requested_bytes);
    json.member("peak_reserved_bytes", pass.peak_reserved_bytes);
    json.member("reserved_over_live", over(pass.peak_reserved_bytes, pass.peak_live_bytes));
    json.member("reserved_over_bound", over(pass.peak_reserved_bytes, comparison.bound));
    json.member("failures", pass.failures).member("hazards", pass.hazards);
    json.member("violations", each.judged.violation_count);
    json.key("declined").begin_array();
    for (const auto& declined : each.judged.declined) {
      json.begin_object()
          .member("op", name(declined.op))
          .member("count", declined.count)
          .end_object();
    }
    json.end_array();
    log::failure_to_json(json, "first_failure", each.judged.first_failure);
    json.end_object();
  }
  json.end_array().end_object();
  return out + '\n';
}

}  // namespace emm::trial
