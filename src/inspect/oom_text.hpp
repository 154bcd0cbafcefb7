#pragma once

#include <string>

#include "inspect/oom.hpp"
#include "inspect/places.hpp"

namespace emm::inspect {

/// What there is to say of the failure at `which`, for a person: a paragraph with the numbers, what was live then, and
/// what would have been enough.
std::string to_text(const Recording& recording, const Lives& lives, const OomReport& report, std::size_t which,
                    const Shown& shown);
/// All of it, "emmctl.explain/1".
std::string to_json(const Recording& recording, const Lives& lives, const OomReport& report, std::size_t top);

}  // namespace emm::inspect
