#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <variant>

#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "rig.hpp"

namespace emm::test {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class LogFile {
 public:
  LogFile()
      : path_(std::filesystem::temp_directory_path() /
              ("emm_log_" + std::to_string(++made) + "_" + std::to_string(getpid()) + ".csv")) {}
  ~LogFile() { std::filesystem::remove(path_); }
  std::string option() const { return "logging:file=" + path_.string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  static inline int made = 0;
  std::filesystem::path path_;
};

// Whatever an adaptor sees, it changes nothing that its upstream promises.
class AnyAdaptor : public ::testing::TestWithParam<const char*> {
 protected:
  LogFile log;
  std::string adaptor() const {
    return std::string(GetParam()) == "logging" ? log.option() : GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(Adaptors, AnyAdaptor,
                         ::testing::Values("limiting", "statistics", "tracking", "logging"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(AnyAdaptor, PassesEverythingThrough) {
  Rig rig("default:capacity=1000", {adaptor()});
  EXPECT_TRUE(rig.manager->initialize());
  {
    auto device = rig.memory(100, {3});
    auto managed = *rig.manager->memallocmanaged(10, AttachFlags::global);
    auto mapped = *rig.manager->memhostalloc(16, {.mapped = true});
    auto pinned = *rig.manager->memhostalloc(16, {});
    auto registered = *rig.manager->mempin(host_range(), {.mapped = true});
    EXPECT_EQ(std::get<MappedMemory>(mapped).device_pointer().value,
              number_of(std::get<MappedMemory>(mapped).host_pointer()) + rig.driver.host_to_device);
    EXPECT_EQ(std::get<MappedMemory>(registered).host_pointer(), host_range().pointer);
    EXPECT_EQ(rig.manager->get_ipc_handle(*device.view(8))->fields().offset, 8u);
    EXPECT_TRUE(rig.manager->get_memory_info());
    EXPECT_EQ(rig.manager->interface_version(), 1);
    EXPECT_TRUE(device.free());
    EXPECT_EQ(describe(device.free().error()), "Freeing dead memory");
  }
  EXPECT_EQ(rig.manager->state().pending_count, 4u);
  EXPECT_EQ(rig.driver.alive(), 4u) << "unpinning does not wait";
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.alive(), 0u);
  EXPECT_EQ(rig.observer.flushes, (Rig::Flushes{{4, 142}}));
}

TEST_P(AnyAdaptor, PassesDeferralThrough) {
  Rig rig("default:capacity=1000", {adaptor()});
  const auto deferred = rig.manager->defer_cleanup();
  { const auto memory = rig.memory(500); }
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.count(Call::mem_free), 0u);
}

TEST_P(AnyAdaptor, PassesFailuresThrough) {
  Rig rig("default", {adaptor()});
  rig.driver.answer(Call::mem_alloc, {700});
  rig.driver.answer(Call::mem_alloc_managed, {700});
  rig.driver.answer(Call::mem_host_alloc, {700});
  rig.driver.answer(Call::mem_host_register, {700});
  EXPECT_EQ(rig.manager->memalloc(1).error().native, 700);
  EXPECT_EQ(rig.manager->memallocmanaged(1, AttachFlags::host).error().native, 700);
  EXPECT_EQ(rig.manager->memhostalloc(1, {}).error().native, 700);
  EXPECT_EQ(rig.manager->mempin(host_range(), {}).error().native, 700);
}

TEST_P(AnyAdaptor, ResetEndsItsPointersToo) {
  Rig rig("default", {adaptor()});
  {
    const auto memory = rig.memory(100);
    const auto pinned = *rig.manager->memhostalloc(16, {});
    rig.manager->reset();
    EXPECT_FALSE(memory.alive());
    EXPECT_FALSE(std::get<PinnedMemory>(pinned).alive());
    EXPECT_EQ(rig.driver.alive(), 0u);
  }
  EXPECT_EQ(rig.driver.bad_frees(), 0u);
  const auto again = rig.memory(100);
  EXPECT_TRUE(again.alive());
}

TEST_P(AnyAdaptor, WhatSurvivesAResetOfItsUpstreamSurvivesHere) {  // RST-5
  Rig rig("default:profile=numba", {adaptor()});
  {
    const auto pinned = *rig.manager->memhostalloc(16, {});
    rig.manager->reset();
    EXPECT_TRUE(std::get<PinnedMemory>(pinned).alive());
    EXPECT_EQ(rig.driver.alive(), 1u);
  }
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST_P(AnyAdaptor, ItsPointersMayEndAfterIt) {
  Rig rig("default", {adaptor()});
  const auto memory = rig.memory(100);
  rig.manager.reset();
  EXPECT_FALSE(memory.alive());
  EXPECT_EQ(rig.driver.alive(), 0u);
}

TEST_P(AnyAdaptor, KeepsTheOwnerOfPinnedMemory) {
  Rig rig("default", {adaptor()});
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owner;
  {
    const auto pinned = rig.manager->mempin(host_range(), {}, std::move(owner));
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST_P(AnyAdaptor, MemoryThatOwnsNothingPasses) {
  Rig rig("cudart", {adaptor()});
  const auto memory = rig.memory(0);
  EXPECT_FALSE(memory.is_managed());
}

TEST(LimitingAdaptor, RefusesWhatWouldPassItsLimit) {
  Rig rig("default", {"limiting:max=100"});
  auto memory = rig.memory(60);
  const auto managed = rig.manager->memallocmanaged(40, AttachFlags::global);
  ASSERT_TRUE(managed);
  EXPECT_EQ(rig.manager->memalloc(1).error().code, Errc::out_of_memory);
  EXPECT_EQ(rig.manager->memalloc(1).error().native, 2);
  EXPECT_TRUE(rig.manager->memhostalloc(1000, {})) << "host memory is not limited";
  EXPECT_EQ(rig.manager->state().live_bytes, 100u);
  memory = {};
  EXPECT_TRUE(rig.manager->memalloc(60));
}

TEST(LimitingAdaptor, AFailureOfTheUpstreamTakesNothingFromTheLimit) {
  Rig rig("default", {"limiting:max=100"});
  rig.driver.answer(Call::mem_alloc, {700});
  EXPECT_FALSE(rig.manager->memalloc(100));
  EXPECT_TRUE(rig.manager->memalloc(100));
  EXPECT_FALSE(rig.manager->memalloc(101));
}

TEST(LimitingAdaptor, AResetGivesTheLimitBack) {
  Rig rig("default", {"limiting:max=100"});
  const auto memory = rig.memory(100);
  rig.manager->reset();
  EXPECT_TRUE(rig.manager->memalloc(100));
}

TEST(StatisticsAdaptor, CountsEachOperation) {
  Rig rig("default", {"statistics"});
  { const auto memory = rig.memory(100); }
  const auto memory = rig.memory(50);
  const auto pinned = rig.manager->mempin(host_range(), {});
  rig.driver.answer(Call::mem_host_alloc, {700});
  EXPECT_FALSE(rig.manager->memhostalloc(8, {}));
  EXPECT_EQ(rig.manager->report(),
            "statistics: memalloc: 2 allocations, 0 failures, 150 bytes in all, 50 live in 1, 100 "
            "at the peak\n"
            "statistics: memhostalloc: 0 allocations, 1 failures, 0 bytes in all, 0 live in 0, 0 "
            "at the peak\n"
            "statistics: mempin: 1 allocations, 0 failures, 64 bytes in all, 64 live in 1, 64 at "
            "the peak\n");
}

TEST(StatisticsAdaptor, CountsAsRmmDoes) {
  Rig rig("default", {"statistics"});
  {
    const auto a = rig.memory(100);
    const auto b = rig.memory(30);
  }
  const auto memory = rig.memory(50);
  EXPECT_EQ(rmm_statistics(rig.manager->statistics()), (NamedStatistics{{"current_bytes", 50},
                                                                        {"current_count", 1},
                                                                        {"peak_bytes", 130},
                                                                        {"peak_count", 2},
                                                                        {"total_bytes", 180},
                                                                        {"total_count", 3}}));
  EXPECT_FALSE(rig.manager->memory_map()) << "whose manager keeps none";
}

TEST(TrackingAdaptor, ListsWhatIsAliveOldestFirst) {
  Rig rig("default", {"tracking:list=2"});
  auto first = rig.memory(100);
  const auto second = rig.memory(50);
  const auto pinned = rig.manager->mempin(host_range(), {});
  first = rig.memory(10);
  EXPECT_EQ(rig.manager->report(),
            "tracking: 124 bytes live in 3 allocations\n"
            "tracking: device 0x10000200: 50 bytes, allocation 2\n"
            "tracking: pinned 0x30000000: 64 bytes, allocation 3\n"
            "tracking: and 1 more\n");
}

TEST(LoggingAdaptor, WritesTheRowsOfRmm) {
  LogFile log;
  {
    Rig rig("default", {log.option()});
    rig.clock.advance(1'234'567'000);
    auto memory = rig.memory(100, {16});
    rig.clock.advance(1000);
    rig.driver.answer(Call::mem_alloc, {2, 2});
    EXPECT_FALSE(rig.manager->memalloc(200));
    EXPECT_TRUE(memory.free({16}));
    ASSERT_TRUE(rig.manager->memhostalloc(16, {}));
    const auto left = rig.memory(7);
    rig.manager->reset();
    EXPECT_EQ(rig.manager->report(), "");
  }
  EXPECT_EQ(content_of(log.path()),
            "Thread,Time,Action,Pointer,Size,Stream\n"
            "0,00:00:01.234567,allocate,0x10000000,100,0x10\n"
            "0,00:00:01.234568,allocate failure,(nil),200,0\n"
            "0,00:00:01.234568,free,0x10000000,100,0x10\n"
            "0,00:00:01.234568,allocate,0x10000200,7,0\n"
            "0,00:00:01.234568,free,0x10000200,7,0\n");
}

TEST(LoggingAdaptor, WritesTheSystemsThreadOnARealClock) {
  LogFile log;
  {
    Rig rig("default", {});
    SteadyClock clock;
    const std::vector<std::string> over{log.option()};
    auto manager = *find_manager("default", over)->make({.driver = &rig.driver, .clock = &clock});
    EXPECT_TRUE(manager->memalloc(8));
  }
  const auto text = content_of(log.path());
  EXPECT_NE(text.find("\n" + std::to_string(getpid()) + ","), std::string::npos) << text;
}

TEST(LoggingAdaptor, NeedsAFileItCanWrite) {
  const std::vector<std::string> none{"logging"};
  EXPECT_EQ(describe(find_manager("default", none).error()),
            "adaptor logging: option 'file' is missing: expected the path of the log");
  const std::vector<std::string> nowhere{"logging:file=/no/such/folder/log.csv"};
  ScriptedDriver driver;
  ManualClock clock;
  EXPECT_EQ(
      find_manager("default", nowhere)->make({.driver = &driver, .clock = &clock}).error().code,
      Errc::usage);
}

TEST(LoggingAdaptor, SaysWhereItCouldNotWrite) {
  Rig rig("default", {"logging:file=/dev/full"});
  { const auto memory = rig.memory(8); }
  EXPECT_TRUE(rig.manager->flush());
  EXPECT_NE(rig.manager->report().find("logging: "), std::string::npos);
}

}  // namespace
}  // namespace emm::test
