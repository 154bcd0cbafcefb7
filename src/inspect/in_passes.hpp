#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "inspect/growth.hpp"
#include "inspect/live_walk.hpp"
#include "inspect/profile.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// Reads one and the same trace from its beginning to its end, each time it is called.
using ReadAgain = std::function<Status(trace::OperationSink&)>;

/// What `emmctl inspect` says of a trace that is longer than memory: what profile(), growth() and
/// space_after() say of one in memory.
struct InPasses {
  std::unique_ptr<LiveWalk> walk;  ///< Whose trace knows what the figures are about.
  Profile profile;
  Growth growth;
  std::optional<std::uint32_t> map_event;
  std::optional<Space> map;

  const trace::Trace& trace() const noexcept { return walk->trace(); }
};

/// The event to make a map of, when the profile is known, and the first request that was refused,
/// if one was.
using MapEvent = std::function<Result<std::optional<std::uint32_t>>(
    const trace::Trace& trace, const Profile& profile, std::optional<std::uint32_t> first_refused)>;

/// Holds what is live, the call sites, the marks and a few megabytes. Null where the trace has to
/// be in memory (LiveWalk says when).
Result<std::unique_ptr<InPasses>> inspect_in_passes(const std::string& source,
                                                    const ReadAgain& read,
                                                    const MapEvent& map_event);

/// What is live after one event of a trace, and where it lies.
struct Moment {
  std::unique_ptr<LiveWalk> walk;
  std::uint32_t event = 0;
  Holding held;
  std::optional<Space> map;
};

/// Looks at one event. Of a whole compact file at `path` that is long it reads a part, by its
/// index; of another file all, by `read`. Null where the trace has to be in memory, and an error
/// where it has no such event.
Result<std::unique_ptr<Moment>> look_at(const std::string& path, std::uint32_t event,
                                        const ReadAgain& read);

}  // namespace emm::inspect
