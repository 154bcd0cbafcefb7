#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "allocators/pytorch/allocator.hpp"
#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/recording.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::allocators::pytorch {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A device of so many bytes, whose addresses only grow. It checks that what ends had begun.
class Device final : public DeviceMemory {
 public:
  explicit Device(std::uint64_t capacity = kNoLimit) : capacity_(capacity) {}

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    if (capacity_ != kNoLimit && size > capacity_ - held_) return std::nullopt;
    held_ += size;
    segments_[next_] = size;
    next_ += size;
    return next_ - size;
  }
  void free(std::uint64_t address, std::uint64_t size) override {
    ASSERT_EQ(segments_[address], size);
    segments_.erase(address);
    held_ -= size;
  }
  std::optional<std::uint64_t> reserve(std::uint64_t size) override {
    ranges_[next_] = size;
    next_ += size;
    return next_ - size;
  }
  void release(std::uint64_t address, std::uint64_t size) override {
    ASSERT_EQ(ranges_[address], size);
    ranges_.erase(address);
  }
  bool map(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    EXPECT_EQ(size % granule, 0u);
    if (capacity_ != kNoLimit && size > capacity_ - held_) return false;
    for (std::uint64_t at = address; at < address + size; at += granule)
      EXPECT_TRUE(mapped_.emplace(at, granule).second);
    held_ += size;
    return true;
  }
  void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    for (std::uint64_t at = address; at < address + size; at += granule)
      EXPECT_EQ(mapped_.erase(at), 1u);
    held_ -= size;
  }
  std::uint64_t held() const { return held_; }

 private:
  std::uint64_t capacity_, held_ = 0, next_ = std::uint64_t{1} << 40;
  std::map<std::uint64_t, std::uint64_t> segments_, ranges_, mapped_;
};

Settings conf(std::string_view text) {
  Settings settings;
  const auto read = read_conf(text, settings);
  EXPECT_TRUE(read) << text;
  return settings;
}

TEST(PytorchSettings, RoundAsPyTorchDoes) {
  const Settings plain;
  EXPECT_EQ(round_size(plain, 1), 512u);
  EXPECT_EQ(round_size(plain, 513), 1024u);
  // Issue 161139: one division is no rounding.
  EXPECT_EQ(round_size(conf("roundup_power2_divisions:1"), 513), 1024u);
  const auto quarters = conf("roundup_power2_divisions:4");
  EXPECT_EQ(round_size(quarters, 1200 * 1024), 1280u * 1024);
  EXPECT_EQ(round_size(quarters, kMiB), kMiB);
  EXPECT_EQ(round_size(quarters, 600), 1024u) << "it is below 512 times the divisions";
  const auto list = conf("roundup_power2_divisions:[2:8,4:2,>:1]");
  EXPECT_EQ(round_size(list, kMiB + 1), kMiB + kMiB / 8) << "below the first key its value";
  EXPECT_EQ(round_size(list, 4 * kMiB + 1), 6 * kMiB);
  EXPECT_EQ(round_size(list, 8 * kMiB + 1), 8 * kMiB + 512);
}

TEST(PytorchSettings, SegmentsAreOfTheSizeOfTheirClass) {
  const Settings plain;
  EXPECT_EQ(segment_size(plain, 512), 2 * kMiB);
  EXPECT_EQ(segment_size(plain, kMiB), 2 * kMiB);
  EXPECT_EQ(segment_size(plain, kMiB + 512), 20 * kMiB);
  EXPECT_EQ(segment_size(plain, 10 * kMiB), 10 * kMiB);
  EXPECT_EQ(segment_size(plain, 10 * kMiB + 512), 12 * kMiB);
}

TEST(PytorchSettings, RefuseWhatPyTorchRefuses) {
  for (const auto* const text :
       {"max_split_size_mb:1", "max_split_size_mb:x", "expandable_segments:yes", "no_such:1",
        "roundup_power2_divisions:3", "roundup_power2_divisions:[3:1]", "max_split_size_mb",
        "garbage_collection_threshold:2", "backend:cudaMallocAsync"}) {
    Settings settings;
    const auto read = read_conf(text, settings);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::usage);
  }
}

TEST(PytorchSettings, AreWrittenAsTheyAreRead) {
  for (const auto* const text :
       {"", "max_split_size_mb:64", "expandable_segments:True,roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "max_split_size_mb:21,max_non_split_rounding_mb:40"}) {
    const auto settings = conf(text);
    EXPECT_EQ(conf(to_conf(settings)), settings) << text << " -> " << to_conf(settings);
  }
}

std::uint64_t reserved_after(const Settings& settings, std::vector<std::pair<int, int>> rounds) {
  Device device;
  Allocator allocator(settings, device);
  for (const auto& [count, mib] : rounds) {
    std::vector<Block*> blocks;
    for (int i = 0; i < count; ++i)
      blocks.push_back(allocator.allocate(static_cast<std::uint64_t>(mib) * kMiB, 0));
    for (auto* block : blocks) allocator.free(block);
  }
  EXPECT_EQ(device.held(), allocator.heap().reserved());
  return allocator.heap().reserved() / kMiB;
}

TEST(PytorchAllocator, GivesTheKnownAnswers) {
  EXPECT_EQ(reserved_after({}, {{8, 16}, {4, 32}}), 256u);
  EXPECT_EQ(reserved_after({}, {{4, 32}, {8, 16}}), 128u);
  const auto expandable = conf("expandable_segments:True");
  EXPECT_EQ(reserved_after(expandable, {{8, 16}, {4, 32}}), reserved_after(expandable, {{8, 16}}));
  EXPECT_EQ(reserved_after({}, {{1, 2}}), 20u);
  Device device;
  Allocator allocator({}, device);
  allocator.free(allocator.allocate(2 * kMiB, 0));
  allocator.allocate(kMiB / 2, 0);
  EXPECT_EQ(allocator.heap().reserved(), 22 * kMiB) << "a new small segment";
}

TEST(PytorchAllocator, TriesAgainAfterReleasingWhatIsIdle) {
  Device device(64 * kMiB);
  Allocator allocator({}, device);
  allocator.free(allocator.allocate(40 * kMiB, 0));
  EXPECT_NE(allocator.allocate(50 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.counts().retries, 1u);
  EXPECT_EQ(allocator.allocate(50 * kMiB, 0), nullptr);
  EXPECT_EQ(allocator.counts().ooms, 1u);
}

// The search for a free block passes it by, since it is oversize; the search for a gap takes it.
TEST(PytorchAllocator, TakesTheMappedTailOfARangeThoughItIsOversize) {
  Device device(256 * kMiB);
  Allocator allocator(conf("expandable_segments:True,max_split_size_mb:128"), device);
  auto* const large = allocator.allocate(200 * kMiB, 0);
  ASSERT_NE(large, nullptr);
  const auto address = large->address;
  allocator.free(large);
  const auto* const small = allocator.allocate(30 * kMiB, 0);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->address, address);
  EXPECT_EQ(device.held(), 200 * kMiB);
  EXPECT_EQ(allocator.counts().retries, 0u);
}

TEST(PytorchAllocator, KeepsStreamsAndPoolsApart) {
  Device device;
  Allocator allocator({}, device);
  allocator.free(allocator.allocate(16 * kMiB, 0));
  allocator.allocate(16 * kMiB, 7);
  allocator.allocate(16 * kMiB, 0, {.first = 1, .second = 0});
  EXPECT_EQ(allocator.heap().reserved(), 48 * kMiB);
  allocator.allocate(16 * kMiB, 0);
  EXPECT_EQ(allocator.heap().reserved(), 48 * kMiB);
}

TEST(PytorchAllocator, ReleasesAPrivatePoolOnceItIsUnused) {
  Device device;
  Allocator allocator({}, device);
  const PoolId graph{.first = 1, .second = 0};
  allocator.free(allocator.allocate(16 * kMiB, 0, graph));
  allocator.empty_cache();
  EXPECT_EQ(device.held(), 16 * kMiB);
  allocator.set_unused(graph);
  allocator.empty_cache();
  EXPECT_EQ(device.held(), 0u);
}

/// Whatever is asked, blocks do not overlap, what is reserved is what the device gave, and all goes
/// back.
class PytorchAllocatorProperty : public testing::TestWithParam<const char*> {};

TEST_P(PytorchAllocatorProperty, HoldsForRandomPrograms) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    auto settings = conf(GetParam());
    settings.total = 1024 * kMiB;
    settings.fraction = 0.5;
    Device device(600 * kMiB);
    Allocator allocator(settings, device);
    std::mt19937 random(seed);
    std::map<std::uint64_t, Block*> live;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 5 < 3) {
        const auto size = (std::uint64_t{1} << random() % 26) + random() % 5000;
        const PoolId pool{.first = random() % 8 == 0 ? 1u : 0u, .second = 0};
        auto* const block = allocator.allocate(size, random() % 2 * 64, pool);
        if (block == nullptr) continue;
        ASSERT_GE(block->size, size);
        const auto after = live.lower_bound(block->address);
        if (after != live.end()) {
          ASSERT_LE(block->address + block->size, after->first);
        }
        if (after != live.begin()) {
          const auto before = std::prev(after);
          ASSERT_LE(before->first + before->second->size, block->address);
        }
        live.emplace(block->address, block);
      } else if (!live.empty()) {
        const auto one = std::next(live.begin(), static_cast<long>(random() % live.size()));
        allocator.free(one->second);
        live.erase(one);
      }
      if (step % 400 == 399) allocator.empty_cache();
      ASSERT_EQ(device.held(), allocator.heap().reserved());
      ASSERT_LE(allocator.counts().active, allocator.heap().reserved());
    }
    for (const auto& [address, block] : live) allocator.free(block);
    allocator.set_unused({.first = 1, .second = 0});
    allocator.empty_cache();
    EXPECT_EQ(device.held(), 0u) << "seed " << seed;
    EXPECT_TRUE(allocator.heap().segments().empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Confs, PytorchAllocatorProperty,
    testing::Values("", "expandable_segments:True", "max_split_size_mb:32",
                    "garbage_collection_threshold:0.5", "roundup_power2_divisions:4",
                    "expandable_segments:True,garbage_collection_threshold:0.4",
                    "max_split_size_mb:21,max_non_split_rounding_mb:2"));

TEST(PytorchRecording, IsOfOneDeviceAndTellsOfTheOthers) {
  const std::string text =
      R"({"format":"emmctl-trace","version":"1.0","source":{"framework":"torch"}}
{"op":"memalloc","layer":"backing","id":"s0","size":2097152,"addr":"0x200000","device":0}
{"op":"memalloc","id":"a","size":512,"addr":"0x200000","device":0}
{"op":"memalloc","id":"b","size":512,"addr":"0x200200","device":0}
{"op":"memalloc","id":"d","size":512,"addr":"0x200400","device":0}
{"op":"memalloc","id":"e","size":512,"addr":"0x200600","device":0}
{"op":"memalloc","layer":"backing","id":"s1","size":20971520,"addr":"0x2000000","device":1}
{"op":"memalloc","id":"c","size":2097152,"addr":"0x2000000","device":1}
{"op":"free","id":"c"}
{"op":"free","layer":"backing","id":"s1"}
)";
  const auto source = format::ByteSource::memory(text, "x.jsonl");
  Recording recording;
  ASSERT_TRUE(trace::read(*source, recording));

  const auto other = recording.on_device(1);

  EXPECT_EQ(recording.device(), 0u) << "it has most of the rows";
  EXPECT_EQ(recording.steps().size(), 5u);
  EXPECT_EQ(recording.on_device(0).steps().size(), 5u);
  EXPECT_TRUE(recording.on_device(7).steps().empty());
  EXPECT_EQ(other.device(), 1u);
  ASSERT_EQ(other.steps().size(), 4u) << "a free is where its memory is";
  EXPECT_EQ(other.steps()[1].size, 2 * kMiB);
  const auto found = check_one_step(other, {});
  EXPECT_EQ(found.placements.recorded, 1u);
  EXPECT_EQ(found.placements.as_recorded, 1u);
}

Recording recording_of(const std::string& operations) {
  const auto text = R"({"format":"emmctl-trace","version":"1.0","source":{"framework":"torch"}})"
                    "\n" +
                    operations;
  const auto source = format::ByteSource::memory(text, "x.jsonl");
  Recording recording;
  EXPECT_TRUE(trace::read(*source, recording));
  return recording;
}

// A segment of 20 MiB serves 2 MiB. Another 32 MiB are refused, beside which the device had room.
const std::string kServed =
    R"({"op":"memalloc","layer":"backing","id":"s0","size":20971520,"addr":"0x2000000"}
{"op":"memalloc","id":"a","size":2097152,"addr":"0x2000000"}
)";
const std::string kRefused =
    R"({"op":"memalloc","id":"b","size":33554432,"result":{"outcome":"oom","code":2},"x-device_free":1073741824}
)";

TEST(PytorchRecording, BoundsItsLimitByWhatWasServedAndRefused) {
  const auto range = limit_of_refusals(recording_of(kServed + kRefused), {});

  ASSERT_TRUE(range);
  EXPECT_EQ(range->least, 20 * kMiB);
  EXPECT_EQ(range->below, 52 * kMiB);
}

TEST(PytorchRecording, TellsOfALimitForWhichMemoryMayHaveBeenReleased) {
  // What is idle goes back in front of a segment of 32 MiB, as below a limit from 32 to 52 MiB.
  const auto released = recording_of(kServed + R"({"op":"free","id":"a"}
{"op":"free","layer":"backing","id":"s0"}
{"op":"memalloc","layer":"backing","id":"s1","size":33554432,"addr":"0x6000000"}
{"op":"memalloc","id":"b","size":33554432,"addr":"0x6000000"}
)");

  const auto range = limit_of_releases(released, {});

  ASSERT_TRUE(range);
  EXPECT_EQ(range->least, 32 * kMiB);
  EXPECT_EQ(range->below, 52 * kMiB);
  EXPECT_FALSE(limit_of_releases(recording_of(kServed), {})) << "nothing was released";
  EXPECT_FALSE(limit_of_refusals(released, {})) << "nothing was refused";
}

TEST(PytorchRecording, HoldsTheLimitAgainstASegmentNotWhatIsMapped) {
  const auto expandable = recording_of(
      R"({"op":"memalloc","layer":"backing","kind":"physical","id":"s0","size":62914560,"addr":"0x2000000"}
{"op":"memalloc","id":"a","size":44040192,"addr":"0x2000000"}
)" + kRefused);

  const auto range = limit_of_refusals(expandable, {.expandable_segments = true});

  ASSERT_TRUE(range);
  EXPECT_EQ(range->least, 42 * kMiB) << "60 MiB are mapped";
}

TEST(PytorchRecording, TellsNoLimitOfADeviceWithoutRoomOrOneThatChanged) {
  const std::string full =
      R"({"op":"memalloc","id":"b","size":33554432,"result":{"outcome":"oom","code":2},"x-device_free":1048576}
)";
  const std::string released =
      R"({"op":"free","id":"a"}
{"op":"free","layer":"backing","id":"s0"}
)";
  const std::string less =
      R"({"op":"memalloc","id":"c","size":2097152,"result":{"outcome":"oom","code":2},"x-device_free":1073741824}
)";

  EXPECT_FALSE(limit_of_refusals(recording_of(kServed), {}));
  EXPECT_FALSE(limit_of_refusals(recording_of(kServed + full), {}));
  EXPECT_FALSE(limit_of_refusals(recording_of(kServed + released + less), {}));
}

}  // namespace
}  // namespace emm::allocators::pytorch
