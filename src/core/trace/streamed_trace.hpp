#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "trace/trace.hpp"

namespace emm::trace {

/// A compact trace of any length, walked from its beginning to its end. A first reading finds the
/// properties of the whole trace. A second one, on its own thread, keeps a window of events ahead
/// of the replay. One thread at a time.
class StreamedTrace {
 public:
  /// Reads a trace from `source` into the sink.
  using Read = std::function<Status(format::ByteSource& source, OperationSink& sink)>;

  /// Makes the first reading by calling `read`, which may show progress. Null if the trace has to
  /// be held in memory. `stop` is passed to ByteSource.
  static Result<std::unique_ptr<StreamedTrace>> open(const std::string& path, const Read& read,
                                                     const std::atomic<bool>* stop);
  ~StreamedTrace();
  StreamedTrace(const StreamedTrace&) = delete;
  StreamedTrace& operator=(const StreamedTrace&) = delete;

  const Trace& trace() const noexcept { return trace_; }
  /// Waits until the events before `end` are available. Those before `begin` will not be asked for
  /// again. The first call starts the second reading. REQUIRES: end - begin is at most half a
  /// window.
  Status need(std::size_t begin, std::size_t end);

 private:
  class Feed;
  StreamedTrace(std::string path, const std::atomic<bool>* stop)
      : path_(std::move(path)), stop_(stop) {}
  void read_again();
  bool has_room(std::size_t taken) const noexcept;
  Error another() const;

  const std::string path_;
  const std::atomic<bool>* const stop_;
  Trace trace_;
  std::atomic<std::size_t> ready_{0};
  std::size_t let_go_ = 0;  ///< The need() thread's copy of begin_, read without the mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t begin_ = 0;   ///< Events before it will not be asked for again.
  std::size_t wanted_ = 0;  ///< need() waits for the events before this; 0: it does not wait.
  bool is_full_ = false;    ///< The reading thread waits for room.
  bool ended_ = false, stopping_ = false;
  Status result_;
  std::thread reader_;
};

}  // namespace emm::trace
