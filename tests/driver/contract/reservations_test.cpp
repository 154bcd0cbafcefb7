#include "base/units.hpp"
#include "contract/fixture.hpp"

// Addresses without memory.
namespace emm {
namespace {

// Measured: granularity min 2097152.
TEST_P(DriverContract, VirtualMemoryComesInPiecesOf2MiB) {
  EXPECT_EQ(must(driver().mem_get_allocation_granularity()), 2_MiB);
}

// Measured: cuMemAddressReserve of 1, 8 and 64 TiB is 0.
TEST_P(DriverContract, FarMoreAddressesThanMemoryAreReserved) {
  for (const auto size : {1_TiB, 8_TiB, 64_TiB}) {
    const auto at = driver().mem_address_reserve(size);
    ASSERT_TRUE(at) << size;
    EXPECT_TRUE(driver().mem_address_free(*at, size));
  }
}

// Documented: a reservation is addresses only.
TEST_P(DriverContract, AReservationTakesNoMemory) {
  const auto free = free_bytes();
  const auto held = driver().held_bytes();
  const auto at = must(driver().mem_address_reserve(1_GiB));

  EXPECT_EQ(free_bytes(), free);
  EXPECT_EQ(driver().held_bytes(), held);
  EXPECT_TRUE(driver().mem_address_free(at, 1_GiB));
}

// Documented: alignment 0 is the default one, of the granularity.
TEST_P(DriverContract, AReservationBeginsAtTheGranularity) {
  const auto at = must(driver().mem_address_reserve(2_MiB));

  EXPECT_NE(at.value, 0u);
  EXPECT_EQ(at.value % 2_MiB, 0u);
  EXPECT_TRUE(driver().mem_address_free(at, 2_MiB));
}

// Documented: the alignment that is requested.
TEST_P(DriverContract, AReservationIsAlignedAsAsked) {
  for (const auto alignment : {4_MiB, 64_MiB, 1_GiB}) {
    const auto at = driver().mem_address_reserve(2_MiB, alignment);
    ASSERT_TRUE(at) << alignment;
    EXPECT_EQ(at->value % alignment, 0u);
    EXPECT_TRUE(driver().mem_address_free(*at, 2_MiB));
  }
}

// Documented: the alignment must be a power of two or zero.
TEST_P(DriverContract, AnAlignmentIsAPowerOfTwo) {
  EXPECT_EQ(native(driver().mem_address_reserve(2_MiB, 6_MiB)), 1);
}

// Measured.
TEST_P(DriverContract, ReservingNothingIsAnInvalidValue) {
  EXPECT_EQ(native(driver().mem_address_reserve(0)), 1);
}

// Measured. (Documented: a multiple of the host page size.)
TEST_P(DriverContract, AReservationIsAMultipleOfTheGranularity) {
  for (const auto size : {std::uint64_t{1}, 1_MiB, 2_MiB + 4_KiB, 3_MiB})
    EXPECT_EQ(native(driver().mem_address_reserve(size)), 1) << size;
}

// Documented: the address is a hint.
TEST_P(DriverContract, AReservationIsWhereItIsWishedIfThatIsFree) {
  const auto first = must(driver().mem_address_reserve(2_MiB, 0, {}));
  ASSERT_TRUE(driver().mem_address_free(first, 2_MiB));

  const auto again = must(driver().mem_address_reserve(2_MiB, 0, first));
  EXPECT_EQ(again, first);
  const auto other = must(driver().mem_address_reserve(2_MiB, 0, first));
  EXPECT_NE(other, first);

  EXPECT_TRUE(driver().mem_address_free(again, 2_MiB));
  EXPECT_TRUE(driver().mem_address_free(other, 2_MiB));
}

// Documented: reservations are ranges of their own.
TEST_P(DriverContract, ReservationsDoNotOverlap) {
  const auto one = must(driver().mem_address_reserve(8_MiB));
  const auto two = must(driver().mem_address_reserve(8_MiB));

  EXPECT_TRUE(one + 8_MiB <= two || two + 8_MiB <= one);
  EXPECT_TRUE(driver().mem_address_free(one, 8_MiB));
  EXPECT_TRUE(driver().mem_address_free(two, 8_MiB));
}

// Documented: cuMemAddressFree wants the address and the size of the reservation. The code is
// measured.
TEST_P(DriverContract, AReservationIsFreedWhole) {
  const auto at = must(driver().mem_address_reserve(8_MiB));

  EXPECT_EQ(native(driver().mem_address_free(at, 4_MiB)), 1);
  EXPECT_EQ(native(driver().mem_address_free(at + 2_MiB, 6_MiB)), 1);
  EXPECT_EQ(native(driver().mem_address_free(at, 16_MiB)), 1);
  EXPECT_TRUE(driver().mem_address_free(at, 8_MiB));
}

// Measured.
TEST_P(DriverContract, AReservationIsFreedOnce) {
  const auto at = must(driver().mem_address_reserve(2_MiB));
  ASSERT_TRUE(driver().mem_address_free(at, 2_MiB));

  EXPECT_EQ(native(driver().mem_address_free(at, 2_MiB)), 1);
}

// Measured.
TEST_P(DriverContract, AReservationWithAMappingIsNotFreed) {
  const auto at = must(driver().mem_address_reserve(4_MiB));
  const auto handle = must(driver().mem_create(2_MiB));
  ASSERT_TRUE(driver().mem_map(at, 2_MiB, 0, handle));

  EXPECT_EQ(native(driver().mem_address_free(at, 4_MiB)), 1);

  EXPECT_TRUE(driver().mem_unmap(at, 2_MiB));
  EXPECT_TRUE(driver().mem_address_free(at, 4_MiB));
  EXPECT_TRUE(driver().mem_release(handle));
}

// Measured.
TEST_P(DriverContract, AReservedAddressWithoutMemoryHasNoRange) {
  const auto at = must(driver().mem_address_reserve(2_MiB));

  EXPECT_EQ(native(driver().mem_get_address_range(at)), 500);
  EXPECT_TRUE(driver().mem_address_free(at, 2_MiB));
}

}  // namespace
}  // namespace emm
