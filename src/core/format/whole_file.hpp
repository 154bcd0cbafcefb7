#pragma once

#include "format/byte_sink.hpp"

namespace emm::format {

/// As ByteSink::open(), but the file appears, or replaces an older one, only when close() succeeds.
/// Until then it has a temporary name in the same folder; without a close() it is removed with the
/// sink. So whoever finds the file finds all of it. A pipe, a device, standard output, and a file
/// that has several names, belongs to another user or lies in a folder where nothing can be created
/// are written as by open().
Result<std::unique_ptr<ByteSink>> open_whole(const std::string& path, std::string_view who = {});

/// Writes `text` to a file as open_whole() does.
Status write_whole(const std::string& path, std::string_view text, std::string_view who = {});

}  // namespace emm::format
