#include "inspect/streamed_growth.hpp"

#include <algorithm>
#include <utility>

namespace emm::inspect {
namespace {

using What = trace::Lifetime::What;

bool is_of(const LiveWalk& walk, const LiveMemory& memory, std::optional<std::uint32_t> only) {
  return memory.what == What::device && (!only || walk.device(memory) == *only);
}

}  // namespace

void GrowthWalk::began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) {
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

void GrowthWalk::passed(const LiveWalk& walk, std::uint32_t event, const trace::Operation&) {
  const auto& each = walk.event();
  is_state_ = walk.trace().is_state();
  if (each.op == trace::Op::mark) marks_.mark(event, walk.trace().detail(each).label, each);
}

GrowthDetails::GrowthDetails(GrowthWalk& first_walk, std::uint32_t events)
    : only_(first_walk.only_),
      events_(events),
      first_moment_(first_walk.first_moment_),
      requests_(first_walk.requests_),
      any_(first_walk.any_) {
  if (events == 0 || first_walk.is_state_) return;
  out_.iterations = first_walk.marks_.best(events, out_.name);
  begin_at(first_moment_, out_.iterations);
  if (!out_.iterations.empty()) {
    out_.source = Growth::Source::marks;
    begin_measure();
    return;
  }
  const auto kept = first_walk.sizes_.size();
  std::vector<std::uint64_t> sizes(kept);
  const auto ring = [&](std::size_t from_end) {
    return static_cast<std::size_t>((requests_ - 1 - from_end) % kept);
  };
  for (std::size_t i = 0; i < kept; ++i) sizes[i] = first_walk.sizes_[ring(i)];
  const auto found = repeats_of(sizes, kept < requests_);
  if (found.period != 0 && kept == requests_) {
    std::vector<std::uint32_t> firsts(found.count());
    for (std::size_t k = 0; k < firsts.size(); ++k)
      firsts[k] = first_walk.births_[ring((k + 1) * found.period - 1)];
    out_.source = Growth::Source::steps;
    out_.iterations = steps_of(firsts, events);
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
  floors_ = events - first_moment_ >= kFloorEventsMin && any_;
  if (floors_) out_.iterations.resize(kFloors);
}

bool GrowthDetails::counts(const LiveWalk& walk, const LiveMemory& memory) const {
  return is_of(walk, memory, only_);
}

void GrowthDetails::began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) {
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

void GrowthDetails::ended(const LiveWalk& walk, std::uint32_t, const LiveMemory& memory) {
  if (!counts(walk, memory)) return;
  bytes_ -= memory.size;
  --count_;
  if (floors_ && part_ + 1 == kFloors && memory.birth <= out_.iterations.back().last)
    over_since_floor_.push_back({memory.size, memory.site, memory.birth, memory.preexisting});
}

void GrowthDetails::passed(const LiveWalk& walk, std::uint32_t event, const trace::Operation&) {
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
void GrowthDetails::add_grown(const LiveWalk& walk) {
  const auto base = out_.iterations[base_of(out_.iterations.size())].last;
  const auto last = out_.iterations.back().last;
  for (const auto& past : over_since_floor_) {
    if (past.birth > base && !past.preexisting) grown_.add(past.size, past.site);
  }
  walk.each_live([&](AllocId, const LiveMemory& memory) {
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

}  // namespace emm::inspect
