#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "log/summary.hpp"

namespace emm::log {

/// Packs a summary for another process of this program, and unpacks it. Empty if the bytes are
/// incomplete.
std::string to_bytes(const Summary& summary);
std::optional<Summary> summary_from_bytes(std::string_view bytes);

}  // namespace emm::log
