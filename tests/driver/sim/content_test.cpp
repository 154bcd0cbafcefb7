#include "driver/sim/content.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/prng.hpp"
#include "sim/fixture.hpp"

namespace emm {
namespace {

constexpr sim::Pattern kFresh{0xd1c2b3a4};

/// The same content, byte by byte.
class PlainContent {
 public:
  explicit PlainContent(std::size_t size) : bytes_(size) { fill(0, size, kFresh); }
  void fill(std::size_t offset, std::size_t size, sim::Pattern pattern) {
    for (auto at = offset; at < offset + size; ++at)
      bytes_[at] = std::byte(pattern.value >> (at % 4 * 8));
  }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

void compare_over_many_changes(bool shared, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  Prng random(seed);
  constexpr std::size_t kSize = 700;
  sim::Content content(kFresh);
  PlainContent plain(kSize);

  for (int step = 0; step < 5000; ++step) {
    if (shared && step == 100) {
      ASSERT_NE(content.share(kSize), nullptr);
    }
    const auto size = random.between(1, 200);
    const auto offset = random.below(kSize - size + 1);
    switch (random.below(4)) {
      case 0: {
        const sim::Pattern pattern{static_cast<std::uint32_t>(random.below(3)) * 0x04030201u};
        content.fill(offset, size, pattern);
        plain.fill(offset, size, pattern);
        break;
      }
      case 1: {
        std::vector<std::byte> bytes(size, std::byte{7});
        if (random.chance(0.7)) {
          for (auto& byte : bytes) byte = std::byte(random.next() & 0xff);
        }
        content.write(offset, bytes);
        std::copy(bytes.begin(), bytes.end(),
                  plain.bytes().begin() + static_cast<std::ptrdiff_t>(offset));
        break;
      }
      case 2: {
        const auto to = random.below(kSize - size + 1);
        sim::Content::copy({content, to}, {content, offset}, size);
        std::memmove(plain.bytes().data() + to, plain.bytes().data() + offset, size);
        break;
      }
      default:
        break;
    }
    std::vector<std::byte> seen(size);
    content.read(offset, seen);
    ASSERT_TRUE(std::equal(seen.begin(), seen.end(),
                           plain.bytes().begin() + static_cast<std::ptrdiff_t>(offset)))
        << "step " << step;
  }
  std::vector<std::byte> whole(kSize);
  content.read(0, whole);
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), plain.bytes().begin()));
}

TEST(Content, ReadsWhatPlainBytesWouldHold) { compare_over_many_changes(false, 3); }

TEST(Content, ReadsTheSameWhenShared) { compare_over_many_changes(true, 4); }

class SparseTest : public SimTest {
 protected:
  SparseTest() : SimTest({.capacity = SimOptions::kH200Total}) {}
};

TEST_F(SparseTest, ATerabyteHandedOutAndFilledTakesNoMemoryToSpeakOf) {
  std::uint64_t handed_out = 0;
  for (std::uint32_t round = 0; handed_out < 1_TiB; ++round) {
    const auto ptr = driver().mem_alloc(10_GiB);
    ASSERT_TRUE(ptr);
    ASSERT_TRUE(driver().memset_d32(*ptr, round, 10_GiB / 4));
    EXPECT_EQ(word_at(*ptr + (10_GiB - 4)), round);
    ASSERT_TRUE(driver().mem_free(*ptr));
    handed_out += 10_GiB;
  }
}

TEST_F(SparseTest, AFullDeviceIsFilledInSmallPieces) {
  std::vector<DevicePtr> live;
  while (auto ptr = driver().mem_alloc(1_MiB)) {
    ASSERT_TRUE(driver().memset_d32(*ptr, static_cast<std::uint32_t>(live.size()), 1_MiB / 4));
    live.push_back(*ptr);
  }

  EXPECT_EQ(live.size(), SimOptions::kH200Total / 2_MiB * 2);
  EXPECT_EQ(driver().largest_free_bytes(), 0u);
  for (const std::size_t index : {std::size_t{0}, std::size_t{77'777}, live.size() - 1}) {
    EXPECT_EQ(word_at(live[index] + (1_MiB - 4)), index);
  }
}

TEST_F(SimTest, FreshMemoryReadsTheSameInEveryRunAndByTheSeed) {
  const auto fresh = [](std::uint64_t seed) {
    SimPlatform platform({.capacity = 64_MiB, .seed = seed});
    auto device = *platform.open(0);
    std::uint32_t word = 0;
    EXPECT_TRUE(device.driver->memcpy_dtoh(std::as_writable_bytes(std::span(&word, 1)),
                                           *device.driver->mem_alloc(4)));
    return word;
  };

  EXPECT_EQ(fresh(1), fresh(1));
  EXPECT_NE(fresh(1), fresh(2));
}

TEST_F(SimTest, ContentEndsWithItsAllocation) {
  const auto ptr = *driver().mem_alloc(4_KiB);
  const auto fresh = word_at(ptr);
  ASSERT_TRUE(driver().memset_d32(ptr, ~fresh, 1024));
  ASSERT_TRUE(driver().mem_free(ptr));

  ASSERT_EQ(*driver().mem_alloc(4_KiB), ptr);

  EXPECT_EQ(word_at(ptr), fresh);
}

TEST_F(SimTest, NothingIsReadOrWrittenOutsideAnAllocation) {
  const auto ptr = *driver().mem_alloc(1000);
  const auto next = *driver().mem_alloc(1000);
  std::vector<std::byte> bytes(1001);

  EXPECT_EQ(native(driver().memset_d8(ptr, 0, 1001)), 1);
  EXPECT_EQ(native(driver().memset_d8(ptr + 1000, 0, 1)), 1);
  EXPECT_EQ(native(driver().memset_d32(ptr, 0, ~std::uint64_t{0} / 2)), 1);
  EXPECT_EQ(native(driver().memcpy_htod(ptr, bytes)), 1);
  EXPECT_EQ(native(driver().memcpy_dtoh(bytes, ptr)), 1);
  EXPECT_EQ(native(driver().memcpy_dtod(ptr, next, 1001)), 1);
  EXPECT_EQ(native(driver().memcpy_dtod(next + 999, ptr, 2)), 1);
  EXPECT_EQ(native(driver().memset_d8({0x1234}, 0, 1)), 1);
  EXPECT_EQ(native(driver().memset_d8({0}, 0, 1)), 1);
  EXPECT_TRUE(driver().memset_d8({0}, 0, 0)) << "nothing is everywhere";
}

TEST_F(SimTest, CopiesReachManagedAndHostMemory) {
  const auto device = *driver().mem_alloc(4_KiB);
  const auto managed = *driver().mem_alloc_managed(4_KiB, AttachFlags::global);
  const auto host = *driver().mem_host_alloc(4_KiB, {});
  ASSERT_TRUE(driver().memset_d32(device, 7, 1024));

  ASSERT_TRUE(driver().memcpy_dtod(managed, device, 4_KiB));
  ASSERT_TRUE(driver().memcpy_dtod(*driver().mem_host_get_device_pointer(host), managed, 4_KiB));
  ASSERT_TRUE(driver().memset_d32(device, 8, 1024));
  ASSERT_TRUE(driver().memcpy_dtod(device + 4, managed, 4));

  EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(host + 4092), 7u);
  EXPECT_EQ(word_at(device), 8u);
  EXPECT_EQ(word_at(device + 4), 7u);
}

}  // namespace
}  // namespace emm
