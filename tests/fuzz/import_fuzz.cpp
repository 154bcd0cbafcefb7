// Any bytes as a recording of any format: the first byte chooses the importer, the rest is the file. Whatever it holds,
// rows are accounted for, what is imported is a trace, and it is exported.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/byte_sink.hpp"
#include "trace/anonymize.hpp"
#include "trace/check.hpp"
#include "trace/exporter.hpp"
#include "trace/importer.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace {

using namespace emm;

/// The recording as the trace format; whether all of it could be imported.
bool imported(const trace::Importer& importer, std::string_view file, bool partial, std::string& text) {
  const auto source = format::ByteSource::memory(file, "fuzz");
  const auto out = format::ByteSink::to_string(text);
  const auto writer = trace::make_writer(*out, trace::Form::lines);
  const auto counts = importer.read(*source, *writer, {.partial = partial});
  EMM_ASSERT(out->flush());
  if (!counts) return false;
  EMM_ASSERT(counts->rows ==
             counts->used + counts->unmatched + counts->duplicate + counts->other + counts->truncated);
  return true;
}

void export_as(const trace::Exporter& exporter, std::string_view file) {
  std::string text;
  const auto source = format::ByteSource::memory(file);
  const auto out = format::ByteSink::to_string(text);
  const auto sink = exporter.open(*out);
  trace::Anonymizer anonymizer(*sink);
  static_cast<void>(trace::read(*source, anonymizer));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto importers = trace::bundled_importers();
  const auto& importer = *importers[data[0] % importers.size()];
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  {
    const auto source = format::ByteSource::memory(file, "fuzz");
    static_cast<void>(trace::detect(*source));
  }
  for (const bool partial : {false, true}) {
    std::string text;
    const bool whole = imported(importer, file, partial, text);
    trace::Trace made;
    const auto source = format::ByteSource::memory(file, "fuzz");
    const auto counts = importer.read(*source, made, {.partial = partial});
    const bool loaded = counts.has_value();
    EMM_ASSERT(!loaded || whole);
    if (importer.name == "emm" || !whole) continue;

    // What an importer makes is a trace, unless it has more of something than a replay can tell apart, and the same
    // in the format.
    EMM_ASSERT(loaded || counts.error().message.find("too many") != std::string::npos);
    trace::Trace again;
    const auto written = format::ByteSource::memory(text, "fuzz");
    const auto read = trace::read(*written, again);
    EMM_ASSERT(loaded == read.has_value());
    EMM_ASSERT(!loaded || again.size() == made.size());
    for (const auto* exporter : trace::bundled_exporters()) export_as(*exporter, text);
  }
  return 0;
}
