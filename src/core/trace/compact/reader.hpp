#pragma once

#include <string_view>

#include "trace/operation_sink.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// Is this the beginning of a compact file?
bool is_compact(std::string_view prefix) noexcept;

/// Reads the compact form into `sink`, without calling finish(). If the file is large and the
/// machine has cores to spare, other threads unpack blocks ahead. Errors and torn files are as in
/// read(). An operation's line is the one that it would have in JSON Lines.
Status read_compact(format::ByteSource& source, OperationSink& sink, const ReadOptions& options,
                    ReadSummary& summary);

}  // namespace emm::trace
