#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/operation.hpp"

namespace emm::inspect {

/// Returns the number after `"<name>":` in the members of an extension.
std::optional<std::uint64_t> number_of(std::string_view members, std::string_view name);

/// Answers whether `"<name>":true` is among them.
bool says(std::string_view members, std::string_view name);

/// Answers whether the operation says what remains of a segment that the operation before it ended
/// in part. Both come from one row.
bool says_what_stays(const trace::Operation& operation);

}  // namespace emm::inspect
