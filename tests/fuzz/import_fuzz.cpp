// Any bytes as a recording of one format, chosen by --importer=NAME: an importer's name, or
// rmm-devices, several logs of RMM with a line of "==" between them. Whatever it holds, rows are
// accounted for, what is imported is a trace, and it is exported.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.hpp"
#include "exchange/check.hpp"
#include "exchange/exporter.hpp"
#include "exchange/importer.hpp"
#include "exchange/importers/rmm_devices.hpp"
#include "format/byte_sink.hpp"
#include "trace/anonymize.hpp"
#include "trace/trace.hpp"
#include "trace/writer.hpp"

namespace {

using namespace emm;

Result<trace::ImportCounts> read_devices(format::ByteSource& source, trace::OperationSink& sink,
                                         const trace::ImportOptions& options) {
  constexpr std::string_view kBetween = "\n==\n";
  std::string all;
  for (auto some = source.next(); some && !some->empty(); some = source.next()) all += *some;
  std::vector<std::unique_ptr<format::ByteSource>> files;
  std::vector<trace::DeviceLog> logs;
  for (std::string_view rest = all; files.size() < 8;) {
    const auto end = rest.find(kBetween);
    files.push_back(format::ByteSource::memory(rest.substr(0, end), "fuzz"));
    logs.push_back(
        {.source = files.back().get(), .device = static_cast<std::uint32_t>(logs.size())});
    if (end == rest.npos) break;
    rest.remove_prefix(end + kBetween.size());
  }
  return trace::read_rmm_devices(logs, sink, options);
}

constexpr trace::Importer kRmmDevices{.name = "rmm-devices",
                                      .summary = "",
                                      .from_documentation = false,
                                      .sniff = nullptr,
                                      .read = read_devices};

const trace::Importer* chosen = nullptr;

/// The recording as the trace format; whether all of it could be imported.
bool imported(std::string_view file, bool partial, std::string& text) {
  const auto source = format::ByteSource::memory(file, "fuzz");
  const auto out = format::ByteSink::to_string(text);
  const auto writer = trace::make_writer(*out, trace::Form::lines);
  const auto counts = chosen->read(*source, *writer, {.partial = partial});
  EMM_ASSERT(out->flush());
  if (!counts) {
    EMM_ASSERT(!counts.error().message.empty());
    return false;
  }
  EMM_ASSERT(counts->rows == counts->used + counts->unmatched + counts->duplicate + counts->other +
                                 counts->truncated);
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

void import_and_read_back(std::string_view file, bool partial) {
  std::string text;
  const bool whole = imported(file, partial, text);
  trace::Trace made;
  const auto source = format::ByteSource::memory(file, "fuzz");
  const auto counts = chosen->read(*source, made, {.partial = partial});
  const bool loaded = counts.has_value();
  EMM_ASSERT(!loaded || whole);
  if (chosen->name == "emm" || !whole) return;

  // What an importer makes is a trace, unless it has more of something than a replay can tell
  // apart, and the same in the format.
  EMM_ASSERT(loaded || counts.error().message.find("too many") != std::string::npos);
  trace::Trace again;
  const auto written = format::ByteSource::memory(text, "fuzz");
  const auto read = trace::read(*written, again);
  EMM_ASSERT(loaded == read.has_value());
  EMM_ASSERT(!loaded || again.size() == made.size());
  for (const auto* exporter : trace::bundled_exporters()) export_as(*exporter, text);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kFlag = "--importer=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument((*argv)[i]);
    if (!argument.starts_with(kFlag)) continue;
    const auto name = argument.substr(kFlag.size());
    const auto found = trace::find_importer(name);
    if (found) chosen = *found;
    if (name == kRmmDevices.name) chosen = &kRmmDevices;
  }
  if (chosen != nullptr) return 0;
  std::fputs("import_fuzz: expected --importer=NAME, of a known importer, or rmm-devices\n",
             stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto source = format::ByteSource::memory(file, "fuzz");
  static_cast<void>(trace::detect(*source));
  for (const bool partial : {false, true}) import_and_read_back(file, partial);
  return 0;
}
