// The C face of libemm.so: a trace file, an operation at a time.
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "format/byte_sink.hpp"
#include "format/json_reader.hpp"
#include "plugin/abi.hpp"
#include "trace/header_reader.hpp"
#include "trace/json_node.hpp"
#include "trace/operation_reader.hpp"
#include "trace/writer.hpp"

namespace emm::libemm {
namespace {

thread_local std::string last_words;

/// Text given by a caller, read as the format's rules say and written as the writer writes.
class TraceFile {
 public:
  static Result<std::unique_ptr<TraceFile>> open(const char* path, const char* header) {
    auto sink = format::ByteSink::open(path);
    if (!sink) return std::move(sink).error();
    std::unique_ptr<TraceFile> file(new TraceFile(path, *std::move(sink)));
    if (auto parsed = file->parse(
            header != nullptr ? header : R"({"format":"emmctl-trace","version":"1.0"})");
        !parsed) {
      return std::move(parsed).error();
    }
    const auto read = trace::read_header(file->nodes_->root(), file->name_);
    if (!read) return read.error();
    if (auto written = file->writer_->on_header(*read); !written) return std::move(written).error();
    return file;
  }

  Status append(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (auto parsed = parse(text); !parsed) return parsed;
    if (auto read = operations_.read(nodes_->root(), operation_); !read) return read;
    return writer_->on_operation(operation_);
  }
  Status flush() {
    const std::lock_guard lock(mutex_);
    return sink_->flush();
  }
  Status close() {
    if (auto finished = writer_->finish(); !finished) return finished;
    return sink_->close();
  }

 private:
  TraceFile(const char* path, std::unique_ptr<format::ByteSink> sink)
      : name_(path),
        sink_(std::move(sink)),
        writer_(trace::make_writer(*sink_, trace::Form::lines)),
        operations_(name_) {}

  Status parse(std::string_view text) {
    nodes_ = std::make_unique<trace::NodeHandler>(name_);
    return format::read_json(text, *nodes_, name_, ++line_);
  }

  const std::string name_;
  std::unique_ptr<format::ByteSink> sink_;
  std::unique_ptr<trace::OperationSink> writer_;
  std::mutex mutex_;
  std::unique_ptr<trace::NodeHandler> nodes_;
  trace::OperationReader operations_;
  trace::Operation operation_;
  std::uint64_t line_ = 0;
};

TraceFile& of(emm_trace* trace) noexcept { return *reinterpret_cast<TraceFile*>(trace); }

template <class Body>
emm_status answer(Body body) noexcept {
  try {
    const Status done = body();
    if (done) return EMM_SUCCESS;
    last_words = describe(done.error());
    return plugin::status_of(done.error());
  } catch (const std::exception& error) {
    last_words = error.what();
  }
  return EMM_UNKNOWN_ERROR;
}

}  // namespace
}  // namespace emm::libemm

using emm::libemm::TraceFile;

extern "C" emm_status emm_trace_open(const char* path, const char* header, emm_trace** trace) {
  *trace = nullptr;
  return emm::libemm::answer([&]() -> emm::Status {
    auto opened = TraceFile::open(path, header);
    if (!opened) return std::move(opened).error();
    *trace = reinterpret_cast<emm_trace*>(opened->release());
    return {};
  });
}

extern "C" emm_status emm_trace_append(emm_trace* trace, const char* operation) {
  return emm::libemm::answer([&] { return emm::libemm::of(trace).append(operation); });
}

extern "C" emm_status emm_trace_flush(emm_trace* trace) {
  return emm::libemm::answer([&] { return emm::libemm::of(trace).flush(); });
}

extern "C" emm_status emm_trace_close(emm_trace* trace) {
  if (trace == nullptr) return EMM_SUCCESS;
  const std::unique_ptr<TraceFile> file(&emm::libemm::of(trace));
  return emm::libemm::answer([&] { return file->close(); });
}

extern "C" size_t emm_trace_error(char* buffer, size_t size) {
  return emm::plugin::put_text(emm::libemm::last_words, buffer, size);
}
