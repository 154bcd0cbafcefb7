#pragma once

#include <string>
#include <string_view>

namespace emm::text {

/// `path` in a form that a person may copy into a shell: quoted if it has a space or a character
/// that is special to the shell. Characters that a terminal obeys or hides are written as by
/// printable(), and such a path cannot be copied.
std::string shell_word(std::string_view path);

}  // namespace emm::text
