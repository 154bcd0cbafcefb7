#include "trial/together.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "replay/apart.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"
#include "trace/lifetimes.hpp"

namespace emm::trial {
namespace {

/// Notes the bytes that a manager holds on all devices, after each event that changes them.
class Curve final : public log::RecordSink {
 public:
  struct Step {
    std::uint64_t event = 0, bytes = 0;
  };
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    auto& held = by_device_[record.device];
    if (record.repeat != 0 || gauges.reserved_bytes == held) return;
    sum_ = sum_ - held + gauges.reserved_bytes;
    held = gauges.reserved_bytes;
    steps_.push_back({record.seq, sum_});
  }
  const std::vector<Step>& steps() const noexcept { return steps_; }

 private:
  std::map<std::uint8_t, std::uint64_t> by_device_;
  std::uint64_t sum_ = 0;
  std::vector<Step> steps_;
};

Result<log::Summary> run_with(const trace::Trace& trace, const Setting& setting, Curve& curve) {
  const auto work = [&](const RunEnvironment& at) -> Result<log::Summary> {
    auto stack =
        DeviceStack::create({.device = text::format("sim:capacity={},costs=none", kCapacityMost),
                             .trace = &trace,
                             .manager = setting.manager,
                             .profile = setting.profile,
                             .peer_program = setting.peer_program},
                            nullptr);
    if (!stack) return std::move(stack).error();
    return replay_logged(at, trace, **stack);
  };
  std::vector<std::string> words;
  return run_apart(
      {.trace = trace,
       .manager = setting.manager,
       .interrupted = setting.interrupted,
       .open_log = [&](const log::LogOptions&) -> Result<log::RecordSink*> { return &curve; },
       .work = work},
      words);
}

/// Finds the smallest capacity by halving between `need` and `enough`.
Result<std::uint64_t> least_capacity(const trace::Trace& trace, const Setting& setting,
                                     std::uint64_t need, std::uint64_t enough) {
  auto fails = need / kStep, passes = (enough + kStep - 1) / kStep;
  if (fails > 0) --fails;
  while (passes > fails + 1) {
    const auto middle = fails + (passes - fails) / 2;
    const auto summary = run(trace, setting, middle * kStep);
    if (!summary) return summary.error();
    if (summary->interrupted) break;
    (replay::exit_code(*summary) == 0 ? passes : fails) = middle;
  }
  return passes * kStep;
}

bool has_times(const trace::Trace& trace) {
  return trace.size() > 0 && trace[trace.size() - 1].time_ns != 0;
}

std::uint64_t moment_of(const trace::Trace& trace, std::uint64_t event, bool times) {
  if (!times || event >= trace.size()) return event;
  return trace[static_cast<std::size_t>(event)].time_ns - trace[0].time_ns;
}

/// Returns the most bytes that all hold at once if they begin at the same time.
std::uint64_t most_at_once(const std::vector<const trace::Trace*>& traces,
                           const std::vector<Curve>& curves, bool times) {
  struct Change {
    std::uint64_t at;
    std::size_t which;
    std::uint64_t bytes;
  };
  std::vector<Change> changes;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    for (const auto& step : curves[i].steps())
      changes.push_back({moment_of(*traces[i], step.event, times), i, step.bytes});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.at < b.at; });
  std::vector<std::uint64_t> held(traces.size());
  std::uint64_t sum = 0, most = 0;
  for (const auto& change : changes) {
    sum = sum - held[change.which] + change.bytes;
    held[change.which] = change.bytes;
    most = std::max(most, sum);
  }
  return most;
}

std::string moment_words(const Together& together, std::uint64_t moment) {
  return together.has_times ? units::ns(static_cast<double>(moment))
                            : inspect::counted(moment, "event");
}

std::string short_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Returns when each process has to begin for their peaks to meet. The one with the latest peak
/// begins first.
std::vector<std::uint64_t> worst_offsets(const TogetherRow& row) {
  std::uint64_t last = 0;
  for (const auto& part : row.parts) last = std::max(last, part.peak_ns);
  std::vector<std::uint64_t> out;
  for (const auto& part : row.parts) out.push_back(last - part.peak_ns);
  return out;
}

}  // namespace

Result<Together> together(
    const std::vector<const trace::Trace*>& traces, const std::vector<TogetherManager>& managers,
    const std::function<void(std::uint64_t done, std::uint64_t total)>& tell) {
  Together out;
  out.has_times = std::all_of(traces.begin(), traces.end(),
                              [](const trace::Trace* trace) { return has_times(*trace); });
  for (const auto* trace : traces) {
    out.traces.push_back(trace->source());
    out.peak_live.push_back(trace::Lifetimes(*trace).peak_of(trace::Lifetime::MemoryKind::device));
    out.need += out.peak_live.back();
  }
  std::uint64_t done = 0;
  for (const auto& manager : managers) {
    TogetherRow row{.manager = manager.name, .failure = {}, .parts = {}};
    std::vector<Curve> curves(traces.size());
    for (std::size_t i = 0; i < traces.size() && row.failure.empty() && !out.interrupted; ++i) {
      tell(done++, managers.size() * traces.size());
      const auto& setting = manager.settings[i];
      const auto summary = run_with(*traces[i], setting, curves[i]);
      if (!summary) return summary.error();
      out.interrupted = summary->interrupted;
      if (summary->interrupted) break;
      if (const auto code = replay::exit_code(*summary); code != 0) {
        row.failure = text::format("{} {}", short_name(out.traces[i]),
                                   code == 3 ? "is not judged" : "is not served by any capacity");
        break;
      }
      TogetherPart part;
      for (const auto& step : curves[i].steps()) {
        if (step.bytes <= part.peak_reserved) continue;
        part.peak_reserved = step.bytes;
        part.peak_event = step.event;
      }
      part.peak_ns = moment_of(*traces[i], part.peak_event, out.has_times);
      const auto least = least_capacity(*traces[i], setting, out.peak_live[i], part.peak_reserved);
      if (!least) return least.error();
      part.least = *least;
      row.parts.push_back(part);
      row.any_offset += part.peak_reserved;
      row.limited += part.least;
    }
    if (out.interrupted) break;
    if (row.failure.empty()) row.at_once = most_at_once(traces, curves, out.has_times);
    out.rows.push_back(std::move(row));
  }
  std::stable_sort(out.rows.begin(), out.rows.end(), [](const auto& a, const auto& b) {
    if (a.failure.empty() != b.failure.empty()) return a.failure.empty();
    return a.any_offset < b.any_offset;
  });
  return out;
}

std::string to_text(const Together& together) {
  std::string out;
  const auto count = together.traces.size();
  const TogetherRow* best = nullptr;
  std::uint64_t most = 0;
  for (const auto& row : together.rows) {
    if (!row.failure.empty()) continue;
    if (best == nullptr) best = &row;
    most = std::max(most, row.any_offset);
  }
  if (best == nullptr) {
    out += "No manager serves them all.\n";
  } else {
    out += text::format("{} serves all {} processes with {}, whatever their offset in time.\n",
                        best->manager, count, inspect::bytes_in_full(best->any_offset));
    const auto offsets = worst_offsets(*best);
    std::vector<std::string> words;
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back(offsets[i] == 0
                          ? text::format("{} begins first", short_name(together.traces[i]))
                          : text::format("{} {} later", short_name(together.traces[i]),
                                         moment_words(together, offsets[i])));
    }
    out += text::format("At the worst offset their peaks meet: {}.\n", text::join(words));
    out += text::format("With a limit for each process {} are enough: {}.\n",
                        inspect::bytes_in_full(best->limited), [&] {
                          std::vector<std::string> limits;
                          for (const auto& part : best->parts)
                            limits.push_back(units::bytes(part.least));
                          return text::join(limits, " + ");
                        }());
    out += text::format(
        "All {} need {} when their peaks meet, whoever serves them. Each process's context takes "
        "more, which is not in this.\n",
        count, inspect::bytes_in_full(together.need));
  }
  std::vector<std::vector<std::string>> rows{
      {"manager", "any offset", "/live", "saves", "begun at once", "with limits", ""}};
  for (const auto& row : together.rows) {
    if (!row.failure.empty()) {
      rows.push_back({row.manager, "-", "-", "-", "-", "-", row.failure});
      continue;
    }
    rows.push_back({row.manager, units::bytes(row.any_offset),
                    together.need == 0 ? std::string("-")
                                       : text::fixed(static_cast<double>(row.any_offset) /
                                                         static_cast<double>(together.need),
                                                     3),
                    units::bytes(most - row.any_offset), units::bytes(row.at_once),
                    units::bytes(row.limited), ""});
  }
  return out + '\n' + format::columns("lrrrrrl", rows);
}

std::string to_json(const Together& together) {
  format::JsonAnswer json("emmctl.fit-together/1", 2);
  json.member("complete", !together.interrupted).member("times", together.has_times);
  json.member("need_bytes", together.need).key("processes").begin_array();
  for (std::size_t i = 0; i < together.traces.size(); ++i) {
    json.begin_object().member("trace", together.traces[i]);
    json.member("peak_live_bytes", together.peak_live[i]).end_object();
  }
  json.end_array().objects("managers", together.rows, [&](const TogetherRow& row) {
    json.member("manager", row.manager)
        .member_or_null("failure", !row.failure.empty(), row.failure);
    json.member("any_offset_bytes", row.any_offset).member("at_once_bytes", row.at_once);
    json.member("limited_bytes", row.limited).key("processes").begin_array();
    const auto offsets = worst_offsets(row);
    for (std::size_t i = 0; i < row.parts.size(); ++i) {
      const auto& part = row.parts[i];
      json.begin_object().member("peak_reserved_bytes", part.peak_reserved);
      json.member("peak_event", part.peak_event);
      json.member("worst_offset", row.failure.empty() ? offsets[i] : 0);
      json.member("limit_bytes", part.least).end_object();
    }
    json.end_array();
  });
  return json.finish();
}

}  // namespace emm::trial
