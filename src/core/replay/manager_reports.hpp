#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "log/summary.hpp"
#include "replay/current_event.hpp"

namespace emm::replay {

/// What the managers of a run report to their observers and no return value shows: flushes, failed
/// frees, failed calls. Managers report on any thread.
class ManagerReports {
 public:
  /// The failures so far, and the messages of the last ones.
  struct Failures {
    std::uint64_t all = 0, frees = 0, calls = 0;
    std::string last_free, last_call;
    std::uint64_t event = 0;  ///< The event of the last failure.
  };

  void add_flush(std::size_t count, std::uint64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto event = current_event();
    flushes_.push_back({.event = event, .seq = event, .count = count, .bytes = bytes});
  }
  /// An `excused` free does not count as a failure, because its context and so the memory was gone.
  void add_failed_free(const Error& error, std::uint64_t event, bool excused) noexcept {
    const std::lock_guard lock(mutex_);
    failures_.last_free = describe(error);
    if (failed_frees_++ == 0) first_failed_free_ = failures_.last_free;
    if (excused) return;
    ++failures_.frees;
    add_failure(event);
  }
  void add_failed_call(const Error& error) noexcept {
    const std::lock_guard lock(mutex_);
    failures_.last_call = describe(error);
    ++failures_.calls;
    add_failure(current_event());
  }

  /// Answers whether more calls have failed than `known`. Cheap enough for each event.
  bool has_more_than(std::uint64_t known) const noexcept {
    return failure_count_.load(std::memory_order_relaxed) != known;
  }
  Failures failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  std::vector<log::Flush> take_flushes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(flushes_, {});
  }

  // For the notes of a summary. REQUIRES: no thread runs.
  std::uint64_t failed_frees() const noexcept { return failed_frees_; }  ///< Excused ones, too.
  const std::string& first_failed_free() const noexcept { return first_failed_free_; }

 private:
  void add_failure(std::uint64_t event) noexcept {
    failures_.event = event;
    failure_count_.store(++failures_.all, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::vector<log::Flush> flushes_;
  std::uint64_t failed_frees_ = 0;
  std::string first_failed_free_;
  Failures failures_;
  std::atomic<std::uint64_t> failure_count_{
      0};  ///< A copy of Failures::all that is read without the lock.
};

}  // namespace emm::replay
