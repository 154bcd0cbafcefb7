#pragma once

#include <string>
#include <string_view>

namespace emm::text {

/// `path` in a form that a person may copy into a shell: quoted if it has a space or a character
/// that is special to the shell, and as $'a\nb' if it has characters that a terminal obeys or
/// hides. Every command that is printed to be pasted is made of such words.
std::string shell_word(std::string_view path);

}  // namespace emm::text
