#pragma once

#include <memory>
#include <ostream>

#include "format/byte_sink.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

enum class Form : std::uint8_t { lines, document };

/// Writes the trace format: what a reader read, written, reads the same (fixed member order, u64
/// above 2^53-1 as strings, addresses as hex strings). `out` outlives it. Errors are io_error.
std::unique_ptr<OperationSink> make_writer(format::ByteSink& out, Form form);

}  // namespace emm::trace
