#pragma once

#include <string>

#include "base/result.hpp"

namespace emm::cli {

/// Replaces {rank}, {local_rank} and {world} in a path by the launcher's numbers. Usage error if
/// the launcher did not set the number.
Status name_rank(std::string& path);
/// Did any path of this run contain one of these?
bool rank_was_named() noexcept;

}  // namespace emm::cli
