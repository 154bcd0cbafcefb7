#pragma once

#include <memory>
#include <string>

#include "format/byte_sink.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

enum class Form : std::uint8_t { lines, document, compact };

/// Writes the trace format so that reading it back gives the same operations: fixed member order,
/// u64 above 2^53-1 as strings, addresses as hex strings; traces/README.md describes the compact
/// form. `out` must outlive the writer. Errors are io_error.
std::unique_ptr<OperationSink> make_writer(format::ByteSink& out, Form form);
/// Writes the compact form, .emmb, a block of operations at a time.
std::unique_ptr<OperationSink> make_compact_writer(format::ByteSink& out);

/// The header as JSON on one line, without a line end.
std::string header_text(const Header& header);

}  // namespace emm::trace
