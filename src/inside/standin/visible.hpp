#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emm::standin {

/// What the UUIDs of all simulated devices begin with.
inline constexpr std::string_view kUuids = "GPU-656d6d63-746c-0000-0000-0000000000";

/// The devices that CUDA_VISIBLE_DEVICES lets a process see, by the machine's numbers, in the order
/// of the process's. `uuids` has each device's, as "GPU-656d6d63-...".
///
/// As the driver reads it: the first word says whether numbers or UUIDs follow. A word that names
/// none ends the list, and so does -1; a device that is named twice leaves none. A UUID may be cut
/// short as long as it fits one device alone.
std::vector<int> visible_devices(std::string_view words, const std::vector<std::string>& uuids);

}  // namespace emm::standin
