#include "libemm/trace_file.hpp"

#include "base/byte_sum.hpp"
#include "libemm/monotonic_clock.hpp"
#include "trace/header_reader.hpp"

namespace emm::libemm {

namespace {

constexpr std::uint64_t kFlushEvery = 64;  // what a process that is killed may lose

}  // namespace

using trace::Member;
using trace::Op;

Result<std::unique_ptr<TraceFile>> TraceFile::open(const char* path, const char* header) {
  auto sink = format::ByteSink::open(path);
  if (!sink) return std::move(sink).error();
  std::unique_ptr<TraceFile> file(new TraceFile(path, *std::move(sink)));
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
  count(operation_);
  return events_ % kFlushEvery == 0 ? sink_->flush() : Status();
}

void TraceFile::stamp() {
  if (!start_ns_ || operation_.has(Member::time_ns)) return;
  const auto now = monotonic_ns();
  operation_.time_ns = now > *start_ns_ ? now - *start_ns_ : 0;
  operation_.members.add(Member::time_ns);
}

std::string TraceFile::name_of(const trace::Id& id) {
  return id.is_number() ? std::to_string(id.number) : std::string(id.text);
}

void TraceFile::count(const trace::Operation& operation) {
  ++events_;
  if (operation.has(Member::layer) && operation.layer == trace::Layer::backing) return;
  const auto outcome =
      operation.has(Member::result) ? operation.result.outcome : trace::Outcome::none;
  if (outcome != trace::Outcome::none && outcome != trace::Outcome::ok) return;
  const auto context = operation.has(Member::context) ? name_of(operation.context) : std::string();
  switch (operation.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
      live_[name_of(operation.id)] = {.size = operation.size, .context = context};
      break;
    case Op::free:
      live_.erase(name_of(operation.id));
      break;
    case Op::reset:
    case Op::context_destroy:
      std::erase_if(live_, [&](const auto& entry) { return entry.second.context == context; });
      break;
    default:
      break;
  }
}

Status TraceFile::append_end(std::uint64_t lost) {
  const std::lock_guard lock(mutex_);
  ByteSum bytes;
  for (const auto& [id, live] : live_) bytes.add(live.size);
  trace::Operation end{
      .op = Op::end,
      .members = trace::Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
  end.events = events_;
  end.lost = lost + lost_;
  end.live = live_.size();
  end.live_bytes = bytes.value();
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
