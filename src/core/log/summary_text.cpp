#include <algorithm>
#include <limits>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/sparkline.hpp"
#include "log/writer.hpp"
#include "trace/call_site.hpp"

namespace emm::log {
namespace {

constexpr std::size_t kShown = 10;  ///< Rows that a long list shows.

/// Paragraphs and aligned rows of at most `width` columns.
class Page {
 public:
  explicit Page(int width) : width_(static_cast<std::size_t>(std::max(width, 40))) {}

  /// Wraps words at spaces. The first line follows `indent` spaces, the others two more. Control
  /// characters, which names from traces and plugins may contain, do not reach the terminal.
  void paragraph(std::string_view given, std::size_t indent = 0) {
    const auto shown = text::printable(given, std::string::npos);
    std::string_view words = shown;
    std::size_t column = 0;
    const auto begin_line = [&](std::size_t spaces) {
      out_.append(spaces, ' ');
      column = spaces;
    };
    begin_line(indent);
    bool first = true;
    while (!words.empty()) {
      const auto word = words.substr(0, words.find(' '));
      words.remove_prefix(std::min(word.size() + 1, words.size()));
      if (!first && column + 1 + word.size() > width_) {
        out_.push_back('\n');
        begin_line(indent + 2);
      } else if (!first) {
        out_.push_back(' ');
        ++column;
      }
      out_.append(word);
      column += word.size();
      first = false;
    }
    out_.push_back('\n');
  }

  /// A name, and its value in a separate column.
  void row(std::string_view name, std::string_view value) {
    constexpr std::size_t kNameWidth = 12;  // columns
    std::string line = "  ";
    line.append(name);
    if (line.size() < 2 + kNameWidth) line.append(2 + kNameWidth - line.size(), ' ');
    line.push_back(' ');
    line.append(value);
    paragraph_kept(line, 2 + kNameWidth + 1);
  }

  /// A name, and a curve of one line that is not wrapped.
  void curve(std::string_view name, std::string_view line) {
    row(name, "");
    out_.pop_back();
    if (!out_.ends_with(' ')) out_.push_back(' ');
    out_.append(line);
    out_.erase(out_.find_last_not_of(' ') + 1);
    out_.push_back('\n');
  }

  void blank() { out_.push_back('\n'); }
  std::string take() { return std::move(out_); }

 private:
  /// Like paragraph(), but leaves the first `kept` columns of `line` unchanged.
  void paragraph_kept(std::string_view line, std::size_t kept) {
    out_.append(line.substr(0, kept));
    std::string rest(line.substr(kept));
    Page tail(static_cast<int>(std::max<std::size_t>(width_ - kept, 40)));
    tail.paragraph(rest);
    auto wrapped = tail.take();
    for (std::size_t at = 0; (at = wrapped.find('\n', at)) + 1 < wrapped.size(); at += kept) {
      wrapped.insert(++at, kept - 2, ' ');
    }
    out_.append(wrapped);
  }

  std::string out_;
  std::size_t width_;
};

std::string quantity(std::uint64_t count, std::string_view one, std::string_view many) {
  return text::format("{} {}", text::grouped(count), count == 1 ? one : many);
}

std::string place(std::uint64_t event, std::uint32_t line) {
  return line == 0 ? text::format("event {}", event)
                   : text::format("event {} (line {})", event, line);
}

void list_holders(Page& page, const std::vector<Holder>& holders, bool all_frames) {
  std::size_t id_width = 0, size_width = 0;
  for (const auto& holder : holders) {
    id_width = std::max(id_width, holder.id.size());
    size_width = std::max(size_width, units::bytes(holder.size).size());
  }
  for (const auto& holder : holders) {
    const auto size = units::bytes(holder.size);
    std::string words =
        holder.id + std::string(id_width - holder.id.size() + 2 + size_width - size.size(), ' ') +
        size;
    if (holder.line != 0) words += text::format("  line {}", holder.line);
    const auto frames = trace::CallSites(all_frames).shown(holder.frames);
    if (!frames.empty()) words += "  " + frames.front();
    page.paragraph(words, 4);
    for (std::size_t i = 1; all_frames && i < frames.size(); ++i) page.paragraph(frames[i], 8);
  }
}

void show_state(Page& page, const Failure& failure, bool all_frames) {
  std::string where = text::format("thread {}", failure.thread);
  if (!failure.context.empty()) where += text::format(", context {}", failure.context);
  if (!failure.stream.empty()) where += text::format(", stream {}", failure.stream);
  if (!failure.frames.empty()) where += "; called from";
  page.paragraph(where, 2);
  for (const auto& frame : trace::CallSites(all_frames).shown(failure.frames))
    page.paragraph(frame, 4);
  std::string state = text::format("live {}, reserved {}", units::bytes(failure.live_bytes),
                                   units::bytes(failure.reserved_bytes));
  if (failure.free_bytes)
    state += text::format(", free on the device {}", units::bytes(*failure.free_bytes));
  if (failure.largest_free_bytes) {
    state += text::format(", largest free block {}", units::bytes(*failure.largest_free_bytes));
  }
  page.paragraph(state, 2);
  if (failure.idle_bytes) {
    std::string idle = text::format("idle in the manager {}", units::bytes(*failure.idle_bytes));
    if (failure.largest_idle_bytes)
      idle += text::format(", largest piece {}", units::bytes(*failure.largest_idle_bytes));
    if (failure.waiting_bytes.value_or(0) > 0)
      idle += text::format(", waiting for other streams {}", units::bytes(*failure.waiting_bytes));
    page.paragraph(idle, 2);
  }
  if (!failure.holders.empty()) {
    page.paragraph("biggest live allocations:", 2);
    list_holders(page, failure.holders, all_frames);
  }
}

void show_failure(Page& page, std::string_view heading, const Failure& failure, bool all_frames) {
  std::string words = text::format("{} at {}: {}", heading, place(failure.event, failure.line),
                                   trace::name(failure.op));
  if (!failure.id.empty()) words += text::format(" of {}", failure.id);
  if (failure.size != 0) words += text::format(", {}", units::bytes(failure.size));
  // Memory that was handed out but is wrong has the outcome ok; its error says what is wrong.
  if (failure.outcome == trace::Outcome::ok) {
    if (failure.error.empty()) words += ": it succeeded";
  } else if (failure.outcome != trace::Outcome::none)
    words += text::format(": {}", trace::name(failure.outcome));
  page.paragraph(words);
  if (!failure.error.empty()) page.paragraph(failure.error, 2);
  show_state(page, failure, all_frames);
  page.blank();
}

void show_violations(Page& page, const Summary& summary) {
  if (summary.violation_count == 0) return;
  page.paragraph(text::format("{}:", quantity(summary.violation_count, "violation", "violations")));
  std::size_t shown = 0;
  for (const auto& violation : summary.violations) {
    if (shown++ == kShown) break;
    page.paragraph(text::format("{}: {}: {}", place(violation.event, violation.line),
                                name(violation.kind), violation.words),
                   2);
  }
  if (summary.violation_count > kShown)
    page.paragraph("and more; the JSON holds the first hundred", 2);
  page.blank();
}

/// On a modelled clock, zero time means that there was no driver call: "-".
std::string time_of(double ns, bool simulated) {
  return simulated && ns == 0 ? std::string("-") : units::ns(ns);
}

constexpr std::string_view kNoCall = "-: no driver call that takes time";

std::string latency(const Percentiles& of, bool simulated) {
  if (simulated && of.max == 0) return std::string(kNoCall);
  const auto ns = [&](std::uint64_t value) {
    return time_of(static_cast<double>(value), simulated);
  };
  return text::format("{}: p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                      simulated ? "driver calls, simulated" : "measured", ns(of.p50), ns(of.p90),
                      ns(of.p99), ns(of.p999), ns(of.max));
}

/// `paced`: the clock also advanced between events.
std::string simulated_time(std::uint64_t elapsed_ns, double ns_per_event, bool paced,
                           std::string_view device) {
  if (ns_per_event == 0) {
    return device.find("costs=none") != device.npos
               ? std::string("-: by costs=none, driver calls cost nothing")
               : std::string(kNoCall);
  }
  const auto total = units::ns(static_cast<double>(elapsed_ns));
  const auto each = units::ns(ns_per_event);
  if (paced) {
    return text::format(
        "driver calls would take {} an event on an H200, by a model; all took {} with the waits",
        each, total);
  }
  return text::format("driver calls would take {} on an H200, by a model: {} an event", total,
                      each);
}

void show_times(Page& page, const Pass& pass, const Summary& summary) {
  const bool paced = summary.lateness.has_value();
  if (summary.clock == "simulated") {
    page.row("simulated",
             simulated_time(pass.elapsed_ns, pass.ns_per_event, paced, summary.device));
    return;
  }
  if (pass.simulated_ns) {
    page.row("simulated", simulated_time(*pass.simulated_ns, pass.simulated_ns_per_event, false,
                                         summary.device));
  }
  page.row(
      "measured",
      text::format("{} here, {} an event: the manager, the {}replay and its checks",
                   units::ns(static_cast<double>(pass.elapsed_ns)), units::ns(pass.ns_per_event),
                   pass.simulated_ns ? "simulated device, the " : ""));
}

/// Returns the pass with the peaks of all passes.
Pass with_peaks(Pass pass, const std::vector<Pass>& repeats) {
  for (const auto& other : repeats) {
    pass.peak_live_bytes = std::max(pass.peak_live_bytes, other.peak_live_bytes);
    pass.peak_requested_bytes = std::max(pass.peak_requested_bytes, other.peak_requested_bytes);
    pass.peak_reserved_bytes = std::max(pass.peak_reserved_bytes, other.peak_reserved_bytes);
    pass.peak_host_bytes = std::max(pass.peak_host_bytes, other.peak_host_bytes);
  }
  return pass;
}

/// Counts operations that failed: those that the recording says failed, too, and the others.
std::string failed_words(const Pass& pass, const FourWay& outcomes) {
  auto words = quantity(pass.failures, "failure", "failures");
  const auto recorded = outcomes.failed_as_recorded;
  return recorded == 0
             ? words
             : text::format("{} failed as recorded, {} besides", text::grouped(recorded), words);
}

void show_pass(Page& page, const Pass& pass, const FourWay& outcomes) {
  page.row("events", text::grouped(pass.events));
  std::string served =
      text::format("{}, {}, {}", quantity(pass.allocs, "allocation", "allocations"),
                   quantity(pass.frees, "free", "frees"), failed_words(pass, outcomes));
  if (pass.unmade != 0) {
    served += text::format("; {} left out, as {} allocation was not served",
                           quantity(pass.unmade, "operation", "operations"),
                           pass.unmade == 1 ? "its" : "their");
  }
  page.row("served", served);
  page.row("peak", text::format("live {}, reserved {}", units::bytes(pass.peak_live_bytes),
                                units::bytes(pass.peak_reserved_bytes)));
  if (pass.peak_requested_bytes != pass.peak_live_bytes) {
    const bool exceeds = pass.peak_requested_bytes == std::numeric_limits<std::uint64_t>::max();
    page.row("", text::format("{}{} if everything asked for had been served",
                              units::bytes(pass.peak_requested_bytes), exceeds ? " or more" : ""));
  }
  if (pass.peak_host_bytes != 0)
    page.row("", text::format("host memory {}", units::bytes(pass.peak_host_bytes)));
}

/// Live and reserved bytes as two curves on one scale.
void show_course(Page& page, const Summary& summary, bool blocks) {
  constexpr std::size_t kWidth = 60;           // columns of the curve
  if (summary.course.size() < kWidth) return;  // fewer parts than this show no trend
  std::vector<std::uint64_t> live(kWidth), reserved(kWidth);
  for (std::size_t i = 0; i < summary.course.size(); ++i) {
    const auto at = i * kWidth / summary.course.size();
    live[at] = std::max(live[at], summary.course[i].live);
    reserved[at] = std::max(reserved[at], summary.course[i].reserved);
  }
  const auto most = std::max(*std::max_element(live.begin(), live.end()),
                             *std::max_element(reserved.begin(), reserved.end()));
  if (most == 0) return;
  page.curve("live", format::sparkline(live, blocks, most));
  page.curve("reserved", format::sparkline(reserved, blocks, most));
}

void show_passes(Page& page, const std::vector<Pass>& passes, bool simulated) {
  page.paragraph(text::format("passes, without a reset between them; times are {}:",
                              simulated ? "driver calls, simulated" : "measured"),
                 2);
  for (std::size_t at = 0; at < passes.size(); ++at) {
    if (at == kShown && passes.size() > kShown + 1) {
      page.paragraph("...", 4);
      at = passes.size() - 1;
    }
    const auto& pass = passes[at];
    page.paragraph(
        text::format("{}: {} an event, reserved at most {}, at the end {}, {} leaked, {}", at + 1,
                     time_of(pass.ns_per_event, simulated), units::bytes(pass.peak_reserved_bytes),
                     units::bytes(pass.reserved_at_end_bytes), text::grouped(pass.leaked),
                     quantity(pass.failures, "failure", "failures")),
        4);
  }
}

void show_outcomes(Page& page, const FourWay& outcomes) {
  const auto recorded = outcomes.succeeded_as_recorded + outcomes.only_recording_succeeded +
                        outcomes.only_replay_succeeded + outcomes.failed_as_recorded;
  if (recorded == 0) return;
  std::vector<std::string> words;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count != 0)
      words.push_back(text::format("{} {}", quantity(count, "operation", "operations"), what));
  };
  add(outcomes.succeeded_as_recorded, "succeeded, as recorded");
  add(outcomes.failed_as_recorded, "failed, as recorded");
  add(outcomes.only_recording_succeeded, "failed here and succeeded in the recording");
  add(outcomes.only_replay_succeeded, "succeeded here and failed in the recording");
  page.row("outcomes", text::join(words, "; "));
}

void show_flushes(Page& page, const Summary& summary) {
  if (const auto& flushes = summary.recorded_flushes) {
    std::string words =
        text::format("{} recorded, {} as recorded", text::grouped(flushes->recorded),
                     text::grouped(flushes->as_recorded));
    if (flushes->unrecorded != 0)
      words += text::format(", {} more in the replay", text::grouped(flushes->unrecorded));
    // Only the recorded manager must repeat the recorded flushes.
    if (!flushes->first_difference.empty() &&
        summary.manager.find("profile=numba") != std::string::npos)
      words += text::format("; first difference: {}", flushes->first_difference);
    page.row("flushes", words);
  } else if (!summary.flushes.empty()) {
    std::uint64_t frees = 0;
    for (const auto& flush : summary.flushes) frees += flush.count;
    page.row("flushes", text::format("{} of {}", text::grouped(summary.flushes.size()),
                                     quantity(frees, "free", "frees")));
  }
}

void show_agreement(Page& page, const Summary& summary) {
  const auto& model = summary.model_agreement;
  if (!model) return;
  const auto row = [&](std::string_view name, const ModelAgreement::Count& of) {
    if (of.recorded == 0) return;
    page.row(name, text::format("{} recorded, {} as recorded", text::grouped(of.recorded),
                                text::grouped(of.as_recorded)));
  };
  row("segments", model->segments);
  row("placements", model->placements);
  row("releases", model->releases);
  row("refusals", model->refusals);
  if (model->ties != 0)
    page.row("ties", text::format("{} placements among equal chunks, which no rule settles",
                                  text::grouped(model->ties)));
  if (model->unknown != 0)
    page.row("unknown", text::format("{} placements depend on memory from before the recording",
                                     text::grouped(model->unknown)));
  if (model->inferred_flushes != 0)
    page.row("inferred", text::format("{} releases of idle memory that no row tells of",
                                      text::grouped(model->inferred_flushes)));
  if (!model->first_difference.empty()) page.row("differs", model->first_difference);
  const auto range = [](const ModelAgreement::Range& of) {
    return of.low == of.high
               ? text::grouped(of.low)
               : text::format("{} to {}", text::grouped(of.low), text::grouped(of.high));
  };
  const auto& peak = model->peak_reserved;
  page.row("free run",
           text::format(
               "{} reserved, {} retries, {} out of memory, {} device allocations, {} frees{}",
               peak.low == peak.high
                   ? units::bytes(peak.low)
                   : text::format("{} to {}", units::bytes(peak.low), units::bytes(peak.high)),
               range(model->retries), range(model->ooms), range(model->device_allocs),
               range(model->device_frees),
               model->unknown == 0 ? "" : "; it begins with an empty pool, the recording did not"));
}

}  // namespace

std::string failure_to_text(std::string_view heading, const Failure& failure, int width,
                            bool all_frames) {
  Page page(width);
  if (heading.starts_with('\n')) {
    page.blank();
    heading.remove_prefix(1);
  }
  show_failure(page, heading, failure, all_frames);
  return page.take();
}

std::string to_text(const Summary& summary, int width, bool all_frames, bool blocks) {
  Page page(width);
  if (summary.first_failure) show_failure(page, "FAILED", *summary.first_failure, all_frames);
  show_violations(page, summary);
  if (summary.stop_state) show_failure(page, "stopped", *summary.stop_state, all_frames);

  page.paragraph(summary.trace);
  page.row("manager", summary.manager);
  page.row("device", summary.device);
  const bool simulated = summary.clock == "simulated";
  show_pass(page, with_peaks(summary.pass, summary.repeats), summary.outcomes);
  show_course(page, summary, blocks);
  if (summary.violation_count != 0) page.row("violations", text::grouped(summary.violation_count));
  // A run that was cut off has no measured time.
  if (!summary.abnormal || summary.pass.elapsed_ns != 0) show_times(page, summary.pass, summary);
  if (summary.alloc_latency) page.row("allocate", latency(*summary.alloc_latency, simulated));
  if (summary.free_latency) page.row("free", latency(*summary.free_latency, simulated));
  if (const auto& late = summary.lateness) {
    const auto ns = [](std::uint64_t value) { return units::ns(static_cast<double>(value)); };
    page.row("lateness",
             text::format("{}: p50 {}, p99 {}, max {}", simulated ? "simulated" : "measured",
                          ns(late->p50), ns(late->p99), ns(late->max)));
  }
  if (summary.threads > 1) {
    page.row("threads", text::format("{} at once; peaks are of samples", summary.threads));
  }
  show_outcomes(page, summary.outcomes);
  show_flushes(page, summary);
  show_agreement(page, summary);
  for (const auto& declined : summary.declined) {
    page.row("declined", text::format("{} {} times: {}", trace::name(declined.op),
                                      text::grouped(declined.count), declined.why));
  }
  if (summary.skipped != 0)
    page.row("skipped", quantity(summary.skipped, "operation", "operations"));
  if (summary.repeats.size() > 1) show_passes(page, summary.repeats, simulated);
  if (summary.pass.leaked != 0) {
    page.row("leaked", text::format("{}, {}; the biggest:",
                                    quantity(summary.pass.leaked, "allocation", "allocations"),
                                    units::bytes(summary.pass.leaked_bytes)));
    list_holders(page, summary.leaks, all_frames);
  }
  if (summary.interrupted) page.row("interrupted", "what follows was not replayed");
  if (summary.stopped_at && !summary.stop_state) {
    page.row("stopped", text::format("at event {}", *summary.stopped_at));
  }
  if (const auto& abnormal = summary.abnormal) {
    const bool said = summary.first_failure && summary.first_failure->error == abnormal->words;
    page.row("cut off", said ? "what follows was not replayed" : abnormal->words);
  }
  for (const auto& note : summary.notes) page.row("note", note);
  return page.take();
}

}  // namespace emm::log
