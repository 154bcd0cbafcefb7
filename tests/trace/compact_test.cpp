// The compact form: what is written reads the same, and what is damaged is said to be.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/text_format.hpp"
#include "exchange/check.hpp"
#include "exchange/importer.hpp"
#include "tests/trace/random_operation.hpp"
#include "tests/trace/trace_text.hpp"
#include "trace/compact/block_decoder.hpp"
#include "trace/compact/block_encoder.hpp"
#include "trace/generate.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

namespace fs = std::filesystem;

/// Compares what it is told with what a seed makes.
class ExpectingRandom final : public OperationSink {
 public:
  explicit ExpectingRandom(std::uint64_t seed) : expected_(seed) {}
  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation& operation) override {
    EXPECT_EQ(difference(expected_.next(), operation), "") << "operation " << count;
    EXPECT_EQ(operation.line, count + 2);
    ++count;
    return {};
  }
  std::uint32_t count = 0;

 private:
  RandomOperation expected_;
};

class Counting final : public OperationSink {
 public:
  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation&) override {
    ++count;
    return {};
  }
  std::uint64_t count = 0;
};

std::string generated(std::uint64_t events) {
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto writer = make_compact_writer(*sink);
  EMM_ASSERT(generate({.kind = "log-uniform", .events = events}, *writer));
  return out;
}

/// Where the chunks begin, and where the tail does.
std::vector<std::size_t> chunks(const std::string& file) {
  std::vector<std::size_t> found;
  std::size_t at = compact::kFileHeadBytes;
  while (at + compact::kTailBytes < file.size()) {
    found.push_back(at);
    compact::ChunkHead head;
    std::memcpy(&head, file.data() + at, sizeof head);
    at += sizeof head + static_cast<std::size_t>(head.bytes);
  }
  found.push_back(at);
  return found;
}

TEST(Compact, WhatIsWrittenReadsTheSame) {
  constexpr int kOperations = 20'000;
  constexpr std::uint64_t kSeed = 20261123;
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto writer = make_writer(*sink, Form::compact);
  RandomOperation random(kSeed);
  ASSERT_TRUE(writer->on_header({}));
  for (int i = 0; i < kOperations; ++i) ASSERT_TRUE(writer->on_operation(random.next()));
  ASSERT_TRUE(writer->finish());

  ExpectingRandom expecting(kSeed);
  const auto source = format::ByteSource::memory(out, "x.emmb");
  const auto summary = read(*source, expecting);

  ASSERT_TRUE(summary) << describe(summary.error());
  EXPECT_EQ(expecting.count, kOperations);
  EXPECT_EQ(rewritten(out, Form::compact), out) << "the same bytes when written again";
}

TEST(Compact, AFileWithoutOperationsIsATrace) {
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto writer = make_compact_writer(*sink);
  Header header;
  header.name = "nothing";
  ASSERT_TRUE(writer->on_header(header));
  ASSERT_TRUE(writer->finish());

  EXPECT_EQ(rewritten(out, Form::lines),
            "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"name\":\"nothing\"}\n");
}

/// Reads a file of any format into both forms, and expects the same lines of both.
void expect_round_trip(const fs::path& path) {
  SCOPED_TRACE(path.string());
  auto source = format::ByteSource::open(path.string());
  ASSERT_TRUE(source);
  const auto importer = detect(**source);
  if (!importer) return;
  std::string lines, packed;
  const auto to_lines = format::ByteSink::to_string(lines);
  const auto to_packed = format::ByteSink::to_string(packed);
  struct Both final : OperationSink {
    std::unique_ptr<OperationSink> a, b;
    Status on_header(const Header& header) override {
      if (auto done = a->on_header(header); !done) return done;
      return b->on_header(header);
    }
    Status on_operation(const Operation& operation) override {
      if (auto done = a->on_operation(operation); !done) return done;
      return b->on_operation(operation);
    }
    Status finish() override {
      if (auto done = a->finish(); !done) return done;
      return b->finish();
    }
  } both;
  both.a = make_writer(*to_lines, Form::lines);
  both.b = make_compact_writer(*to_packed);
  if (!(*importer)->read(**source, both, {.partial = true})) return;

  // An importer keeps the spaces of what a recording says of itself, and a reader does not.
  EXPECT_TRUE(rewritten(packed, Form::lines) == rewritten(lines, Form::lines));
}

TEST(Compact, EveryTraceOfTheProjectIsTheSameInBothForms) {
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(EMM_SOURCE_DIR) / "traces")) {
    if (entry.is_regular_file()) expect_round_trip(entry.path());
  }
}

TEST(CompactCollected, EveryRecordingIsTheSameInBothForms) {
  const fs::path folder(EMM_EXTRA_TRACES);
  if (folder.empty() || !fs::exists(folder)) GTEST_SKIP() << "EMM_EXTRA_TRACES is not there";
  constexpr std::uintmax_t kLarge = 4 << 20;  // packed; a larger one shows nothing else
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.file_size() <= kLarge) expect_round_trip(entry.path());
  }
}

TEST(Compact, ARecordingOfPyTorchTakesLessThanTwoBytesAnOperation) {
  const auto path =
      fs::path(EMM_SOURCE_DIR) / "traces" / "torch" / "torch_gpt2_train_varlen.jsonl.gz";
  auto source = format::ByteSource::open(path.string());
  ASSERT_TRUE(source);
  std::string out;
  const auto sink = format::ByteSink::to_string(out);
  const auto summary = read(**source, *make_compact_writer(*sink));

  ASSERT_TRUE(summary);
  EXPECT_LT(out.size(), 2 * summary->operations);
}

TEST(Compact, ACutFileIsReadUpToItsLastWholeBlock) {
  constexpr std::uint64_t kEvents = 3 * compact::kBlockOperations;
  const auto file = generated(kEvents);
  const auto boundaries = chunks(file);
  ASSERT_EQ(boundaries.size(), 7u) << "the header, four blocks, the index, the tail";

  for (std::size_t chunk = 0; chunk < boundaries.size(); ++chunk) {
    for (const auto at : {boundaries[chunk] - 1, boundaries[chunk], boundaries[chunk] + 1,
                          boundaries[chunk] + 41}) {
      if (at >= file.size()) continue;
      const auto cut = file.substr(0, at);
      SCOPED_TRACE(text::format("cut at {} of {}", at, file.size()));
      Counting counting;
      const auto whole = format::ByteSource::memory(cut, "x.emmb");
      const auto refused = read(*whole, counting);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Errc::parse_error);
      EXPECT_NE(describe(refused.error()).find("the file ends"), std::string::npos)
          << describe(refused.error());

      Counting part;
      const auto partial = format::ByteSource::memory(cut, "x.emmb");
      const auto taken = read(*partial, part, {.partial = true});
      if (at < boundaries[1]) {
        EXPECT_FALSE(taken) << "too little to say what it was";
        continue;
      }
      ASSERT_TRUE(taken) << describe(taken.error());
      EXPECT_TRUE(taken->torn);
      const auto last = std::upper_bound(boundaries.begin(), boundaries.end(), at);
      const auto blocks = std::min<std::size_t>(
          static_cast<std::size_t>(last - boundaries.begin()) - 2, boundaries.size() - 3);
      EXPECT_EQ(part.count,
                std::min<std::uint64_t>(blocks * compact::kBlockOperations, taken->operations));
      EXPECT_EQ(part.count, taken->operations);
    }
  }
}

TEST(Compact, AFlippedBitIsAlwaysFound) {
  const auto file = generated(2000);
  for (std::size_t at = 0; at < file.size(); ++at) {
    auto damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const auto source = format::ByteSource::memory(damaged, "x.emmb");
    NullSink sink;
    const auto summary = read(*source, sink);
    ASSERT_FALSE(summary) << "byte " << at;
    const auto again = format::ByteSource::memory(damaged, "x.emmb");
    const auto report = check(*again, ReadOptions{});
    EXPECT_TRUE(!report || report->errors > 0) << "byte " << at;
  }
}

TEST(Compact, WhatComesBehindItsEndIsAnError) {
  const auto file = generated(100);
  EXPECT_EQ(refusal(file + "x"), "x.json:103: a damaged block: expected the end of the file");
}

TEST(Compact, NoBytesOfABlockLeadAstray) {
  RandomOperation random(7);
  compact::BlockEncoder encoder;
  for (int i = 0; i < 300; ++i) encoder.add(random.next());
  const auto block = encoder.pack();
  Prng prng(20261123);
  compact::BlockDecoder decoder;
  for (int i = 0; i < 4000; ++i) {
    auto damaged = block;
    for (auto changes = prng.between(1, 4); changes > 0; --changes)
      damaged[prng.below(damaged.size())] = static_cast<char>(prng.next());
    if (prng.chance(0.1)) damaged.resize(prng.below(damaged.size()));
    if (!decoder.load(damaged).empty()) continue;
    while (decoder.next() != nullptr) {
    }
  }
  EXPECT_EQ(decoder.load(block), "");
}

}  // namespace
}  // namespace emm::trace
