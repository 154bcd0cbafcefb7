#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inspect/growth.hpp"
#include "inspect/profile.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// A line across the picture: "capacity", "a limit of at least".
struct PictureLimit {
  std::uint64_t bytes = 0;
  std::string words;
};

/// The limits to draw. One is the capacity of the trace's only device, or `capacity` if that is not
/// 0. Another is the least that a limit can be which the trace does not name and which refused
/// requests.
std::vector<PictureLimit> limits_of(const Recording& recording, const Lifetimes& lifetimes,
                                    std::uint64_t capacity = 0);

/// Live bytes over events as one SVG: stacked areas of the call sites, or else sizes, that hold
/// most at the peak, the recorded manager's reserved bytes as a line, the peak and the iterations
/// marked. Below it `map`, if given. Call sites are shown by the program's own frames, or with
/// `all_frames` by the innermost. A limit that is far above all else is left out.
std::string picture(const Recording& recording, const Lifetimes& lifetimes, const Profile& profile,
                    const Growth& growth, const std::optional<Space>& map, bool all_frames = false,
                    const std::vector<PictureLimit>& limits = {});

}  // namespace emm::inspect
