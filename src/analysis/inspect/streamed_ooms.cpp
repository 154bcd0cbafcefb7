#include "inspect/streamed_ooms.hpp"

#include <algorithm>

#include "inspect/extension_members.hpp"
#include "inspect/streamed_growth.hpp"
#include "inspect/streamed_profile.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using What = trace::Lifetime::What;

class OomVisitor final : public LiveVisitor {
 public:
  OomVisitor(OomsInPasses& out, std::optional<std::uint64_t> capacity,
             std::optional<std::uint64_t> event)
      : out_(out), capacity_(capacity), asked_(event), fits_(capacity) {}

  /// Called once, before the walk.
  void begin(const trace::Trace& trace) { finder_.emplace(trace, capacity_); }

  void recording_begins(const LiveWalk& walk, std::uint32_t first_moment) override {
    finder_->recording_begins();
    fits_.recording_begins(first_moment);
    for (auto& [number, device] : devices_) {
      const auto& fit = fits_.of(number);
      device.over_since_peak.clear();
      device.needed = device.live;
      device.peak_place = walk.first_moment_place();
      for (const auto* overrun : {&fit.live_overrun, &fit.reserved_overrun}) {
        if (*overrun) overrun_places_[first_moment] = walk.first_moment_place();
      }
      if (fit.live_overrun) out_.held[{first_moment, number}] = held_now(walk, number);
    }
  }

  void began(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override {
    change(walk, event, memory, true);
    if (memory.what != What::device) return;
    auto& device = devices_[walk.device(memory)];
    if (device.stream.value_or(memory.stream) != memory.stream) device.several_streams = true;
    device.stream = memory.stream;
    device.live += memory.size;
    device.needed = std::max(device.needed, device.live);
    const auto& fit = fits_.of(walk.device(memory));
    if (fit.live.event == event && fit.live.count > 0) device.over_since_peak.clear();
    if (fit.live_overrun && fit.live_overrun->event == event) look_at_ = walk.device(memory);
  }

  void ended(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory) override {
    change(walk, event, memory, false);
    if (memory.what != What::device) return;
    auto& device = devices_[walk.device(memory)];
    device.live -= memory.size;
    if (memory.birth <= fits_.of(walk.device(memory)).live.event)
      device.over_since_peak.emplace_back(memory.size, memory.site);
    const auto& each = walk.event();
    if (each.op == trace::Op::free && index(each.stream) != 0 && each.stream != memory.stream)
      device.several_streams = true;
  }

  void passed(const LiveWalk& walk, std::uint32_t event,
              const trace::Operation& operation) override {
    const auto& each = walk.event();
    note_places(event, each);
    if (look_at_) out_.held[{event, *look_at_}] = held_now(walk, *look_at_);
    look_at_.reset();
    const bool refused = trace::is_refused(each);
    if (refused) {
      const auto on = walk.trace().contexts()[index(each.context)].device;
      auto& device = devices_[on];
      if (device.stream.value_or(each.stream) != each.stream) device.several_streams = true;
      device.needed = std::max(device.needed, device.live + each.size);
    }
    std::optional<std::uint64_t> device_free;
    const bool tells = operation.has(Member::extension) && operation.has(Member::result);
    if (tells && operation.result.outcome == trace::Outcome::oom)
      device_free = number_of(operation.extension, "x-device_free");
    auto oom = finder_->look(event, each, device_free);
    if (!oom) return;
    if (finder_->looks_at_space()) oom->space = space_now(walk, event, oom->device);
    if (found_++ < kFailuresListed || asked_ == event)
      out_.held[{event, oom->device}] = held_now(walk, oom->device);
    finder_->add(*std::move(oom));
  }

  /// Called after the walk. Returns false if the trace has to be in memory.
  bool finish(LiveWalk& walk) {
    walk.trace().note_place(0, first_place_);
    out_.report = finder_->report();
    out_.fit_checks = fits_.fit_checks();
    for (auto& fit : out_.fit_checks) {
      const auto& device = devices_[fit.device];
      if (capacity_ && device.several_streams) return false;
      if (capacity_) fit.no_wait = device.needed;
      judge(fit);
      fit.held = held_now(walk, fit.device);
      fit.space = space_now(walk, walk.events() - 1, fit.device);
      if (fit.live.count > 0) walk.trace().note_place(fit.live.event, device.peak_place);
      HoldingSum at_peak;
      for (const auto& [size, site] : device.over_since_peak) at_peak.add(size, site);
      walk.each_live([&](AllocId, const LiveMemory& memory) {
        const bool there = memory.what == What::device && walk.device(memory) == fit.device &&
                           memory.birth <= fit.live.event;
        if (there) at_peak.add(memory.size, memory.site);
      });
      out_.held.try_emplace({fit.live.event, fit.device}, at_peak.sum());
    }
    for (const auto& [event, place] : overrun_places_) walk.trace().note_place(event, place);
    return true;
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

  void change(const LiveWalk& walk, std::uint32_t event, const LiveMemory& memory, bool begins) {
    const auto device = walk.device(memory);
    finder_->change(memory.what, device, memory.size, begins);
    fits_.change(event, device,
                 {.what = memory.what,
                  .size = memory.size,
                  .begins = begins,
                  .within = !begins || !memory.preexisting});
    if (begins && (memory.what == What::device || memory.what == What::backing)) begun_ = device;
  }

  /// Notes the places of events that the report may name. Only later events tell which is the peak.
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
  std::optional<std::uint64_t> capacity_, asked_;
  std::optional<OomFinder> finder_;
  FitFinder fits_;
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
  std::vector<LiveVisitor*> visitors;
  for (auto& [device, first_walk] : first_walks) visitors.push_back(&first_walk);
  LiveWalk second(source, visitors);
  if (auto done = read(second); !done) return done;
  std::map<std::uint32_t, GrowthDetails> details;
  visitors.clear();
  for (auto& [device, first_walk] : first_walks)
    visitors.push_back(&details.try_emplace(device, first_walk, second.events()).first->second);
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

Holding OomsInPasses::held_after(std::uint32_t event, std::uint32_t device) const {
  const auto known = held.find({event, device});
  return known == held.end() ? Holding() : known->second;
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
  OomVisitor visitor(*out, capacity, event);
  out->walk = std::make_unique<LiveWalk>(source, std::vector<LiveVisitor*>{&visitor});
  visitor.begin(out->walk->trace());
  if (auto done = read(*out->walk); !done) {
    if (out->walk->needs_memory()) return std::unique_ptr<OomsInPasses>();
    return done.error();
  }
  if (!visitor.finish(*out->walk)) return std::unique_ptr<OomsInPasses>();
  if (auto done = find_growth(source, read, *out); !done) return done.error();
  return out;
}

}  // namespace emm::inspect
