#include "base/units.hpp"
#include "contract/fixture.hpp"

// Two devices of one machine. Documented in cuCtxEnablePeerAccess and cuMemcpyPeer.
namespace emm {
namespace {

class Peers : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (platform().kind() == "sim") reopen("sim:devices=2");
    if (platform().device_count() < 2) GTEST_SKIP() << "one device";
    auto second = platform().open(1);
    ASSERT_TRUE(second) << describe(second.error());
    second_ = std::move(*second);
    if (!must(driver().can_access_peer(peer().device_identity())))
      GTEST_SKIP() << "two devices that are no peers";
  }
  Driver& peer() { return *second_.driver; }

 private:
  OpenedDevice second_;
};

// Documented: 704 (already enabled) and 705 (not enabled).
TEST_P(Peers, AccessIsEnabledAndDisabledOnce) {
  const auto other = peer().context_handle();

  EXPECT_EQ(native(driver().ctx_enable_peer_access(other)), 0);
  EXPECT_EQ(native(driver().ctx_enable_peer_access(other)), 704);
  EXPECT_EQ(native(driver().ctx_disable_peer_access(other)), 0);
  EXPECT_EQ(native(driver().ctx_disable_peer_access(other)), 705);
}

// Measured: 217.
TEST_P(Peers, AContextIsNotItsOwnPeer) {
  EXPECT_EQ(native(driver().ctx_enable_peer_access(driver().context_handle())), 217);
}

// Documented: access is one way.
TEST_P(Peers, AccessIsOneWay) {
  ASSERT_TRUE(driver().ctx_enable_peer_access(peer().context_handle()));

  EXPECT_EQ(native(peer().ctx_disable_peer_access(driver().context_handle())), 705);
  EXPECT_TRUE(driver().ctx_disable_peer_access(peer().context_handle()));
}

// Documented: cuMemcpyPeer needs no access.
TEST_P(Peers, CopiesBetweenDevicesKeepEveryByte) {
  const auto from = must(driver().mem_alloc(3_MiB));
  const auto to = must(peer().mem_alloc(3_MiB));
  ASSERT_TRUE(driver().memset_d8(from, 42, 3_MiB));
  ASSERT_TRUE(peer().memset_d8(to, 0, 3_MiB));

  ASSERT_TRUE(
      driver().memcpy_peer(to, peer().context_handle(), from, driver().context_handle(), 3_MiB));

  std::byte last{};
  EXPECT_TRUE(peer().memcpy_dtoh({&last, 1}, to + (3_MiB - 1)));
  EXPECT_EQ(last, std::byte{42});
  EXPECT_TRUE(driver().mem_free(from));
  EXPECT_TRUE(peer().mem_free(to));
}

// Documented: with access the peer's memory is filled and read as one's own.
TEST_P(Peers, WithAccessAPeersMemoryIsUsedDirectly) {
  ASSERT_TRUE(driver().ctx_enable_peer_access(peer().context_handle()));
  const auto theirs = must(peer().mem_alloc(1_MiB));

  EXPECT_TRUE(driver().memset_d8(theirs, 42, 1_MiB));
  EXPECT_EQ(byte_at(theirs + (1_MiB - 1)), 42);

  EXPECT_TRUE(peer().mem_free(theirs));
  EXPECT_TRUE(driver().ctx_disable_peer_access(peer().context_handle()));
}

// Documented: each device has its own memory.
TEST_P(Peers, EachDeviceHasMemoryOfItsOwn) {
  const auto mine = free_bytes();
  const auto theirs = must(peer().mem_get_info()).free;
  const auto ptr = must(peer().mem_alloc(64_MiB));

  EXPECT_EQ(free_bytes(), mine);
  EXPECT_EQ(theirs - must(peer().mem_get_info()).free, 64_MiB);
  EXPECT_TRUE(peer().mem_free(ptr));
}

// Documented: with unified addresses an address says whose it is.
TEST_P(Peers, AnAddressIsFreedThroughAnyContext) {
  const auto theirs = must(peer().mem_get_info()).free;
  const auto ptr = must(peer().mem_alloc(64_MiB));

  EXPECT_EQ(native(driver().mem_free(ptr)), 0);
  EXPECT_EQ(must(peer().mem_get_info()).free, theirs);
}

// Documented: cuStreamWaitEvent: the event may be of another device.
TEST_P(Peers, AStreamWaitsForAnotherDevicesEvent) {
  const auto theirs = must(peer().stream_create(StreamKind::non_blocking));
  const auto event = must(peer().event_create());
  const auto stream = new_stream();
  {
    Gate gate(peer(), theirs);
    ASSERT_TRUE(peer().event_record(event, theirs));

    ASSERT_TRUE(driver().stream_wait_event(stream, event));
    EXPECT_FALSE(must(driver().stream_query(stream)));
  }
  EXPECT_TRUE(driver().stream_synchronize(stream));
  EXPECT_TRUE(peer().event_destroy(event));
  EXPECT_TRUE(peer().stream_destroy(theirs));
}

INSTANTIATE_TEST_SUITE_P(EveryDevice, Peers, testing::Values("sim", "cuda"), name_of_kind);

}  // namespace
}  // namespace emm
