#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "cli/console.hpp"
#include "cli/exit_code.hpp"
#include "format/byte_source.hpp"

namespace emm::cli {

/// Is the file no recording, so that `explain` looks for messages in its text? A BFC allocator's
/// dump is both. `format` is the importer that was asked for; empty if none was.
bool is_log(format::ByteSource& source, std::string_view format);

struct LogArgument {
  std::string path{};
  std::string json{};                   ///< Where the JSON goes; empty if nowhere.
  std::optional<std::uint64_t> line{};  ///< Where the message stands; empty: it is the first.
  bool more = false;                    ///< All that is known of it, not the default answer.
};

/// Explains the out-of-memory messages in a log. A file that is no log is described, with what to
/// record instead.
Result<ExitCode> explain_log(Console& console, format::ByteSource& source,
                             const LogArgument& argument);

}  // namespace emm::cli
