#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace emm::inspect {

/// The number after `"<name>":` in the members of an extension.
std::optional<std::uint64_t> number_of(std::string_view members, std::string_view name);

/// Is `"<name>":true` among them?
bool says(std::string_view members, std::string_view name);

}  // namespace emm::inspect
