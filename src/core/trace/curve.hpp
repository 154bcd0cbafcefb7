#pragma once

#include <string_view>

#include "trace/extensions.hpp"
#include "trace/header.hpp"

namespace emm::trace {

/// How much a recording tells of which memory was freed: the header's "x-curve".
enum class Curve : unsigned char {
  none,    ///< Each free names its memory.
  blocks,  ///< The sizes of what was allocated and freed are known, and not which block was freed.
  totals,  ///< Only sums are known, and neither counts nor sizes.
};

inline Curve curve_of(const Header& header) {
  const auto said = extension(header.extensions, "x-curve");
  return said == "\"blocks\"" ? Curve::blocks : said == "\"totals\"" ? Curve::totals : Curve::none;
}

/// Does the recording tell what Python asked a manager for? What the manager keeps for itself is
/// then no leak of the program.
inline bool is_of_requests(const Header& header) {
  return header.level == Level::emm &&
         (header.tool == "emmctl.record" || header.tool == "emmctl record");
}

}  // namespace emm::trace
