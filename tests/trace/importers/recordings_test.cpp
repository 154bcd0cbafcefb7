// The collected recordings, which are not in the repository: each with what is known of it from
// elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/text.hpp"
#include "tests/trace/importers/imported.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::trace {
namespace {

/// Adds up what a trace says, by its own operations.
struct Totals : OperationSink {
  std::map<std::uint64_t, std::uint64_t> live;  // requests, by id
  std::map<std::string, std::uint64_t> held;    // backing, by id
  std::map<std::uint64_t, std::uint64_t>
      completed;  // requests, until the allocator can use them again
  std::uint64_t live_bytes = 0, peak_live_bytes = 0, reserved_bytes = 0, peak_reserved_bytes = 0;
  std::uint64_t flushes = 0, flushed = 0, flushed_bytes = 0, initializes = 0, resets = 0,
                segments = 0;
  Header header;
  Operation end;

  Status on_header(const Header& given) override {
    header = given;
    return {};
  }
  Status on_operation(const Operation& op) override {
    const auto backing = op.layer == Layer::backing;
    switch (op.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
      case Op::memhostalloc:
      case Op::mempin:
        if (backing) {
          EXPECT_TRUE(held.emplace(op.id.text, op.size).second);
          reserved_bytes += op.size;
          peak_reserved_bytes = std::max(peak_reserved_bytes, reserved_bytes);
          ++segments;
        } else if (op.result.outcome == Outcome::none) {
          EXPECT_TRUE(live.emplace(op.id.number, op.size).second);
          live_bytes += op.size;
          peak_live_bytes = std::max(peak_live_bytes, live_bytes);
        }
        break;
      case Op::free:
        if (!backing) {
          const auto found = live.find(op.id.number);
          EXPECT_NE(found, live.end()) << op.line;
          if (found == live.end()) break;
          live_bytes -= found->second;
          live.erase(found);
        }
        break;
      case Op::initialize:
        ++initializes;
        break;
      case Op::reset:
        ++resets;
        live.clear();
        live_bytes = 0;
        break;
      case Op::flush:
        ++flushes;
        flushed += op.count;
        flushed_bytes += op.bytes;
        break;
      case Op::end:
        end = op;
        break;
      default:
        break;
    }
    return {};
  }
};

struct Read {
  Totals totals;
  ImportCounts counts;
};

class Recordings : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const folder = std::getenv("EMM_EXTRA_TRACES");
    folder_ = folder != nullptr ? folder : EMM_EXTRA_TRACES;
    if (folder_.empty())
      GTEST_SKIP() << "EMM_EXTRA_TRACES does not name the folder of the collected recordings";
  }
  void read(const std::string& path, std::string_view format, Read& read) {
    auto source = format::ByteSource::open(folder_ + "/" + path);
    ASSERT_TRUE(source) << describe(source.error());
    const auto importer = detect(**source);
    ASSERT_TRUE(importer) << describe(importer.error());
    EXPECT_EQ((*importer)->name, format);
    auto counts = (*importer)->read(**source, read.totals, {});
    ASSERT_TRUE(counts) << describe(counts.error());
    read.counts = *std::move(counts);
    EXPECT_EQ(read.totals.end.live, read.totals.live.size());
    EXPECT_EQ(read.totals.end.live_bytes, read.totals.live_bytes);
  }

  std::string folder_;
};

TEST_F(Recordings, NumbaCallsAreUsedToTheLast) {
  struct Known {
    std::string_view path;
    std::uint64_t rows, initializes, resets, flushes, flushed, flushed_bytes, capacity;
  };
  for (const auto& known :
       {Known{"numba/numba_589.jsonl.gz", 2343, 2146, 15, 9, 75, 113588774, 150109880320},
        Known{"numba/numba_675.jsonl.gz", 1936, 1765, 0, 6, 66, 13624, 150109880320},
        Known{"numba/numba_752.jsonl.gz", 8539, 7633, 7, 42, 421, 164442962, 150109880320}}) {
    Read got;
    ASSERT_NO_FATAL_FAILURE(read(std::string(known.path), "numba-calls", got)) << known.path;

    EXPECT_EQ(summary(got.counts), text::format("rows {}: used {}", known.rows, known.rows))
        << known.path;
    EXPECT_EQ(text::join(got.counts.notes), "") << known.path;
    EXPECT_EQ(got.totals.initializes, known.initializes) << known.path;
    EXPECT_EQ(got.totals.resets, known.resets) << known.path;
    EXPECT_EQ(got.totals.flushes, known.flushes) << known.path;
    EXPECT_EQ(got.totals.flushed, known.flushed) << known.path;
    EXPECT_EQ(got.totals.flushed_bytes, known.flushed_bytes) << known.path;
    ASSERT_EQ(got.totals.header.devices.size(), 1u);
    EXPECT_EQ(got.totals.header.devices[0].capacity, known.capacity) << known.path;
    EXPECT_TRUE(got.totals.live.empty()) << known.path;
  }
}

TEST_F(Recordings, TorchEventsGiveThePeaksThatPyTorchCountedItself) {
  struct Known {
    std::string_view path;
    std::uint64_t rows, peak_requested_bytes, peak_reserved_bytes, segments, live;
  };
  for (const auto& known :
       {Known{"torch/torch_gpt2_train_varlen.json.gz", 138860, 6523619160, 13247709184, 53, 450},
        Known{"torch/torch_resnet50_train_multires.json.gz", 40973, 7528992912, 9063890944, 115,
              487}}) {
    Read got;
    ASSERT_NO_FATAL_FAILURE(read(std::string(known.path), "torch-events", got)) << known.path;

    EXPECT_EQ(summary(got.counts), text::format("rows {}: used {}", known.rows, known.rows))
        << known.path;
    EXPECT_EQ(got.totals.peak_live_bytes, known.peak_requested_bytes) << known.path;
    EXPECT_EQ(got.totals.peak_reserved_bytes, known.peak_reserved_bytes) << known.path;
    EXPECT_EQ(got.totals.segments, known.segments) << known.path;
    EXPECT_EQ(got.totals.live.size(), known.live) << known.path;
    const auto stats = [&](std::string_view name, std::uint64_t value) {
      return got.totals.header.source_options.find(text::format("\"{}\": {}", name, value)) !=
             std::string::npos;
    };
    EXPECT_TRUE(stats("requested_bytes.all.peak", known.peak_requested_bytes)) << known.path;
    EXPECT_TRUE(stats("reserved_bytes.all.peak", known.peak_reserved_bytes)) << known.path;
  }
}

TEST_F(Recordings, OfCupyAreUsedToTheLastRow) {
  struct Known {
    std::string_view path;
    std::uint64_t rows, used, refused;
  };
  for (const auto& known : {Known{"cupy/cupy_limit_s1.json.gz", 6016, 6016, 1},
                            {"cupy/cupy_random_s1.json.gz", 6090, 6090, 0},
                            {"cupy/cupy_science_s1.json.gz", 1779, 1761, 0},
                            {"cupy/cupy_streams_s1.json.gz", 6151, 6151, 0}}) {
    auto source = format::ByteSource::open(folder_ + "/" + std::string(known.path));
    ASSERT_TRUE(source) << describe(source.error());
    const auto importer = detect(**source);
    ASSERT_TRUE(importer) << describe(importer.error());
    EXPECT_EQ((*importer)->name, "cupy-hooks");
    Trace trace;
    const auto counts = (*importer)->read(**source, trace, {});
    ASSERT_TRUE(counts) << describe(counts.error());
    EXPECT_EQ(counts->rows, known.rows) << known.path;
    EXPECT_EQ(counts->used, known.used) << known.path;
    std::uint64_t refused = 0;
    for (std::size_t at = 0; at < trace.size(); ++at)
      refused += trace[at].recorded() == Outcome::oom ? 1 : 0;
    EXPECT_EQ(refused, known.refused) << known.path;
  }
}

TEST_F(Recordings, OfOtherFormatsAreNotTakenForTheseOnes) {
  for (const std::string path :
       {"cupy/cupy_linalg_fft.json.gz", "cupy/cupy_limit_s1.json.gz", "dsa/A.1048576.csv",
        "dsa/resnet50.csv", "dsa/pangu_2.6B.csv.gz", "umpire/output.replay.gz",
        "umpire/tut_replay_log.json", "torch/torch_oom.pickle.gz"}) {
    auto source = format::ByteSource::open(folder_ + "/" + path);
    ASSERT_TRUE(source) << describe(source.error());
    const auto prefix = (*source)->peek(std::size_t{64} << 10);
    ASSERT_TRUE(prefix);
    for (const auto* const name :
         {"emm", "rmm-csv", "rmm-legacy-csv", "numba-calls", "torch-events"}) {
      EXPECT_EQ((*find_importer(name))->sniff(*prefix), 0) << name << " of " << path;
    }
  }
}

}  // namespace
}  // namespace emm::trace
