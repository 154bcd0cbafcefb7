#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "format/json_writer.hpp"
#include "trace/importer.hpp"
#include "trace/streamed_trace.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace emm::cli {

/// The importer of the trace format itself.
inline constexpr std::string_view kTraceFormat = "emm";

/// The trace that a command is about, and the options that say how to read it: TRACE, --from and
/// --partial.
struct TraceArgument {
  std::string path{};
  std::string format{};  ///< An importer's name; empty: by content.
  bool partial = false;

  void offer(Arguments& arguments);
};

/// --all-frames: what every report with call stacks offers.
void offer_all_frames(Arguments& arguments, bool& all_frames);

struct LoadedTrace {
  trace::Trace trace;
  const trace::Importer* importer = nullptr;
  trace::ImportCounts counts;
  std::vector<std::string> notes;  ///< What the summary should carry: rows not used, a torn tail.
};

/// Reads a trace of any known format, showing progress; says on stderr what became of a foreign
/// file's rows.
/// `also`, where it is given, takes the same operations.
Result<LoadedTrace> load_trace(Console& console, const TraceArgument& argument,
                               trace::OperationSink* also = nullptr);

/// The trace that a command walks once, from its beginning to its end.
struct WalkedTrace {
  std::unique_ptr<trace::StreamedTrace> streamed;  ///< Null where it is in memory.
  LoadedTrace loaded;                              ///< Its trace is empty where it streams.

  const trace::Trace& trace() const noexcept {
    return streamed != nullptr ? streamed->trace() : loaded.trace;
  }
};
/// As load_trace(), but a compact file that is large stays where it is, where `may_stream`.
Result<WalkedTrace> walk_trace(Console& console, const TraceArgument& argument, bool may_stream,
                               trace::OperationSink* also = nullptr);

/// Passes a trace on to `to`, shows how far it is, and fails with `interrupted` soon after a person
/// interrupts. `source` is what the trace is read from; null: it is made here. All outlive it.
/// `words` say what is done with a source.
std::unique_ptr<trace::OperationSink> watched(Console& console, const format::ByteSource* source,
                                              trace::OperationSink& to,
                                              std::string words = "reading");

/// Runs an importer into `sink` with progress; ends early with an error where a person interrupts.
Result<trace::ImportCounts> read_with_progress(Console& console, const trace::Importer& importer,
                                               format::ByteSource& source,
                                               trace::OperationSink& sink, bool partial);

/// "rmm-csv: 120 rows read, 118 used, 2 unmatched"; only counts that are not 0.
std::string describe(const trace::Importer& importer, const trace::ImportCounts& counts);
/// The counts as members of an open JSON object, and the notes; ends it.
void put_counts(format::JsonWriter& json, const trace::ImportCounts& counts);
/// The same as a JSON object.
std::string to_json(const trace::Importer& importer, const trace::ImportCounts& counts);

/// Is it the name of a file: not standard output, and nothing like /dev/null?
bool has_name(const std::string& path);

/// Says on stderr that `path` holds a trace, where its name tells of a format that only `convert`
/// writes.
void say_trace_in(Console& console, const std::string& path);

/// The form that a path asks for: ".json", also packed, is a document, ".emmb" compact, anything
/// else JSON Lines.
trace::Form form_of(std::string path);

/// The importer named, or the one that knows the content.
Result<const trace::Importer*> choose_importer(format::ByteSource& source, const std::string& name);

}  // namespace emm::cli
