#include "base/text.hpp"

#include <gtest/gtest.h>

#include "base/shell_word.hpp"

namespace emm::text {
namespace {

TEST(Text, FormatFillsHolesInOrder) {
  EXPECT_EQ(format("{}:{}: {}", "run.json", 7, true), "run.json:7: true");
}

TEST(Text, FormatKeepsWhatHasNoArgument) { EXPECT_EQ(format("a {} b {}", 1), "a 1 b {}"); }

TEST(Text, ShowsOfAFileWhatATerminalMayBeGiven) {
  EXPECT_EQ(printable("plain, \xc3\xbc", 60), "plain, \xc3\xbc");
  EXPECT_EQ(printable("\x1b[2J\n\x7f", 60), "\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(printable("\xc2\x9b[2J", 60), "\\u{9b}[2J") << "a control character of eight bits";
  EXPECT_EQ(printable("a\xff\xe2\x82", 60), "a\\xff\\xe2\\x82") << "what is no UTF-8";
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "a\xe2\x81\xa6\xe2\x80\x8b\xe2\x80\xa8\xef\xbb\xbf",
                      60),
            "\\u{202e}a\\u{2066}\\u{200b}\\u{2028}\\u{feff}");
  EXPECT_EQ(printable("\xf0\x9f\x98\x80 \xe4\xb8\xad", 60), "\xf0\x9f\x98\x80 \xe4\xb8\xad");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("ab\xc3\xbc", 3), "ab\xc3\xbc") << "not cut inside a character";
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(Text, ReadsDecimalAndHexToTheLastBit) {
  EXPECT_EQ(to_u64("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(to_u64("0xffffffffffffffff"), ~std::uint64_t{0});
}

TEST(Text, RefusesWhatIsNotOnlyANumber) {
  for (const auto* bad : {"", "0x", "-1", "+1", " 1", "1 ", "18446744073709551616", "1e3", "4.0"}) {
    EXPECT_FALSE(to_u64(bad)) << bad;
  }
}

TEST(Text, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(Text, FindsWhatWasMeant) {
  constexpr std::string_view known[] = {"mapped", "portable", "wc"};
  EXPECT_EQ(nearest("maped", known, 3), "mapped");
  EXPECT_FALSE(nearest("completely-else", known, 3));
}

TEST(ShellWord, QuotesWhatAShellWouldObeyAndShowsWhatATerminalWould) {
  EXPECT_EQ(shell_word("runs/a-1.jsonl.gz"), "runs/a-1.jsonl.gz");
  EXPECT_EQ(shell_word("my run.jsonl"), "'my run.jsonl'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a\x1b[2J"), R"($'a\033[2J')");
  EXPECT_EQ(shell_word("a\nit's\\\tb"), R"($'a\nit\'s\\\tb')");
  EXPECT_EQ(shell_word("\u202egpj.\u00e9\xff"), R"($'\342\200\256gpj.)"
                                                "\u00e9"
                                                R"(\377')");
}

}  // namespace
}  // namespace emm::text
