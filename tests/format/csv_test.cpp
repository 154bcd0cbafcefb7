#include "format/csv.hpp"

#include <gtest/gtest.h>

namespace emm::format {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(std::string_view text, std::string* error = nullptr) {
  const auto source = ByteSource::memory(text, "x.csv");
  CsvReader reader(*source);
  Rows rows;
  std::vector<std::string_view> fields;
  for (;;) {
    const auto more = reader.next(fields);
    if (!more && error != nullptr) *error = more.error().message;
    if (!more || !*more) return rows;
    rows.emplace_back(fields.begin(), fields.end());
  }
}

TEST(Csv, ReadsPlainAndQuotedRows) {
  EXPECT_EQ(rows_of("a,b\r\n1,\n\"x,y\",\"say \"\"hi\"\"\",\"two\nlines\"\n"),
            (Rows{{"a", "b"}, {"1", ""}, {"x,y", "say \"hi\"", "two\nlines"}}));
  EXPECT_EQ(rows_of("\"\",\n"), (Rows{{"", ""}}));
  EXPECT_EQ(rows_of("\n"), (Rows{{""}}));
}

TEST(Csv, RefusesQuotesOutOfPlace) {
  std::string error;
  rows_of("a,b\"c\n", &error);
  EXPECT_EQ(error, "x.csv:1:4: a quote out of place: expected a comma or the end of the row");
  rows_of("1\n\"a\"b\n", &error);
  EXPECT_EQ(error, "x.csv:2:4: a quote out of place: expected a comma or the end of the row");
  rows_of("1\n\"abc\ndef\n", &error);
  EXPECT_EQ(error, "x.csv:2: the file ends inside a quoted field");
}

TEST(Csv, FieldsReadBackAsTheyWereWritten) {
  const std::vector<std::string> fields{"plain", "a,b", "\"", "line\nend", "", " space "};
  std::string row;
  for (const auto& field : fields) {
    if (!row.empty()) row.push_back(',');
    append_csv_field(row, field);
  }

  EXPECT_EQ(rows_of(row + "\n"), (Rows{fields}));
}

}  // namespace
}  // namespace emm::format
