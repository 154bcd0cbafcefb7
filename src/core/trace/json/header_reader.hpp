#pragma once

#include <string>

#include "format/json_value.hpp"
#include "trace/header.hpp"

namespace emm::trace {

using format::JsonValue;

/// Reads the header from line 1 of Lines, or from the members of a document before its events, and
/// checks every rule of the format. Errors are parse_error, or not_supported if the trace requires
/// what this program does not know.
Result<Header> read_header(const JsonValue& node, const std::string& source);

/// The error for a file that is not a trace.
Error not_a_trace(const std::string& source);

}  // namespace emm::trace
