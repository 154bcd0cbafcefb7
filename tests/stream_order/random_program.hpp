#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/prng.hpp"
#include "trace/operation.hpp"
#include "trace/trace.hpp"

namespace emm::stream_order {

/// A program on several streams and threads, from a seed: it allocates on one stream and frees
/// there, elsewhere or without saying where, uses memory on other streams, and makes its streams
/// wait for each other now and then. Sizes of no more than 4,000 take one block, so that memory
/// goes round.
inline trace::Trace random_program(std::uint64_t seed, std::size_t length = 48,
                                   std::uint64_t threads = 2, std::uint64_t size_most = 4000) {
  using trace::Member;
  using trace::Op;
  Prng random(seed);
  trace::Trace trace;
  trace.set_source("seed " + std::to_string(seed));
  EXPECT_TRUE(trace.on_header({}));
  std::uint32_t line = 1;
  const auto put = [&](trace::Operation operation) {
    operation.line = ++line;
    operation.members.add(Member::thread);
    operation.thread = trace::Id::of(random.below(threads) + 1);
    const auto added = trace.on_operation(operation);
    EXPECT_TRUE(added) << describe(added.error());
  };
  const auto on = [&](trace::Operation& operation, std::uint64_t stream) {
    if (stream == 0) return;
    operation.members.add(Member::stream);
    operation.stream = trace::Id::of(stream);
  };
  const auto streams = random.between(2, 4);
  for (std::uint64_t stream = 1; stream <= streams; ++stream) {
    trace::Operation made;
    made.op = Op::stream_create;
    made.members = trace::Members(Member::id, Member::blocking);
    made.id = trace::Id::of(stream);
    made.blocking = random.chance(0.3);
    put(made);
  }
  struct Live {
    std::uint64_t id, stream;
  };
  std::vector<Live> live;
  std::uint64_t ids = 0, records = 0;
  const auto any_stream = [&] { return random.below(streams + 1); };
  const auto end = [&](std::size_t which) {
    trace::Operation free;
    free.op = Op::free;
    free.members = trace::Members(Member::id);
    free.id = trace::Id::of(live[which].id);
    on(free, random.chance(0.7) ? live[which].stream : any_stream());
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    put(free);
  };
  for (std::size_t i = 0; i < length; ++i) {
    const auto dice = random.below(100);
    trace::Operation operation;
    trace::Id used;
    if (dice < 38 || live.empty()) {
      operation.op = Op::memalloc;
      operation.members = trace::Members(Member::id, Member::size);
      operation.id = trace::Id::of(++ids);
      operation.size = random.between(1, size_most);
      const auto stream = any_stream();
      on(operation, stream);
      live.push_back({ids, stream});
    } else if (dice < 76) {
      end(random.below(live.size()));
      continue;
    } else if (dice < 82) {
      operation.op = Op::event_record;
      operation.members = trace::Members(Member::record);
      operation.record = trace::Id::of(++records);
      on(operation, any_stream());
    } else if (dice < 88 && records > 0) {
      operation.op = Op::stream_wait;
      operation.members = trace::Members(Member::record);
      operation.record = trace::Id::of(random.between(1, records));
      on(operation, any_stream());
    } else if (dice < 90 && records > 0) {
      operation.op = Op::event_sync;
      operation.members = trace::Members(Member::record);
      operation.record = trace::Id::of(random.between(1, records));
    } else if (dice < 92) {
      operation.op = Op::stream_sync;
      on(operation, random.between(1, streams));
      if (!operation.has(Member::stream)) continue;
    } else if (dice < 93) {
      operation.op = Op::device_sync;
    } else if (dice < 97) {
      operation.op = Op::record_stream;
      operation.members = trace::Members(Member::id);
      operation.id = trace::Id::of(live[random.below(live.size())].id);
      on(operation, random.between(1, streams));
    } else {
      operation.op = Op::use;
      operation.members = trace::Members(Member::ids);
      used = trace::Id::of(live[random.below(live.size())].id);
      operation.ids = {&used, 1};
      on(operation, any_stream());
    }
    put(operation);
  }
  while (!live.empty()) end(live.size() - 1);
  const auto finished = trace.finish();
  EXPECT_TRUE(finished) << describe(finished.error());
  return trace;
}

}  // namespace emm::stream_order
