#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "exchange/importer.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::trace {

/// One fault of a trace, or one thing that a person should look at.
struct Finding {
  enum class Severity : std::uint8_t { error, warning };
  Severity severity = Severity::error;
  std::uint32_t line = 0;
  std::string
      words;  ///< With file and line: "run.json:1841:7: "size" is -4096: expected a count of bytes"
};

/// What `check` finds out about a trace without a replay.
struct CheckReport {
  ReadSummary summary;
  std::optional<ImportCounts> rows;  ///< The rows of a foreign file, if it was read to its end.
  std::uint64_t errors = 0;          ///< All findings, listed or not.
  std::uint64_t warnings = 0;
  std::vector<Finding> findings;   ///< By line; at most as many as the limit.
  std::uint64_t allocations = 0;   ///< All kinds, imports included, that did not fail.
  std::uint64_t leaked = 0;        ///< Allocations that nothing ends.
  std::uint64_t leaked_bytes = 0;  ///< Both byte counts saturate at 2^64 - 1.
  std::uint64_t peak_live_bytes = 0;
  /// The requests of Python were recorded. What their manager leaks is not among the leaked.
  bool of_requests = false;
  bool needs_memory = false;
  std::vector<std::string_view> unnamed_features;  ///< What the header's `requires` lacks.
};

/// Reads a trace and reports what is wrong with it.
///
/// Errors are what a reader or trace::Trace refuses; `check` reports all of them, not only the
/// first. Warnings are: memory that nothing ends; a size of 0 without an `expect`; times that go
/// back within a thread; memory recorded at addresses where other memory is live; thread_begin and
/// thread_end that do not pair; a defer_cleanup left open; an `end` whose counts differ; no `end`
/// in a trace that calls itself complete; a `requires` that lacks what the trace uses. Warnings
/// that depend on other operations are left out if seq orders the file differently, if the file is
/// cut, or if an operation is left out because it is faulty. Then a fault of an id that may follow
/// from that is left out, too.
///
/// Holds the trace as a Trace does, and more about live memory, since seq may reorder the file.
/// With `streams` it holds only what is live; if seq then reorders the file, the report has
/// needs_memory and nothing else.
///
/// Fails only if there is nothing to judge: the source cannot be read or is not a trace.
Result<CheckReport> check(format::ByteSource& source, const ReadOptions& options = {},
                          std::size_t limit = 100, bool streams = false);
/// The same for another tool's recording, as the trace that `importer` makes of it. An error is
/// what the importer refuses. What a trace says about itself comes from the importer here and is
/// not judged.
Result<CheckReport> check(format::ByteSource& source, const Importer& importer,
                          const ImportOptions& options = {}, std::size_t limit = 100);

}  // namespace emm::trace
