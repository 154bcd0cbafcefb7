#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "inspect/address_space.hpp"
#include "inspect/growth.hpp"
#include "inspect/live_walk.hpp"
#include "inspect/profile.hpp"

namespace emm::inspect {

/// Reads the same trace from its beginning to its end, at each call.
using ReadAgain = std::function<Status(trace::OperationSink&)>;

/// What `emmctl inspect` says of a trace.
struct Description {
  Profile profile;
  Growth growth;
};
Description describe(const Recording& recording, const trace::Lifetimes& lifetimes);

/// The same of a trace that is longer than memory, and the result that space_after() has for a
/// trace in memory.
struct InPasses : Description {
  std::unique_ptr<LiveWalk> walk;  ///< Its trace has the names for the figures.
  std::optional<std::uint32_t> map_event;
  std::optional<AddressSpace> map;

  const trace::Trace& trace() const noexcept { return walk->trace(); }
};

/// Finds what is live after one event and where it lies, including what remains of a segment that
/// the event ends in part.
class MapVisitor final : public Visitor {
 public:
  /// Finds nothing if `event` is empty. If `holds`, finds what is live in addition to the map.
  explicit MapVisitor(std::optional<std::uint32_t> event, bool holds = false)
      : event_(event), holds_(holds) {}
  bool listens() const override { return true; }
  void told(const Walk& walk, std::uint32_t event, const trace::Operation& operation) override;
  void passed(const Walk& walk, std::uint32_t event) override;
  /// Answers whether the next event may say what remains of a segment.
  bool goes_on() const noexcept { return goes_on_; }
  std::optional<AddressSpace> map;
  HeldMemory held;

 private:
  std::optional<std::uint32_t> event_;
  bool holds_, goes_on_ = false;
};

/// Returns the event to make a map of, given the profile and the first refused request, if any.
using MapEvent = std::function<Result<std::optional<std::uint32_t>>(
    const trace::Trace& trace, const Profile& profile, std::optional<std::uint32_t> first_refused)>;

/// Inspects a trace in passes. Holds what is live, the call sites, the marks and a few megabytes.
/// Returns null if the trace has to be in memory (see LiveWalk).
Result<std::unique_ptr<InPasses>> inspect_in_passes(const std::string& source,
                                                    const ReadAgain& read,
                                                    const MapEvent& map_event);

/// What is live after one event of a trace, and where it lies.
struct Moment {
  std::unique_ptr<LiveWalk> walk;
  std::uint32_t event = 0;
  HeldMemory held;
  std::optional<AddressSpace> map;
};

/// Looks at one event. Of a long and complete compact file at `path` it reads a part, by the file's
/// index; any other file it reads whole, by `read`. Returns null if the trace has to be in memory.
/// Errors: usage, if it has no such event.
Result<std::unique_ptr<Moment>> look_at(const std::string& path, std::uint32_t event,
                                        const ReadAgain& read);

}  // namespace emm::inspect
