// Any bytes as a trace: read or refused, never worse. On every line the scanner of flat lines must
// agree with the careful reader wherever it does not decline, and what was read is written and read
// the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "exchange/check.hpp"
#include "format/byte_sink.hpp"
#include "tests/trace/random_operation.hpp"
#include "trace/json/flat_line.hpp"
#include "trace/json/operation_reader.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace {

using namespace emm;

void compare_readers(std::string_view line) {
  const std::string source = "fuzz";
  const auto padded = std::string(line) + "\n" + std::string(64, '"');
  const auto view = std::string_view(padded).substr(0, line.size());
  trace::FlatLineReader flat;
  trace::Operation fast;
  if (!flat.read(view, fast)) return;
  format::JsonBuilder handler(source);
  EMM_ASSERT(format::read_json(view, handler, source).has_value());
  trace::OperationReader careful(source);
  trace::Operation slow;
  EMM_ASSERT(careful.read(handler.root(), slow).has_value());
  EMM_ASSERT(trace::difference(fast, slow).empty());
}

std::string rewritten(std::string_view text, trace::Form form, bool& good) {
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto writer = trace::make_writer(*sink, form);
  const auto source = format::ByteSource::memory(text);
  good = trace::read(*source, *writer).has_value();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (auto rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    compare_readers(line);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }

  bool good = false;
  const auto lines = rewritten(text, trace::Form::lines, good);
  if (good) {
    const auto document = rewritten(lines, trace::Form::document, good);
    EMM_ASSERT(good);
    EMM_ASSERT(rewritten(document, trace::Form::lines, good) == lines && good);
  }
  for (const bool partial : {false, true}) {
    trace::Trace trace;
    const auto source = format::ByteSource::memory(text);
    const bool loaded = trace::read(*source, trace, {.partial = partial}).has_value();
    const auto again = format::ByteSource::memory(text);
    const auto report = trace::check(*again, {.partial = partial});
    if (loaded) EMM_ASSERT(report.has_value() && report->errors == 0);
    if (!loaded) EMM_ASSERT(!report.has_value() || report->errors > 0);
  }
  return 0;
}
