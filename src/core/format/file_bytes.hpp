#pragma once

#include <atomic>
#include <string>

#include "base/result.hpp"

namespace emm::format {

/// Reads a whole file without unpacking it, for callers that read it several times; "-" is standard
/// input. Errors and `stop` are those of ByteSource::open().
Result<std::string> file_bytes(const std::string& path, const std::atomic<bool>* stop);

}  // namespace emm::format
