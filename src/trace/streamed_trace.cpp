#include "trace/streamed_trace.hpp"

#include "base/host_memory.hpp"
#include "trace/reader.hpp"

namespace emm::trace {
namespace {

constexpr std::size_t kWindow = std::size_t{1} << 14;
constexpr std::size_t kShare = std::size_t{1} << 11;  ///< Events that are handed over at once.

}  // namespace

/// Gives the operations of the second reading to the trace, no further than the window reaches.
class StreamedTrace::Feed final : public OperationSink {
 public:
  explicit Feed(StreamedTrace& all) : all_(all) {}
  Status on_header(const Header& header) override { return all_.trace_.on_header(header); }
  Status on_operation(const Operation& operation) override {
    if (auto taken = all_.trace_.on_operation(operation); !taken) return taken;
    if (all_.trace_.events_taken() < next_) return {};
    return hand_over();
  }
  Status finish() override { return {}; }

 private:
  Status hand_over() {
    const auto taken = all_.trace_.events_taken();
    next_ = taken + kShare;
    std::unique_lock lock(all_.mutex_);
    all_.ready_.store(taken, std::memory_order_release);
    all_.changed_.notify_all();
    all_.changed_.wait(lock, [&] {
      return taken < all_.begin_.load(std::memory_order_relaxed) + kWindow - kShare ||
             all_.stopping_;
    });
    if (all_.stopping_) return fail(Errc::interrupted, "stopped");
    const auto begin = all_.begin_.load(std::memory_order_relaxed);
    lock.unlock();
    all_.trace_.release_before(begin);
    return {};
  }

  StreamedTrace& all_;
  std::size_t next_ = kShare;
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
  if (trace.has_several_streams() || trace.size() == 0) return std::unique_ptr<StreamedTrace>();
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
  if (begin >= begin_.load(std::memory_order_relaxed) + kShare) {
    {
      const std::lock_guard lock(mutex_);
      begin_.store(begin, std::memory_order_relaxed);
    }
    changed_.notify_all();
  }
  if (ready_.load(std::memory_order_acquire) >= end) return {};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_.load(std::memory_order_relaxed) >= end || ended_; });
  if (ready_.load(std::memory_order_relaxed) >= end) return {};
  if (!result_) return result_;
  return Error{.code = Errc::io_error,
               .message = path_ + ": the file became another while it was read"};
}

void StreamedTrace::read_again() {
  Status result;
  if (auto source = format::ByteSource::open(path_, stop_)) {
    Feed feed(*this);
    if (auto done = read(**source, feed); !done) result = done.error();
  } else {
    result = source.error();
  }
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  ended_ = true;
  ready_.store(trace_.events_taken(), std::memory_order_release);
  changed_.notify_all();
}

}  // namespace emm::trace
