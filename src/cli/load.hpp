#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "exchange/importer.hpp"
#include "format/json_writer.hpp"
#include "trace/streamed_trace.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::cli {

/// The importer of the trace format itself.
inline constexpr std::string_view kTraceFormat = "emm";

/// The trace that a command reads, with the options for reading it: TRACE, --from and --partial.
struct TraceArgument {
  std::string path{};
  std::string format{};  ///< An importer's name. Empty: chosen by content.
  bool partial = false;

  void offer(Arguments& arguments);
};

/// Offers --all-frames, which every report with call stacks has.
void offer_all_frames(Arguments& arguments, bool& all_frames);

struct LoadedTrace {
  trace::Trace trace;
  const trace::Importer* importer = nullptr;
  trace::ImportCounts counts;
  std::vector<std::string> notes;  ///< For the summary: unused rows, a torn tail.
};

/// Reads a trace of any known format and shows progress. Reports on stderr how the rows of another
/// format were used. `also`, if given, gets the same operations.
Result<LoadedTrace> load_trace(Console& console, const TraceArgument& argument,
                               trace::OperationSink* also = nullptr);

/// A trace that a command walks once from beginning to end.
struct WalkedTrace {
  std::unique_ptr<trace::StreamedTrace> streamed;  ///< Null if the trace is in memory.
  LoadedTrace loaded;                              ///< Its trace is empty if `streamed` is set.

  const trace::Trace& trace() const noexcept {
    return streamed != nullptr ? streamed->trace() : loaded.trace;
  }
};
/// Like load_trace(). With `may_stream`, a large compact file is streamed instead of loaded.
Result<WalkedTrace> walk_trace(Console& console, const TraceArgument& argument, bool may_stream,
                               trace::OperationSink* also = nullptr);

/// Returns a sink that passes a trace on to `to`, shows progress, and fails with `interrupted` soon
/// after an interrupt. `source` is what the trace is read from; null if it is generated. All must
/// outlive the sink. `words` say what is done with the source.
std::unique_ptr<trace::OperationSink> watched(Console& console, const format::ByteSource* source,
                                              trace::OperationSink& to,
                                              std::string words = "reading");

/// Runs an importer into `sink` with progress. An interrupt ends it with an error.
Result<trace::ImportCounts> read_with_progress(Console& console, const trace::Importer& importer,
                                               format::ByteSource& source,
                                               trace::OperationSink& sink, bool partial);

/// "rmm-csv: 120 rows read, 118 used, 2 unmatched". Leaves out counts of 0.
std::string describe(const trace::Importer& importer, const trace::ImportCounts& counts);
/// Writes the counts and the notes as members of an open JSON object, and closes it.
void put_counts(format::JsonWriter& json, const trace::ImportCounts& counts);
/// The same as a JSON object.
std::string to_json(const trace::Importer& importer, const trace::ImportCounts& counts);

/// Does the path name a regular file, or one that can be created? Not standard output, nor a device
/// such as /dev/null.
bool has_name(const std::string& path);

/// Warns on stderr that `path` holds a trace, if its name suggests a format that only `convert`
/// writes.
void say_trace_in(Console& console, const std::string& path);

/// The form that a path's name selects: ".json" is a document, ".emmb" is compact, anything else is
/// JSON Lines. A suffix for compression is ignored.
trace::Form form_of(std::string path);

/// Returns the importer of that name or, without a name, the one that recognizes the content.
Result<const trace::Importer*> choose_importer(format::ByteSource& source, const std::string& name);

}  // namespace emm::cli
