#pragma once

#include <string>
#include <string_view>

namespace emm::text {

/// `path` as a person may copy it into a shell: quoted where it has a space or what a shell obeys.
/// What a terminal obeys or does not show is written as printable() writes it: a shell would not
/// find it.
std::string shell_word(std::string_view path);

}  // namespace emm::text
