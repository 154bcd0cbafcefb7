// Recordings of PyTorch's allocator, made by its model, in which the cause of an out-of-memory is
// planted: explain's figures name it, and the first remedy serves the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocators/pytorch/allocator.hpp"
#include "base/text.hpp"
#include "inspect/oom.hpp"
#include "lines.hpp"
#include "trial/remedies.hpp"

namespace emm::trial {
namespace {

namespace pt = allocators::pytorch;
using pt::GapCause;

constexpr std::uint64_t kA = 0, kB = 0x5000;

/// A program that runs on the model, and what a snapshot of it would say.
class Plant final : public allocators::DeviceMemory {
 public:
  /// `room` is what the device has for the allocator, `outside` what others hold of it.
  Plant(std::uint64_t room, std::uint64_t outside = 0, const std::string& conf = "",
        std::optional<double> fraction = {})
      : room_(room), total_(room + outside), conf_(conf), fraction_(fraction) {
    pt::Settings settings;
    EXPECT_TRUE(read_conf(conf, settings));
    settings.fraction = fraction;
    settings.total = total_;
    allocator_.emplace(settings, *this);
  }

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    if (held_ + size > room_) return std::nullopt;
    held_ += size;
    const auto address = next_;
    next_ += size + (std::uint64_t{2} << 20);
    segments_[address] = ++last_segment_;
    lines_ += text::format(
        "{\"op\":\"memalloc\",\"layer\":\"backing\",\"id\":\"s{}\",\"size\":{}{},\"addr\":\"{}\","
        "\"x-"
        "pool_id\":[{},{}]}\n",
        last_segment_, size, stream_, text::hex(address), pool_.first, pool_.second);
    return address;
  }
  void free(std::uint64_t address, std::uint64_t size) override {
    held_ -= size;
    lines_ += text::format("{\"op\":\"free\",\"layer\":\"backing\",\"id\":\"s{}\"}\n",
                           segments_.at(address));
  }
  std::optional<std::uint64_t> reserve(std::uint64_t) override { return std::nullopt; }
  void release(std::uint64_t, std::uint64_t) override {}
  bool map(std::uint64_t, std::uint64_t, std::uint64_t) override { return false; }
  void unmap(std::uint64_t, std::uint64_t, std::uint64_t) override {}

  /// 0: refused.
  int alloc(std::uint64_t size, std::uint64_t stream = kA, pt::PoolId pool = {}) {
    stream_ = stream == 0 ? "" : text::format(",\"stream\":\"{}\"", text::hex(stream));
    pool_ = pool;
    auto* const block = allocator_->allocate(size, stream, pool);
    lines_ += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{}{}", ++last_, size, stream_);
    if (block == nullptr) {
      lines_ += text::format(",\"result\":\"oom\",\"x-device_free\":{}}\n", room_ - held_);
      return 0;
    }
    lines_ +=
        text::format(",\"granted\":{},\"addr\":\"{}\"}\n", block->size, text::hex(block->address));
    blocks_[last_] = block;
    return last_;
  }
  void end(int id) {
    lines_ += text::format("{\"op\":\"free\",\"id\":{}}\n", id);
    allocator_->free(blocks_.at(id));
  }
  /// Freed, and kept for work on another stream that is not done by the end.
  void end_later(int id) {
    lines_ += text::format("{\"op\":\"free\",\"id\":{}}\n", id);
    allocator_->free_later(blocks_.at(id));
    waiting_ += text::format(
        "{\"op\":\"free\",\"layer\":\"backing\",\"id\":{},\"result\":{\"outcome\":\"error\","
        "\"code\":600}}\n",
        id);
  }
  /// Until one is refused.
  void fill(std::uint64_t size) {
    for (int i = 0; i < 10'000; ++i) {
      if (alloc(size) == 0) return;
    }
    FAIL() << "never refused";
  }

  std::string text() const {
    const auto fraction =
        fraction_ ? text::format(",\"emmctl_memory_fraction\":{}", *fraction_) : std::string();
    return text::format(
               "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"source\":{\"framework\":"
               "\"torch\",\"options\":{\"allocator_settings\":{\"PYTORCH_CUDA_ALLOC_CONF\":\"{}"
               "\","
               "\"emmctl_device_total\":{}{}}}},\"devices\":[{\"id\":0,\"capacity\":{}}]}\n",
               conf_, total_, fraction, total_) +
           lines_ + waiting_;
  }

 private:
  std::uint64_t room_, total_;
  std::string conf_;
  std::optional<double> fraction_;
  std::optional<pt::Allocator> allocator_;
  std::uint64_t held_ = 0, next_ = std::uint64_t{1} << 40;
  int last_ = 0, last_segment_ = 0;
  std::string stream_;
  pt::PoolId pool_{};
  std::map<std::uint64_t, int> segments_;
  std::map<int, pt::Block*> blocks_;
  std::string lines_, waiting_;
};

struct Explained {
  inspect::Oom oom;
  Advice advice;

  std::uint64_t gap(GapCause cause) const {
    std::uint64_t bytes = 0;
    for (const auto& part : advice.gap->parts) bytes += part.cause == cause ? part.bytes : 0;
    return bytes;
  }
  /// The cause with most bytes.
  GapCause most() const {
    auto most = GapCause::rounding;
    for (std::size_t i = 0; i < pt::kGapCauses; ++i) {
      if (gap(static_cast<GapCause>(i)) > gap(most)) most = static_cast<GapCause>(i);
    }
    return most;
  }
};

Explained explain(const Plant& plant) {
  const auto text = plant.text();
  const auto read = [&](trace::OperationSink& to) {
    const auto source = format::ByteSource::memory(text, "x.jsonl");
    const auto done = trace::read(*source, to);
    EXPECT_TRUE(done) << describe(done.error());
  };
  inspect::Recording recording;
  pt::Recording pytorch;
  read(recording);
  read(pytorch);
  const trace::Lifetimes lifetimes(recording.trace());
  const auto report = inspect::find_ooms(recording, lifetimes);
  EXPECT_EQ(report.all.size(), 1u);
  auto advice =
      advise(pytorch, recording.trace(), report.all[0].event,
             question_of(pytorch, pytorch.settings(), {}, Limit::device, report.all[0].event),
             {.jobs = 1});
  EXPECT_TRUE(advice) << describe(advice.error());
  Explained explained{.oom = report.all[0], .advice = *std::move(advice)};
  // It sums.
  std::uint64_t sum = 0;
  for (const auto& part : explained.advice.gap->parts) sum += part.bytes;
  EXPECT_EQ(sum, explained.advice.gap->reserved - explained.advice.gap->live);
  EXPECT_TRUE(explained.advice.remedies.front().served) << explained.advice.remedies.front().what;
  return explained;
}

/// Each cause is planted in a program and in one of three times its size.
class PlantedCauses : public testing::TestWithParam<std::uint64_t> {
 protected:
  std::uint64_t times() const { return GetParam(); }
  std::uint64_t room() const { return times() * 1_GiB; }
};

TEST_P(PlantedCauses, NeedTooHigh) {
  Plant plant(room());
  plant.fill(64_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::need);
  EXPECT_EQ(found.advice.gap->reserved, found.advice.gap->live);
  EXPECT_EQ(found.advice.remedies.front().what, "requests 1/8 smaller");
}

TEST_P(PlantedCauses, ALeak) {
  Plant plant(room());
  for (int step = 0; step < 10'000; ++step) {
    const auto batch = plant.alloc(256_MiB);
    if (batch == 0) break;
    plant.end(batch);
    if (plant.alloc(16_MiB) == 0) break;
  }

  const auto found = explain(plant);

  // What stays of each step is in the way, and not what the allocator did with it.
  EXPECT_LT(found.gap(found.most()), found.advice.gap->live + found.oom.request);
}

TEST_P(PlantedCauses, Fragmentation) {
  Plant plant(room());
  std::vector<int> whole, parts;
  for (std::uint64_t i = 0; i < 8 * times(); ++i) whole.push_back(plant.alloc(128_MiB));
  for (const auto id : whole) plant.end(id);
  for (std::uint64_t i = 0; i < 24 * times(); ++i) parts.push_back(plant.alloc(40_MiB));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i % 3 != 1) plant.end(parts[i]);
  }
  plant.fill(100_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::too_small);
}

TEST_P(PlantedCauses, SpillOfSmallBlocks) {
  Plant plant(room());
  std::vector<int> small;
  for (std::uint64_t i = 0; i < 1600 * times(); ++i) small.push_back(plant.alloc(512_KiB));
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (i % 4 != 0) plant.end(small[i]);
  }
  plant.fill(280_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::small_pool);
}

TEST_P(PlantedCauses, MemoryOfAnotherStream) {
  Plant plant(room());
  std::vector<int> rest;
  for (std::uint64_t i = 0; i < 4 * times(); ++i) {
    plant.end(plant.alloc(200_MiB, kB));
    ASSERT_NE(plant.alloc(20_MiB, kB), 0);
    rest.push_back(plant.alloc(180_MiB, kB));
  }
  for (const auto id : rest) plant.end(id);
  plant.fill(140_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::other_stream);
}

/// In a capture nobody waits for events.
TEST_P(PlantedCauses, PendingEvents) {
  Plant plant(room());
  for (std::uint64_t i = 0; i < 10 * times(); ++i) plant.end_later(plant.alloc(60_MiB));
  ASSERT_EQ(plant.alloc(times() * 600_MiB, kA, {0, 1}), 0);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::waiting_for_event);
  EXPECT_TRUE(std::any_of(
      found.advice.remedies.begin(), found.advice.remedies.end(), [](const Remedy& each) {
        return each.what == "streams that wait, no record_stream()" && each.served;
      }));
}

/// One block of two stays in each small segment, so that no setting lets go of one.
TEST_P(PlantedCauses, SmallBlocksThatStay) {
  Plant plant(room());
  std::vector<int> small;
  for (std::uint64_t i = 0; i < 900 * times(); ++i) small.push_back(plant.alloc(1_MiB));
  for (std::size_t i = 0; i < small.size(); i += 2) plant.end(small[i]);
  ASSERT_EQ(plant.alloc(times() * 400_MiB), 0);

  const auto found = explain(plant);

  EXPECT_EQ(found.most(), GapCause::small_pool);
  EXPECT_EQ(found.advice.remedies.front().what, "what stays, in a MemPool of its own");
}

/// A request of 1.5 MiB takes a segment of 20 MiB: that the device has 4 MiB left is no limit.
TEST_P(PlantedCauses, ALeakOfSmallTensors) {
  Plant plant(room());
  for (int step = 0; step < 10'000; ++step) {
    const auto batch = plant.alloc(400_MiB);
    if (batch == 0 || plant.alloc(3_MiB / 2) == 0) break;
    plant.end(batch);
  }

  const auto found = explain(plant);

  EXPECT_NE(found.oom.cause, inspect::Cause::limit);
}

TEST_P(PlantedCauses, APrivatePool) {
  Plant plant(room());
  const auto captured = plant.alloc(times() * 600_MiB, kA, {0, 1});
  plant.end(captured);
  plant.fill(500_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::private_pool);
}

TEST_P(PlantedCauses, AMemoryFraction) {
  Plant plant(2 * room(), 0, "", 0.5);
  plant.fill(64_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::limit);
  EXPECT_EQ(found.oom.device_free, room());
}

TEST_P(PlantedCauses, AnotherProcess) {
  Plant plant(room() + 10_MiB, 512_MiB);
  plant.fill(64_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::others);
  EXPECT_EQ(found.advice.outside, 512_MiB);
}

TEST_P(PlantedCauses, Rounding) {
  Plant plant(room(), 0, "roundup_power2_divisions:2");
  plant.fill(33_MiB);

  const auto found = explain(plant);

  EXPECT_EQ(found.oom.cause, inspect::Cause::waste);
  EXPECT_EQ(found.most(), GapCause::rounding);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlantedCauses, testing::Values(1, 3));

}  // namespace
}  // namespace emm::trial
