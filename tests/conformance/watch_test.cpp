// A hook that is replaced while threads call it.
#include "conformance/watch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace emm::conformance {
namespace {

TEST(ReplaceableHook, IsReplacedWhenTheCallsOfOtherThreadsHaveEnded) {
  ReplaceableHook hook;
  std::promise<void> begun, may_end;
  auto state = std::make_unique<std::atomic<int>>(0);
  hook = [&](const CallEvent&) {
    begun.set_value();
    may_end.get_future().wait();
    *state = 1;
  };
  std::thread caller([&] { hook({}); });
  begun.get_future().wait();
  auto replaced = std::async(std::launch::async, [&] { hook = nullptr; });
  EXPECT_EQ(replaced.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_EQ(*state, 0);
  may_end.set_value();
  replaced.wait();
  EXPECT_EQ(*state, 1);
  state.reset();  // no call can refer to it any more
  hook({});
  caller.join();
}

TEST(ReplaceableHook, DoesNotWaitForTheCallThatReplacesIt) {
  ReplaceableHook hook;
  int calls = 0;
  hook = [&](const CallEvent&) {
    ++calls;
    hook = nullptr;
  };
  hook({});
  hook({});
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace emm::conformance
