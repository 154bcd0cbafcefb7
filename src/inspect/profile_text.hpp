#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "inspect/gap.hpp"
#include "inspect/growth.hpp"
#include "inspect/need.hpp"
#include "inspect/profile.hpp"
#include "inspect/report_parts.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// For a person, in 80 columns, but for names that are longer.
std::string to_text(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const Shown& shown);
std::string to_text(const trace::Trace& trace, const Space& map, const Shown& shown);
/// What is live after one event, without its map.
std::string to_text(const trace::Trace& trace, std::uint32_t event, const Holding& held,
                    const Shown& shown);

/// "emmctl.inspect/2": all of it, and the map, the needs and the gap where there are any; lists no
/// longer than `shown.top`.
std::string to_json(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const std::optional<Space>& map, const std::optional<std::vector<Need>>& needs,
                    const std::optional<Gap>& gap, const Shown& shown);

}  // namespace emm::inspect
