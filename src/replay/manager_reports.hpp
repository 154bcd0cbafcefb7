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

/// What the managers of a run report through their observers, which no return value shows: flushes,
/// failed frees, failed calls. Managers report on any thread.
class ManagerReports {
 public:
  /// How often calls have failed so far, and the words of the last failures.
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
  /// The free of `excused` memory does not count as a failure: its context was gone, and the memory
  /// with it.
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

  /// Whether more calls have failed than `known`; cheap enough to ask after each event.
  bool has_more_than(std::uint64_t known) const noexcept {
    return failure_count_.load(std::memory_order_relaxed) != known;
  }
  Failures failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  std::vector<log::Flush> take_flushes() { return std::exchange(flushes_, {}); }

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
  std::atomic<std::uint64_t> failure_count_{0};  ///< Failures::all, to be read without the lock.
};

}  // namespace emm::replay
