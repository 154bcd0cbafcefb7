#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/operation.hpp"

namespace emm::inspect {

/// The number after `"<name>":` in the members of an extension.
std::optional<std::uint64_t> number_of(std::string_view members, std::string_view name);

/// Is `"<name>":true` among them?
bool says(std::string_view members, std::string_view name);

/// What stays of a segment that the operation before it ended in part: one row says both.
bool says_what_stays(const trace::Operation& operation);

}  // namespace emm::inspect
