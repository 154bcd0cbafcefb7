#pragma once

#include <string>
#include <string_view>

namespace emm::trace {

// The "x-" members of a header or an operation, as the reader gives them: JSON text without braces,
// in which each member begins with its quoted name and a colon.

/// The JSON value of member `name`; empty if there is none.
std::string_view extension(std::string_view members, std::string_view name);

/// Sets member `name` to the JSON `value` and makes it the last. An empty value removes the member.
void set_extension(std::string& members, std::string_view name, std::string_view value);

}  // namespace emm::trace
