// The C face of libemm.so: a trace file, an operation at a time, and foreign recordings as traces.
#include <memory>
#include <string>

#include "format/byte_source.hpp"
#include "libemm/answer.hpp"
#include "libemm/recording.hpp"
#include "libemm/shared_managers.hpp"
#include "libemm/trace_file.hpp"
#include "plugin/abi.hpp"
#include "trace/importer.hpp"

namespace emm::libemm {
namespace {

thread_local std::string last_words;

TraceFile& of(emm_trace* trace) noexcept { return *reinterpret_cast<TraceFile*>(trace); }

Status convert(const char* from, const char* to) {
  auto source = format::ByteSource::open(from);
  if (!source) return std::move(source).error();
  const auto importer = trace::detect(**source);
  if (!importer) return importer.error();
  auto sink = format::ByteSink::open(to);
  if (!sink) return std::move(sink).error();
  const auto writer = trace::make_writer(**sink, trace::Form::lines);
  const auto counts = (*importer)->read(**source, *writer, {});
  const auto closed = (*sink)->close();
  return counts ? closed : Status(counts.error());
}

}  // namespace
}  // namespace emm::libemm

using emm::libemm::answer;
using emm::libemm::TraceFile;

extern "C" emm_status emm_trace_open(const char* path, const char* header, emm_trace** trace) {
  *trace = nullptr;
  return answer(emm::libemm::last_words, [&]() -> emm::Status {
    auto opened = TraceFile::open(path, header);
    if (!opened) return std::move(opened).error();
    *trace = reinterpret_cast<emm_trace*>(opened->release());
    return {};
  });
}

extern "C" emm_status emm_trace_append(emm_trace* trace, const char* operation) {
  return answer(emm::libemm::last_words, [&] { return emm::libemm::of(trace).append(operation); });
}

extern "C" emm_status emm_trace_end(emm_trace* trace, std::uint64_t lost) {
  return answer(emm::libemm::last_words, [&] { return emm::libemm::of(trace).append_end(lost); });
}

extern "C" emm_status emm_trace_flush(emm_trace* trace) {
  return answer(emm::libemm::last_words, [&] { return emm::libemm::of(trace).flush(); });
}

extern "C" emm_status emm_trace_close(emm_trace* trace) {
  if (trace == nullptr) return EMM_SUCCESS;
  const std::unique_ptr<TraceFile> file(&emm::libemm::of(trace));
  return answer(emm::libemm::last_words, [&] { return file->close(); });
}

extern "C" emm_status emm_trace_convert(const char* from, const char* to) {
  return answer(emm::libemm::last_words, [&] { return emm::libemm::convert(from, to); });
}

extern "C" size_t emm_trace_error(char* buffer, size_t size) {
  return emm::plugin::put_text(emm::libemm::last_words, buffer, size);
}

extern "C" void emm_shared_record(emm_trace* trace, std::uint64_t start_ns) {
  emm::libemm::Recording::of_process().write_to(reinterpret_cast<TraceFile*>(trace), start_ns);
  if (trace != nullptr) emm::libemm::SharedManagers::of_process().record_alive();
}
