#pragma once

#include <string>
#include <string_view>

#include "cli/console.hpp"
#include "cli/exit_code.hpp"

namespace emm::cli {

/// What a file is, and what can be done with it.
struct FileAnswer {
  std::string what;     ///< "run.png is a picture (PNG)."
  std::string lines{};  ///< Commands to paste, or what to record instead.
  ExitCode code = ExitCode::fine;
  bool is_text = false;            ///< Any text, such as a log.
  bool may_have_messages = false;  ///< It is a text, or a program's text that may quote one.
};

/// Names the kind of a file that no importer reads, by its beginning and its name, and says what to
/// record in its place.
FileAnswer file_kind(std::string_view begin, const std::string& path);

/// Prints the answer: to stdout if the file is of use, else to stderr. Returns its exit code.
ExitCode say(Console& console, const FileAnswer& answer);

}  // namespace emm::cli
