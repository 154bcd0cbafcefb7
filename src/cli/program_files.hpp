#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace emm::cli {

/// Notes the files of a program that is to be run, so that no output replaces them: the program,
/// the interpreter that its first line names, and each file that its arguments name. A trace among
/// the arguments is left out, because a program may know where its trace goes.
void register_program(const std::vector<std::string>& command);

/// May a trace be written to `path`? Nothing is there, or an empty file, a trace in emmctl's own
/// format, or no regular file. A program reads files that no argument names, so all others are
/// refused: usage.
Status may_become_trace(const std::string& path);

}  // namespace emm::cli
