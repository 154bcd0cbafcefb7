// The C interface of libemm.so for traces: writing a trace file one operation at a time, and
// converting recordings of other formats.
#include <pthread.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "exchange/importer.hpp"
#include "format/byte_source.hpp"
#include "libemm/answer.hpp"
#include "libemm/recording.hpp"
#include "libemm/shared_managers.hpp"
#include "libemm/trace_file.hpp"
#include "plugin/abi.hpp"

namespace emm::libemm {
namespace {

thread_local std::string last_words;

/// The open files by the handles that callers have. A handle is never used again, so the handle of
/// a closed file names no file. Any thread.
class OpenFiles {
 public:
  /// Never destroyed, so that exit does not write to a file that nobody closed.
  static OpenFiles& of_process() {
    static auto* const all = [] {
      ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                       [] { of_process().forget(); });
      return new OpenFiles;
    }();
    return *all;
  }

  emm_trace* add(std::unique_ptr<TraceFile> file) {
    const std::lock_guard lock(mutex_);
    files_.emplace(++last_, std::move(file));
    return reinterpret_cast<emm_trace*>(last_);
  }
  std::shared_ptr<TraceFile> find(emm_trace* trace) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(reinterpret_cast<std::uintptr_t>(trace));
    return found != files_.end() ? found->second : nullptr;
  }
  void drop(emm_trace* trace) {
    const std::lock_guard lock(mutex_);
    files_.erase(reinterpret_cast<std::uintptr_t>(trace));
  }

 private:
  /// Called in a forked child. The files and their buffers belong to the parent.
  void forget() {
    of_parents_.merge(files_);
    files_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<TraceFile>> files_, of_parents_;
  std::uintptr_t last_ = 0;
};

/// Runs `body` on the file of a handle, for a caller in C.
template <class Body>
emm_status on_file(emm_trace* trace, Body body) noexcept {
  return answer(last_words, [&]() -> Status {
    const auto file = OpenFiles::of_process().find(trace);
    if (file == nullptr)
      return Error{.code = Errc::invalid_value, .message = "the trace was closed before"};
    return body(*file);
  });
}

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
    *trace = emm::libemm::OpenFiles::of_process().add(*std::move(opened));
    return {};
  });
}

extern "C" emm_status emm_trace_append(emm_trace* trace, const char* operation) {
  return emm::libemm::on_file(trace, [&](TraceFile& file) { return file.append(operation); });
}

extern "C" emm_status emm_trace_end(emm_trace* trace, std::uint64_t lost) {
  return emm::libemm::on_file(trace, [&](TraceFile& file) { return file.append_end(lost); });
}

extern "C" emm_status emm_trace_flush(emm_trace* trace) {
  return emm::libemm::on_file(trace, [](TraceFile& file) { return file.flush(); });
}

extern "C" emm_status emm_trace_close(emm_trace* trace) {
  if (trace == nullptr) return EMM_SUCCESS;
  const auto status = emm::libemm::on_file(trace, [](TraceFile& file) { return file.close(); });
  emm::libemm::OpenFiles::of_process().drop(trace);
  return status;
}

extern "C" emm_status emm_trace_convert(const char* from, const char* to) {
  return answer(emm::libemm::last_words, [&] { return emm::libemm::convert(from, to); });
}

extern "C" size_t emm_trace_error(char* buffer, size_t size) {
  return emm::plugin::put_text(emm::libemm::last_words, buffer, size);
}

extern "C" void emm_shared_record(emm_trace* trace, std::uint64_t start_ns) {
  emm::libemm::Recording::of_process().write_to(emm::libemm::OpenFiles::of_process().find(trace),
                                                start_ns);
  if (trace != nullptr) emm::libemm::SharedManagers::of_process().record_alive();
}
