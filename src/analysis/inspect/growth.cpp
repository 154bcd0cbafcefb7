#include "inspect/growth.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "inspect/growth_parts.hpp"

namespace emm::inspect {
namespace {

using trace::Op;
namespace event_flag = trace::event_flag;

using Only = std::optional<std::uint32_t>;  // a device

bool counts(const trace::Lifetimes& lifetimes, const trace::Lifetime& lifetime, Only only) {
  return lifetime.what == trace::Lifetime::What::device &&
         (!only || lifetimes.device(lifetime) == *only);
}

/// Returns the kind of a mark: "step 12" and "step 13" are of one kind.
std::string_view kind_of(std::string_view text) {
  const auto end = text.find_last_not_of("0123456789");
  auto kind = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const auto word = kind.find_last_not_of(" #:=_-/([");
  return kind.substr(0, word == std::string_view::npos ? 0 : word + 1);
}

/// Finds the shortest series of sizes that repeats three times or more at the end of the trace.
std::vector<Iteration> by_steps(const trace::Lifetimes& lifetimes, Only only) {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> births;
  const auto& trace = lifetimes.trace();
  for (auto i = trace.size(); i-- > 0;) {
    const auto& event = trace[i];
    if (!asks_for_device_memory(event.op)) continue;
    const auto& lifetime = lifetimes[event.id];
    if (!counts(lifetimes, lifetime, only) || lifetime.preexisting) continue;
    sizes.push_back(event.size);
    births.push_back(static_cast<std::uint32_t>(i));
  }
  const auto found = repeats_of(sizes);
  if (found.period == 0) return {};
  std::vector<std::uint32_t> firsts(found.count());
  for (std::size_t k = 0; k < firsts.size(); ++k) firsts[k] = births[(k + 1) * found.period - 1];
  return steps_of(firsts, trace.size());
}

/// Cuts each tenth of the trace at the last event in it after which the least is live.
std::vector<Iteration> by_floors(const trace::Lifetimes& lifetimes, Only only) {
  const auto& trace = lifetimes.trace();
  const auto first = static_cast<std::uint32_t>(trace.first_moment());
  const auto size = static_cast<std::uint32_t>(trace.size()) - first;
  if (size < kFloorEventsMin) return {};
  std::vector<Iteration> floors(kFloors);
  std::uint64_t bytes = 0, least = 0;
  std::uint32_t part = kFloors;
  const auto device = [&](AllocId id) { return counts(lifetimes, lifetimes[id], only); };
  bool any = false;
  lifetimes.walk_moments(
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes += lifetimes[id].size, any = true;
      },
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes -= lifetimes[id].size;
      },
      [&](std::uint32_t event) {
        const auto now = static_cast<std::uint32_t>(std::uint64_t{event - first} * kFloors / size);
        if (now != part || bytes <= least) {
          least = bytes;
          floors[now].last = event;
        }
        part = now;
      });
  if (!any) return {};
  floors[0].first = first;
  for (std::uint32_t i = 1; i < kFloors; ++i) floors[i].first = floors[i - 1].last + 1;
  return floors;
}

void measure(const trace::Lifetimes& lifetimes, Only only, std::vector<Iteration>& iterations) {
  IterationMeasure measure(iterations);
  std::uint64_t bytes = 0, count = 0;
  const auto device = [&](AllocId id) { return counts(lifetimes, lifetimes[id], only); };
  lifetimes.walk_moments(
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes += lifetimes[id].size, ++count;
      },
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes -= lifetimes[id].size, --count;
      },
      [&](std::uint32_t event) { measure.passed(event, bytes, count); });
}

}  // namespace

void MarkRanges::mark(std::uint32_t at, const std::string& text, const trace::Event& event) {
  const auto [known, added] = kinds_.try_emplace(std::string(kind_of(text)));
  auto& ranges = known->second;
  if (added) ranges.order = kinds_.size();
  if (event.has(event_flag::begins)) {
    ranges.open[text] = at;
  } else if (event.has(event_flag::ends)) {
    const auto begun = ranges.open.find(text);
    if (begun == ranges.open.end()) return;
    ranges.closed.push_back({.name = text, .first = begun->second, .last = at});
    ranges.open.erase(begun);
  } else {
    if (!ranges.instants.empty()) ranges.instants.back().last = at - 1;
    ranges.instants.push_back({.name = text, .first = at, .last = trace::kNever});
  }
}

std::vector<Iteration> MarkRanges::best(std::size_t events, std::string& name) {
  std::vector<Iteration> best;
  std::size_t order = 0;
  for (auto& [kind, ranges] : kinds_) {
    if (!ranges.instants.empty()) {
      ranges.instants.back().last = static_cast<std::uint32_t>(events - 1);
    }
    auto& found = ranges.closed.size() >= 2 ? ranges.closed : ranges.instants;
    if (&found == &ranges.instants && found.size() >= 3) found.pop_back();
    if (found.size() < 2 || found.size() < best.size() ||
        (found.size() == best.size() && ranges.order > order))
      continue;
    best = std::move(found);
    order = ranges.order;
    name = kind;
  }
  return best;
}

void begin_at(std::size_t first_moment, std::vector<Iteration>& iterations) {
  const auto first = static_cast<std::uint32_t>(first_moment);
  const auto begun = std::remove_if(iterations.begin(), iterations.end(),
                                    [&](const Iteration& each) { return each.last < first; });
  iterations.erase(begun, iterations.end());
  if (iterations.size() < 2) iterations.clear();
  for (auto& each : iterations) each.first = std::max(each.first, first);
}

Repeats repeats_of(const std::vector<std::uint64_t>& sizes, bool all) {
  const auto n = sizes.size();
  Repeats found;
  // The Z function of the sizes: same[p] says how far they agree with themselves shifted by p.
  std::vector<std::uint32_t> same(n);
  std::size_t left = 0, right = 0;
  for (std::size_t p = 1; p < n; ++p) {
    std::size_t length = p < right ? std::min<std::size_t>(right - p, same[p - left]) : 0;
    while (p + length < n && sizes[length] == sizes[p + length]) ++length;
    same[p] = static_cast<std::uint32_t>(length);
    if (p + length > right) left = p, right = p + length;
    const auto reach = all ? length + p == n : 2 * (length + p) >= n;
    if (p >= kStepAllocsMin && length >= (kPeriodsMin - 1) * p && reach) {
      found = {.period = p, .length = length};
      break;
    }
  }
  if (found.period == 0) return {};
  // A run of one size does not show where a step begins.
  if (std::all_of(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(found.period),
                  [&](std::uint64_t size) { return size == sizes.front(); })) {
    return {};
  }
  return found;
}

std::vector<Iteration> steps_of(const std::vector<std::uint32_t>& births, std::size_t events) {
  std::vector<Iteration> steps(births.size());
  auto last = static_cast<std::uint32_t>(events - 1);
  for (std::size_t k = 0; k < births.size(); ++k) {
    auto& step = steps[births.size() - 1 - k];
    step.first = births[k];
    step.last = last;
    last = step.first == 0 ? 0 : step.first - 1;
  }
  steps.pop_back();
  return steps;
}

IterationMeasure::IterationMeasure(std::vector<Iteration>& iterations) : iterations_(iterations) {
  for (std::size_t i = 0; i < iterations.size(); ++i) starts_.emplace_back(iterations[i].first, i);
  std::sort(starts_.begin(), starts_.end());
}

void IterationMeasure::passed(std::uint32_t event, std::uint64_t bytes, std::uint64_t count) {
  for (; next_ < starts_.size() && starts_[next_].first == event; ++next_)
    current_.push_back(starts_[next_].second);
  for (std::size_t i = 0; i < current_.size();) {
    auto& iteration = iterations_[current_[i]];
    iteration.peak_bytes = std::max(iteration.peak_bytes, bytes);
    if (iteration.last != event) {
      ++i;
      continue;
    }
    iteration.live_at_end_bytes = bytes;
    iteration.live_at_end = count;
    current_.erase(current_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void compare(Growth& growth) {
  const auto& all = growth.iterations;
  growth.base = base_of(all.size());
  growth.bytes =
      static_cast<std::int64_t>(all.back().live_at_end_bytes - all[growth.base].live_at_end_bytes);
  growth.steady = growth.bytes > 0;
  for (auto i = growth.base + 1; i < all.size(); ++i) {
    growth.steady = growth.steady && all[i].live_at_end_bytes >= all[i - 1].live_at_end_bytes;
  }
}

Growth growth(const trace::Lifetimes& lifetimes, std::optional<std::uint32_t> only) {
  Growth out;
  MarkRanges marks;
  const auto& trace = lifetimes.trace();
  if (trace.is_state()) return out;
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    if (trace[i].op == Op::mark) marks.mark(i, trace.detail(trace[i]).label, trace[i]);
  }
  out.iterations = marks.best(trace.size(), out.name);
  begin_at(trace.first_moment(), out.iterations);
  out.source = Growth::Source::marks;
  if (out.iterations.empty()) {
    out.iterations = by_steps(lifetimes, only);
    out.source = Growth::Source::steps;
  }
  if (out.iterations.empty()) {
    out.iterations = by_floors(lifetimes, only);
    out.source = Growth::Source::floors;
  }
  if (out.iterations.empty()) {
    out.source = Growth::Source::none;
    return out;
  }
  measure(lifetimes, only, out.iterations);
  compare(out);
  const auto& base = out.iterations[out.base];
  const auto& last = out.iterations.back();
  const auto grown = held(lifetimes, [&](const trace::Lifetime& lifetime) {
    return counts(lifetimes, lifetime, only) && !lifetime.preexisting &&
           lifetime.birth > base.last && lifetime.live_at(last.last);
  });
  out.by_site = grown.by_site;
  out.by_size = grown.by_size;
  return out;
}

}  // namespace emm::inspect
