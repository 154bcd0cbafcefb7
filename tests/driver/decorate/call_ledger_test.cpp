#include "driver/decorate/call_ledger.hpp"

#include <tuple>
#include <vector>

#include "driver/call.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

using Kind = CallLedger::Kind;

class CallLedgerTest : public SimTest {
 protected:
  CountingDriver counted_{driver()};
  CallLedger& ledger_ = counted_.ledger();
};

TEST_F(CallLedgerTest, CountsCallsAndFailures) {
  ASSERT_TRUE(counted_.mem_alloc(4_KiB));
  ASSERT_FALSE(counted_.mem_alloc(0));
  ASSERT_TRUE(counted_.mem_get_info());

  EXPECT_EQ(ledger_.calls(Call::mem_alloc), (CallLedger::Calls{.made = 2, .failed = 1}));
  EXPECT_EQ(ledger_.calls(), (CallLedger::Calls{.made = 3, .failed = 1}));
}

TEST_F(CallLedgerTest, BalancesWhenAllThatWasHandedOutCameBack) {
  std::vector<std::byte> own(4_KiB);
  const auto device = *counted_.mem_alloc(4_KiB);
  const auto managed = *counted_.mem_alloc_managed(4_KiB, AttachFlags::global);
  const auto host = *counted_.mem_host_alloc(4_KiB, {});
  ASSERT_TRUE(counted_.mem_host_register({own.data(), own.size()}, {}));
  const auto event = *counted_.event_create();
  const auto stream = *counted_.stream_create();
  EXPECT_FALSE(ledger_.balances());
  EXPECT_EQ(ledger_.live(Kind::managed), (CallLedger::Live{.count = 1, .bytes = 4_KiB}));
  EXPECT_EQ(
      ledger_.verdict(),
      "1 block of device memory (4096 bytes), 1 block of managed memory (4096 bytes), 1 block of "
      "page-locked memory (4096 bytes), 1 registered region (4096 bytes), 1 event, 1 stream are "
      "not "
      "released");

  EXPECT_TRUE(counted_.mem_free(device));
  EXPECT_TRUE(counted_.mem_free(managed));
  EXPECT_TRUE(counted_.mem_free_host(host));
  EXPECT_TRUE(counted_.mem_host_unregister(own.data()));
  EXPECT_TRUE(counted_.event_destroy(event));
  EXPECT_TRUE(counted_.stream_destroy(stream));
  EXPECT_TRUE(counted_.mem_free({0}));

  EXPECT_TRUE(ledger_.balances());
  EXPECT_EQ(ledger_.verdict(), "balanced");
}

// One thread's free has ended in the driver, which gives the address to another thread before the
// free is told here.
TEST(CallLedger, KnowsTheEndThatIsToldAfterTheAddressWasGivenAgain) {
  for (const auto& [alloc, end, kind] :
       {std::tuple(Call::mem_host_alloc, Call::mem_free_host, Kind::host),
        std::tuple(Call::mem_alloc, Call::mem_free, Kind::device),
        std::tuple(Call::mem_alloc_managed, Call::mem_free, Kind::managed)}) {
    CallLedger ledger;
    const CallEvent first{.call = alloc, .size = 100, .result = 0x1000};
    const CallEvent second{.call = alloc, .size = 200, .result = 0x1000};
    const CallEvent free{.call = end, .pointer = 0x1000};
    EXPECT_EQ(ledger.before(first), 0);
    ledger.after(first);
    EXPECT_EQ(ledger.before(free), 0);
    ledger.after(second);
    ledger.after(free);

    EXPECT_EQ(ledger.live(kind), (CallLedger::Live{.count = 1, .bytes = 200}));
    EXPECT_EQ(ledger.find(kind, 0x1000)->size, 200u);

    EXPECT_EQ(ledger.before(free), 0);
    ledger.after(free);
    EXPECT_TRUE(ledger.balances()) << ledger.verdict();
    EXPECT_EQ(ledger.before(free), 0);
    ledger.after({.call = end, .pointer = 0x1000, .native = 1});
    EXPECT_EQ(ledger.double_ends(), 1u);
  }
}

TEST_F(CallLedgerTest, NamesWhoMadeWhatIsLeft) {
  ledger_.tell_makers_by([]() noexcept { return "free"; });
  const auto event = *counted_.event_create();
  ASSERT_TRUE(counted_.event_create());

  EXPECT_EQ(ledger_.verdict(), "2 events made by free() are not released");
  ASSERT_TRUE(counted_.event_destroy(event));
  EXPECT_FALSE(counted_.event_destroy(event));
  EXPECT_EQ(ledger_.verdict(),
            "1 event made by free() is not released; 1 released twice (event, by free())");
}

TEST_F(CallLedgerTest, CountsPhysicalMemoryUntilNeitherHandleNorMappingIsLeft) {
  constexpr auto kSize = 2_MiB;
  const auto range = *counted_.mem_address_reserve(2 * kSize, 0);
  const auto handle = *counted_.mem_create(kSize);
  ASSERT_TRUE(counted_.mem_map(range, kSize, 0, handle));
  ASSERT_TRUE(counted_.mem_map({range.value + kSize}, kSize, 0, handle));
  EXPECT_EQ(ledger_.physical_bytes(), kSize);
  ASSERT_TRUE(counted_.mem_release(handle));
  EXPECT_EQ(ledger_.live(Kind::physical).count, 0u);
  EXPECT_EQ(ledger_.physical_bytes(), kSize);
  ASSERT_TRUE(counted_.mem_unmap(range, kSize));
  EXPECT_EQ(ledger_.physical_bytes(), kSize);
  ASSERT_TRUE(counted_.mem_unmap({range.value + kSize}, kSize));
  EXPECT_EQ(ledger_.physical_bytes(), 0u);
  ASSERT_TRUE(counted_.mem_address_free(range, 2 * kSize));
  EXPECT_TRUE(ledger_.balances());
}

TEST_F(CallLedgerTest, TellsDoubleFreesFromForeignOnes) {
  const auto ptr = *counted_.mem_alloc(4_KiB);
  ASSERT_TRUE(counted_.mem_free(ptr));

  EXPECT_FALSE(counted_.mem_free(ptr));
  EXPECT_FALSE(counted_.mem_free({0x1234}));

  EXPECT_EQ(ledger_.double_ends(), 1u);
  EXPECT_EQ(ledger_.foreign_ends(), 1u);
  EXPECT_EQ(ledger_.verdict(),
            "1 released twice (block of device memory); 1 released that were not handed out");
}

TEST_F(CallLedgerTest, CountsManagedMemoryFreedTwiceAsThat) {
  const auto ptr = *counted_.mem_alloc_managed(4_KiB, AttachFlags::global);
  ASSERT_TRUE(counted_.mem_free(ptr));

  EXPECT_FALSE(counted_.mem_free(ptr));
  EXPECT_EQ(ledger_.double_ends(), 1u);
}

TEST_F(CallLedgerTest, IsOwedNothingAfterAReset) {
  const auto ptr = *counted_.mem_alloc(4_KiB);
  ASSERT_TRUE(counted_.event_create());

  ASSERT_TRUE(counted_.primary_ctx_reset());
  EXPECT_FALSE(counted_.mem_free(ptr));

  EXPECT_TRUE(ledger_.balances());
}

TEST_F(CallLedgerTest, SeesTheRuntimeToo) {
  CallLedger ledger;
  auto device = hooked(open(0), ledger);

  const auto ptr = *device.runtime->malloc(4_KiB);
  EXPECT_EQ(ledger.live(Kind::device).bytes, 4_KiB);
  ASSERT_TRUE(device.runtime->malloc(0));
  EXPECT_TRUE(device.driver->mem_free(ptr));
  EXPECT_TRUE(ledger.balances());
  EXPECT_EQ(ledger.calls(Call::runtime_malloc).made, 2u);
}

TEST_F(CallLedgerTest, LeavesAnswersAsTheyAre) {
  EXPECT_EQ(counted_.mem_alloc(0).error().native, 1);
  EXPECT_EQ(*counted_.mem_get_info(), *driver().mem_get_info());
  EXPECT_EQ(counted_.device_identity(), driver().device_identity());
  EXPECT_EQ(counted_.context_handle(), driver().context_handle());
  EXPECT_EQ(counted_.largest_free_bytes(), 64_MiB);
}

}  // namespace
}  // namespace emm
