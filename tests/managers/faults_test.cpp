#include "base/units.hpp"
#include "emm/memory_manager.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

struct Stack {
  std::string manager;
  std::vector<std::string> adaptors;
};

class EveryCallFailedInTurn : public ::testing::TestWithParam<Stack> {};

INSTANTIATE_TEST_SUITE_P(
    Managers, EveryCallFailedInTurn,
    ::testing::Values(Stack{"default", {}}, Stack{"default:profile=numba", {}},
                      Stack{"host-only", {}}, Stack{"cudart", {}},
                      Stack{"cudart:profile=numba", {}}, Stack{"pool", {}},
                      Stack{"pool:max=8MiB,initial=2MiB,release_threshold=2MiB", {}},
                      Stack{"default", {"limiting:max=1GiB", "statistics", "tracking"}}),
    [](const auto& instance) { return "Stack" + std::to_string(instance.index); });

/// Every operation, with what ends early, late, twice and never.
void use(MemoryManager& manager) {
  const auto ready = manager.initialize();
  auto kept = manager.memalloc(600_KiB, {1});
  auto large = manager.memalloc(5_MiB, {1});
  {
    const auto dropped = manager.memalloc(700_KiB, {2});
    const auto managed = manager.memallocmanaged(1000, AttachFlags::global);
    const auto mapped = manager.memhostalloc(64, {.mapped = true});
    const auto pinned = manager.memhostalloc(64, {});
    const auto registered = manager.mempin(host_range(), {.mapped = true});
    const auto unmapped = manager.mempin(host_range(0x30001000), {});
  }
  if (large) {
    const auto freed = large->free({2});
    EXPECT_TRUE(freed) << "a free has no answer but that of a dead pointer";
  }
  const auto other_stream = manager.memalloc(5_MiB, {3});
  {
    const auto deferred = manager.defer_cleanup();
    const auto inside = manager.memalloc(900_KiB);
    const auto host = manager.memhostalloc(64, {.mapped = true});
  }
  if (kept) {
    const auto handle = manager.get_ipc_handle(*kept->view(8));
  }
  const auto info = manager.get_memory_info();
  const auto flushed = manager.flush();
  const auto late = manager.memhostalloc(64, {.mapped = true});
  const auto late_pin = manager.mempin(host_range(), {.mapped = true});
  manager.reset();
  const auto after = manager.memalloc(4096);
}

void run(const Stack& stack, const std::function<void(ScriptedDriver&)>& arrange, bool& more) {
  ScriptedDriver driver;
  ScriptedRuntime runtime(driver);
  ManualClock clock;
  RecordingObserver observer;
  driver.total = 1_GiB;
  auto manager =
      *find_manager(stack.manager, stack.adaptors)
           ->make({.driver = &driver, .runtime = &runtime, .clock = &clock, .observer = &observer});
  arrange(driver);

  use(*manager);
  const auto flushed = manager->flush();
  more = driver.failed_as_told();
  driver.stop_failing();
  EXPECT_EQ(manager->state().live_bytes, 0u);
  if (!manager->flush()) return;
  EXPECT_EQ(manager->state().pending_count, 0u);
  manager.reset();

  EXPECT_EQ(driver.alive(), observer.failures.size() - observer.waits)
      << "only what the driver refused to free may be left";
  EXPECT_EQ(driver.bad_frees(), 0u);
}

TEST_P(EveryCallFailedInTurn, LeaksNothingAndKeepsTheAccounts) {
  for (const auto native : {2, 700}) {
    bool more = true;
    std::size_t n = 0;
    while (more) {
      ++n;
      SCOPED_TRACE("call " + std::to_string(n) + " fails with " + std::to_string(native));
      run(
          GetParam(), [&](ScriptedDriver& driver) { driver.fail_call(n, native); }, more);
      ASSERT_LT(n, 200u);
    }
    EXPECT_GT(n, 15u) << "the scenario makes calls that can fail";
  }
}

TEST_P(EveryCallFailedInTurn, SoDoPairsOfFailures) {
  const auto fails_from = [](ScriptedDriver& driver, std::size_t n) {
    // Everything from the n-th call on runs out of memory, twice.
    driver.fail_call(n, 2);
    driver.during = [&driver, once = true](const ScriptedDriver::Entry&) mutable {
      if (once && driver.failed_as_told()) {
        once = false;
        driver.fail_call(1, 2);
      }
    };
  };
  bool more = true;
  for (std::size_t n = 1; more; ++n) {
    SCOPED_TRACE("calls from " + std::to_string(n));
    run(
        GetParam(), [&](ScriptedDriver& driver) { fails_from(driver, n); }, more);
    ASSERT_LT(n, 200u);
  }
}

}  // namespace
}  // namespace emm::test
