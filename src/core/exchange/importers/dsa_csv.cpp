// Dynamic storage allocation problems of MiniMalloc and idealloc: buffers with lifetimes that are
// to be placed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/placement_rows.hpp"
#include "format/csv_line.hpp"
#include "format/plain_number.hpp"
#include "trace/field.hpp"

namespace emm {
namespace {

using namespace trace;

using format::CsvLayout;

enum DsaColumn : std::uint8_t {
  kId,
  kLower,
  kUpper,
  kEnd,
  kSize,
  kAlignment,
  kHint,
  kGaps,
  kOffset,
  kColumnCount
};
constexpr format::CsvColumnName kColumns[] = {
    {"id", kId},         {"buffer", kId},           {"buffer_id", kId}, {"lower", kLower},
    {"begin", kLower},   {"start", kLower},         {"upper", kUpper},  {"end", kEnd},  // inclusive
    {"size", kSize},     {"alignment", kAlignment}, {"hint", kHint},    {"gaps", kGaps},
    {"offset", kOffset},
};
constexpr std::string_view kHeader = "id,lower,upper,size, and any of alignment,hint,gaps,offset";

/// The layout that a header line names; nothing if the line is not a header.
std::optional<CsvLayout> layout_of(std::string_view line) {
  auto layout = CsvLayout::of(line, kColumns, 1u << kId | 1u << kLower | 1u << kSize);
  if (!layout || layout->has(kUpper) == layout->has(kEnd)) return std::nullopt;
  return layout;
}
/// Handles a file that separates its columns by semicolons or tabs: its first line has no comma.
class Separator {
 public:
  explicit Separator(std::string_view first_line) noexcept {
    for (const auto other : {';', '\t'}) {
      if (!other_ && first_line.find(other) != std::string_view::npos) other_ = other;
    }
    if (first_line.find(',') != std::string_view::npos) other_.reset();
  }
  /// The line with commas; valid until the next call.
  std::string_view with_commas(std::string_view line) {
    if (!other_) return line;
    line_ = line;
    std::replace(line_.begin(), line_.end(), *other_, ',');
    return line_;
  }

 private:
  std::optional<char> other_;
  std::string line_;
};

/// The layout of a file without a header: four numbers per row.
CsvLayout without_header() { return *layout_of("id,lower,upper,size"); }

/// Counts the properties of rows that a trace cannot hold.
struct LeftOut {
  std::uint64_t hints = 0, gaps = 0, offsets = 0;
};

struct Fields {
  PlacementRow row;
  bool hint = false, gaps = false, offset = false;
  std::size_t id_at = 0;
  std::string_view id{};  // as the row has it
};

/// Reads a row of numbers alone, as almost all are. For any other row returns false and leaves
/// `fields` undefined.
bool parse_plain(std::string_view line, const std::vector<std::uint8_t>& columns, Fields& fields) {
  fields.hint = fields.gaps = fields.offset = false;
  std::array<std::uint64_t, kColumnCount + 1> values{};  // the last entry takes unknown columns
  const auto* at = line.data();
  const auto* const end = at + line.size();
  for (const auto column : columns) {
    const auto* const begin = at;
    if (begin == end ||
        !format::take_plain_number(at, values[std::min<std::size_t>(column, kColumnCount)]) ||
        at > end) {
      return false;
    }
    const auto size = static_cast<std::size_t>(at - begin);
    if (column == kId) {
      if (size > 1 && *begin == '0') return false;  // a name, not a number
      fields.id_at = static_cast<std::size_t>(begin - line.data());
      fields.id = {begin, size};
    }
    fields.hint |= column == kHint;
    fields.gaps |= column == kGaps;
    fields.offset |= column == kOffset;
    if (at != end && *at++ != ',') return false;
  }
  const auto value = [&](DsaColumn column) { return values[column]; };
  const auto inclusive = value(kEnd);
  auto& row = fields.row;
  row = {.id = Id::of(value(kId)),
         .has_id = true,
         .lower = value(kLower),
         .upper = inclusive == 0 ? value(kUpper) : inclusive + 1,
         .size = value(kSize)};
  const auto align = value(kAlignment);
  row.align = align == 1 ? 0 : align;
  return at == end && row.upper > row.lower && (align & (align - 1)) == 0;
}

/// `values` are the fields of `line`.
std::optional<BadField> parse(const format::CsvLine& values,
                              const std::vector<std::uint8_t>& columns, Fields& fields) {
  fields = {};
  auto& row = fields.row;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto value = values[i];
    const auto wrong = [&](std::string_view what, std::string_view expected) {
      return BadField{.what = what, .value = value, .at = values.at(i), .expected = expected};
    };
    const auto number = [&](std::string_view what, std::string_view expected,
                            std::uint64_t& into) -> std::optional<BadField> {
      const auto said =
          value.find_first_of("xX") == std::string_view::npos ? text::to_u64(value) : std::nullopt;
      if (!said) return wrong(what, expected);
      into = *said;
      return std::nullopt;
    };
    std::optional<BadField> bad;
    std::uint64_t unused = 0;
    switch (columns[i]) {
      case kId:
        fields.id_at = values.at(i);
        fields.id = value;
        row.id = Id::of(value);
        row.has_id = true;
        if (value.empty() || value.size() > kIdBytes ||
            !std::all_of(value.begin(), value.end(), is_id_character)) {
          bad = wrong("id", "an id: a count, or 1 to 64 letters, digits and _.:/-");
        }
        break;
      case kLower:
        bad = number("lower", "a time", row.lower);
        break;
      case kUpper:
      case kEnd: {
        const auto inclusive = columns[i] == kEnd;
        const std::string_view what = inclusive ? "end" : "upper";
        constexpr std::string_view kAfter = "a time after the buffer's first";
        bad = number(what, kAfter, row.upper);
        if (!bad && inclusive) ++row.upper;
        break;
      }
      case kSize:
        bad = number("size", "a count of bytes", row.size);
        break;
      case kAlignment:
        if (value.empty()) break;
        bad = number("alignment", "a power of two", row.align);
        if (!bad && (row.align & (row.align - 1)) != 0) bad = wrong("alignment", "a power of two");
        if (row.align == 1) row.align = 0;
        break;
      case kHint:
        fields.hint = !value.empty() && value != "-1";
        break;
      case kGaps:
        fields.gaps = !value.empty();
        break;
      case kOffset:
        fields.offset = !value.empty();
        if (fields.offset) bad = number("offset", "a count of bytes", unused);
        break;
      default:
        break;
    }
    if (bad) return bad;
  }
  for (std::size_t i = 0; i < columns.size();
       ++i) {  // checked once both are known, as they may come in either order
    const auto inclusive = columns[i] == kEnd;
    if ((!inclusive && columns[i] != kUpper) || row.upper > row.lower) continue;
    return BadField{.what = inclusive ? "end" : "upper",
                    .value = values[i],
                    .at = values.at(i),
                    .expected = "a time after the buffer's first"};
  }
  for (std::size_t i = columns.size(); i < values.size(); ++i) {
    if (values[i].empty()) continue;
    return BadField{.what = "the rest",
                    .value = values[i],
                    .at = values.at(i),
                    .expected = "the end of the line"};
  }
  return std::nullopt;
}

int sniff_dsa_csv(std::string_view prefix) {
  constexpr std::size_t kLines = 20;  // headings and comments come first
  std::size_t seen = 0, rows = 0;
  auto headed = false, begins_with_row = false;
  const auto four = without_header();
  format::CsvLine values;
  std::optional<Separator> separator;
  first_lines(prefix, kLines, [&](std::string_view line) {
    if (!separator) separator.emplace(line);
    line = separator->with_commas(line);
    if (seen++ == 0) headed = layout_of(line).has_value();
    Fields fields;
    const auto is_row = values.split(line) && values.size() == four.columns().size() &&
                        !parse(values, four.columns(), fields);
    begins_with_row = begins_with_row || (is_row && seen == 1);
    rows += is_row ? 1 : 0;
  });
  return headed ? 95 : begins_with_row ? (rows == seen ? 50 : 20) : 0;
}

Result<ImportCounts> read_problem(format::ByteSource& source, OperationSink& sink,
                                  const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(placement_header()); !begun) return std::move(begun).error();

  PlacementRows rows(run);
  LeftOut left_out;
  std::optional<CsvLayout> layout;
  Fields fields;
  format::CsvLine values;
  bool headed = true;
  std::optional<Separator> separator;
  auto read = each_row(
      run,
      [&](std::string_view given) -> Result<std::optional<BadField>> {
        if (!separator) separator.emplace(given);
        const auto line = separator->with_commas(given);
        if (!layout) {
          layout = layout_of(line);
          if (layout) return std::optional<BadField>{};
          layout = without_header();
          headed = false;
        }
        if (!parse_plain(line, layout->columns(), fields)) {
          values.split(line);
          if (auto bad = parse(values, layout->columns(), fields)) {
            if (headed || run.counts().rows != 0) return bad;
            return std::optional(
                BadField{.what = "the header", .value = given, .at = 0, .expected = kHeader});
          }
        }
        left_out.hints += fields.hint ? 1 : 0;
        left_out.gaps += fields.gaps ? 1 : 0;
        left_out.offsets += fields.offset ? 1 : 0;
        if (rows.add(fields.row)) return std::optional<BadField>{};
        return std::optional(BadField{.what = "id",
                                      .value = fields.id,
                                      .at = fields.id_at,
                                      .expected = "one that no row before it has"});
      },
      []() -> Status { return {}; });
  if (!read) return std::move(read).error();
  if (!headed)
    run.counts().notes.emplace_back(
        "the file has no header: its columns are taken as id,lower,upper,size");
  if (layout) run.note_columns(layout->others());
  run.note(left_out.gaps,
           "buffers have gaps, in which their memory is not needed: taken as needed");
  run.note(left_out.hints, "buffers have a hint, which a trace does not keep");
  run.note(left_out.offsets, "buffers have been placed, which a trace does not keep");
  return rows.finish();
}

}  // namespace

extern constinit const Importer dsa_csv_importer{
    .name = "dsa-csv",
    .summary =
        "placement problems of MiniMalloc and idealloc: id,lower,upper,size or id,start,end,size",
    .from_documentation = false,
    .sniff = sniff_dsa_csv,
    .read = read_problem,
};

}  // namespace emm
