#include <vector>

#include "base/units.hpp"
#include "contract/fixture.hpp"

namespace emm {
namespace {

/// Eight granules of addresses and a handle of two of them.
class Mappings : public DriverContract {
 protected:
  void SetUp() override {
    DriverContract::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    at_ = must(driver().mem_address_reserve(kReserved));
    handle_ = must(driver().mem_create(kSize));
  }
  void TearDown() override {
    if (handle_.value != 0) {
      EXPECT_TRUE(driver().mem_release(handle_));
    }
    if (at_) {
      EXPECT_TRUE(driver().mem_address_free(at_, kReserved));
    }
    DriverContract::TearDown();
  }
  void map(DevicePtr ptr, PhysicalHandle handle) {
    ASSERT_TRUE(driver().mem_map(ptr, kSize, 0, handle));
    ASSERT_TRUE(driver().mem_set_access(ptr, kSize, AccessFlags::read_write));
  }
  std::int32_t unmap(DevicePtr ptr, std::uint64_t size = kSize) {
    return native(driver().mem_unmap(ptr, size));
  }

  static constexpr std::uint64_t kSize = 4_MiB;
  static constexpr std::uint64_t kReserved = 16_MiB;
  DevicePtr at_;
  PhysicalHandle handle_;
};

// Measured: cuMemMap, cuMemSetAccess and cuMemUnmap of 1 GiB are 0.
TEST_P(Mappings, MappedMemoryIsReadAndWritten) {
  map(at_, handle_);

  EXPECT_TRUE(driver().memset_d8(at_, 42, kSize));
  EXPECT_EQ(byte_at(at_ + (kSize - 1)), 42);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: one handle is mapped at two addresses. Documented: both see the same memory.
TEST_P(Mappings, AliasesShareTheirContent) {
  map(at_, handle_);
  map(at_ + kSize, handle_);

  ASSERT_TRUE(driver().memset_d8(at_, 1, kSize));
  EXPECT_EQ(byte_at(at_ + kSize + 1000), 1);
  ASSERT_TRUE(driver().memset_d8(at_ + kSize, 2, kSize));
  EXPECT_EQ(byte_at(at_ + 1000), 2);

  EXPECT_EQ(unmap(at_), 0);
  EXPECT_EQ(byte_at(at_ + kSize + 1000), 2);
  EXPECT_EQ(unmap(at_ + kSize), 0);
}

// Documented: what is unmapped is a reservation again, and the handle keeps its memory.
TEST_P(Mappings, MemoryMappedElsewhereKeepsItsContent) {
  map(at_, handle_);
  ASSERT_TRUE(driver().memset_d8(at_, 42, kSize));
  ASSERT_EQ(unmap(at_), 0);

  map(at_ + 8_MiB, handle_);
  EXPECT_EQ(byte_at(at_ + 8_MiB), 42);
  EXPECT_EQ(byte_at(at_ + 8_MiB + (kSize - 1)), 42);
  EXPECT_EQ(unmap(at_ + 8_MiB), 0);
}

// Documented: the same; another handle takes the address.
TEST_P(Mappings, AnAddressIsMappedAgain) {
  const auto other = must(driver().mem_create(kSize));
  map(at_, handle_);
  ASSERT_TRUE(driver().memset_d8(at_, 1, kSize));
  ASSERT_EQ(unmap(at_), 0);

  map(at_, other);
  ASSERT_TRUE(driver().memset_d8(at_, 2, kSize));
  ASSERT_EQ(unmap(at_), 0);

  map(at_, handle_);
  EXPECT_EQ(byte_at(at_), 1);
  EXPECT_EQ(unmap(at_), 0);
  EXPECT_TRUE(driver().mem_release(other));
}

// Measured: 801 of offset 2 MiB and 2 MiB of a handle of 1 GiB.
TEST_P(Mappings, APartAtAnOffsetIsNotMapped) {
  EXPECT_EQ(native(driver().mem_map(at_, 2_MiB, 2_MiB, handle_)), 801);
}

// Measured.
TEST_P(Mappings, TheFirstPartOfAHandleIsNotMapped) {
  EXPECT_EQ(native(driver().mem_map(at_, 2_MiB, 0, handle_)), 801);
}

// Measured: the same code as of a part; also of a size that is no multiple of the granularity.
TEST_P(Mappings, AMappingOfMoreThanItsHandleIsNotSupported) {
  EXPECT_EQ(native(driver().mem_map(at_, kSize + 2_MiB, 0, handle_)), 801);
  EXPECT_EQ(native(driver().mem_map(at_, kSize - 4_KiB, 0, handle_)), 801);
}

// Documented: the range is reserved. The code is measured.
TEST_P(Mappings, AnAddressThatIsNotReservedIsNotMapped) {
  EXPECT_EQ(native(driver().mem_map({1_TiB}, kSize, 0, handle_)), 1);
}

// Documented: the address is a multiple of the granularity. The code is measured, as that of size
// 0.
TEST_P(Mappings, AMappingBeginsAtAMultipleOfTheGranularity) {
  EXPECT_EQ(native(driver().mem_map(at_ + 4_KiB, kSize, 0, handle_)), 1);
  EXPECT_EQ(native(driver().mem_map(at_ + 1_MiB, kSize, 0, handle_)), 1);
  EXPECT_EQ(native(driver().mem_map(at_, 0, 0, handle_)), 1);
}

// Documented: only ranges that are not mapped. The code is measured.
TEST_P(Mappings, MappingsDoNotOverlap) {
  ASSERT_TRUE(driver().mem_map(at_, kSize, 0, handle_));

  EXPECT_EQ(native(driver().mem_map(at_, kSize, 0, handle_)), 1);
  EXPECT_EQ(native(driver().mem_map(at_ + 2_MiB, kSize, 0, handle_)), 1);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: unmapping part of a mapping is 1.
TEST_P(Mappings, AMappingIsUnmappedWhole) {
  map(at_, handle_);
  ASSERT_TRUE(driver().memset_d8(at_, 42, kSize));

  EXPECT_EQ(unmap(at_, 2_MiB), 1);
  EXPECT_EQ(unmap(at_ + 2_MiB, 2_MiB), 1);
  EXPECT_EQ(byte_at(at_ + 2_MiB), 42);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: one cuMemUnmap over 4,096 mappings is 0.
TEST_P(Mappings, NeighboursAreUnmappedTogether) {
  map(at_, handle_);
  map(at_ + kSize, handle_);
  map(at_ + 2 * kSize, handle_);

  EXPECT_EQ(unmap(at_, 3 * kSize), 0);
  EXPECT_TRUE(driver().mem_map(at_ + kSize, kSize, 0, handle_));
  EXPECT_EQ(unmap(at_ + kSize), 0);
}

// Measured: a hole, in the middle or at the end, is no mistake.
TEST_P(Mappings, ARangeWithHolesIsUnmapped) {
  map(at_, handle_);
  map(at_ + 2 * kSize, handle_);

  EXPECT_EQ(unmap(at_, 3 * kSize), 0);
  EXPECT_EQ(native(driver().mem_get_address_range(at_)), 500);
  EXPECT_EQ(native(driver().mem_get_address_range(at_ + 2 * kSize)), 500);

  map(at_, handle_);
  EXPECT_EQ(unmap(at_, 2 * kSize), 0);
  EXPECT_EQ(native(driver().mem_get_address_range(at_)), 500);

  const auto held = driver().held_bytes();
  const auto released = must(driver().mem_create(kSize));
  map(at_ + kSize, released);
  ASSERT_TRUE(driver().mem_release(released));
  EXPECT_EQ(unmap(at_, 3 * kSize), 0);
  EXPECT_EQ(driver().held_bytes(), held);
}

// Measured: 0, so a second unmap does not show by its answer.
TEST_P(Mappings, UnmappingWhatIsNotMappedDoesNothing) {
  map(at_, handle_);
  ASSERT_EQ(unmap(at_), 0);

  EXPECT_EQ(unmap(at_), 0);
  map(at_, handle_);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: one cuMemSetAccess over 4,096 mappings is 0.
TEST_P(Mappings, AccessIsSetForNeighboursTogether) {
  ASSERT_TRUE(driver().mem_map(at_, kSize, 0, handle_));
  ASSERT_TRUE(driver().mem_map(at_ + kSize, kSize, 0, handle_));

  EXPECT_TRUE(driver().mem_set_access(at_, 2 * kSize, AccessFlags::read_write));
  EXPECT_TRUE(driver().memset_d8(at_, 42, 2 * kSize));
  EXPECT_EQ(unmap(at_, 2 * kSize), 0);
}

// Documented: a fully mapped range. The code is measured.
TEST_P(Mappings, AccessIsSetForMappedMemoryOnly) {
  EXPECT_EQ(native(driver().mem_set_access(at_, kSize, AccessFlags::read_write)), 1);
  ASSERT_TRUE(driver().mem_map(at_, kSize, 0, handle_));
  EXPECT_EQ(native(driver().mem_set_access(at_, 2 * kSize, AccessFlags::read_write)), 1);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured.
TEST_P(Mappings, AccessIsSetForWholeMappingsOnly) {
  ASSERT_TRUE(driver().mem_map(at_, kSize, 0, handle_));

  EXPECT_EQ(native(driver().mem_set_access(at_, 2_MiB, AccessFlags::read_write)), 1);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: cuMemGetAddressRange of VMM memory: base==va, size 1073741824.
TEST_P(Mappings, TheRangeOfMappedMemoryIsItsMapping) {
  map(at_, handle_);
  map(at_ + kSize, handle_);

  const auto range = must(driver().mem_get_address_range(at_ + kSize + 1000));
  EXPECT_EQ(range.base, at_ + kSize);
  EXPECT_EQ(range.size, kSize);
  EXPECT_EQ(unmap(at_, 2 * kSize), 0);
}

// Measured: cuIpcGetMemHandle of VMM memory is 1.
TEST_P(Mappings, MappedMemoryIsNotExported) {
  map(at_, handle_);

  EXPECT_EQ(native(driver().ipc_get_mem_handle(at_)), 1);
  EXPECT_EQ(unmap(at_), 0);
}

// Measured: cuMemFree of VMM memory is 1.
TEST_P(Mappings, MappedMemoryIsNotFreedByMemFree) {
  map(at_, handle_);

  EXPECT_EQ(native(driver().mem_free(at_)), 1);
  EXPECT_EQ(unmap(at_), 0);
}

INSTANTIATE_TEST_SUITE_P(EveryDevice, Mappings, testing::Values("sim", "cuda"), name_of_kind);

}  // namespace
}  // namespace emm
