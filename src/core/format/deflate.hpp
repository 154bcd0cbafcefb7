#pragma once

#include <string>
#include <string_view>

namespace emm::format {

/// Compresses `bytes` to one zlib stream (RFC 1950), which browsers call "deflate".
std::string deflated(std::string_view bytes);

}  // namespace emm::format
