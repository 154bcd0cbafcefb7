#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inspect/address_space.hpp"
#include "inspect/growth.hpp"
#include "inspect/profile.hpp"

namespace emm::inspect {

/// A line across the picture: "capacity", "a limit of at least".
struct PictureLimit {
  std::uint64_t bytes = 0;
  std::string words;
};

/// Returns the limits to draw. One is `capacity` or, if that is 0, the capacity of the trace's only
/// device. Another is a lower bound of a limit that refused requests and that the trace does not
/// name.
std::vector<PictureLimit> limits_of(const Recording& recording, const trace::Lifetimes& lifetimes,
                                    std::uint64_t capacity = 0);

/// Draws live bytes over events, as one SVG. Stacked areas show the call sites, or else the sizes,
/// that hold most at the peak. A line shows the recorded manager's reserved bytes. The peak and the
/// iterations are marked. `map`, if given, is below. Call sites are shown by the program's own
/// frames, or with `all_frames` by the innermost. A limit that is far above all else is left out.
std::string picture(const Recording& recording, const trace::Lifetimes& lifetimes,
                    const Profile& profile, const Growth& growth,
                    const std::optional<AddressSpace>& map, bool all_frames = false,
                    const std::vector<PictureLimit>& limits = {});

}  // namespace emm::inspect
