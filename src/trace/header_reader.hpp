#pragma once

#include <string>

#include "format/json_value.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

using format::JsonValue;

/// The header from line 1 of Lines, or from the members of a document that come before its events,
/// with every rule of the format. Errors are parse_error; not_supported where the trace needs what
/// this program does not know.
Result<Header> read_header(const JsonValue& node, const std::string& source);

/// The first message of a file that is something else.
Error not_a_trace(const std::string& source);

}  // namespace emm::trace
