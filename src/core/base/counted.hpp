#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace emm::text {

/// Writes "1 segment", "1,204 segments".
inline std::string counted(std::uint64_t count, std::string_view what) {
  return format("{} {}{}", grouped(count), what, count == 1 ? "" : "s");
}

}  // namespace emm::text
