#include "report/terminal_view.hpp"

#include <gtest/gtest.h>

#include "base/assert.hpp"
#include "base/text.hpp"
#include "format/byte_source.hpp"
#include "trace/reader.hpp"

namespace emm::report {
namespace {

/// A recording of 100 allocations, each freed 50 events later, with a refused request at event 130.
class TerminalViewTest : public testing::Test {
 protected:
  TerminalViewTest() {
    std::string text = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\"}\n";
    for (int i = 0; i < 100; ++i) {
      text += text::format("{\"op\":\"memalloc\",\"id\":{},\"size\":{},\"addr\":\"{}\"}\n", i + 1,
                           1000 + i, text::hex(0x10000u + 4096u * static_cast<unsigned>(i)));
    }
    for (int i = 0; i < 30; ++i) text += text::format("{\"op\":\"free\",\"id\":{}}\n", i + 1);
    text += "{\"op\":\"memalloc\",\"id\":500,\"size\":9999,\"result\":\"oom\"}\n";
    const auto source = format::ByteSource::memory(text, "x.jsonl");
    EMM_ASSERT(trace::read(*source, recording_).has_value());
    lifetimes_.emplace(recording_.trace());
    view_.emplace(recording_, *lifetimes_);
  }

  inspect::Recording recording_;
  std::optional<trace::Lifetimes> lifetimes_;
  std::optional<TerminalView> view_;
};

std::size_t characters(std::string_view line) {
  std::size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

TEST_F(TerminalViewTest, FitsEveryScreen) {
  for (const std::size_t columns : {1u, 9u, 21u, 40u, 80u, 200u}) {
    for (const std::size_t rows : {1u, 5u, 13u, 24u, 60u}) {
      const auto frame = view_->frame({.columns = columns, .rows = rows});

      std::size_t lines = 1;
      for (std::string_view rest = frame; !rest.empty();) {
        const auto line = rest.substr(0, rest.find('\n'));
        EXPECT_LE(characters(line), columns) << line;
        if (line.size() == rest.size()) break;
        rest.remove_prefix(line.size() + 1);
        ++lines;
      }
      EXPECT_LE(lines, rows) << columns << " columns";
    }
  }
}

TEST_F(TerminalViewTest, CutsNothingAtSixtyColumns) {
  const auto frame = view_->frame({.columns = 60, .rows = 30});
  EXPECT_NE(frame.find("q: end"), std::string::npos) << frame;
  EXPECT_NE(frame.find("9.76 KiB refused"), std::string::npos) << frame;
  EXPECT_NE(frame.find(" failed\n"), std::string::npos) << frame;
}

TEST_F(TerminalViewTest, AQuestionMarkShowsTheKeysUntilTheNextKey) {
  const auto before = view_->frame({});
  EXPECT_TRUE(view_->press("?"));
  const auto keys = view_->frame({.columns = 60, .rows = 30});
  EXPECT_NE(keys.find("to the next failed request"), std::string::npos) << keys;
  EXPECT_TRUE(view_->press("q")) << "any key leaves the keys";
  EXPECT_EQ(view_->frame({}), before);
  EXPECT_FALSE(view_->press("q"));
}

TEST_F(TerminalViewTest, BeginsAtTheFirstFailureAndSaysWhatWasRefused) {
  EXPECT_EQ(view_->cursor(), 130u);
  EXPECT_NE(view_->frame({}).find("9.76 KiB refused"), std::string::npos);
}

TEST_F(TerminalViewTest, KeysMoveTheCursorAndTheEndsHoldIt) {
  view_->press("g");
  view_->press("\x1b[D");
  EXPECT_EQ(view_->cursor(), 0u);

  view_->press("\x1b[C");
  EXPECT_EQ(view_->cursor(), 1u);

  view_->press("p");
  EXPECT_EQ(view_->cursor(), 99u);

  view_->press("G");
  view_->press("l");
  EXPECT_EQ(view_->cursor(), 130u);

  EXPECT_TRUE(view_->press("what"));
  EXPECT_FALSE(view_->press("q"));
}

TEST_F(TerminalViewTest, ZoomsAboutTheCursor) {
  view_->press("p");
  for (int i = 0; i < 10; ++i) view_->press("+");
  EXPECT_NE(view_->frame({}).find("events 91 to 106"), std::string::npos) << view_->frame({});

  view_->press("0");
  EXPECT_NE(view_->frame({}).find("events 0 to 130"), std::string::npos);
}

}  // namespace
}  // namespace emm::report
