#pragma once

#include <atomic>
#include <string>

#include "base/result.hpp"

namespace emm::format {

/// All bytes of a file as they lie in it, packed where it is; "-" is standard input. For what is
/// read several times. Errors and `stop` are those of ByteSource::open.
Result<std::string> file_bytes(const std::string& path, const std::atomic<bool>* stop);

}  // namespace emm::format
