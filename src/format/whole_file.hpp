#pragma once

#include "format/byte_sink.hpp"

namespace emm::format {

/// As ByteSink::open(), but a file has its name, and takes the place of what had it, only when
/// close() has succeeded: it is written under another name beside, which goes with the sink. So
/// whoever finds it finds all of it. A pipe, a device, standard output, a file of several names, of
/// another user or in a folder where nothing may be made is written as open() does.
Result<std::unique_ptr<ByteSink>> open_whole(const std::string& path, std::string_view who = {});

/// Writes `text` as such a file.
Status write_whole(const std::string& path, std::string_view text, std::string_view who = {});

}  // namespace emm::format
