#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "log/summary.hpp"

namespace emm::log {

/// A summary as bytes for another process of this program, and back; empty where they are not
/// whole.
std::string to_bytes(const Summary& summary);
std::optional<Summary> summary_from_bytes(std::string_view bytes);

}  // namespace emm::log
