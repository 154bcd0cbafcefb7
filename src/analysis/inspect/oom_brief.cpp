#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/oom_text.hpp"

namespace emm::inspect {
namespace {

using text::format;
using text::grouped;
using units::short_bytes;

constexpr std::size_t kNameWidth = 48;  // columns of a call site in a sentence

/// Says in a sentence which request failed, and why.
std::string cause_words(const trace::Trace& trace, const Oom& oom) {
  auto out =
      format("Event {}, a request of {}, failed", grouped(oom.event), short_bytes(oom.request));
  if (trace.device_count() > 1 || oom.device != 0) out += format(" on device {}", oom.device);
  const auto with = short_bytes(oom.live + oom.request);
  switch (oom.cause) {
    case Cause::need:
      return out + format(" by the program's own need: {} with it, and the device has {}.", with,
                          size_beside(*oom.capacity, oom.live + oom.request));
    case Cause::waste:
      return out + format(" by the manager's waste: {} live with it, {} held.", with,
                          short_bytes(oom.reserved.value_or(0)));
    case Cause::limit:
      out += " by a limit set elsewhere";
      return out + (oom.device_free
                        ? format(": the device had {} free.", short_bytes(*oom.device_free))
                        : std::string("."));
    case Cause::others:
      return out + format(" because others on the device held {}.", short_bytes(oom.excess));
    case Cause::not_known:
      break;
  }
  return out + format("; the trace does not say why. With it {} would have been live.", with);
}

/// Says what would have been enough for the request alone.
std::string enough_words(const Oom& oom) {
  switch (oom.cause) {
    case Cause::need:
      return format("A device of {} would have served it, with a manager that wastes nothing.",
                    short_bytes(oom.enough));
    case Cause::waste:
      return format(
          "That request alone would have needed {}.",
          oom.capacity ? size_beside(oom.enough, *oom.capacity) : short_bytes(oom.enough));
    case Cause::limit:
      return oom.enough == 0
                 ? format("That request alone would have needed {} beyond what was held.",
                          short_bytes(oom.request_pages))
                 : format("That request alone would have needed a limit of {}.",
                          short_bytes(oom.enough));
    case Cause::others:
      return format("It would have been served with {} less held by them.",
                    short_bytes(oom.enough));
    case Cause::not_known:
      break;
  }
  return oom.capacity ? std::string() : std::string("--capacity SIZE, of the device, may tell.");
}

/// Says that what is live grew, which no larger device mends.
std::string growth_words(const trace::Trace& trace, const Growth& growth) {
  const auto steps = growth.iterations.size() - 1 - growth.base;
  const bool tenths = growth.source == Growth::Source::floors;
  auto out = format("What is live grew by {} in each {} before it, as a leak does",
                    short_bytes(static_cast<std::uint64_t>(growth.bytes) / steps),
                    tenths ? "tenth of the trace" : "iteration");
  if (sited(growth.by_site))
    out +=
        format(", most at {}",
               site_name(trace, shown_sites(trace, growth.by_site, {.frames = 1}).all.front().site,
                         kNameWidth));
  return out + '.';
}

void add_table(format::Brief& out, const trace::Trace& trace, const HeldMemory& held,
               std::string_view when, const Shown& shown) {
  if (held.count == 0) return;
  constexpr std::size_t kRows = 3;  // of each table; --more has the rest
  const auto rows = std::min(shown.top, kRows);
  const bool has_sites = sited(held.by_site);
  out.sides = "rrl";
  out.rows.push_back({std::string(when), "count", has_sites ? "call site" : "of size"});
  std::uint64_t bytes = held.bytes, count = held.count;
  const auto add = [&](const auto& each, const std::string& name) {
    out.rows.push_back({short_bytes(each.bytes), grouped(each.count), name});
    bytes -= each.bytes;
    count -= each.count;
  };
  if (has_sites) {
    for (const auto& each : shown_sites(trace, held.by_site, {.frames = 1}).all) {
      if (out.rows.size() <= rows) add(each, site_name(trace, each.site, kNameWidth));
    }
  } else {
    for (const auto& each : held.by_size) {
      if (out.rows.size() <= rows) add(each, short_bytes(each.key));
    }
  }
  if (count != 0) out.rows.push_back({short_bytes(bytes), grouped(count), "others"});
}

std::string check_words(const FitCheck& of) {
  using Verdict = FitCheck::Verdict;
  if (of.has_history && of.capacity) {
    const auto live = size_beside(of.live.bytes, *of.capacity);
    const auto with = short_bytes(*of.capacity);
    switch (of.verdict) {
      case Verdict::fails:
        return format("With {} it fails, whichever manager serves it: {} are live at the peak.",
                      with, live);
      case Verdict::depends:
        return format(
            "With {} it depends on the manager whether it fails: {} are live at the peak.", with,
            live);
      default:
        return format("With {} it fits as it was recorded: {} are live at the peak.", with, live);
    }
  }
  if (!of.space || !of.space->segments)
    return format("{} are live in {}.", short_bytes(of.held.bytes),
                  counted(of.held.count, "allocation"));
  const auto& space = *of.space;
  auto out = format("The manager held {}: {} active, {} inactive", short_bytes(space.size),
                    short_bytes(space.used), short_bytes(space.free));
  if (space.free != 0)
    out += format(", the largest free block {}", short_bytes(space.largest_free));
  out += '.';
  if (space.free != 0 && of.is_divided) {
    std::uint64_t returnable = 0, stuck = 0;
    for (const auto& part : of.inactive) {
      returnable += part.returnable;
      stuck += part.stuck;
    }
    out += format(
        " Of that {} are returnable before a request fails, and {} stuck in partly used "
        "segments.",
        short_bytes(returnable), short_bytes(stuck));
  }
  if (of.largest_request && of.capacity)
    out += format(" The largest request that would be served is {}.",
                  short_bytes(*of.largest_request));
  return out;
}

}  // namespace

bool grew_until(const Growth& growth, const Oom& oom) {
  return growth.grows() && growth.iterations[growth.base].last < oom.event &&
         growth.iterations.back().live_at_end_bytes <= oom.live;
}

format::Brief brief(const trace::Trace& trace, const Moments& moments, const OomReport& report,
                    std::size_t which, const Growth* growth, const Shown& shown) {
  const auto& oom = report.all[which];
  format::Brief out;
  out.answer = {cause_words(trace, oom) + ' ' +
                (growth != nullptr ? growth_words(trace, *growth) : enough_words(oom))};
  if (report.all.size() > 1)
    out.answer.push_back(format("{} more failed.", counted(report.all.size() - 1, "request")));
  add_table(out, trace, moments.held_after(oom.event, oom.device), "live then", shown);
  out.more = "figures, call stacks, each remedy and other failures";
  return out;
}

format::Brief brief(const trace::Trace& trace, const Moments& moments,
                    const std::vector<FitCheck>& fit_checks, const Shown& shown) {
  format::Brief out;
  const auto* most = &fit_checks.front();
  for (const auto& each : fit_checks) {
    if (each.live.bytes > most->live.bytes) most = &each;
  }
  std::string words;
  if (fit_checks.size() > 1)
    words = format("Of {} devices, device {}: ", fit_checks.size(), most->device);
  out.answer = {words + check_words(*most)};
  const bool of_history = most->has_history && most->capacity;
  add_table(out, trace,
            of_history ? moments.held_after(
                             most->live_overrun ? most->live_overrun->event : most->live.event,
                             most->device)
                       : most->held,
            of_history ? "live" : "live at the end", shown);
  out.more = "the figures, and where the memory is";
  return out;
}

}  // namespace emm::inspect
