#pragma once

#include <string>

#include "base/result.hpp"

namespace emm::cli {

/// Puts the launcher's numbers for {rank}, {local_rank} and {world} in a path. Usage error where it
/// has one of these and no launcher told the number.
Status name_rank(std::string& path);
/// Did any path of this run have one?
bool rank_was_named() noexcept;

}  // namespace emm::cli
