#pragma once

#include <string>
#include <string_view>

namespace emm::format {

/// `text` as it stands in an XML element or attribute: & < > and " become entities. What a terminal
/// may not be given, text::printable() has removed before.
std::string xml_escaped(std::string_view text);

}  // namespace emm::format
