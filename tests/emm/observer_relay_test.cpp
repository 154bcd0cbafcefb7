#include "emm/observer_relay.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>

#include "driver/call.hpp"

namespace emm {
namespace {

/// Takes a lock in each call, as a callback into the manager does, and notes the call.
class LockingObserver final : public ManagerObserver {
 public:
  void pending_added(Call, std::optional<std::uint64_t> size) noexcept override {
    add("added " + std::to_string(size.value_or(0)));
  }
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
    add("flushed " + std::to_string(count) + " " + std::to_string(bytes));
  }
  void free_failed(const Error& error) noexcept override { add(describe(error)); }

  std::mutex mutex;
  std::string heard;

 private:
  void add(const std::string& words) {
    const std::lock_guard lock(mutex);
    heard += words + "; ";
  }
};

TEST(ObserverRelay, TellsAfterTheLockWhatWasToldUnderIt) {
  LockingObserver observer;
  ObserverRelay relay(&observer);
  {
    const ObserverRelay::Hold hold(relay);
    const std::lock_guard lock(observer.mutex);
    relay.pending_added(Call::mem_free, 7);
    relay.free_failed(fail(Errc::driver_error, "no"));
    relay.flushed(1, 7);
    EXPECT_EQ(observer.heard, "");
  }
  EXPECT_EQ(observer.heard, "added 7; no; flushed 1 7; ");
}

TEST(ObserverRelay, TellsAtOnceWithoutAHoldOfItsOwnOnThisThread) {
  LockingObserver observer, other;
  ObserverRelay relay(&observer), other_relay(&other);
  const ObserverRelay::Hold hold(relay);
  {
    const ObserverRelay::Hold inner(other_relay);
    relay.flushed(1, 0);
    other_relay.flushed(2, 0);
    EXPECT_EQ(other.heard, "");
  }
  EXPECT_EQ(other.heard, "flushed 2 0; ");
  EXPECT_EQ(observer.heard, "");

  std::thread([&] { relay.flushed(3, 0); }).join();
  EXPECT_EQ(observer.heard, "flushed 3 0; ");
}

TEST(ObserverRelay, TellsNobodyWhereNobodyObserves) {
  ObserverRelay relay(nullptr);
  const ObserverRelay::Hold hold(relay);
  relay.flushed(1, 0);
}

}  // namespace
}  // namespace emm
