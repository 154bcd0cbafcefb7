#include "log/line_log.hpp"

#include <utility>

namespace emm::log {

using trace::Op;

namespace {

constexpr std::uint64_t kPage = 4096;

bool packed(std::string_view name) { return name.ends_with(".gz") || name.ends_with(".zst"); }

}  // namespace

LineLog::LineLog(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device)
    : out_(std::move(out)), trace_(trace), device_(device), paged_(!packed(out_->name())) {
  line_.reserve(512);
}

Status LineLog::begin(std::string_view header) {
  line_.assign(header);
  line_.push_back('\n');
  // On its way at once, so that a path that cannot be written fails before the run.
  if (auto written = put(); !written) return written;
  return out_->flush();
}

Status LineLog::put() {
  const auto begin = std::exchange(offset_, offset_ + line_.size());
  if (paged_ && begin / kPage != (offset_ - 1) / kPage) {
    if (auto flushed = out_->flush(); !flushed) return flushed;
  }
  return out_->write(line_);
}

void LineLog::on_record(const Record& record, const Gauges& gauges) {
  if (device_ >= 0 && record.device != device_) return;
  line_.clear();
  format(line_, record, gauges);
  if (line_.empty() || !status_) return;
  status_ = put();
}

Status LineLog::finish() {
  auto closed = out_->close();
  if (!status_) return status_;
  return closed;
}

bool is_rmm_row(const Record& record) noexcept {
  const auto is_device = [](Op op) { return op == Op::memalloc || op == Op::memallocmanaged; };
  if (is_device(record.op)) return true;
  if (record.op != Op::free && record.op != Op::reset && record.op != Op::context_destroy)
    return false;
  return record.id != kNoId && !record.late && is_device(record.freed_kind);
}

}  // namespace emm::log
