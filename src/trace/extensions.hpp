#pragma once

#include <string>
#include <string_view>

namespace emm::trace {

// The "x-" members of a header or an operation, as the reader gives them: JSON text without braces,
// in which a member begins with its quoted name and a colon.

/// The value of member `name`, as JSON; empty where there is none.
std::string_view extension(std::string_view members, std::string_view name);

/// Makes member `name` the last, with `value`, which is JSON; an empty one takes the member away.
void set_extension(std::string& members, std::string_view name, std::string_view value);

}  // namespace emm::trace
