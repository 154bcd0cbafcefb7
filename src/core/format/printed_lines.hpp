#pragma once

#include <memory>

#include "format/byte_source.hpp"

namespace emm::format {

/// What a program printed, where a file keeps it in strings of JSON, such as a notebook or a log of
/// Docker's: the lines of each string that has line ends, and each string that is a line by itself.
/// Other lines of the file stay. A source that is no such file is returned as it is. REQUIRES:
/// nothing was read from it.
std::unique_ptr<ByteSource> printed_lines(std::unique_ptr<ByteSource> source);

}  // namespace emm::format
