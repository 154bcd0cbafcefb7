// Any bytes as a snapshot of PyTorch: read or refused, never worse. What is imported adds up, and
// is a trace that an engine can rely on.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/byte_sink.hpp"
#include "trace/importer.hpp"
#include "trace/reader.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace {

using namespace emm;

Result<trace::ImportCounts> import(std::string_view bytes, trace::OperationSink& sink,
                                   bool partial) {
  const auto source = format::ByteSource::memory(bytes);
  const auto importer = trace::find_importer("torch-pickle");
  EMM_ASSERT(importer);
  (void)(*importer)->sniff(bytes.substr(0, 1000));
  return (*importer)->read(*source, sink, {.partial = partial});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool partial : {false, true}) {
    std::string lines;
    const auto out = format::ByteSink::to_string(lines);
    const auto writer = trace::make_writer(*out, trace::Form::lines);
    const auto written = import(bytes, *writer, partial);
    if (!written) continue;
    EMM_ASSERT(written->rows == written->used + written->unmatched + written->duplicate +
                                    written->other + written->truncated);
    trace::Trace trace;
    EMM_ASSERT(import(bytes, trace, partial));
    trace::Trace again;
    const auto source = format::ByteSource::memory(lines);
    EMM_ASSERT(trace::read(*source, again, {.partial = partial}));
    EMM_ASSERT(again.size() == trace.size());
  }
  return 0;
}
