#include "log/line_log.hpp"

#include <utility>

namespace emm::log {

using trace::Op;

namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10;  // bytes of lines that are written at once

}  // namespace

LineLog::LineLog(std::unique_ptr<format::ByteSink> out, const trace::Trace& trace, int device)
    : out_(std::move(out)), trace_(trace), device_(device) {
  lines_.reserve(2 * kBlock);
}

Status LineLog::begin(std::string_view header) {
  lines_.assign(header);
  lines_.push_back('\n');
  // Writes the header at once, so that a path that cannot be written fails before the run.
  send();
  if (!status_) return status_;
  return out_->flush();
}

void LineLog::send() {
  if (status_) status_ = out_->write(lines_);
  lines_.clear();
}

void LineLog::on_record(const Record& record, const Gauges& gauges) {
  if (device_ >= 0 && record.device != device_) return;
  format(lines_, record, gauges);
  if (lines_.size() >= kBlock) send();
}

Status LineLog::finish() {
  send();
  auto closed = out_->close();
  if (!status_) return status_;
  return closed;
}

bool is_rmm_row(const Record& record) noexcept {
  if (asks_for_device_memory(record.op)) return true;
  if (record.op != Op::free && record.op != Op::reset && record.op != Op::context_destroy)
    return false;
  return record.id != kNoId && !record.late && asks_for_device_memory(record.freed_kind);
}

}  // namespace emm::log
