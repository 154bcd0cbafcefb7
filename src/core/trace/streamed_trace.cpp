#include "trace/streamed_trace.hpp"

#include <algorithm>

#include "base/host_memory.hpp"
#include "trace/compact/operation_row.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"

namespace emm::trace {
namespace {

// Small enough that the window's events and slots stay in a core's own cache. Large enough that a
// thread which waited for half of it has slept for longer than waking it takes.
constexpr std::size_t kWindow = std::size_t{1} << 13;
constexpr std::size_t kShare = std::size_t{1} << 10;  ///< Operations per handover.

}  // namespace

/// Gives the operations of the second reading to the trace and waits at the end of the window.
class StreamedTrace::Feed final : public OperationSink {
 public:
  explicit Feed(StreamedTrace& all) : all_(all) {}
  Status on_header(const Header& header) override { return all_.trace_.on_header(header); }
  Status on_operation(const Operation& operation) override {
    if (auto taken = all_.trace_.on_operation(operation); !taken) return taken;
    if (--left_ != 0) return {};
    left_ = kShare;
    return hand_over();
  }
  Status on_operations(compact::OperationRow& row, std::size_t most) override {
    while (most != 0 && row.left() != 0) {
      const auto before = row.left();
      if (auto taken = all_.trace_.on_operations(row, std::min(most, left_)); !taken) return taken;
      const auto count = before - row.left();
      most -= std::min(most, count);
      left_ -= std::min(left_, count);
      if (left_ != 0) continue;
      left_ = kShare;
      if (auto handed = hand_over(); !handed) return handed;
    }
    return {};
  }
  Status finish() override { return {}; }

 private:
  Status hand_over() {
    const auto taken = all_.trace_.events_taken();
    if (all_.trace_.became_another()) return all_.another();
    std::unique_lock lock(all_.mutex_);
    all_.ready_.store(taken, std::memory_order_release);
    if (all_.wanted_ != 0 && taken >= all_.wanted_) all_.changed_.notify_all();
    if (taken + kShare > all_.begin_ + kWindow) {
      all_.is_full_ = true;
      all_.changed_.wait(lock, [&] { return all_.has_room(taken) || all_.stopping_; });
      all_.is_full_ = false;
    }
    if (all_.stopping_) return fail(Errc::interrupted, "stopped");
    const auto begin = all_.begin_;
    lock.unlock();
    all_.trace_.release_before(begin);
    return {};
  }

  StreamedTrace& all_;
  std::size_t left_ = kShare;
};

Result<std::unique_ptr<StreamedTrace>> StreamedTrace::open(const std::string& path,
                                                           const Read& read,
                                                           const std::atomic<bool>* stop) {
  auto source = format::ByteSource::open(path, stop);
  if (!source) return std::move(source).error();
  std::unique_ptr<StreamedTrace> streamed(new StreamedTrace(path, stop));
  auto& trace = streamed->trace_;
  trace.set_source((*source)->name());
  trace.keep_window(kWindow);
  if (auto done = read(**source, trace); !done) {
    if (trace.needs_memory()) return std::unique_ptr<StreamedTrace>();
    return std::move(done).error();
  }
  if (trace.size() == 0) return std::unique_ptr<StreamedTrace>();
  return streamed;
}

StreamedTrace::~StreamedTrace() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

Status StreamedTrace::need(std::size_t begin, std::size_t end) {
  if (!reader_.joinable()) {
    trace_.begin_again();
    reader_ = start_thread([this] { read_again(); });
  }
  const bool there = ready_.load(std::memory_order_acquire) >= end;
  if (there && begin < let_go_ + kShare) return {};
  std::unique_lock lock(mutex_);
  let_go_ = begin_ = begin;
  if (is_full_ && has_room(ready_.load(std::memory_order_relaxed))) changed_.notify_all();
  if (there) return {};
  wanted_ = std::max(end, std::min(begin + kWindow / 2, trace_.size()));
  changed_.wait(lock, [&] { return ready_.load(std::memory_order_relaxed) >= wanted_ || ended_; });
  wanted_ = 0;
  if (ready_.load(std::memory_order_relaxed) >= end) return {};
  return result_ ? another() : result_;
}

/// Is half of the window free? For less, waking the reading thread does not pay.
bool StreamedTrace::has_room(std::size_t taken) const noexcept {
  return taken <= begin_ + kWindow / 2;
}

Error StreamedTrace::another() const {
  return {.code = Errc::io_error, .message = path_ + ": the file became another while it was read"};
}

void StreamedTrace::read_again() {
  Status result;
  if (auto source = format::ByteSource::open(path_, stop_)) {
    Feed feed(*this);
    if (auto done = read(**source, feed); !done) result = done.error();
  } else {
    result = source.error();
  }
  const bool is_another = trace_.became_another();
  if (is_another && result) result = another();
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  ended_ = true;
  if (!is_another) ready_.store(trace_.events_taken(), std::memory_order_release);
  changed_.notify_all();
}

}  // namespace emm::trace
