#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/call.hpp"
#include "driver/decorate/call_ledger.hpp"
#include "stream_order/physical_extents.hpp"

namespace emm::conformance {

/// A function that can be replaced while threads call it. A replacement waits for the calls of
/// other threads, so that the function may refer to what ends next. A call may replace its own
/// function.
class ReplaceableHook {
 public:
  using Function = std::function<void(const CallEvent&)>;
  ReplaceableHook& operator=(Function function);
  ReplaceableHook& operator=(std::nullptr_t) { return *this = Function(); }
  void operator()(const CallEvent& event) const;

 private:
  struct Replaceable {
    Function function;
    std::vector<std::thread::id> callers;
  };
  /// A call of the current function.
  class Running {
   public:
    explicit Running(const ReplaceableHook& hook);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    std::shared_ptr<Replaceable> called;  ///< Null if there was none.

   private:
    const ReplaceableHook& hook_;
  };

  friend class Bench;  // which forks
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;  // a call
  std::shared_ptr<Replaceable> current_;   // null: none
};

/// Logs every driver call of a manager, keeps the ledger of what the calls made and ended, and
/// makes calls fail as told. Any thread may call it.
class Watch final : public CallHook {
 public:
  Watch();
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

  /// Makes the next calls of this kind return these codes in turn. 0 stands for the device's own
  /// answer.
  void fail(Call call, std::initializer_list<std::int32_t> natives);
  /// Makes every call of this kind return `native`.
  void fail_always(Call call, std::int32_t native);
  /// Makes the n-th call of the manager from here on return `native`, counted from 1 among the
  /// calls that end something, or among all others. `n` = 0 ends that.
  void fail_nth(std::uint64_t n, std::int32_t native, bool of_ends);
  bool failed_nth() const;  ///< The n-th call has come and failed.
  /// Makes every call of the manager from here on return `native`; 0 ends that.
  void fail_all(std::int32_t native);
  /// Answers whether this thread is in a driver call. A signal handler may ask.
  static bool is_in_call() noexcept;
  /// Called before each call, without a lock. The call waits for it.
  ReplaceableHook during;

  /// Calls since the last forget(), in the order in which they ended, refused ones included.
  std::vector<CallEvent> events() const;
  void forget();
  std::uint64_t total() const;  ///< Calls since the beginning.
  bool any_refused() const;     ///< Some call was ever failed as told.
  /// Returns the first call that the device refused without being told to. Requests that are out of
  /// memory, queries and regions that are already page-locked do not count.
  std::optional<CallEvent> first_uninvited() const;
  /// Forgets that refused call, because the check has provoked it.
  void forgive();
  /// Returns "--fault mem_alloc:3=2 ...", which fails the same calls in a replay.
  std::string faults() const;
  /// Returns where the memory of a range is, whatever address reaches it, as ordered ranges [first,
  /// second). Memory that is mapped at two addresses has one place.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places(std::uint64_t address,
                                                              std::uint64_t size) const;
  CallLedger& ledger() noexcept { return ledger_; }
  const CallLedger& ledger() const noexcept { return ledger_; }

 private:
  void note(const CallEvent& event);

  friend class Bench;  // which forks
  mutable std::mutex mutex_;
  CallLedger ledger_;
  stream_order::PhysicalExtents extents_;
  std::vector<CallEvent> events_;
  std::map<Call, std::deque<std::int32_t>> answers_;
  std::map<Call, std::int32_t> always_;
  std::map<Call, std::uint64_t> counts_;
  std::string faults_;
  std::uint64_t total_ = 0;
  std::uint64_t until_fault_ = 0;  // 0: none is set
  std::int32_t native_ = 0;
  std::int32_t all_ = 0;
  bool of_ends_ = false;
  bool failed_nth_ = false;
  bool any_refused_ = false;
  std::optional<CallEvent> uninvited_;
};

/// Answers whether a call ends what another one made: a free, a destroy, an unload.
bool is_end(Call call) noexcept;

}  // namespace emm::conformance
