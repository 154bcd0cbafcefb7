#include "trial/together.hpp"

#include <gtest/gtest.h>

#include "base/units.hpp"
#include "emm/manager_entry.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::trial {
namespace {

trace::Trace trace_of(const std::string& lines) {
  trace::Trace trace;
  trace.set_source("x.jsonl");
  const auto text = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n" + lines;
  const auto source = format::ByteSource::memory(text, "x.jsonl");
  EXPECT_TRUE(trace::read(*source, trace));
  return trace;
}

Setting with(const char* manager) {
  auto found = find_manager(manager);
  EXPECT_TRUE(found);
  Setting setting;
  setting.manager = std::move(*found);
  return setting;
}

TEST(Together, TheSumOfThePeaksIsEnoughAtAnyOffsetAndReachedAtTheWorst) {
  // The first peaks early, the second late.
  const auto first = trace_of(
      "{\"op\":\"memalloc\",\"id\":1,\"size\":8388608,\"time_ns\":0}\n"
      "{\"op\":\"free\",\"id\":1,\"time_ns\":100}\n");
  const auto second = trace_of(
      "{\"op\":\"memalloc\",\"id\":1,\"size\":2097152,\"time_ns\":0}\n"
      "{\"op\":\"memalloc\",\"id\":2,\"size\":4194304,\"time_ns\":500}\n");

  const auto found = together({&first, &second},
                              {{.name = "cudart", .settings = {with("cudart"), with("cudart")}}},
                              [](std::uint64_t, std::uint64_t) {});

  ASSERT_TRUE(found);
  ASSERT_EQ(found->rows.size(), 1u);
  const auto& row = found->rows[0];
  EXPECT_EQ(row.any_offset, 14_MiB);
  EXPECT_EQ(row.at_once, 10_MiB);
  EXPECT_EQ(row.limited, 14_MiB);
  EXPECT_TRUE(found->has_times);
  EXPECT_EQ(row.parts[0].peak_ns, 0u);
  EXPECT_EQ(row.parts[1].peak_ns, 500u) << "the second has to begin first, 500 ns before";
  EXPECT_EQ(found->need, 14_MiB);
}

}  // namespace
}  // namespace emm::trial
