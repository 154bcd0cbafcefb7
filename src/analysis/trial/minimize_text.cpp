#include "trial/minimize_text.hpp"

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/json_writer.hpp"
#include "log/writer.hpp"
#include "trace/lifetimes.hpp"

namespace emm::trial {
namespace {

using text::format;

/// Counts of a draft.
struct Count {
  std::uint64_t events = 0, requests = 0, merged = 0, smaller = 0;
};

Count count(const trace::Trace& trace, const Steps& steps) {
  Count count;
  count.events = steps.size();
  for (const auto& step : steps) {
    const auto& event = trace[step.event];
    const bool request = event.op >= trace::Op::memalloc && event.op <= trace::Op::mempin &&
                         !event.has(trace::event_flag::backing);
    if (!request) continue;
    ++count.requests;
    count.merged += step.stands_for - 1;
    if (step.size < step.whole) ++count.smaller;
  }
  return count;
}

Count count(const trace::Trace& trace) {
  return count(trace, whole(trace, EventParts(trace)).steps);
}

bool is_of_recording(const Reduction& reduction, const ReductionShown& shown) {
  return reduction.target && trace::is_refused(shown.trace[*reduction.target]);
}

/// Says whether the failure is the request that the recording refused, or comes before it.
std::string target_words(const Reduction& reduction, const ReductionShown& shown) {
  if (!shown.refusals_fail || !reduction.target) return "";
  if (is_of_recording(reduction, shown))
    return "  what fails is a request that the recording refused\n";
  for (std::uint32_t at = *reduction.target; at < shown.trace.size(); ++at) {
    if (!trace::is_refused(shown.trace[at])) continue;
    return format("  {} fails before the request that the recording refused, event {}\n",
                  shown.manager, text::grouped(at));
  }
  return "";
}

}  // namespace

std::string to_text(const Reduction& reduction, const ReductionShown& shown) {
  const auto before = count(shown.trace);
  const auto after = count(shown.trace, reduction.draft.steps);
  auto out = format(
      "{}: {} of {} events left ({} %), {} of {} requests, in {} trials\n",
      text::printable(shown.trace.source(), std::string::npos), text::grouped(after.events),
      text::grouped(before.events),
      text::fixed(100 * static_cast<double>(after.events) / static_cast<double>(before.events), 2),
      text::grouped(after.requests), text::grouped(before.requests),
      text::grouped(reduction.trials));
  std::vector<std::string> changed;
  if (after.merged != 0) {
    changed.push_back(format("merged into others: {}", text::grouped(after.merged)));
  }
  if (after.smaller != 0) {
    changed.push_back(format("made smaller: {}", text::grouped(after.smaller)));
  }
  if (!changed.empty()) out += format("  requests {}\n", text::join(changed));
  if (const auto words = target_words(reduction, shown); !words.empty()) out += words;
  if (reduction.after.reserved_by_other != 0) {
    out +=
        format("  {} reserves {}, {} {}\n", shown.manager, units::bytes(reduction.after.reserved),
               shown.against, units::bytes(reduction.after.reserved_by_other));
  }
  return out;
}

std::string note_of(const ReductionShown& shown) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("fails_with", shown.fails_with).member("manager", shown.manager);
  if (!shown.against.empty()) json.member("against", shown.against);
  json.member("capacity", shown.capacity)
      .member("events", std::uint64_t{shown.trace.size()})
      .end_object();
  return out;
}

std::string to_json(const Reduction& reduction, const ReductionShown& shown) {
  format::JsonAnswer json("emmctl.minimize/1", 2);
  const auto before = count(shown.trace);
  const auto after = count(shown.trace, reduction.draft.steps);
  json.member("trace", shown.trace.source()).member("manager", shown.manager);
  json.member("against", shown.against).member("fails_with", shown.fails_with);
  json.member("capacity_bytes", shown.capacity).member("shown", reduction.shown);
  json.member("complete", !reduction.interrupted).member("verified", shown.verified);
  json.member("trials", reduction.trials).member("events_before", before.events);
  json.member("events", after.events).member("requests_before", before.requests);
  json.member("requests", after.requests).member("merged", after.merged);
  json.member("smaller", after.smaller);
  json.member("refused_by_recording", is_of_recording(reduction, shown));
  json.member("reserved_bytes", reduction.after.reserved);
  json.member("reserved_by_other_bytes", reduction.after.reserved_by_other);
  json.member("failure_before", reduction.before.failure);
  json.member("failure", reduction.after.failure);
  return json.finish();
}

}  // namespace emm::trial
