#include "inspect/description.hpp"

#include <utility>

#include "inspect/extension_members.hpp"
#include "inspect/growth_walk.hpp"
#include "inspect/memory_walk.hpp"
#include "inspect/profile_walk.hpp"
#include "trace/compact/near.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

Status read_alike(const ReadAgain& read, LiveWalk& walk, std::uint32_t events) {
  if (auto done = read(walk); !done) return done;
  if (walk.events() == events) return {};
  return Error{.code = Errc::io_error,
               .message = walk.trace().source() + ": the file became another while it was read"};
}

}  // namespace

Description describe(const Recording& recording, const trace::Lifetimes& lifetimes) {
  MemoryWalk walk(lifetimes, &recording);
  ProfileWalk profile;
  GrowthWalk growth = GrowthWalk::of_all_sizes();
  walk.pass({&profile, &growth});
  Description out{.profile = profile.finish(walk), .growth = {}};
  ProfileDetails profile_details(profile, out.profile);
  GrowthDetails growth_details(growth, walk);
  walk.pass({&profile_details, &growth_details});
  profile_details.finish();
  out.profile.categories =
      recording.categories().use(static_cast<std::uint32_t>(recording.trace().first_moment()),
                                 out.profile.live.event, recording.trace().size());
  leave_out_unknown(recording.trace().header(), out.profile);
  out.growth = growth_details.finish();
  return out;
}

void MapVisitor::told(const Walk&, std::uint32_t, const trace::Operation& operation) {
  goes_on_ = goes_on_ && says_what_stays(operation);
}

void MapVisitor::passed(const Walk& walk, std::uint32_t event) {
  if (event_ == event) goes_on_ = true;
  if (!goes_on_) return;
  map = walk.space(*event_);
  if (holds_) held = walk.held();
}

Result<std::unique_ptr<InPasses>> inspect_in_passes(const std::string& source,
                                                    const ReadAgain& read,
                                                    const MapEvent& map_event) {
  auto out = std::make_unique<InPasses>();
  ProfileWalk profile;
  GrowthWalk growth;
  out->walk = std::make_unique<LiveWalk>(source, std::vector<Visitor*>{&profile, &growth});
  auto& walk = *out->walk;
  if (auto done = read(walk); !done) {
    if (walk.needs_memory()) return std::unique_ptr<InPasses>();
    return done.error();
  }
  const auto events = walk.events();
  out->profile = profile.finish(walk);
  auto event = map_event(walk.trace(), out->profile, profile.first_refused());
  if (!event) return event.error();
  out->map_event = *event;

  ProfileDetails profile_details(profile, out->profile);
  GrowthDetails growth_details(growth, walk);
  CategoryWalk categories(walk, out->profile);
  MapVisitor map(*event);
  LiveWalk second(source, {&profile_details, &growth_details, &categories, &map});
  if (auto done = read_alike(read, second, events); !done) return done.error();
  profile_details.finish();
  out->profile.categories = categories.finish();
  leave_out_unknown(second.trace().header(), out->profile);
  if (growth_details.prepare_next_walk()) {
    LiveWalk third(source, {&growth_details});
    if (auto done = read_alike(read, third, events); !done) return done.error();
  }
  out->growth = growth_details.finish();
  out->map = std::move(map.map);
  return out;
}

Result<std::unique_ptr<Moment>> look_at(const std::string& path, std::uint32_t event,
                                        const ReadAgain& read) {
  auto out = std::make_unique<Moment>();
  out->event = event;
  MapVisitor visitor(event, true);
  const auto begin = [&] {
    out->walk = std::make_unique<LiveWalk>(path, std::vector<Visitor*>{&visitor});
  };
  begin();
  out->walk->begin_in_the_middle();
  auto near = trace::read_compact_near(
      path, event, *out->walk,
      [&](std::uint64_t at) { out->walk->go_on_at(static_cast<std::uint32_t>(at)); },
      [&] { return out->walk->events() > event && !visitor.goes_on(); });
  // If this part of the file is damaged, the full read names the fault.
  if (!near || !*near) {
    begin();
    if (auto done = read(*out->walk); !done) {
      if (out->walk->needs_memory()) return std::unique_ptr<Moment>();
      return done.error();
    }
  }
  if (event >= out->walk->events()) {
    return fail(Errc::usage, "{}: there is no event {}: expected one below {}", path, event,
                out->walk->events());
  }
  out->held = std::move(visitor.held);
  out->map = std::move(visitor.map);
  return out;
}

}  // namespace emm::inspect
