// A trace that streams is replayed, and judged, as one that is in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/prng.hpp"
#include "base/text_format.hpp"
#include "emm/selection.hpp"
#include "fake_stack.hpp"
#include "format/byte_sink.hpp"
#include "log/writer.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"
#include "trace/compact/near.hpp"
#include "trace/generate.hpp"
#include "trace/live_ids.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"
#include "trace/streamed_trace.hpp"
#include "trace/writer.hpp"

namespace emm::replay {
namespace {

namespace fs = std::filesystem;

/// A compact trace that is gone with the test.
class TemporaryTrace {
 public:
  TemporaryTrace()
      : path_(fs::temp_directory_path() / text::format("emm_streamed_{}.emmb", ::getpid())) {}
  ~TemporaryTrace() { fs::remove(path_); }
  std::string path() const { return path_.string(); }
  /// Writes what `make` gives to a sink.
  template <class Make>
  void write(Make make) const {
    auto sink = format::ByteSink::open(path());
    ASSERT_TRUE(sink);
    ASSERT_TRUE(make(*trace::make_compact_writer(**sink)));
    ASSERT_TRUE((*sink)->close());
  }

 private:
  fs::path path_;
};

Status read_all(format::ByteSource& source, trace::OperationSink& sink) {
  auto summary = trace::read(source, sink);
  return summary ? Status() : Status(summary.error());
}

constexpr std::string_view kCareless = "careless";
constexpr std::uint64_t kSmall = 4096;

/// What `emmctl replay --json` says.
std::string replayed(const trace::Trace& trace, const std::string& device, ReplayOptions options,
                     const std::string& name) {
  if (name == kCareless) {
    // Gives what was freed to whoever comes, on whatever stream.
    FakeStack stack({.address = [](std::uint64_t n, std::uint64_t) {
      return FakeDriver::kBase + n % (FakeDriver::kSize / kSmall) * kSmall;
    }});
    auto summary = Engine(trace, stack, std::move(options)).run();
    EXPECT_TRUE(summary) << describe(summary.error());
    return summary ? log::to_json(*summary) : std::string();
  }
  auto manager = find_manager(name);
  EXPECT_TRUE(manager);
  StackOptions stack_options;
  stack_options.device = device;
  stack_options.trace = &trace;
  stack_options.manager = std::move(*manager);
  std::vector<std::string> said;
  auto stack = DeviceStack::create(std::move(stack_options), &said);
  EXPECT_TRUE(stack) << describe(stack.error());
  Engine engine(trace, **stack, std::move(options));
  auto summary = engine.run();
  EXPECT_TRUE(summary) << describe(summary.error());
  return summary ? log::to_json(*summary) : std::string();
}

/// Is the file replayed the same from memory and as a stream? False where it has to be in memory.
bool expect_same_replay(const TemporaryTrace& file, const std::string& device,
                        std::optional<std::uint64_t> stop_at = {},
                        const std::string& manager = "pool", std::string* said = nullptr) {
  trace::Trace whole;
  whole.set_source(file.path());
  auto source = format::ByteSource::open(file.path());
  EXPECT_TRUE(read_all(**source, whole));
  auto streamed = trace::StreamedTrace::open(file.path(), read_all, nullptr);
  EXPECT_TRUE(streamed) << describe(streamed.error());
  if (*streamed == nullptr) return false;

  const auto expected = replayed(whole, device, {.stop_at = stop_at}, manager);
  const auto got = replayed(
      (*streamed)->trace(), device,
      {.stop_at = stop_at,
       .need = [&](std::size_t begin, std::size_t end) { return (*streamed)->need(begin, end); }},
      manager);

  EXPECT_EQ(got, expected);
  if (said != nullptr) *said = got;
  return true;
}

TEST(Streamed, TheTracesOfTheProjectAreReplayedTheSame) {
  const TemporaryTrace file;
  std::size_t streamed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(EMM_SOURCE_DIR "/traces")) {
    const auto name = entry.path().filename().string();
    if (!entry.is_regular_file() || name.find(".json") == name.npos ||
        name.find("schema") != name.npos || name.find("ipc_") == 0) {
      continue;
    }
    SCOPED_TRACE(name);
    auto source = format::ByteSource::open(entry.path().string());
    file.write([&](trace::OperationSink& sink) { return read_all(**source, sink); });
    streamed += expect_same_replay(file, "sim") ? 1 : 0;
  }
  EXPECT_GE(streamed, 15u);
}

// ThreadSanitizer, under which one replay takes as long as thirty, sees the same threads in each.
#ifdef EMM_THREAD_SANITIZER
const std::vector<std::string> kKinds{"log-uniform"}, kManagers{"pool"};
#else
const std::vector<std::string> kKinds{"log-uniform", "generational", "sawtooth"};
const std::vector<std::string> kManagers{"pool", "default", std::string(kCareless)};
#endif

TEST(Streamed, ALongTraceIsReplayedTheSameAlsoWhereItFails) {
  const TemporaryTrace file;
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind);
    file.write([&](trace::OperationSink& sink) {
      return trace::generate({.kind = kind, .events = 150'000, .live = 700}, sink);
    });

    EXPECT_TRUE(expect_same_replay(file, "sim"));
    EXPECT_TRUE(expect_same_replay(file, "sim:capacity=256MiB")) << "requests are refused";
    EXPECT_TRUE(expect_same_replay(file, "sim", 70'000));
  }
}

/// Memory on four streams, made, used and freed by sixteen threads, which order some of what they
/// do and leave the rest to be found.
Status work_on_streams(std::size_t steps, trace::OperationSink& sink) {
  using trace::Id;
  using trace::Member;
  using trace::Op;
  Prng random(23);
  struct Held {
    std::uint64_t id, stream;
  };
  std::vector<Held> held;
  std::uint64_t record = 0;
  auto good = sink.on_header({});
  const auto give = [&](trace::Operation operation) {
    operation.thread = Id::of(random.below(16));
    operation.members.add(Member::thread);
    if (good) good = sink.on_operation(operation);
  };
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto stream = random.below(4);
    trace::Operation operation;
    operation.stream = Id::of(stream);
    if (held.size() < 300 || random.chance(0.4)) {
      operation.op = Op::memalloc;
      operation.members = trace::Members(Member::id, Member::size, Member::stream);
      operation.id = Id::of(step);
      operation.size = random.between(1, kSmall);
      held.push_back({.id = step, .stream = stream});
      give(operation);
      continue;
    }
    const auto at = static_cast<std::size_t>(random.below(held.size()));
    const auto one = held[at];
    const std::array ids{Id::of(one.id)};
    switch (random.below(6)) {
      case 0:
        operation.op = Op::use;
        operation.members = trace::Members(Member::ids, Member::stream);
        operation.ids = ids;
        break;
      case 1:
        operation.op = Op::record_stream;
        operation.members = trace::Members(Member::id, Member::stream);
        operation.id = Id::of(one.id);
        break;
      case 2: {
        operation.op = Op::event_record;
        operation.members = trace::Members(Member::record, Member::stream);
        operation.record = Id::of(++record);
        give(operation);
        operation.op = Op::stream_wait;
        operation.stream = Id::of((stream + 1) % 4);
        break;
      }
      default:
        operation.op = Op::free;
        operation.members = trace::Members(Member::id);
        if (random.chance(0.3)) operation.members.add(Member::stream);
        operation.id = Id::of(one.id);
        held[at] = held.back();
        held.pop_back();
    }
    give(operation);
  }
  return good ? sink.finish() : good;
}

TEST(Streamed, WorkOnSeveralStreamsByManyThreadsIsReplayedTheSame) {
  const TemporaryTrace file;
  file.write([&](trace::OperationSink& sink) { return work_on_streams(60'000, sink); });

  for (const auto& manager : kManagers) {
    SCOPED_TRACE(manager);
    std::string said;
    EXPECT_TRUE(expect_same_replay(file, "sim", {}, manager, &said));
    const bool has_hazards = said.find("\"hazards\": 0,") == said.npos;
    EXPECT_EQ(has_hazards, manager == kCareless);
  }
  EXPECT_TRUE(expect_same_replay(file, "sim:capacity=2MiB")) << "requests are refused";

  file.write([&](trace::OperationSink& sink) {
    return trace::generate({.kind = "multi-stream", .events = 60'000}, sink);
  });
  EXPECT_TRUE(expect_same_replay(file, "sim"));
}

TEST(Streamed, WhatWasAliveBeforeTheRecordingIsMadeBeforeTheClockStarts) {
  const TemporaryTrace file;
  file.write([&](trace::OperationSink& sink) {
    constexpr std::uint64_t kBefore = 20'000;  // more than a window
    auto good = sink.on_header({});
    for (std::uint64_t id = 0; good && id < 2 * kBefore; ++id) {
      trace::Operation operation{.op = trace::Op::memalloc};
      operation.members = trace::Members(trace::Member::id, trace::Member::size);
      operation.id = trace::Id::of(id);
      operation.size = 4096;
      operation.preexisting = id < kBefore;
      if (operation.preexisting) operation.members.add(trace::Member::preexisting);
      good = sink.on_operation(operation);
    }
    return good ? sink.finish() : good;
  });

  EXPECT_TRUE(expect_same_replay(file, "sim"));
}

TEST(Streamed, WhatCannotStreamIsSaidToNeedMemory) {
  const TemporaryTrace file;
  file.write([&](trace::OperationSink& sink) {
    auto flush = trace::Operation{.op = trace::Op::flush};
    flush.members = trace::Members(trace::Member::count, trace::Member::bytes);
    auto good = sink.on_header({});
    if (good) good = sink.on_operation(flush);
    return good ? sink.finish() : good;
  });
  auto streamed = trace::StreamedTrace::open(file.path(), read_all, nullptr);
  ASSERT_TRUE(streamed);
  EXPECT_EQ(*streamed, nullptr);
}

TEST(Streamed, AFileThatBecomesAnotherEndsTheRun) {
  const TemporaryTrace file;
  const auto write = [&](std::uint64_t live) {
    file.write([&](trace::OperationSink& sink) {
      return trace::generate({.kind = "sawtooth", .events = 50'000, .live = live}, sink);
    });
  };
  write(100);
  auto streamed = trace::StreamedTrace::open(file.path(), read_all, nullptr);
  ASSERT_TRUE(streamed && *streamed != nullptr);
  write(20'000);  // more than the first reading leaves room for

  Status last;
  for (std::size_t at = 0; last && at < (*streamed)->trace().size(); at += 1024)
    last = (*streamed)->need(at, std::min(at + 1024, (*streamed)->trace().size()));

  ASSERT_FALSE(last);
  EXPECT_NE(describe(last.error()).find("became another"), std::string::npos);
}

TEST(Streamed, AFileThatBecomesShorterEndsTheRun) {
  const TemporaryTrace file;
  file.write([&](trace::OperationSink& sink) {
    return trace::generate({.kind = "log-uniform", .events = 200'000}, sink);
  });
  auto streamed = trace::StreamedTrace::open(file.path(), read_all, nullptr);
  ASSERT_TRUE(streamed && *streamed != nullptr);
  fs::resize_file(file.path(), fs::file_size(file.path()) / 2);

  Status last;
  for (std::size_t at = 0; last && at < (*streamed)->trace().size(); at += 1024)
    last = (*streamed)->need(at, std::min(at + 1024, (*streamed)->trace().size()));

  ASSERT_FALSE(last);
  EXPECT_NE(describe(last.error()).find("the file ends"), std::string::npos);
}

TEST(Streamed, AFileThatDoesNotFitInMemoryIsSaidToBeforeItIsRead) {
  const TemporaryTrace file;
  file.write([&](trace::OperationSink& sink) {
    return trace::generate({.kind = "log-uniform", .events = 5'000}, sink);
  });

  EXPECT_TRUE(trace::expect_room(file.path(), 0)) << "it is not known";
  EXPECT_TRUE(trace::expect_room(file.path(), 1'000'000));
  EXPECT_TRUE(trace::expect_room(file.path() + ".not", 1));
  const auto room = trace::expect_room(file.path(), 100'000);
  ASSERT_FALSE(room);
  EXPECT_NE(describe(room.error()).find("its 5,001 operations take more than 195.35 KiB"),
            std::string::npos)
      << describe(room.error());
}

using Faults = std::vector<std::string>;

/// What is wrong with the lines, as a trace says it that has them all, or a window of them.
Faults faults_of(const std::string& lines, bool in_window) {
  Faults found;
  trace::Trace trace;
  trace.set_source("x.jsonl");
  trace.set_fault_handler(
      [&](std::uint32_t, const Error& fault, auto) { found.push_back(describe(fault)); });
  if (in_window) trace.keep_window(0);
  const auto source = format::ByteSource::memory(lines, "x.jsonl");
  EXPECT_TRUE(read_all(*source, trace));
  return found;
}

TEST(Streamed, AWindowJudgesAsAWholeTraceDoes) {
  const std::string lines = R"({"format":"emmctl-trace","version":"1.0"}
{"op":"free","id":9}
{"op":"memalloc","id":1,"size":8}
{"op":"memalloc","id":1,"size":8}
{"op":"free","id":1}
{"op":"free","id":1}
{"op":"memalloc","id":1,"size":8}
{"op":"memalloc","id":"a","size":8}
{"op":"close_ipc_handle","id":"a"}
{"op":"memalloc","id":"a","size":8}
{"op":"use","ids":["a",1,77]}
{"op":"record_stream","id":1,"stream":"s"}
{"op":"reset"}
{"op":"use","ids":["a"]}
{"op":"free","id":"a"}
{"op":"end_defer_cleanup"}
{"op":"defer_cleanup","context":"c"}
{"op":"end_defer_cleanup","context":"c"}
{"op":"end_defer_cleanup","context":"c"}
{"op":"memalloc","layer":"backing","id":"s1","size":8}
{"op":"free","layer":"backing","id":"s1"}
{"op":"free","layer":"backing","id":1}
{"op":"context_destroy","context":"c","device":1}
{"op":"memalloc","id":5,"size":8,"context":"c","device":2}
)";

  const auto whole = faults_of(lines, false);
  auto window = faults_of(lines, true);

  // A whole trace is judged when it is there; what has to be right for that is said before.
  auto sorted = whole;
  std::sort(sorted.begin(), sorted.end());
  std::sort(window.begin(), window.end());
  EXPECT_EQ(window, sorted);
  EXPECT_GE(whole.size(), 11u);
}

TEST(LiveIds, KnowWhatLivesAndWhatWasUsed) {
  trace::LiveIds ids;
  std::map<std::uint64_t, std::uint32_t> live;
  std::set<std::uint64_t> used;
  Prng random(20261123);
  for (std::uint32_t step = 0; step < 40'000; ++step) {
    const auto number = random.chance(0.5) ? random.below(20'000) : step;
    const auto id = trace::Id::of(number);
    ASSERT_EQ(ids.was_used(id), used.contains(number)) << number;
    const auto found = live.find(number);
    ASSERT_EQ(ids.find(id), found == live.end() ? trace::LiveIds::kNone : found->second);
    if (found != live.end()) {
      ids.remove(id);
      live.erase(found);
    } else if (!used.contains(number)) {
      ids.add(id, step);
      live.emplace(number, step);
      used.insert(number);
    }
    ASSERT_EQ(ids.live(), live.size());
  }
}

}  // namespace
}  // namespace emm::replay
