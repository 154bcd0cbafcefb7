#pragma once

#include <optional>
#include <string>

#include "inspect/growth.hpp"
#include "inspect/profile.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// Live bytes over events as one SVG: stacked areas of the call sites, or else sizes, that hold
/// most at the peak, the recorded manager's reserved bytes as a line, the peak and the iterations
/// marked. Below it `map`, if given. Call sites are shown by the program's own frames, or with
/// `all_frames` by the innermost.
std::string picture(const Recording& recording, const Lifetimes& lifetimes, const Profile& profile,
                    const Growth& growth, const std::optional<Space>& map, bool all_frames = false);

}  // namespace emm::inspect
