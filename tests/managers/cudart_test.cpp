#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

TEST(CudartManager, FreesAtOnce) {  // exercise plugin, 2 and 3
  Rig rig("cudart");
  const auto address = rig.memory(100).device_pointer().value;
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_alloc, 100}, {Call::mem_free, address}}));
}

TEST(CudartManager, DefersNoDeviceFree) {  // exercise plugin, 5
  Rig rig("cudart:capacity=1000");
  const auto deferred = rig.manager->defer_cleanup();
  { const auto memory = rig.memory(100); }
  EXPECT_EQ(rig.driver.count(Call::mem_free), 1u);
  ASSERT_TRUE(rig.manager->memhostalloc(16, {}));
  EXPECT_EQ(rig.driver.count(Call::mem_free_host), 0u);
}

TEST(CudartManager, DoesNotRetry) {  // exercise plugin, 8
  Rig rig("cudart:capacity=1000");
  ASSERT_TRUE(rig.manager->memhostalloc(16, {}));
  rig.driver.answer(Call::mem_alloc, {2});
  EXPECT_EQ(rig.manager->memalloc(100).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.driver.count(Call::mem_alloc), 1u);
  EXPECT_EQ(rig.manager->state().pending_count, 1u);
}

TEST(CudartManager, ASizeOfZeroIsNoMemory) {
  Rig rig("cudart");
  const auto memory = rig.memory(0);
  EXPECT_FALSE(memory.device_pointer());
  EXPECT_FALSE(memory.is_managed());
}

TEST(CudartManager, ResetEndsDeviceMemory) {
  Rig rig("cudart");
  const auto a = rig.memory(10);
  const auto b = rig.memory(10);
  rig.taken();
  rig.manager->reset();
  EXPECT_EQ(rig.taken(), (Rig::Calls{{Call::mem_free, a.device_pointer().value},
                                     {Call::mem_free, b.device_pointer().value}}));
  EXPECT_FALSE(a.alive());
}

TEST(CudartManager, AsTheTutorialsPluginResetLeavesDeviceMemory) {  // exercise plugin, 3; RST-5
  Rig rig("cudart:profile=numba");
  {
    const auto memory = rig.memory(10);
    rig.manager->reset();
    EXPECT_TRUE(memory.alive());
    EXPECT_EQ(rig.driver.alive(), 1u);
  }
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST(CudartManager, CountsAFreeThatFails) {
  Rig rig("cudart");
  {
    const auto memory = rig.memory(10);
    rig.driver.answer(Call::mem_free, {700});
  }
  EXPECT_EQ(rig.observer.failures, std::vector<int>{700});
}

TEST(CudartManager, ExportsAndCounts) {
  Rig rig("cudart");
  const auto memory = rig.memory(4096);
  EXPECT_EQ(rig.manager->get_ipc_handle(*memory.view(64))->fields().offset, 64u);
  EXPECT_EQ(rig.manager->state().live_bytes, 4096u);
  EXPECT_TRUE(rig.manager->get_memory_info());
  rig.driver.always_gives = memory.device_pointer();
  EXPECT_EQ(rig.manager->memalloc(8).error().code, Errc::driver_error);
}

TEST(CudartManager, ItsEndFreesWhatIsLeft) {
  Rig rig("cudart");
  const auto memory = rig.memory(10);
  rig.manager.reset();
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST(CudartManager, NeedsACudart) {
  ScriptedDriver driver;
  EXPECT_EQ(describe(find_manager("cudart")->make({.driver = &driver}).error()),
            "manager cudart: libcudart was not found; the other managers need none");
}

}  // namespace
}  // namespace emm::test
