#include "inspect/oom_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"
#include "inspect/profile.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {
namespace {

// Columns of prose, and of a line with a call site.
constexpr std::size_t kWidth = 80, kSiteWidth = 100;

using text::format;

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return text::fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

/// Writes "2.0 % to 2.1 %" with the digits that tell the two apart, or "2.0 %" if four do not.
std::string percent_range(std::uint64_t from, std::uint64_t to, std::uint64_t whole) {
  const auto of = [&](std::uint64_t part, int digits) {
    return text::fixed(100 * static_cast<double>(part) / static_cast<double>(whole), digits);
  };
  constexpr int kDigitsMost = 4;  // behind the point, until two shares differ
  for (int digits = 1; digits <= kDigitsMost; ++digits) {
    if (of(from, digits) != of(to, digits))
      return format("{} % to {} %", of(from, digits), of(to, digits));
  }
  return percent(to, whole);
}

/// Writes "1.4 times", or "893 times".
std::string times(std::uint64_t bytes, std::uint64_t of) {
  const auto ratio =
      static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(of, 1));
  constexpr double kExact = 10;  // a ratio above has no digit behind the point
  return (ratio < kExact ? text::fixed(ratio, 1)
                         : text::grouped(static_cast<std::uint64_t>(std::llround(ratio)))) +
         " times";
}

std::string happened(const trace::Trace& trace, const Oom& oom) {
  auto out = format("A request of {} failed at event {}", bytes_in_full(oom.request),
                    text::grouped(oom.event));
  if (oom.line != 0) out += format(", line {}", text::grouped(oom.line));
  if (oom.time_ns != 0)
    out += format(", {} into the trace", units::ns(static_cast<double>(oom.time_ns)));
  if (trace.device_count() > 1 || oom.device != 0) out += format(", on device {}", oom.device);
  return out + '.';
}

/// Says how the manager's memory was used.
std::string in_the_manager(const Oom& oom) {
  const auto beyond = *oom.reserved - std::min(*oom.reserved, oom.live);
  auto out =
      format("The manager held {} in {}, {} beyond what was live", bytes_in_full(*oom.reserved),
             counted(oom.segments, "segment"), bytes_in_full(beyond));
  if (oom.pending != 0)
    out += format(", {} of it freed by the program and kept for another stream",
                  units::bytes(oom.pending));
  if (oom.space && oom.space->segments) {
    const auto largest = oom.space->largest_free;
    out += format("; the largest free block in its segments was {}", bytes_in_full(largest));
    out += largest < oom.request
               ? ", too small for the request"
               : ", large enough, so it was not to be had for this stream or size";
  }
  return out + '.';
}

/// REQUIRES: the capacity is known. Otherwise others may hold the device.
std::string of_need(const Oom& oom) {
  return format(
      "This is the program's own need: {} were live in {}, and with the request {}, {} more than "
      "the device's {}. "
      "No manager could have served it.",
      bytes_in_full(oom.live), counted(oom.live_count, "allocation"),
      bytes_in_full(oom.live + oom.request), units::bytes(oom.live + oom.request - *oom.capacity),
      bytes_in_full(*oom.capacity));
}

std::string of_waste(const Oom& oom) {
  auto out = format("This is the manager's waste: {} were live in {}, and with the request {}",
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"),
                    bytes_in_full(oom.live + oom.request));
  if (oom.capacity)
    out += format(", which is {} of the device's {}",
                  percent(oom.live + oom.request, *oom.capacity), bytes_in_full(*oom.capacity));
  if (oom.device_free) out += format("; the device had {} free", bytes_in_full(*oom.device_free));
  out += ". " + in_the_manager(oom);
  if (!oom.capacity || !oom.device_free) return out;
  // The waste is the cause, but on an empty device a manager with as much waste would have been
  // served.
  const auto others = *oom.capacity - std::min(*oom.capacity, *oom.reserved + *oom.device_free);
  if (others < oom.request_pages) return out;
  return out + format(
                   " Others on the device (another process, another library or the driver) held {} "
                   "of it.",
                   bytes_in_full(others));
}

std::string of_limit(const Oom& oom) {
  const auto left = oom.device_free ? *oom.device_free : *oom.capacity - *oom.reserved;
  auto out = format(
      "This is a limit set elsewhere: the device {} {} free, {} the request. {} were live in "
      "{}.",
      oom.device_free ? "still had" : "should still have had", bytes_in_full(left),
      times(left, oom.request), bytes_in_full(oom.live), counted(oom.live_count, "allocation"));
  if (!oom.reserved) return out + " Look for a memory fraction, a limiting adaptor or a quota.";
  out += ' ' + in_the_manager(oom);
  // The limit allowed reserved_before, and refused what would have been held now.
  const auto refused = *oom.reserved + oom.request_pages;
  const auto device = oom.capacity ? *oom.capacity : *oom.reserved + left;
  out += format(" So the limit is at least {} and below {}", bytes_in_full(oom.reserved_before),
                bytes_in_full(refused));
  out += format(", {} of {}. A memory fraction, a limiting adaptor or a quota sets such a limit.",
                percent_range(oom.reserved_before, refused, device),
                oom.capacity ? "the device" : "what the manager held and the device had free");
  return out;
}

std::string of_others(const Oom& oom) {
  return format(
             "Others on the device are the cause: {} were live in {}, and with the request {}, "
             "which fits into "
             "the device's {}; but {} of it were neither free nor held by this manager: another "
             "process, another library "
             "or the driver had them. ",
             bytes_in_full(oom.live), counted(oom.live_count, "allocation"),
             bytes_in_full(oom.live + oom.request), bytes_in_full(*oom.capacity),
             bytes_in_full(oom.excess)) +
         in_the_manager(oom);
}

std::string of_not_known(const Oom& oom) {
  auto out = format("Why, this trace does not say: {} were live in {}, with the request {}",
                    bytes_in_full(oom.live), counted(oom.live_count, "allocation"),
                    bytes_in_full(oom.live + oom.request));
  const auto needed = oom.live + oom.request;
  if (!oom.capacity && oom.reserved && oom.device_free) {
    const auto had = *oom.reserved + *oom.device_free;
    return out + format(
                     ", which is {} more than the {} that the manager held and the {} that the "
                     "device had free. Either the "
                     "device has less than {}, and this is the program's own need; or others on it "
                     "held the rest: another "
                     "process, another library or the driver. How much the device has is not "
                     "recorded; --capacity SIZE "
                     "tells which.",
                     units::bytes(needed - std::min(needed, had)), bytes_in_full(*oom.reserved),
                     bytes_in_full(*oom.device_free), bytes_in_full(needed));
  }
  if (!oom.capacity) {
    if (oom.device_free)
      out += format("; the device had {} free, and what the manager held is not recorded",
                    bytes_in_full(*oom.device_free));
    return out + ", and how much the device has is not recorded. --capacity SIZE says it.";
  }
  out += format(", which is {} of the device's {}: it was not the program's own need.",
                percent(oom.live + oom.request, *oom.capacity), bytes_in_full(*oom.capacity));
  return out +
         " What the manager held is not recorded, so its waste and a limit set elsewhere look the "
         "same; a replay with the "
         "manager and this capacity tells them apart.";
}

/// Says what `oom.enough` exceeds.
std::string beyond(const Oom& oom) {
  if (oom.capacity)
    return format("{} more than the device's {}", units::bytes(oom.enough - *oom.capacity),
                  units::bytes(*oom.capacity));
  const auto free = std::min(oom.device_free.value_or(0), oom.request_pages);
  return format("{} more than the {} that it held and the {} that the device had free",
                units::bytes(oom.request_pages - free), units::bytes(oom.reserved.value_or(0)),
                units::bytes(free));
}

std::string enough(const OomReport& report, const Oom& oom) {
  const auto most = report.devices.at(oom.device).needed;
  const auto whole = [&](std::uint64_t here) {
    return most > here ? format(", and {} for the whole trace", bytes_in_full(most))
                       : std::string();
  };
  switch (oom.cause) {
    case Cause::need:
      return format(
          "Enough would have been: a device of at least {} at this event{}, with a manager that "
          "wastes nothing.",
          bytes_in_full(oom.enough), whole(oom.enough));
    case Cause::waste:
      return format(
          "Enough would have been: for this manager as it was, {}, {}; with a manager that wastes "
          "nothing, {}{}.",
          bytes_in_full(oom.enough), beyond(oom), bytes_in_full(oom.live + oom.request),
          whole(oom.live + oom.request));
    case Cause::limit:
      return oom.enough == 0 ? format(
                                   "Enough would have been: a limit that leaves room for {} beyond "
                                   "what the manager held.",
                                   bytes_in_full(oom.request_pages))
                             : format(
                                   "Enough would have been: a limit of {}: what was held, and "
                                   "what the request takes of the device.",
                                   bytes_in_full(oom.enough));
    case Cause::others:
      return format("Enough would have been: {} less held by others.", bytes_in_full(oom.enough));
    case Cause::not_known:
      break;
  }
  return format("Enough would have been at least {} for this program alone.",
                bytes_in_full(oom.live + oom.request));
}

std::string why(const Oom& oom) {
  switch (oom.cause) {
    case Cause::need:
      return of_need(oom);
    case Cause::waste:
      return of_waste(oom);
    case Cause::limit:
      return of_limit(oom);
    case Cause::others:
      return of_others(oom);
    case Cause::not_known:
      break;
  }
  return of_not_known(oom);
}

/// Says that live memory only ever grew until then. Empty if it did not.
std::string of_growth(const trace::Trace& trace, const Growth& growth, const Oom& oom,
                      bool all_frames) {
  if (!grew_until(growth, oom)) return "";
  const auto& base = growth.iterations[growth.base];
  const auto& last = growth.iterations.back();
  const auto by = static_cast<std::uint64_t>(growth.bytes);
  const auto steps = growth.iterations.size() - 1 - growth.base;
  auto out =
      growth.source == Growth::Source::floors
          ? format("What stays live only ever grew, tenth by tenth of the trace: from {} to {}",
                   bytes_in_full(base.live_at_end_bytes), bytes_in_full(last.live_at_end_bytes))
          : format("What stays live grew by {} in each of {}, from {} to {}, and never went down",
                   units::bytes(by / steps), counted(steps, "iteration"),
                   bytes_in_full(base.live_at_end_bytes), bytes_in_full(last.live_at_end_bytes));
  out += ", as a leak does";
  if (!growth.by_site.empty() && index(growth.by_site.front().key) != 0) {
    const auto most =
        shown_sites(trace, growth.by_site, {.frames = 1, .all_frames = all_frames}).all.front();
    out += format("; {} of it from {}", units::bytes(most.bytes),
                  site_name(trace, most.site, kSiteWidth, all_frames));
  } else if (!growth.by_size.empty()) {
    const auto& most = growth.by_size.front();
    out += format("; {} of it are {} of {}", units::bytes(most.bytes),
                  counted(most.count, "allocation"), bytes_in_full(most.key));
  }
  return out + ". ";
}

// Says first what no manager changes, the live bytes; then what one needs that never waits; then
// what the recorded manager would have done.
std::string would_it_fail(const trace::Trace& trace, const FitCheck& of) {
  using Verdict = FitCheck::Verdict;
  if (!of.capacity) {
    return format(
        "{} are live at most, {}{}.", bytes_in_full(of.live.bytes), place_of(trace, of.live.event),
        of.reserved ? format(", and the manager held {} at most", bytes_in_full(of.reserved->bytes))
                    : std::string());
  }
  const auto capacity = *of.capacity;
  const auto whole = bytes_in_full(capacity);
  const auto at = [&](const Overrun& overrun) {
    auto words = format("event {}", text::grouped(overrun.event));
    if (const auto line = trace.place(overrun.event).line; line != 0)
      words += format(", line {}", text::grouped(line));
    return words;
  };
  std::string out;
  if (of.verdict == Verdict::fails && of.live_overrun->size == 0) {
    out = format(
        "With {} it fails, whichever manager serves it: {} were live before the first row, {} more "
        "than the capacity. At the peak, {}, {} are: no device with less serves the trace.",
        whole, bytes_in_full(of.live_overrun->held), units::bytes(of.live_overrun->held - capacity),
        place_of(trace, of.live.event), bytes_in_full(of.live.bytes));
  } else if (of.verdict == Verdict::fails) {
    const auto& first = *of.live_overrun;
    out = format(
        "With {} it fails, whichever manager serves it: with the request of {} at {}, {} are live, "
        "{} more than the capacity. At "
        "the peak, {}, {} are: no device with less serves the trace.",
        whole, bytes_in_full(first.size), at(first), bytes_in_full(first.held),
        units::bytes(first.held - capacity), place_of(trace, of.live.event),
        bytes_in_full(of.live.bytes));
  } else if (of.verdict == Verdict::depends) {
    out = format(
        "With {} it depends on the manager whether it fails: {} are live at most, {}, which fits.",
        whole, bytes_in_full(of.live.bytes), place_of(trace, of.live.event));
  } else {
    out = format(
        "With {} nothing in the recording says that it fails: {} are live at most, {}; {} more are "
        "free then.",
        whole, bytes_in_full(of.live.bytes), place_of(trace, of.live.event),
        units::bytes(capacity - of.live.bytes));
  }
  if (of.no_wait > of.live.bytes) {
    out += format(" A manager that never waits for another stream, and orders none, needs {}",
                  bytes_in_full(of.no_wait));
    out += of.no_wait > capacity
               ? format(", {} more than the capacity.", units::bytes(of.no_wait - capacity))
               : std::string(", which fits.");
  }
  if (of.reserved_overrun && of.reserved_overrun->size == 0) {
    out += format(" The recorded manager held {} before the first row, more than the capacity.",
                  bytes_in_full(of.reserved_overrun->held));
  } else if (of.reserved_overrun) {
    const auto& first = *of.reserved_overrun;
    out += format(
        " The recorded manager reserved {} at most; its segment of {} at {} is the first beyond "
        "the capacity. There it "
        "would have been refused, and could only have released what it held idle.",
        bytes_in_full(of.reserved->bytes), bytes_in_full(first.size), at(first));
  } else if (of.reserved) {
    out += format(" The recorded manager reserved {} at most, which fits.",
                  bytes_in_full(of.reserved->bytes));
  } else {
    out += " What the recorded manager reserved is not recorded.";
  }
  return out;
}

struct InactiveSum {
  std::uint64_t returnable = 0, stuck = 0;
  std::uint64_t kept = 0;  ///< Returnable, in private pools.
};
InactiveSum sum_of(const FitCheck& of) {
  InactiveSum sum;
  for (const auto& part : of.inactive) {
    sum.returnable += part.returnable;
    sum.stuck += part.stuck;
    if (part.is_private) sum.kept += part.returnable;
  }
  return sum;
}

/// REQUIRES: of.space
std::string of_state(const FitCheck& of) {
  const auto& space = *of.space;
  if (!space.segments) {
    return format("{} are live in {}; what the manager held is not recorded.",
                  bytes_in_full(of.held.bytes), counted(of.held.count, "allocation"));
  }
  auto out = format("The manager held {} in {}: {} active in {}", bytes_in_full(space.size),
                    counted(space.regions.size(), "segment"), bytes_in_full(space.used),
                    counted(of.held.count, "allocation"));
  if (space.pending != 0)
    out += format(", {} freed and kept for other streams", bytes_in_full(space.pending));
  out += format(", {} inactive", bytes_in_full(space.free));
  if (space.size != 0) out += format(", {} of what it held", percent(space.free, space.size));
  out += '.';
  if (space.free == 0) return out;
  out += format(
      " The largest free block is {}, and {} of the inactive memory lies outside of "
      "it: a larger request needs a new "
      "segment, however much is inactive.",
      bytes_in_full(space.largest_free), percent(space.free - space.largest_free, space.free));
  if (!of.is_divided) return out;
  const auto sum = sum_of(of);
  out += format(
      " Of the inactive memory {} are returnable: PyTorch gives them back before a request fails, "
      "as whole free segments, or whole free pages of expandable ones. {} are stuck in segments "
      "that are partly in use.",
      bytes_in_full(sum.returnable), bytes_in_full(sum.stuck));
  if (sum.kept != 0) {
    out += format(
        " {} of what is returnable are in private pools, which keep them as long as a graph or a "
        "MemPool uses the pool.",
        bytes_in_full(sum.kept));
  }
  return out;
}

/// Says which request would be served.
std::string of_largest(const FitCheck& of) {
  if (!of.largest_request || !of.capacity) return "";
  if (*of.largest_request == 0) return " No request would be served.";
  return format(" The largest request that would be served is {}, by {}, as PyTorch's rules say.",
                bytes_in_full(*of.largest_request),
                of.largest_from_block ? "a free block" : "a new segment");
}

/// Says what the device had beside the segments.
std::string rest_of(const FitCheck& of) {
  const auto& space = *of.space;
  if (!space.segments) return "";
  if (!of.capacity)
    return " What the device had left for new segments is not recorded; --capacity SIZE, what it "
           "has in all, adds that.";
  if (space.size > *of.capacity) {
    return format(" That is {} more than the {} of --capacity: the device must have more.",
                  units::bytes(space.size - *of.capacity), bytes_in_full(*of.capacity));
  }
  return format(
      " Of the device's {}, {} were left for new segments and for others on it: another process, "
      "another library or "
      "the driver.",
      bytes_in_full(*of.capacity), bytes_in_full(*of.capacity - space.size));
}

std::string words_of(const trace::Trace& trace, const FitCheck& of) {
  const bool asked = of.has_history && of.capacity;
  return asked || !of.space ? would_it_fail(trace, of)
                            : of_state(of) + rest_of(of) + of_largest(of);
}

/// Writes the member "inactive".
void write_inactive(format::JsonWriter& json, const FitCheck& of) {
  json.objects("inactive", of.inactive, [&](const auto& each) {
    json.member("pool", each.pool).member("private", each.is_private);
    json.member("stream", each.stream).member("returnable_bytes", each.returnable);
    json.member("stuck_bytes", each.stuck);
  });
}

void write(format::JsonWriter& json, const trace::Trace& trace, const OomReport& report,
           const FitCheck& of, std::size_t top) {
  const auto peaks = report.devices.find(of.device);
  const auto most = peaks == report.devices.end() ? DevicePeak{} : peaks->second;
  const bool asked = of.capacity && of.has_history;
  json.member("device", of.device).member("history", of.has_history);
  json.member("peak_live_bytes", most.live).member("peak_live_event", of.live.event);
  json.member("peak_needed_bytes", most.needed);
  json.member("peak_reserved_bytes",
              of.reserved ? std::optional(of.reserved->bytes) : std::nullopt);
  json.member("capacity_bytes", of.capacity).member_or_null("no_wait_bytes", asked, of.no_wait);
  json.member_or_null("outlook", asked, of.verdict);
  const auto overrun = [&](std::string_view name, std::string_view what,
                           const std::optional<Overrun>& first) {
    json.object(name, first, [&](const Overrun& at) {
      json.member("event", at.event).member("line", trace.place(at.event).line);
      json.member("size", at.size).member(what, at.held);
    });
  };
  overrun("overrun", "live_bytes", of.live_overrun);
  overrun("reserved_overrun", "reserved_bytes", of.reserved_overrun);
  json.key("words");
  report.all.empty() && (of.capacity || of.says_state()) ? json.value(words_of(trace, of))
                                                         : json.null();
  json.key("at_end").begin_object();
  json.member("live_bytes", of.held.bytes).member("live_count", of.held.count);
  const bool has_space = of.space && of.space->segments;
  const AddressSpace none;
  const auto& space = has_space ? *of.space : none;
  json.member_or_null("reserved_bytes", has_space, space.size);
  json.member_or_null("used_bytes", has_space, space.used);
  json.member_or_null("pending_bytes", has_space, space.pending);
  json.member_or_null("inactive_bytes", has_space, space.free);
  json.member_or_null("largest_free_bytes", has_space, space.largest_free);
  const auto sum = sum_of(of);
  json.member_or_null("returnable_bytes", of.is_divided, sum.returnable);
  json.member_or_null("stuck_bytes", of.is_divided, sum.stuck);
  json.member("largest_request_bytes", of.largest_request);
  write_inactive(json, of);
  sites_to_json(json, "live_by_site", trace, of.held.by_site, top);
  json.end_object();
}

}  // namespace

/// Says who set the capacity, where it was emmctl: `record` writes it down.
std::string set_by(const trace::Trace& trace, const Oom& oom) {
  const auto& options = trace.header().source_options;
  if (!trace.header().tool.starts_with("emmctl") || options.empty()) return {};
  const auto said = format::parse_json(options, "the header");
  const auto* const limit = said ? said->find("run_capacity") : nullptr;
  if (limit == nullptr || limit->as_u64() != oom.capacity) return {};
  return format(" The device had more: `emmctl run --capacity` let the program have {} of it.",
                units::bytes(*oom.capacity));
}

std::string to_text(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const Shown& shown) {
  const auto& oom = report.all[which];
  auto out = format::wrapped(
      happened(trace, oom) + ' ' + why(oom) + set_by(trace, oom) + ' ' +
          of_growth(trace, moments.growth(oom.device), oom, shown.all_frames) + enough(report, oom),
      kWidth);
  if (index(oom.site) != 0) {
    out += "\nThe request came from\n";
    for (const auto& frame : telling_frames(trace, oom.site, shown))
      out += format("  {}\n", text::printable(frame, std::string::npos));
  }
  const auto holding = moments.held_after(oom.event, oom.device);
  if (holding.count > 0) {
    const bool sited = holding.by_site.size() > 1 || index(holding.by_site.front().key) != 0;
    out += sited ? "\nLive then, by call site\n" + sites_table(trace, holding.by_site, shown)
                 : "\nLive then, by size (the trace has no call sites)\n" +
                       sizes_table(holding.by_size, shown.top);
  }
  if (report.all.size() > 1) {
    const bool several = trace.device_count() > 1;
    std::vector<std::vector<std::string>> rows{{"event", "request", "live", "cause"}};
    if (several) rows[0].emplace_back("device");
    constexpr std::size_t kListed = 20;  // failures; --json has all
    for (std::size_t i = 0; i < report.all.size() && i < kListed; ++i) {
      const auto& each = report.all[i];
      rows.push_back(
          {text::grouped(each.event), units::bytes(each.request), units::bytes(each.live),
           each.cause == Cause::not_known ? "not known" : std::string(name(each.cause))});
      if (several) rows.back().push_back(format("{}", each.device));
    }
    out += format("\n{} requests failed; --event N explains another of them\n",
                  text::grouped(report.all.size())) +
           format::columns("rrrll", rows);
    if (report.all.size() > kListed)
      out += format("  ... and {} more\n", text::grouped(report.all.size() - kListed));
  }
  return out;
}

std::string to_text(const trace::Trace& trace, const Moments& moments,
                    const std::vector<FitCheck>& fit_checks, std::string_view path,
                    const Shown& shown) {
  std::string out;
  const bool history = std::any_of(fit_checks.begin(), fit_checks.end(),
                                   [](const FitCheck& each) { return each.has_history; });
  const bool asked = std::any_of(fit_checks.begin(), fit_checks.end(),
                                 [](const FitCheck& each) { return each.capacity.has_value(); });
  if (history && !asked) {
    out += format::wrapped(
        "No request of this recording failed for want of memory. This is what was held at its end.",
        kWidth);
  }
  if (!history) {
    out += format::wrapped(
        "This recording is a state without history: it has what was held when it was taken, and "
        "not "
        "the requests before. It does not say which request failed, if one did, nor why.",
        kWidth);
  }
  for (const auto& each : fit_checks) {
    const auto on = fit_checks.size() > 1 || each.device != 0 ? format("Device {}: ", each.device)
                                                              : std::string();
    if (!out.empty()) out += '\n';
    out += format::wrapped(on + words_of(trace, each), kWidth);
    const bool of_history = each.has_history && each.capacity;
    if (!of_history) out += inactive_table(std::vector<FitCheck>{each});
    const auto holding =
        of_history
            ? moments.held_after(each.live_overrun ? each.live_overrun->event : each.live.event,
                                 each.device)
            : each.held;
    if (holding.count == 0) continue;
    const bool sited = holding.by_site.size() > 1 || index(holding.by_site.front().key) != 0;
    const std::string_view when = !of_history         ? "Live"
                                  : each.live_overrun ? "Live with that request"
                                                      : "Live at the peak";
    out += sited ? format("\n{}, by call site\n", when) + sites_table(trace, holding.by_site, shown)
                 : format("\n{}, by size (the trace has no call sites)\n", when) +
                       sizes_table(holding.by_size, shown.top);
  }
  const auto shown_path = path == "-" ? std::string("TRACE") : text::shell_word(path);
  if (!history) {
    return out + format(
                     "\nWhere it lies is shown by\n  emmctl inspect {} --map {}\nWhich request "
                     "failed, and why, is in a recording with history "
                     "(PyTorch makes one after\ntorch.cuda.memory._record_memory_history()).\n",
                     shown_path, trace.size() - 1);
  }
  const auto capacity = fit_checks.empty() ? std::nullopt : fit_checks.front().capacity;
  if (!asked) {
    return out + format(
                     "\nWhether it fails on another device is asked by\n"
                     "  emmctl explain {} --capacity SIZE\n",
                     shown_path);
  }
  if (trace.header().framework.starts_with("torch"))
    out += format(
        "\nWhich settings of PyTorch's allocator serve it with this is found by\n"
        "  emmctl tune {} --capacity {}\n",
        shown_path, capacity.value_or(0));
  return out + format(
                   "\nThe least capacity with which a manager serves it, and whether one does with "
                   "this, are found by\n"
                   "  emmctl fit {} --manager pool\n  emmctl replay {} --manager pool --device "
                   "sim:capacity={}\n",
                   shown_path, shown_path, capacity.value_or(0));
}

std::string inactive_table(const std::vector<FitCheck>& fit_checks) {
  const bool several = fit_checks.size() > 1;
  std::vector<std::vector<std::string>> rows{{"returnable", "stuck", "pool", "stream"}};
  if (several) rows.front().emplace_back("device");
  for (const auto& of : fit_checks) {
    for (const auto& part : of.inactive) {
      rows.push_back({units::bytes(part.returnable), units::bytes(part.stuck), part.pool,
                      part.stream == 0 ? std::string("default") : format("{}", part.stream)});
      if (several) rows.back().push_back(format("{}", of.device));
    }
  }
  if (rows.size() == 1) return "";
  return format("\nInactive, by pool{} stream{}\n", several ? "," : " and",
                several ? " and device" : "") +
         format::columns(several ? "rrlll" : "rrll", rows);
}

std::string inactive_json(const std::vector<FitCheck>& fit_checks) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_array();
  for (const auto& of : fit_checks) {
    const auto sum = sum_of(of);
    json.begin_object().member("device", of.device).member("returnable_bytes", sum.returnable);
    json.member("stuck_bytes", sum.stuck);
    write_inactive(json, of);
    json.end_object();
  }
  json.end_array();
  return out;
}

std::string to_json(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const std::vector<FitCheck>& fit_checks, std::size_t top) {
  format::JsonAnswer json("emmctl.explain/2");
  json.member("trace", trace.source());
  std::optional<std::uint32_t> device;
  if (which < report.all.size()) device = report.all[which].device;
  if (!device && fit_checks.size() == 1) device = fit_checks.front().device;
  const bool has_peaks = device && report.devices.count(*device) != 0;
  const auto peaks = has_peaks ? report.devices.at(*device) : DevicePeak();
  json.member("device", device).member_or_null("peak_live_bytes", has_peaks, peaks.live);
  json.member_or_null("peak_needed_bytes", has_peaks, peaks.needed);
  json.objects("devices", fit_checks,
               [&](const FitCheck& each) { write(json, trace, report, each, top); });
  std::map<std::uint32_t, Growth> grown;
  json.objects("failures", first_of(report.all, kFailuresListed), [&](const Oom& oom) {
    if (grown.count(oom.device) == 0) grown.emplace(oom.device, moments.growth(oom.device));
    json.member("event", oom.event).member("line", oom.line).member("time_ns", oom.time_ns);
    json.member("device", oom.device).member("id", trace.name(oom.id)).member("size", oom.request);
    json.member("stream", trace.streams()[index(oom.stream)]).member("cause", oom.cause);
    json.member("live_bytes", oom.live).member("live_count", oom.live_count);
    json.member("capacity_bytes", oom.capacity).member("device_free_bytes", oom.device_free);
    json.member("reserved_bytes", oom.reserved).member("segments", oom.segments);
    json.member("pending_bytes", oom.pending);
    json.member("largest_free_bytes", oom.space && oom.space->segments
                                          ? std::optional(oom.space->largest_free)
                                          : std::nullopt);
    json.member("excess_bytes", oom.excess).member("enough_bytes", oom.enough);
    json.member("words", why(oom) + ' ' + of_growth(trace, grown.at(oom.device), oom, false) +
                             enough(report, oom));
    sites_to_json(json, "live_by_site", trace, moments.held_after(oom.event, oom.device).by_site,
                  top);
  });
  json.member("failure_count", report.all.size());
  return json.finish();
}

}  // namespace emm::inspect
