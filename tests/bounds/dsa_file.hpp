#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bounds/buffer.hpp"

namespace emm::bounds {

/// The folder of the recordings that are not in the repository: EMM_EXTRA_TRACES of the
/// environment, else of the build; empty without.
std::string extra_traces();

/// The rows of a DSA CSV, plain or gzipped: `id,lower,upper,size` and more columns, which are
/// passed over. Of a header with `start,end` the end is inclusive. Nothing where the file cannot be
/// opened.
std::optional<std::vector<Buffer>> read_dsa_file(const std::string& path);

}  // namespace emm::bounds
