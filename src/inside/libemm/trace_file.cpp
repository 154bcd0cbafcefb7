#include "libemm/trace_file.hpp"

#include "libemm/monotonic_clock.hpp"
#include "trace/json/header_reader.hpp"
#include "trace/operation.hpp"

namespace emm::libemm {

using trace::Member;
using trace::Op;

Result<std::unique_ptr<TraceFile>> TraceFile::open(const char* path, const char* header) {
  auto sink = format::ByteSink::open(path);
  if (!sink) return std::move(sink).error();
  std::unique_ptr<TraceFile> file(new TraceFile(path, *std::move(sink)));
  // The shortest header that the format allows.
  constexpr auto kLeast = R"({"format":"emmctl-trace","version":"1.0"})";
  if (auto parsed = file->parse(header != nullptr ? header : kLeast); !parsed)
    return std::move(parsed).error();
  const auto read = trace::read_header(file->nodes_->root(), file->name_);
  if (!read) return read.error();
  if (auto written = file->writer_->on_header(*read); !written) return std::move(written).error();
  if (read->has_clock && read->clock_source == "CLOCK_MONOTONIC")
    file->start_ns_ = read->clock_start_ns;
  if (auto flushed = file->sink_->flush(); !flushed) return std::move(flushed).error();
  return file;
}

TraceFile::TraceFile(const char* path, std::unique_ptr<format::ByteSink> sink)
    : name_(path),
      sink_(std::move(sink)),
      writer_(trace::make_writer(*sink_, trace::Form::lines)),
      operations_(name_) {}

Status TraceFile::append(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (ended_) return Error{.code = Errc::invalid_value, .message = name_ + " has ended"};
  if (auto parsed = parse(text); !parsed) return parsed;
  if (auto read = operations_.read(nodes_->root(), operation_); !read) return read;
  stamp();
  if (auto written = writer_->on_operation(operation_); !written) return written;
  ++events_;
  live_.take(operation_);
  return sink_->flush();  // a process may end at any time, and without a word
}

void TraceFile::stamp() {
  if (!start_ns_ || operation_.has(Member::time_ns)) return;
  const auto now = monotonic_ns();
  operation_.time_ns = now > *start_ns_ ? now - *start_ns_ : 0;
  operation_.members.add(Member::time_ns);
}

Status TraceFile::append_end(std::uint64_t lost) {
  const std::lock_guard lock(mutex_);
  trace::Operation end{
      .op = Op::end,
      .members = trace::Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
  end.events = events_;
  end.lost = lost + lost_;
  end.live = live_.count();
  end.live_bytes = live_.bytes().value();
  ended_ = true;
  return writer_->on_operation(end);
}

Status TraceFile::flush() {
  const std::lock_guard lock(mutex_);
  return sink_->flush();
}

Status TraceFile::close() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (auto finished = writer_->finish(); !finished) return finished;
  return sink_->close();
}

Status TraceFile::parse(std::string_view text) {
  nodes_ = std::make_unique<format::JsonBuilder>(name_);
  return format::read_json(text, *nodes_, name_, ++line_);
}

}  // namespace emm::libemm
