#include "inspect/growth.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace emm::inspect {
namespace {

using trace::Op;
namespace event_flag = trace::event_flag;

constexpr std::size_t kPeriodsMin = 3;
constexpr std::size_t kStepAllocsMin = 4;  // fewer that repeat are a loop, not a step
constexpr std::uint32_t kFloors = 10;
constexpr std::uint32_t kFloorEventsMin = 200;  // fewer events than this show no trend

using Only = std::optional<std::uint32_t>;  // a device

bool counts(const Lifetimes& lifetimes, const Lifetime& lifetime, Only only) {
  return lifetime.what == Lifetime::What::device && (!only || lifetimes.device(lifetime) == *only);
}

/// "step 12" and "step 13" are of one kind.
std::string_view kind_of(std::string_view text) {
  const auto end = text.find_last_not_of("0123456789");
  auto kind = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const auto word = kind.find_last_not_of(" #:=_-/([");
  return kind.substr(0, word == std::string_view::npos ? 0 : word + 1);
}

struct Ranges {
  std::vector<Iteration> closed;  // by begin and end
  std::map<std::string, std::uint32_t> open;
  std::vector<Iteration> instants;  // each to the next
  std::size_t order = 0;
};

/// The iterations that most marks agree on.
std::vector<Iteration> by_marks(const trace::Trace& trace, std::string& name) {
  std::map<std::string, Ranges, std::less<>> kinds;
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    if (event.op != Op::mark) continue;
    const auto& text = trace.detail(event).label;
    const auto [known, added] = kinds.try_emplace(std::string(kind_of(text)));
    auto& ranges = known->second;
    if (added) ranges.order = kinds.size();
    if (event.has(event_flag::begins)) {
      ranges.open[text] = i;
    } else if (event.has(event_flag::ends)) {
      const auto begun = ranges.open.find(text);
      if (begun == ranges.open.end()) continue;
      ranges.closed.push_back({.name = text, .first = begun->second, .last = i});
      ranges.open.erase(begun);
    } else {
      if (!ranges.instants.empty()) ranges.instants.back().last = i - 1;
      ranges.instants.push_back(
          {.name = text, .first = i, .last = static_cast<std::uint32_t>(trace.size() - 1)});
    }
  }
  std::vector<Iteration> best;
  std::size_t order = 0;
  for (auto& [kind, ranges] : kinds) {
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

/// The shortest series of sizes that the trace ends with, three times over or more, by the Z
/// function of what is read from the end.
std::vector<Iteration> by_steps(const Lifetimes& lifetimes, Only only) {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> births;
  const auto& trace = lifetimes.trace();
  for (auto i = trace.size(); i-- > 0;) {
    const auto& event = trace[i];
    if (event.op != Op::memalloc && event.op != Op::memallocmanaged) continue;
    const auto& lifetime = lifetimes[event.id];
    if (!counts(lifetimes, lifetime, only) || lifetime.preexisting) continue;
    sizes.push_back(event.size);
    births.push_back(static_cast<std::uint32_t>(i));
  }
  const auto n = sizes.size();
  std::vector<std::uint32_t> same(n);  // [p]: how far sizes and sizes shifted by p are equal
  std::size_t period = 0, left = 0, right = 0;
  for (std::size_t p = 1; p < n; ++p) {
    std::size_t length = p < right ? std::min<std::size_t>(right - p, same[p - left]) : 0;
    while (p + length < n && sizes[length] == sizes[p + length]) ++length;
    same[p] = static_cast<std::uint32_t>(length);
    if (p + length > right) left = p, right = p + length;
    if (p >= kStepAllocsMin && length >= (kPeriodsMin - 1) * p && 2 * (length + p) >= n) {
      period = p;
      break;
    }
  }
  if (period == 0) return {};
  // A run of one size alone does not show where a step begins.
  if (std::all_of(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(period),
                  [&](std::uint64_t size) { return size == sizes.front(); })) {
    return {};
  }
  const auto count = (same[period] + period) / period;
  std::vector<Iteration> steps(count);
  auto last = static_cast<std::uint32_t>(trace.size() - 1);
  for (std::size_t k = 0; k < count; ++k) {
    auto& step = steps[count - 1 - k];
    step.first = births[(k + 1) * period - 1];
    step.last = last;
    last = step.first == 0 ? 0 : step.first - 1;
  }
  steps.pop_back();
  return steps;
}

/// The trace cut where the least is live in each tenth of it, at the last such event.
std::vector<Iteration> by_floors(const Lifetimes& lifetimes, Only only) {
  const auto size = static_cast<std::uint32_t>(lifetimes.trace().size());
  if (size < kFloorEventsMin) return {};
  std::vector<Iteration> floors(kFloors);
  std::uint64_t bytes = 0, least = 0;
  std::uint32_t part = kFloors;
  const auto device = [&](AllocId id) { return counts(lifetimes, lifetimes[id], only); };
  bool any = false;
  lifetimes.walk(
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes += lifetimes[id].size, any = true;
      },
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes -= lifetimes[id].size;
      },
      [&](std::uint32_t event) {
        const auto now = static_cast<std::uint32_t>(std::uint64_t{event} * kFloors / size);
        if (now != part || bytes <= least) {
          least = bytes;
          floors[now].last = event;
        }
        part = now;
      });
  if (!any) return {};
  for (std::uint32_t i = 1; i < kFloors; ++i) floors[i].first = floors[i - 1].last + 1;
  return floors;
}

void measure(const Lifetimes& lifetimes, Only only, std::vector<Iteration>& iterations) {
  // Live bytes and count after each event of interest; iterations may lie in one another's range.
  std::vector<std::pair<std::uint32_t, std::size_t>> starts;
  for (std::size_t i = 0; i < iterations.size(); ++i) starts.emplace_back(iterations[i].first, i);
  std::sort(starts.begin(), starts.end());
  std::vector<std::size_t> current;
  std::size_t next = 0;
  std::uint64_t bytes = 0, count = 0;
  const auto device = [&](AllocId id) { return counts(lifetimes, lifetimes[id], only); };
  lifetimes.walk(
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes += lifetimes[id].size, ++count;
      },
      [&](std::uint32_t, AllocId id) {
        if (device(id)) bytes -= lifetimes[id].size, --count;
      },
      [&](std::uint32_t event) {
        for (; next < starts.size() && starts[next].first == event; ++next)
          current.push_back(starts[next].second);
        for (std::size_t i = 0; i < current.size();) {
          auto& iteration = iterations[current[i]];
          iteration.peak_bytes = std::max(iteration.peak_bytes, bytes);
          if (iteration.last != event) {
            ++i;
            continue;
          }
          iteration.live_at_end_bytes = bytes;
          iteration.live_at_end = count;
          current.erase(current.begin() + static_cast<std::ptrdiff_t>(i));
        }
      });
}

}  // namespace

Growth growth(const Lifetimes& lifetimes, std::optional<std::uint32_t> only) {
  Growth out;
  out.iterations = by_marks(lifetimes.trace(), out.name);
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
  const auto& all = out.iterations;
  out.base = all.size() >= 3 ? 1 : 0;
  const auto& base = all[out.base];
  const auto& last = all.back();
  out.bytes = static_cast<std::int64_t>(last.live_at_end_bytes - base.live_at_end_bytes);
  out.steady = true;
  for (auto i = out.base + 1; i < all.size(); ++i) {
    out.steady = out.steady && all[i].live_at_end_bytes >= all[i - 1].live_at_end_bytes;
  }
  const auto grown = held(lifetimes, [&](const Lifetime& lifetime) {
    return counts(lifetimes, lifetime, only) && lifetime.birth > base.last &&
           lifetime.live_at(last.last);
  });
  out.by_site = grown.by_site;
  out.by_size = grown.by_size;
  return out;
}

}  // namespace emm::inspect
