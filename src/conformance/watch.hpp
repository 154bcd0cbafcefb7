#pragma once

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
#include <utility>
#include <vector>

#include "driver/decorate/call_ledger.hpp"
#include "order/physical_extents.hpp"

namespace emm::conformance {

/// A function that can be replaced while threads call it. A call that has begun goes on.
class ReplaceableHook {
 public:
  using Function = std::function<void(const CallEvent&)>;
  ReplaceableHook& operator=(Function function);
  ReplaceableHook& operator=(std::nullptr_t) { return *this = Function(); }
  void operator()(const CallEvent& event) const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Function> function_;  // null: none
};

/// Logs every driver call of a manager, keeps the ledger of what the calls made and ended, and
/// fails calls as told. Any thread may call.
class Watch final : public CallHook {
 public:
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

  /// Makes the next calls of this kind answer so. 0 stands for the device's own answer.
  void fail(Call call, std::initializer_list<std::int32_t> natives);
  /// Makes every call of this kind answer so.
  void fail_always(Call call, std::int32_t native);
  /// Makes the n-th call from here on answer `native`, counted from 1 among the calls that end
  /// something, or among all others. `n` 0 ends that.
  void fail_nth(std::uint64_t n, std::int32_t native, bool of_ends);
  bool failed_nth() const;  ///< It has come to that.
  /// Makes every call from here on answer `native`; 0 ends that.
  void fail_all(std::int32_t native);
  /// Answers whether this thread is in a driver call. A signal handler may ask.
  static bool is_in_call() noexcept;
  /// Called before each call, without a lock; the call waits for it.
  ReplaceableHook during;

  std::vector<CallEvent> events()
      const;  ///< Since the last forget(), refused ones too, as they ended.
  void forget();
  std::uint64_t total() const;  ///< Calls since the beginning.
  bool any_refused() const;     ///< A call was failed as told, ever.
  /// The first call that the device refused and nobody made fail, beside requests that are out of
  /// memory, questions, and regions that are page-locked already.
  std::optional<CallEvent> first_uninvited() const;
  /// Forgets that call: the check has asked for it.
  void forgive();
  /// "--fault mem_alloc:3=2 ...": what fails the same calls of a replay.
  std::string faults() const;
  /// Where the memory of a range is, whatever address reaches it: ranges [first, second), in order.
  /// Memory that is mapped at two addresses is at one place.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places(std::uint64_t address,
                                                              std::uint64_t size) const;
  CallLedger& ledger() noexcept { return ledger_; }

 private:
  void note(const CallEvent& event);

  mutable std::mutex mutex_;
  CallLedger ledger_;
  order::PhysicalExtents extents_;
  std::vector<CallEvent> events_;
  std::map<Call, std::deque<std::int32_t>> answers_;
  std::map<Call, std::int32_t> always_;
  std::map<Call, std::uint64_t> counts_;
  std::string faults_;
  std::uint64_t total_ = 0;
  std::uint64_t until_fault_ = 0;  // 0: none to come
  std::int32_t native_ = 0;
  std::int32_t all_ = 0;
  bool of_ends_ = false;
  bool failed_nth_ = false;
  bool any_refused_ = false;
  std::optional<CallEvent> uninvited_;
};

/// Whether a call ends what another made: a free, a destroy, an unload.
bool is_end(Call call) noexcept;

}  // namespace emm::conformance
