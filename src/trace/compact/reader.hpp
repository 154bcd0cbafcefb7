#pragma once

#include <string_view>

#include "trace/reader.hpp"

namespace emm::trace {

/// Does a file that begins so hold the compact form?
bool is_compact(std::string_view prefix) noexcept;

/// Reads the compact form into `sink`, but for finish(): blocks are unpacked ahead by threads of
/// their own, where the file is large and the machine has room. What read() says of errors and
/// cuts holds. The line of an operation is the one that it would have in JSON Lines.
Status read_compact(format::ByteSource& source, OperationSink& sink, const ReadOptions& options,
                    ReadSummary& summary);

}  // namespace emm::trace
