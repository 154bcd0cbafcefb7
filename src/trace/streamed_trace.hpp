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

/// A compact trace of any length, as a replay walks it from its beginning to its end: a first
/// reading finds what the whole of it is like, and a second one, on a thread of its own, keeps as
/// many events ahead of the replay as a window has. One thread at a time.
class StreamedTrace {
 public:
  /// Reads an operation sink's trace from `source`.
  using Read = std::function<Status(format::ByteSource& source, OperationSink& sink)>;

  /// Reads the trace for the first time, by `read`, which may show how far it is. Null where it has
  /// to be in memory. `stop` is ByteSource's.
  static Result<std::unique_ptr<StreamedTrace>> open(const std::string& path, const Read& read,
                                                     const std::atomic<bool>* stop);
  ~StreamedTrace();
  StreamedTrace(const StreamedTrace&) = delete;
  StreamedTrace& operator=(const StreamedTrace&) = delete;

  const Trace& trace() const noexcept { return trace_; }
  /// Waits until the events before `end` are there; those before `begin` will not be asked for
  /// again. Begins the second reading at the first call. REQUIRES: end - begin is at most half a
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
  std::size_t let_go_ = 0;  ///< As begin_, for need() alone.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t begin_ = 0;   ///< Events before it are not asked for again.
  std::size_t wanted_ = 0;  ///< need() waits for the events before it; 0: it does not.
  bool is_full_ = false;    ///< The thread that reads waits for room.
  bool ended_ = false, stopping_ = false;
  Status result_;
  std::thread reader_;
};

}  // namespace emm::trace
