#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "allocators/pytorch/gap.hpp"
#include "allocators/pytorch/program.hpp"
#include "base/text.hpp"
#include "exchange/importer.hpp"
#include "format/byte_source.hpp"
#include "format/json_value.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::allocators::pytorch {
namespace {

namespace fs = std::filesystem;

/// What stands beside a recording: PyTorch's own statistics at its end.
struct Truth {
  std::uint64_t peak = 0, retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
};

struct Recorded {
  std::string name;
  Program program;
  Truth truth;
};

Recorded read(const fs::path& path) {
  auto source = format::ByteSource::open(path.string(), nullptr);
  EXPECT_TRUE(source) << path;
  const auto importer = trace::detect(**source);
  EXPECT_TRUE(importer) << path;
  Recording recording;
  EXPECT_TRUE((*importer)->read(**source, recording, {})) << path;
  Recorded recorded{.name = path.filename().string(), .program = {}, .truth = {}};
  auto settings = recording.settings();
  EXPECT_EQ(recording.settings_fault(), "");
  auto beside = path.string();
  if (const auto at = beside.rfind(".pickle"); at != std::string::npos) {
    std::ifstream file(beside.substr(0, at) + ".json");
    std::stringstream text;
    text << file.rdbuf();
    if (const auto parsed = format::parse_json(text.str())) {
      if (const auto* const fraction = parsed->find("fraction"))
        settings.fraction = fraction->as_double();
      if (const auto* const total = parsed->find("total_bytes"))
        settings.total = total->as_u64().value_or(0);
      if (const auto* const stats = parsed->find("stats")) {
        const auto number = [&](std::string_view key) {
          const auto* const value = stats->find(key);
          return value == nullptr ? 0 : value->as_u64().value_or(0);
        };
        recorded.truth = {.peak = number("reserved_bytes.all.peak"),
                          .retries = number("num_alloc_retries"),
                          .ooms = number("num_ooms"),
                          .device_allocs = number("num_device_alloc"),
                          .device_frees = number("num_device_free")};
      }
    }
  }
  recorded.program = program_of(recording, settings);
  return recorded;
}

std::vector<fs::path> collected(std::string_view folder) {
  const auto* const said = std::getenv("EMM_EXTRA_TRACES");
  const auto root = fs::path(said != nullptr ? said : EMM_EXTRA_TRACES) / folder;
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    if (entry.path().extension() == ".gz") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void expect_agreement(const Recorded& recorded) {
  const auto& found = recorded.program.recorded;
  const auto first = found.misses.empty() ? "" : found.misses.front();
  EXPECT_EQ(found.placements.as_recorded, found.placements.recorded)
      << recorded.name << ": " << first;
  EXPECT_EQ(found.segments.as_recorded, found.segments.recorded) << recorded.name << ": " << first;
  EXPECT_EQ(found.releases.as_recorded, found.releases.recorded) << recorded.name << ": " << first;
  EXPECT_EQ(found.refusals.as_recorded, found.refusals.recorded) << recorded.name << ": " << first;
}

bool is_exact(const Recorded& recorded, Addresses addresses) {
  const auto counts =
      run(recorded.program, {.settings = recorded.program.settings, .addresses = addresses}).counts;
  const auto& truth = recorded.truth;
  return counts.peak_reserved == truth.peak && counts.retries == truth.retries &&
         counts.ooms == truth.ooms && counts.device_allocs == truth.device_allocs &&
         counts.device_frees == truth.device_frees;
}

TEST(PytorchRecordings, OfThisRepositoryAgreeStepByStep) {
  for (const auto* const name :
       {"torch/torch_gpt2_train_varlen.jsonl.gz", "torch/torch_resnet50_train_multires.jsonl.gz"}) {
    const auto recorded = read(fs::path(EMM_TRACES) / name);
    EXPECT_GT(recorded.program.recorded.placements.recorded, 10'000u);
    expect_agreement(recorded);
  }
}

TEST(PytorchRecordings, UnderNineSettingsAgreeStepByStepAndInAFreeRun) {
  const auto paths = collected("torch-settings");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  std::size_t exact_recorded = 0, exact_made_up = 0;
  for (const auto& path : paths) {
    const auto recorded = read(path);
    expect_agreement(recorded);
    const auto range = free_run(recorded.program);
    const auto holds = [&](const Range& of, std::uint64_t truth, std::string_view what) {
      EXPECT_LE(of.low, truth) << recorded.name << ": " << what;
      EXPECT_GE(of.high, truth) << recorded.name << ": " << what;
    };
    holds(range.peak_reserved, recorded.truth.peak, "peak reserved");
    holds(range.retries, recorded.truth.retries, "retries");
    holds(range.ooms, recorded.truth.ooms, "out of memory");
    holds(range.device_allocs, recorded.truth.device_allocs, "device allocations");
    holds(range.device_frees, recorded.truth.device_frees, "device frees");
    exact_recorded += is_exact(recorded, Addresses::recorded) ? 1 : 0;
    exact_made_up += is_exact(recorded, Addresses::first_fit) ? 1 : 0;
  }
  // One recording leaves open whether the program released its memory or a retry did; with
  // addresses of its own, equal blocks of two segments are taken in another order.
  EXPECT_GE(exact_recorded, paths.size() - 1);
  EXPECT_GE(exact_made_up, paths.size() - 5);
}

// A snapshot does not have the memory fraction: where garbage was collected, that tells the limit.
TEST(PytorchRecordings, TellTheirLimitWhereGarbageWasCollected) {
  const auto paths = collected("torch-settings");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  std::size_t told = 0;
  for (const auto& path : paths) {
    auto source = format::ByteSource::open(path.string(), nullptr);
    Recording recording;
    ASSERT_TRUE((*trace::detect(**source))->read(**source, recording, {}));
    if (!recording.limit_is_inferred()) continue;
    ++told;
    const auto truth = static_cast<double>(read(path).program.settings.limit());
    EXPECT_NEAR(static_cast<double>(recording.settings().limit()) / truth, 1, 0.02) << path;
    EXPECT_EQ(recording.settings().total, 0u) << path << ": the device's total stays unknown";
    const auto bounds = inferred_limit(recording);
    ASSERT_TRUE(bounds) << path;
    EXPECT_EQ(bounds->by, LimitBy::collections) << path;
    EXPECT_LE(static_cast<double>(bounds->range.least), truth) << path;
    EXPECT_GT(static_cast<double>(bounds->range.below), truth) << path;
    const auto found = check_one_step(recording, recording.settings());
    EXPECT_TRUE(found.misses.empty()) << path;
    EXPECT_TRUE(std::all_of(found.pools.begin(), found.pools.end(),
                            [](const PoolId& pool) { return pool.is_default(); }))
        << path << ": no pool is made up";
  }
  EXPECT_EQ(told, 5u) << "streams and tight with a threshold, and with max_split_size beside it; "
                         "tight with expandable segments beside it";
}

TEST(PytorchRecordings, BoundTheirLimitByWhatWasServedAndRefused) {
  const auto paths = collected("torch-settings");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  std::size_t told = 0;
  for (const auto& path : paths) {
    auto source = format::ByteSource::open(path.string(), nullptr);
    Recording recording;
    ASSERT_TRUE((*trace::detect(**source))->read(**source, recording, {}));
    const auto range = limit_of_refusals(recording, recording.settings());
    if (!range) continue;
    ++told;
    const auto truth = read(path).program.settings.limit();
    EXPECT_LE(range->least, truth) << path;
    EXPECT_GT(range->below, truth) << path;
    EXPECT_LT(range->below - range->least, truth / 20) << path;
  }
  EXPECT_EQ(told, 9u) << "tight, under each setting";
}

TEST(PytorchRecordings, SumTheirGapExactlyAtEveryFailure) {
  const auto paths = collected("torch-settings");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  std::size_t looked = 0;
  for (const auto& path : paths) {
    if (path.filename().string().find("tight_") == std::string::npos) continue;
    auto source = format::ByteSource::open(path.string(), nullptr);
    const auto importer = trace::detect(**source);
    Recording recording;
    ASSERT_TRUE((*importer)->read(**source, recording, {}));
    // What the rows say is reserved and live, without the model.
    std::vector<std::uint64_t> sizes(recording.allocations(), 0);
    std::uint64_t reserved = 0, live = 0;
    std::size_t failures = 0;
    for (const auto& step : recording.steps()) {
      switch (step.kind) {
        case Step::Kind::segment_begin:
          reserved += step.size;
          break;
        case Step::Kind::segment_end:
          reserved -= step.size;
          break;
        case Step::Kind::alloc:
          live += sizes[step.allocation] = step.size;
          break;
        case Step::Kind::free:
          live -= sizes[step.allocation];
          break;
        case Step::Kind::complete:
          break;
        case Step::Kind::refused: {
          if (++failures % 10 != 1) break;
          const auto gap = gap_at(recording, recording.settings(), step.event);
          ASSERT_TRUE(gap);
          EXPECT_EQ(gap->reserved, reserved) << path << " " << step.event;
          EXPECT_EQ(gap->live, live) << path << " " << step.event;
          std::uint64_t sum = 0;
          for (const auto& part : gap->parts) sum += part.bytes;
          EXPECT_EQ(sum, reserved - live) << path << " " << step.event;
          ++looked;
          break;
        }
      }
    }
  }
  EXPECT_GT(looked, 20u);
}

TEST(PytorchRecordings, OfRanksAgreeStepByStep) {
  const auto paths = collected("torch-ranks");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  for (const auto& path : paths) expect_agreement(read(path));
}

/// Passes on all but some rows.
class Lossy final : public trace::OperationSink {
 public:
  Lossy(trace::OperationSink& to, unsigned seed, unsigned of_1000)
      : to_(to), random_(seed), of_1000_(of_1000) {}
  Status on_header(const trace::Header& header) override { return to_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override {
    return random_() % 1000 < of_1000_ ? Status() : to_.on_operation(operation);
  }
  Status finish() override { return to_.finish(); }

 private:
  trace::OperationSink& to_;
  std::minstd_rand random_;
  unsigned of_1000_;
};

/// What lay where a segment begins may never have ended, as far as the rows say.
TEST(PytorchRecordings, ThatLostRowsAreWalkedThrough) {
  std::vector<fs::path> paths;
  for (const auto& path : collected("torch-settings")) {
    const auto name = path.filename().string();
    if (name.starts_with("torch_graphs_exp") || name.starts_with("torch_tight_exp"))
      paths.push_back(path);
  }
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  for (const auto& path : paths) {
    for (const unsigned lost : {3u, 30u, 300u}) {
      auto source = format::ByteSource::open(path.string(), nullptr);
      const auto importer = trace::detect(**source);
      Recording recording;
      Lossy lossy(recording, lost, lost);
      ASSERT_TRUE((*importer)->read(**source, lossy, {}));

      const auto found = check_one_step(recording, recording.settings());

      EXPECT_LE(found.placements.as_recorded, found.placements.recorded) << path;
    }
  }
}

/// Programs that ask for the same under every setting, private pools and graphs among them.
TEST(PytorchRecordings, UnderOneSettingTellThePeakUnderEveryOther) {
  const auto paths = collected("torch-settings");
  if (paths.empty()) GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the collected recordings";
  for (const std::string work : {"train", "graphs", "pools"}) {
    std::vector<Recorded> all;
    for (const auto& path : paths) {
      if (path.filename().string().starts_with("torch_" + work + "_")) all.push_back(read(path));
    }
    ASSERT_EQ(all.size(), 9u);
    for (const auto& from : all) {
      // A long one is foretold from the default alone.
      if (work == "train" && from.name.find("_default_") == std::string::npos) continue;
      for (const auto& under : all) {
        const auto outcome = run(from.program, {.settings = under.program.settings});
        EXPECT_EQ(outcome.counts.peak_reserved, under.truth.peak)
            << "of " << from.name << " under " << under.name;
      }
    }
  }
}

/// Idle segments go one by one, and no rule says why. To look at all others each time would take as
/// long as the recording is long, squared.
TEST(PytorchRecordings, OfAnotherAllocatorAreWalkedThroughInLinearTime) {
  constexpr std::uint64_t kSegments = 3000, kSize = std::uint64_t{20} << 20;
  std::string lines =
      "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"source\":{\"framework\":\"torch\"}}\n"
      "{\"op\":\"memalloc\",\"layer\":\"backing\",\"id\":\"small\",\"size\":2097152,"
      "\"addr\":\"0x200000\"}\n";
  const auto address = [](std::uint64_t i) { return text::hex((i + 1) * 2 * kSize); };
  for (std::uint64_t i = 0; i < kSegments; ++i)
    lines += text::format(
        "{\"op\":\"memalloc\",\"layer\":\"backing\",\"id\":\"s{}\",\"size\":{},\"addr\":\"{}\"}\n"
        "{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"addr\":\"{}\"}\n",
        i, kSize, address(i), i, kSize, address(i));
  for (std::uint64_t i = 0; i < kSegments; ++i)
    lines += text::format("{\"op\":\"free\",\"id\":{}}\n", i);
  for (std::uint64_t i = 0; i + 2 < kSegments; ++i)
    lines += text::format(
        "{\"op\":\"free\",\"layer\":\"backing\",\"id\":\"s{}\"}\n"
        "{\"op\":\"memalloc\",\"id\":\"t{}\",\"size\":512,\"addr\":\"0x200000\"}\n"
        "{\"op\":\"free\",\"id\":\"t{}\"}\n",
        i, i, i);
  const auto source = format::ByteSource::memory(lines, "x.jsonl");
  const auto importer = trace::detect(*source);
  ASSERT_TRUE(importer);
  Recording recording;
  ASSERT_TRUE((*importer)->read(*source, recording, {}));
  ASSERT_TRUE(recording.is_recording());

  const auto found = check_one_step(recording, recording.settings());

  EXPECT_GT(found.unseen_releases, 0u) << "the recording is too short to reach the bound";
  EXPECT_LE(found.looks, looks_most(recording.steps().size()) + 4 * kSegments);
  EXPECT_EQ(found.releases.recorded, kSegments - 2);
  EXPECT_GE(found.placements.as_recorded, 2 * kSegments - 3) << "placements are judged on";
}

}  // namespace
}  // namespace emm::allocators::pytorch
