#include "trace/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/trace/importers/imported.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

/// Follows a generated trace, and judges that it is one.
struct Followed : OperationSink {
  std::map<std::uint64_t, std::uint64_t> live;
  std::uint64_t last_id = 0, memory_operations = 0, operations = 0, peak_live = 0;
  std::uint64_t min_size = ~std::uint64_t{0}, max_size = 0;
  std::set<std::uint64_t> threads;
  std::set<std::string, std::less<>> streams, created;
  std::uint64_t digest = 0;
  Header header;
  bool ended = false, finished = false;

  Status on_header(const Header& given) override {
    header = given;
    return {};
  }
  Status on_operation(const Operation& op) override {
    EXPECT_FALSE(ended);
    for (const auto c : one_line(op))
      digest = digest * 1099511628211u + static_cast<unsigned char>(c);
    if (op.has(Member::thread)) threads.insert(op.thread.number);
    if (op.has(Member::stream)) {
      streams.emplace(op.stream.text);
      EXPECT_EQ(created.count(op.stream.text), 1u) << op.stream.text;
    }
    switch (op.op) {
      case Op::memalloc:
        EXPECT_GT(op.id.number, last_id) << "an id is never used again";
        last_id = op.id.number;
        live.emplace(op.id.number, op.size);
        peak_live = std::max<std::uint64_t>(peak_live, live.size());
        min_size = std::min(min_size, op.size);
        max_size = std::max(max_size, op.size);
        ++memory_operations;
        break;
      case Op::free:
        EXPECT_EQ(live.erase(op.id.number), 1u);
        ++memory_operations;
        break;
      case Op::stream_create:
        created.emplace(op.id.text);
        break;
      case Op::end:
        EXPECT_EQ(op.events, operations);
        ended = true;
        break;
      default:
        break;
    }
    ++operations;
    return {};
  }
  Status finish() override {
    finished = true;
    return {};
  }
};

TEST(Generate, MakesAsManyOperationsAsAskedAndFreesEverything) {
  for (const auto& kind : generate_kinds()) {
    for (const std::uint64_t events : {0u, 1u, 2u, 7u, 100u, 5001u}) {
      Followed trace;

      const auto made =
          generate({.kind = std::string(kind.name), .events = events, .live = 50}, trace);

      ASSERT_TRUE(made) << describe(made.error());
      EXPECT_EQ(trace.memory_operations, events / 2 * 2) << kind.name;
      EXPECT_TRUE(trace.live.empty()) << kind.name;
      EXPECT_TRUE(trace.ended && trace.finished) << kind.name;
    }
  }
}

TEST(Generate, KeepsToTheSizesAndTheLiveNumberAskedFor) {
  for (const auto& kind : generate_kinds()) {
    for (const std::uint64_t live : {1u, 2u, 3u, 100u}) {
      Followed trace;

      ASSERT_TRUE(generate({.kind = std::string(kind.name),
                            .events = 4000,
                            .min_size = 100,
                            .max_size = 3000,
                            .live = live},
                           trace));

      EXPECT_LE(trace.peak_live, live) << kind.name;
      EXPECT_GE(trace.peak_live, live / 4) << kind.name;
      EXPECT_GE(trace.min_size, 100u) << kind.name;
      EXPECT_LE(trace.max_size, 3000u) << kind.name;
    }
  }
}

TEST(Generate, GivesTheSameTraceForTheSameSeedAndAnotherForAnother) {
  for (const auto& kind : generate_kinds()) {
    const auto digest = [&](std::uint64_t seed) {
      Followed trace;
      EXPECT_TRUE(generate({.kind = std::string(kind.name), .events = 1000, .seed = seed}, trace));
      return trace.digest;
    };

    EXPECT_EQ(digest(7), digest(7)) << kind.name;
    const bool draws = kind.name != "ramps" && kind.name != "split";
    EXPECT_EQ(digest(7) == digest(8), !draws) << kind.name;
  }
}

TEST(Generate, SplitsOnADeviceWithRoomForWhatLives) {
  Followed trace;

  ASSERT_TRUE(generate({.kind = "split", .events = 6}, trace));

  EXPECT_EQ(trace.peak_live, 2u);
  ASSERT_EQ(trace.header.devices.size(), 1u);
  EXPECT_EQ(trace.header.devices[0].capacity, std::uint64_t{7} << 30) << "of which 5 GiB live";
}

TEST(Generate, NamesThreadsAndStreamsWhereThereAreSeveral) {
  Followed threads;
  ASSERT_TRUE(generate({.kind = "multi-thread", .events = 1000, .threads = 3}, threads));
  EXPECT_EQ(threads.threads, (std::set<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(threads.header.requires_, std::vector<std::string>{"threads"});
  EXPECT_TRUE(threads.streams.empty());

  Followed streams;
  ASSERT_TRUE(generate({.kind = "multi-stream", .events = 1000, .streams = 4}, streams));
  EXPECT_EQ(streams.streams.size(), 3u) << "the default stream has no name";
  EXPECT_EQ(streams.header.requires_, (std::vector<std::string>{"streams", "events"}));
  EXPECT_TRUE(streams.threads.empty());
}

TEST(Generate, RefusesWhatContradictsItself) {
  Followed trace;

  EXPECT_EQ(generate({.kind = "ramp"}, trace).error().message,
            "unknown kind of trace 'ramp': known are ramps, comb, sawtooth, generational, "
            "log-uniform, many-live, split, "
            "multi-thread, multi-stream");
  EXPECT_EQ(generate({.kind = "ramps", .min_size = 10, .max_size = 9}, trace).error().message,
            "sizes from 10 to 9 bytes: expected at least 1, and the smaller first");
  EXPECT_EQ(generate({.kind = "ramps", .live = 0}, trace).error().message,
            "0 live allocations, 1 threads, 1 streams: expected at least 1 of each, and at most "
            "60000 threads and "
            "streams");
  EXPECT_EQ(trace.operations, 0u);
}

TEST(Generate, EndsWhereTheSinkFails) {
  struct Full : Followed {
    Status on_operation(const Operation& op) override {
      if (operations == 10) return fail(Errc::io_error, "full");
      return Followed::on_operation(op);
    }
  } trace;

  const auto made = generate({.kind = "sawtooth", .events = 1'000'000}, trace);

  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "full");
  EXPECT_FALSE(trace.finished);
}

}  // namespace
}  // namespace emm::trace
