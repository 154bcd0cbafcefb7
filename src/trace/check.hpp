#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/importer.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// One thing that is wrong with a trace, or that a person should look at.
struct Finding {
  enum class Severity : std::uint8_t { error, warning };
  Severity severity = Severity::error;
  std::uint32_t line = 0;
  std::string
      words;  ///< With file and line: "run.json:1841:7: "size" is -4096: expected a count of bytes"
};

/// What a trace is like, without having been replayed.
struct CheckReport {
  ReadSummary summary;
  std::optional<ImportCounts>
      rows;  ///< What became of the rows of a foreign file that was read to its end.
  std::uint64_t errors = 0;  ///< As many findings as there are, listed or not.
  std::uint64_t warnings = 0;
  std::vector<Finding> findings;   ///< By line; no more than the limit.
  std::uint64_t allocations = 0;   ///< All kinds, imports included, that did not fail.
  std::uint64_t leaked = 0;        ///< Those of them that nothing ends.
  std::uint64_t leaked_bytes = 0;  ///< These two are 2^64 - 1 where they are more.
  std::uint64_t peak_live_bytes = 0;
  bool needs_memory = false;
};

/// Reads a trace and says what is wrong with it.
///
/// Errors are what a reader or trace::Trace refuses, all of them and not only the first. Warnings:
/// memory that nothing ends, sizes of 0 that no `expect` is about, times that go back within a
/// thread, memory recorded where other memory lived, thread_begin and thread_end that do not pair,
/// 2^64 bytes or more live at once, defer_cleanup left open, an `end` whose counts are others, no
/// `end` in a trace that calls itself complete, `requires` that lacks what the trace uses. Warnings
/// that depend on the order of operations are not given where seq orders the file otherwise.
///
/// Holds the trace as a Trace does, and more of what is live: seq may order the events otherwise
/// than the file. Where it `streams` it holds what is live and nothing else, and the report says
/// needs_memory, and nothing else, of a trace whose seq does that.
///
/// Fails only where there is nothing to judge: the source cannot be read, or is not a trace.
Result<CheckReport> check(format::ByteSource& source, const ReadOptions& options = {},
                          std::size_t limit = 100, bool streams = false);
/// The same of another tool's recording, as the trace that `importer` makes of it. What the
/// importer refuses is an error; what a trace says of itself, its importer said, and is not judged.
Result<CheckReport> check(format::ByteSource& source, const Importer& importer,
                          const ImportOptions& options = {}, std::size_t limit = 100);

}  // namespace emm::trace
