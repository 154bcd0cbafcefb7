#include "inspect/explanation.hpp"

#include <algorithm>

#include "inspect/growth_walk.hpp"
#include "inspect/memory_walk.hpp"
#include "inspect/oom_finder.hpp"

namespace emm::inspect {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

/// Keeps what was live at the failures and the overruns, after the finders have seen the event.
/// Only later events tell which is the peak.
class OomVisitor final : public Visitor {
 public:
  OomVisitor(OomsInPasses& out, const OomFinder& finder, FitFinder& fits,
             std::optional<std::uint64_t> event)
      : out_(out), finder_(finder), fits_(fits), asked_(event) {}

  void recording_begins(const Walk& walk, std::uint32_t first_moment) override {
    for (auto& [number, device] : devices_) {
      const auto& fit = fits_.of(number);
      device.over_since_peak.clear();
      device.needed = device.live;
      device.peak_place = walk.first_moment_place();
      for (const auto* overrun : {&fit.live_overrun, &fit.reserved_overrun}) {
        if (*overrun) overrun_places_[first_moment] = walk.first_moment_place();
      }
      if (fit.live_overrun) out_.held[{first_moment, number}] = walk.held(number);
    }
  }

  void began(const Walk& walk, std::uint32_t event, const LiveMemory& memory) override {
    if (!memory.is_device() && memory.what != MemoryKind::backing) return;
    begun_ = walk.device(memory);
    if (!memory.is_device()) return;
    auto& device = devices_[*begun_];
    if (device.stream.value_or(memory.stream) != memory.stream) device.several_streams = true;
    device.stream = memory.stream;
    device.live += memory.size;
    device.needed = std::max(device.needed, device.live);
    const auto& fit = fits_.of(*begun_);
    if (fit.live.event == event && fit.live.count > 0) device.over_since_peak.clear();
    if (fit.live_overrun && fit.live_overrun->event == event) look_at_ = *begun_;
  }

  void ended(const Walk& walk, std::uint32_t, const LiveMemory& memory) override {
    if (!memory.is_device()) return;
    auto& device = devices_[walk.device(memory)];
    device.live -= memory.size;
    if (memory.birth <= fits_.of(walk.device(memory)).live.event)
      device.over_since_peak.emplace_back(memory.size, memory.site);
    const auto& each = walk.event();
    if (each.op == trace::Op::free && index(each.stream) != 0 && each.stream != memory.stream)
      device.several_streams = true;
  }

  void passed(const Walk& walk, std::uint32_t event) override {
    const auto& each = walk.event();
    note_places(event, each);
    if (look_at_) out_.held[{event, *look_at_}] = walk.held(*look_at_);
    look_at_.reset();
    if (trace::is_refused(each)) {
      const auto on = walk.trace().contexts()[index(each.context)].device;
      auto& device = devices_[on];
      if (device.stream.value_or(each.stream) != each.stream) device.several_streams = true;
      device.needed = std::max(device.needed, device.live + each.size);
    }
    if (finder_.found().size() == found_) return;
    const auto device = finder_.found().back().device;
    if (found_++ < kFailuresListed || asked_ == event)
      out_.held[{event, device}] = walk.held(device);
  }

  /// Called after the walk.
  void finish(Walk& walk) {
    walk.note_place(0, first_place_);
    for (auto& [number, device] : devices_) {
      const auto& live = fits_.of(number).live;
      if (live.count > 0) walk.note_place(live.event, device.peak_place);
      HeldMemorySum at_peak;
      for (const auto& [size, site] : device.over_since_peak) at_peak.add(size, site);
      walk.each_live([&, on = number](const LiveMemory& memory) {
        if (memory.is_device() && walk.device(memory) == on && memory.birth <= live.event)
          at_peak.add(memory.size, memory.site);
      });
      out_.held.try_emplace({live.event, number}, at_peak.sum());
    }
    for (const auto& [event, place] : overrun_places_) walk.note_place(event, place);
  }
  /// What a device needs whose streams do not wait. Empty if it has several, as that takes the
  /// whole trace.
  std::optional<std::uint64_t> no_wait_need(std::uint32_t device) {
    const auto& of = devices_[device];
    return of.several_streams ? std::nullopt : std::optional(of.needed);
  }

 private:
  struct Device {
    std::optional<StreamId> stream;
    bool several_streams = false;
    std::uint64_t live = 0, needed = 0;
    /// Live at the peak, and ended since.
    std::vector<std::pair<std::uint64_t, SiteId>> over_since_peak;
    trace::Trace::Place peak_place;
  };

  /// Notes the places of events that the report may name.
  void note_places(std::uint32_t event, const trace::Event& each) {
    const trace::Trace::Place place{.line = each.line, .time_ns = each.time_ns};
    if (event == 0) first_place_ = place;
    if (!begun_) return;
    auto& device = devices_[*begun_];
    const auto& fit = fits_.of(*begun_);
    begun_.reset();
    if (fit.live.event == event) device.peak_place = place;
    for (const auto* overrun : {&fit.live_overrun, &fit.reserved_overrun}) {
      if (*overrun && (*overrun)->event == event) overrun_places_[event] = place;
    }
  }

  OomsInPasses& out_;
  const OomFinder& finder_;
  FitFinder& fits_;
  std::optional<std::uint64_t> asked_;
  std::map<std::uint32_t, Device> devices_;
  trace::Trace::Place first_place_;
  std::map<std::uint32_t, trace::Trace::Place> overrun_places_;  // by event
  std::optional<std::uint32_t> begun_, look_at_;                 // devices
  std::size_t found_ = 0;
};

Status find_growth(const std::string& source, const ReadAgain& read, OomsInPasses& out) {
  std::map<std::uint32_t, GrowthWalk> first_walks;
  for (const auto& oom : out.report.all) first_walks.try_emplace(oom.device, oom.device);
  if (first_walks.empty()) return {};
  std::vector<Visitor*> visitors;
  for (auto& [device, first_walk] : first_walks) visitors.push_back(&first_walk);
  LiveWalk second(source, visitors);
  if (auto done = read(second); !done) return done;
  std::map<std::uint32_t, GrowthDetails> details;
  visitors.clear();
  for (auto& [device, first_walk] : first_walks)
    visitors.push_back(&details.try_emplace(device, first_walk, second).first->second);
  LiveWalk third(source, visitors);
  if (auto done = read(third); !done) return done;
  visitors.clear();
  for (auto& [device, detail] : details) {
    if (detail.prepare_next_walk()) visitors.push_back(&detail);
  }
  if (!visitors.empty()) {
    LiveWalk last(source, visitors);
    if (auto done = read(last); !done) return done;
  }
  for (auto& [device, detail] : details) out.grown[device] = detail.finish();
  return {};
}

}  // namespace

Explanation explain(const Recording& recording, const trace::Lifetimes& lifetimes,
                    std::optional<std::uint64_t> capacity) {
  OomFinder finder(capacity);
  FitFinder fits(capacity);
  MemoryWalk walk(lifetimes, &recording);
  walk.pass({&finder, &fits});
  return {.report = finder.report(), .fit_checks = fits.fit_checks(walk, lifetimes)};
}

HeldMemory OomsInPasses::held_after(std::uint32_t event, std::uint32_t device) const {
  const auto known = held.find({event, device});
  return known == held.end() ? HeldMemory() : known->second;
}

Growth OomsInPasses::growth(std::uint32_t device) const {
  const auto known = grown.find(device);
  return known == grown.end() ? Growth() : known->second;
}

Result<std::unique_ptr<OomsInPasses>> explain_in_passes(const std::string& source,
                                                        const ReadAgain& read,
                                                        std::optional<std::uint64_t> capacity,
                                                        std::optional<std::uint64_t> event) {
  auto out = std::make_unique<OomsInPasses>();
  OomFinder finder(capacity);
  FitFinder fits(capacity);
  OomVisitor visitor(*out, finder, fits, event);
  out->walk = std::make_unique<LiveWalk>(source, std::vector<Visitor*>{&finder, &fits, &visitor});
  auto& walk = *out->walk;
  if (auto done = read(walk); !done) {
    if (walk.needs_memory()) return std::unique_ptr<OomsInPasses>();
    return done.error();
  }
  bool any_unknown = false;
  out->fit_checks = fits.fit_checks(walk, [&](std::uint32_t device) {
    const auto need = visitor.no_wait_need(device);
    any_unknown = any_unknown || !need;
    return need.value_or(0);
  });
  if (any_unknown) return std::unique_ptr<OomsInPasses>();
  visitor.finish(walk);
  out->report = finder.report();
  if (auto done = find_growth(source, read, *out); !done) return done.error();
  return out;
}

}  // namespace emm::inspect
