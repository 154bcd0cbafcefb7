#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "format/brief.hpp"
#include "inspect/address_space.hpp"
#include "inspect/gap.hpp"
#include "inspect/growth.hpp"
#include "inspect/memory_need.hpp"
#include "inspect/profile.hpp"
#include "inspect/report_parts.hpp"

namespace emm::inspect {

/// Says in one breath what a trace is like. The caller adds the command.
format::Brief brief(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const Shown& shown);
/// Write for a person, in 80 columns except for longer names.
std::string to_text(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const Shown& shown);
std::string to_text(const trace::Trace& trace, const AddressSpace& map, const Shown& shown);
/// Writes what is live after one event, without its map.
std::string to_text(const trace::Trace& trace, std::uint32_t event, const HeldMemory& held,
                    const Shown& shown);

/// Writes all of it as "emmctl.inspect/2", with the map, the needs and the gap if given. Lists have
/// at most `shown.top` entries.
std::string to_json(const trace::Trace& trace, const Profile& profile, const Growth& growth,
                    const std::optional<AddressSpace>& map,
                    const std::optional<std::vector<MemoryNeed>>& needs,
                    const std::optional<Gap>& gap, const Shown& shown);

}  // namespace emm::inspect
