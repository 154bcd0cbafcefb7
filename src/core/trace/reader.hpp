#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/operation.hpp"
#include "trace/operation_sink.hpp"

namespace emm::trace {

struct ReadOptions {
  bool partial = false;  ///< A torn file ends at its last whole operation, without an error.
  /// Called for each faulty operation, which is then left out. Null: the first fault ends the
  /// reading.
  std::function<void(std::uint32_t line, const Error& fault)> on_fault{};
};

struct ReadSummary {
  std::uint64_t operations = 0;  ///< Operations given to the sink.
  std::uint64_t extensions = 0;  ///< "x-" operations among them.
  bool torn =
      false;  ///< The file ends inside a line or a document; only with ReadOptions::partial.
  std::string torn_where;  ///< "run.jsonl:1841: the file ends inside a line"
};

/// The trace is torn or damaged as `error` says. With `partial` it ends at its last whole
/// operation, which the summary tells. Otherwise returns the error.
Status end_torn(ReadSummary& summary, const ReadOptions& options, Error error);

/// Reads a trace into `sink`. The first bytes and the first line tell whether it is compact, JSON
/// Lines or one document. Memory is bounded by a few blocks (compact), the longest line (Lines) or
/// the longest event (document). Errors are parse_error, worded "run.json:1841:7: \"size\" is
/// -4096: expected a count of bytes", or the sink's own.
Result<ReadSummary> read(format::ByteSource& source, OperationSink& sink,
                         const ReadOptions& options = {});

}  // namespace emm::trace
