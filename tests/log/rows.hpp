#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "log/writer.hpp"
#include "trace/operation.hpp"

namespace emm::log {

inline const LogEntry& entry(std::string_view name) {
  for (const auto* one : bundled_logs()) {
    if (one->name == name) return *one;
  }
  ADD_FAILURE() << "no log " << name;
  return *bundled_logs().front();
}

/// A log of format `name` into a string.
struct Written {
  Written(std::string_view name, const trace::Trace& trace, int device = -1,
          const LogOptions& options = {}) {
    auto made = entry(name).make(format::ByteSink::to_string(text), trace, device, options);
    EXPECT_TRUE(made) << describe(made.error());
    writer = std::move(*made);
  }
  std::string finish() {
    EXPECT_TRUE(writer->finish());
    return text;
  }

  std::string text;
  std::unique_ptr<LogWriter> writer;
};

/// A trace of device `devices` contexts, a named thread and stream, and two ids, of which a test
/// needs only the names.
inline trace::Trace names() {
  using trace::Member;
  trace::Trace trace;
  trace::Header header;
  EXPECT_TRUE(trace.on_header(header));
  const auto add = [&](trace::Operation operation) {
    const auto added = trace.on_operation(operation);
    EXPECT_TRUE(added) << describe(added.error());
  };
  trace::Operation site;
  site.op = trace::Op::define;
  site.members = trace::Members(Member::kind, Member::id, Member::frames);
  site.define_kind = trace::DefineKind::site;
  site.id = trace::Id::of(std::uint64_t{1});
  const std::string_view frames[] = {"model.py:88 forward", "libtorch.so+0x10"};
  site.frames = frames;
  add(site);
  trace::Operation made;
  made.op = trace::Op::memalloc;
  made.line = 3;
  made.members = trace::Members(Member::id, Member::size, Member::thread, Member::stream,
                                Member::context, Member::device, Member::site);
  made.id = trace::Id::of(std::string_view("weights, \"all\""));
  made.size = 1000;
  made.thread = trace::Id::of(std::uint64_t{23150});
  made.stream = trace::Id::of(std::uint64_t{0x55aabbcc0010});
  made.context = trace::Id::of(std::string_view("main"));
  made.site = trace::Id::of(std::uint64_t{1});
  add(made);
  made.line = 4;
  made.id = trace::Id::of(std::uint64_t{7});
  made.context = trace::Id::of(std::string_view("second"));
  made.device = 1;
  made.members.remove(Member::site);
  made.members.remove(Member::stream);
  add(made);
  EXPECT_TRUE(trace.finish());
  return trace;
}

}  // namespace emm::log
