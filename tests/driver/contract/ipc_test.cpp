#include "base/units.hpp"
#include "contract/fixture.hpp"
#include "contract/peer.hpp"

namespace emm {
namespace {

// Measured: same bytes. numba#3310 and ucx#11724 met it too.
TEST_P(DriverContract, AnInteriorAddressHasTheHandleOfItsAllocation) {
  const auto ptr = must(driver().mem_alloc(1_MiB));

  const auto base = driver().ipc_get_mem_handle(ptr);
  const auto interior = driver().ipc_get_mem_handle(ptr + 4_KiB);
  ASSERT_TRUE(base && interior);
  EXPECT_EQ(*base, *interior);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: 1.
TEST_P(DriverContract, AnUnknownAddressHasNoHandle) {
  EXPECT_EQ(native(driver().ipc_get_mem_handle(kUnknown)), 1);
}

// Measured: cuIpcGetMemHandle managed is 1.
TEST_P(DriverContract, ManagedMemoryIsNotExported) {
  const auto ptr = must(driver().mem_alloc_managed(1_MiB, AttachFlags::global));

  EXPECT_EQ(native(driver().ipc_get_mem_handle(ptr)), 1);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: 201.
TEST_P(DriverContract, AHandleIsNotOpenedInTheProcessThatMadeIt) {
  const auto ptr = must(driver().mem_alloc(1_MiB));
  const auto handle = must(driver().ipc_get_mem_handle(ptr));

  EXPECT_EQ(native(driver().ipc_open_mem_handle(handle)), 201);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: cuIpcCloseMemHandle of own pointer is 1.
TEST_P(DriverContract, OwnMemoryIsNotClosed) {
  const auto ptr = must(driver().mem_alloc(1_MiB));

  EXPECT_EQ(native(driver().ipc_close_mem_handle(ptr)), 1);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Documented: cuIpcOpenMemHandle.
TEST_P(DriverContract, TwoProcessesSeeOneMemory) {
  Peer peer(platform().spec());
  const auto ptr = must(driver().mem_alloc(4_MiB));
  ASSERT_TRUE(driver().memset_d32(ptr, 0xfeedbeef, 4_MiB / 4));
  const auto handle = must(driver().ipc_get_mem_handle(ptr));

  const auto opened = peer.ask({.kind = PeerRequest::open, .handle = handle});
  ASSERT_EQ(opened.native, 0);
  EXPECT_EQ(
      peer.ask({.kind = PeerRequest::read_u32, .address = opened.address + (4_MiB - 4)}).value,
      0xfeedbeefu);

  EXPECT_EQ(
      peer.ask({.kind = PeerRequest::write_u32, .value = 42, .address = opened.address + 1_MiB})
          .native,
      0);
  std::uint32_t seen = 0;
  EXPECT_TRUE(driver().memcpy_dtoh(std::as_writable_bytes(std::span(&seen, 1)), ptr + 1_MiB));
  EXPECT_EQ(seen, 42u);

  EXPECT_TRUE(driver().memset_d32(ptr + 8, 43, 1));
  EXPECT_EQ(peer.ask({.kind = PeerRequest::read_u32, .address = opened.address + 8}).value, 43u);

  EXPECT_EQ(peer.ask({.kind = PeerRequest::close, .address = opened.address}).native, 0);
  EXPECT_TRUE(driver().mem_free(ptr));
}

// Measured: the same handle opened twice gives the same address twice, and wants two closes.
TEST_P(DriverContract, AHandleOpenedTwiceIsClosedTwice) {
  Peer peer(platform().spec());
  const auto ptr = must(driver().mem_alloc(1_MiB));
  const auto handle = must(driver().ipc_get_mem_handle(ptr));

  const auto first = peer.ask({.kind = PeerRequest::open, .handle = handle});
  const auto second = peer.ask({.kind = PeerRequest::open, .handle = handle});
  EXPECT_EQ(first.native, 0);
  EXPECT_EQ(second.native, 0);
  EXPECT_EQ(first.address, second.address);

  EXPECT_EQ(peer.ask({.kind = PeerRequest::close, .address = first.address}).native, 0);
  EXPECT_EQ(peer.ask({.kind = PeerRequest::read_u32, .address = first.address}).native, 0);
  EXPECT_EQ(peer.ask({.kind = PeerRequest::close, .address = first.address}).native, 0);
  EXPECT_EQ(peer.ask({.kind = PeerRequest::close, .address = first.address}).native, 1);
  EXPECT_TRUE(driver().mem_free(ptr));
}

}  // namespace
}  // namespace emm
