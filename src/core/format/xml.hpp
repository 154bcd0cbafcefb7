#pragma once

#include <string>
#include <string_view>

namespace emm::format {

/// Escapes `text` for an XML element or attribute: & < > and " become entities. Characters that
/// could control a terminal must be removed before, by text::printable().
std::string xml_escaped(std::string_view text);

}  // namespace emm::format
