#include <gtest/gtest.h>

#include <string>

#include "base/text_format.hpp"
#include "inspect/recording.hpp"
#include "inspect/report_parts.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

/// A recording of `count` stacks of 20 frames, none of them alike: eight of the library, then the
/// program's.
void record(Recording& recording, std::uint64_t count) {
  ASSERT_TRUE(recording.on_header({}));
  for (std::uint64_t site = 1; site <= count; ++site) {
    std::vector<std::string> frames;
    for (int i = 0; i < 20; ++i) {
      frames.push_back(text::format(
          "/{}{}.py:{} f", i < 8 ? "usr/lib/python3/dist-packages/lib" : "home/model", site, i));
    }
    const std::vector<std::string_view> views(frames.begin(), frames.end());
    trace::Operation define{
        .op = trace::Op::define,
        .members = trace::Members(trace::Member::kind, trace::Member::id, trace::Member::frames)};
    define.id = trace::Id::of(site);
    define.frames = views;
    ASSERT_TRUE(recording.on_operation(define));
    trace::Operation made{
        .op = trace::Op::memalloc,
        .members = trace::Members(trace::Member::id, trace::Member::size, trace::Member::site)};
    made.id = made.site = trace::Id::of(site);
    made.size = 512;
    ASSERT_TRUE(recording.on_operation(made));
  }
  ASSERT_TRUE(recording.finish());
}

TEST(Recording, KeepsStacksWholeWhileThereAreFew) {
  Recording recording;

  record(recording, 2'000);

  EXPECT_EQ(recording.stacks_cut(), 0u);
  EXPECT_EQ(recording.trace().site_frames(recording.trace()[1'999].site).size(), 20u);
}

TEST(Recording, KeepsOfTooManyStacksWhatTellsMost) {
  Recording recording(100'000);

  record(recording, 2'000);

  ASSERT_EQ(recording.stacks_cut(), 2'000u - 1'024u);
  const auto& trace = recording.trace();
  const auto site = trace[1'999].site;
  EXPECT_EQ(trace.site_frames(site).size(), Recording::kFramesKept);
  EXPECT_EQ(site_name(trace, site, 76), "/home/model2000.py:8 f, in lib2000.py:0 f");
  EXPECT_EQ(telling_frames(trace, site, {.frames = 2}),
            (std::vector<std::string>{"/home/model2000.py:8 f", "/home/model2000.py:9 f"}));
}

}  // namespace
}  // namespace emm::inspect
