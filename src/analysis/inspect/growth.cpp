#include "inspect/growth.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "inspect/growth_walk.hpp"
#include "inspect/memory_walk.hpp"

namespace emm::inspect {
namespace {

namespace event_flag = trace::event_flag;

constexpr std::size_t kPeriodsMin = 3;          // two iterations show no trend
constexpr std::size_t kStepAllocsMin = 4;       // fewer that repeat are a loop, not a step
constexpr std::uint32_t kFloors = 10;           // the tenths of a recording that has no iterations
constexpr std::uint32_t kFloorEventsMin = 200;  // fewer events than this show no trend

/// Returns the kind of a mark: "step 12" and "step 13" are of one kind.
std::string_view kind_of(std::string_view text) {
  const auto end = text.find_last_not_of("0123456789");
  auto kind = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const auto word = kind.find_last_not_of(" #:=_-/([");
  return kind.substr(0, word == std::string_view::npos ? 0 : word + 1);
}

/// Leaves out the iterations that end before the first moment of a trace. One that begins before it
/// begins with it. Fewer than two iterations are none.
void begin_at(std::size_t first_moment, std::vector<Iteration>& iterations) {
  const auto first = static_cast<std::uint32_t>(first_moment);
  const auto begun = std::remove_if(iterations.begin(), iterations.end(),
                                    [&](const Iteration& each) { return each.last < first; });
  iterations.erase(begun, iterations.end());
  if (iterations.size() < 2) iterations.clear();
  for (auto& each : iterations) each.first = std::max(each.first, first);
}

/// How the sizes at the end of a trace repeat. They are read from the end.
struct Repeats {
  std::size_t period = 0;  ///< In requests; 0 if the sizes do not repeat.
  std::size_t length = 0;  ///< How many sizes equal the one a period away.
  std::size_t count() const noexcept { return (length + period) / period; }
};
/// Finds the least period that covers at least half of all sizes (with `all`, every size) and that
/// occurs at least three times.
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

/// Makes iterations from the steps of a trace with `events` events. births[k] is the first event of
/// the step that is k before the last.
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

/// Returns the index of the iteration with which the last one is compared.
constexpr std::size_t base_of(std::size_t iterations) noexcept { return iterations >= 3 ? 1 : 0; }

/// Compares the measured iterations. REQUIRES: there are some.
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

bool is_of(const Walk& walk, const LiveMemory& memory, std::optional<std::uint32_t> only) {
  return memory.is_device() && (!only || walk.device(memory) == *only);
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

void GrowthWalk::began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) {
  if (!is_of(walk, memory, only_)) return;
  any_ = true;
  if (memory.preexisting) return;
  if (sizes_.size() < last_sizes_) {
    sizes_.push_back(memory.size);
    births_.push_back(event);
  } else {
    const auto at = static_cast<std::size_t>(requests_ % last_sizes_);
    sizes_[at] = memory.size;
    births_[at] = event;
  }
  ++requests_;
}

void GrowthWalk::passed(const Walk& walk, std::uint32_t event) {
  const auto& each = walk.event();
  if (each.op == trace::Op::mark) marks_.mark(event, walk.trace().detail(each).label, each);
}

GrowthDetails::GrowthDetails(GrowthWalk& visitor, const Walk& walk)
    : only_(visitor.only_),
      events_(walk.events()),
      first_moment_(visitor.first_moment_),
      requests_(visitor.requests_),
      any_(visitor.any_) {
  if (events_ == 0 || walk.trace().is_state()) return;
  out_.iterations = visitor.marks_.best(events_, out_.name);
  begin_at(first_moment_, out_.iterations);
  if (!out_.iterations.empty()) {
    out_.source = Growth::Source::marks;
    begin_measure();
    return;
  }
  const auto kept = visitor.sizes_.size();
  std::vector<std::uint64_t> sizes(kept);
  const auto ring = [&](std::size_t from_end) {
    return static_cast<std::size_t>((requests_ - 1 - from_end) % kept);
  };
  for (std::size_t i = 0; i < kept; ++i) sizes[i] = visitor.sizes_[ring(i)];
  const auto found = repeats_of(sizes, kept < requests_);
  if (found.period != 0 && kept == requests_) {
    std::vector<std::uint32_t> firsts(found.count());
    for (std::size_t k = 0; k < firsts.size(); ++k)
      firsts[k] = visitor.births_[ring((k + 1) * found.period - 1)];
    out_.source = Growth::Source::steps;
    out_.iterations = steps_of(firsts, events_);
    begin_measure();
    return;
  }
  if (found.period != 0) {
    last_period_.resize(found.period);
    const auto steps = requests_ / found.period;
    at_once_ = static_cast<std::size_t>(steps / GrowthWalk::kStepsMost + 1);
  }
  // Whether sizes repeat further back is not known yet. If not, each tenth of the trace has its
  // floor.
  floors_ = events_ - first_moment_ >= kFloorEventsMin && any_;
  if (floors_) out_.iterations.resize(kFloors);
}

bool GrowthDetails::counts(const Walk& walk, const LiveMemory& memory) const {
  return is_of(walk, memory, only_);
}

void GrowthDetails::began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) {
  if (!counts(walk, memory)) return;
  bytes_ += memory.size;
  ++count_;
  if (!memory.preexisting && !last_period_.empty()) note_size(event, memory.size);
}

void GrowthDetails::note_size(std::uint32_t event, std::uint64_t size) {
  const auto period = last_period_.size();
  auto& before = last_period_[static_cast<std::size_t>(request_ % period)];
  alike_ = request_ >= period && before == size ? alike_ + 1 : 0;
  before = size;
  if ((requests_ - request_) % (period * at_once_) == 0) firsts_.push_back(event);
  ++request_;
}

void GrowthDetails::ended(const Walk& walk, std::uint32_t, const LiveMemory& memory) {
  if (!counts(walk, memory)) return;
  bytes_ -= memory.size;
  --count_;
  if (floors_ && part_ + 1 == kFloors && memory.birth <= out_.iterations.back().last)
    over_since_floor_.push_back({memory.size, memory.site, memory.birth, memory.preexisting});
}

void GrowthDetails::passed(const Walk& walk, std::uint32_t event) {
  if (measure_) {
    measure_->passed(event, bytes_, count_);
    if (event == out_.iterations.back().last) add_grown(walk);
  } else if (floors_ && event >= first_moment_) {
    pass_floor(event);
    if (event + 1 == events_) add_grown(walk);
  }
}

/// Finds the last event of each part after which the least is live. An iteration lasts from one
/// floor to the next.
void GrowthDetails::pass_floor(std::uint32_t event) {
  bool begins = false;
  const auto moment = std::uint64_t{event} - first_moment_;
  const auto moments = std::uint64_t{events_} - first_moment_;
  if (moment >= part_end_) {
    part_ = static_cast<std::uint32_t>(moment * kFloors / moments);
    part_end_ = ((std::uint64_t{part_} + 1) * moments + kFloors - 1) / kFloors;
    begins = true;
  }
  if (!begins && bytes_ > least_) {
    most_since_ = std::max(most_since_, bytes_);
    return;
  }
  least_ = bytes_;
  auto& floor = out_.iterations[part_];
  floor.last = event;
  floor.live_at_end_bytes = bytes_;
  floor.live_at_end = count_;
  floor.peak_bytes = std::max({floor.peak_bytes, most_since_, bytes_});
  most_since_ = 0;
  over_since_floor_.clear();
}

void GrowthDetails::begin_measure() {
  if (!out_.iterations.empty()) measure_.emplace(out_.iterations);
}

/// Adds up what began after the base iteration and is live at the end of the last one.
void GrowthDetails::add_grown(const Walk& walk) {
  const auto base = out_.iterations[base_of(out_.iterations.size())].last;
  const auto last = out_.iterations.back().last;
  for (const auto& past : over_since_floor_) {
    if (past.birth > base && !past.preexisting) grown_.add(past.size, past.site);
  }
  walk.each_live([&](const LiveMemory& memory) {
    if (counts(walk, memory) && !memory.preexisting && memory.birth > base && memory.birth <= last)
      grown_.add(memory.size, memory.site);
  });
}

bool GrowthDetails::prepare_next_walk() {
  if (last_period_.empty()) return false;
  const auto period = last_period_.size();
  last_period_.clear();
  if (alike_ < (kPeriodsMin - 1) * period || 2 * (alike_ + period) < requests_) return false;
  const auto count =
      static_cast<std::size_t>((alike_ + period) / (period * std::uint64_t{at_once_}));
  if (count < 2 || firsts_.size() < count) return false;
  std::vector<std::uint32_t> firsts(firsts_.rbegin(),
                                    firsts_.rbegin() + static_cast<std::ptrdiff_t>(count));
  floors_ = false;
  out_ = {};
  out_.source = Growth::Source::steps;
  out_.iterations = steps_of(firsts, events_);
  grown_ = {};
  over_since_floor_.clear();
  bytes_ = count_ = 0;
  begin_measure();
  return true;
}

Growth GrowthDetails::finish() {
  if (out_.iterations.empty()) {
    out_.source = Growth::Source::none;
    return std::move(out_);
  }
  if (floors_) {
    out_.source = Growth::Source::floors;
    out_.iterations[0].first = first_moment_;
    for (std::uint32_t i = 1; i < kFloors; ++i)
      out_.iterations[i].first = out_.iterations[i - 1].last + 1;
  }
  compare(out_);
  const auto grown = grown_.sum();
  out_.by_site = grown.by_site;
  out_.by_size = grown.by_size;
  return std::move(out_);
}

Growth growth(const trace::Lifetimes& lifetimes, std::optional<std::uint32_t> device) {
  MemoryWalk walk(lifetimes);
  auto first = GrowthWalk::of_all_sizes(device);
  walk.pass({&first});
  GrowthDetails details(first, walk);
  walk.pass({&details});
  return details.finish();
}

}  // namespace emm::inspect
