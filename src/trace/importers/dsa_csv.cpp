// Problems of dynamic storage allocation, as MiniMalloc and idealloc have them: buffers with lifetimes, to be placed.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "trace/field.hpp"
#include "trace/importers/each_row.hpp"
#include "trace/importers/placement_rows.hpp"

namespace emm {
namespace {

using namespace trace;

enum class Column { id, lower, upper, end, size, alignment, hint, gaps, offset };
constexpr std::pair<std::string_view, Column> kColumns[] = {
    {"id", Column::id},         {"buffer", Column::id},     {"buffer_id", Column::id},
    {"lower", Column::lower},   {"begin", Column::lower},   {"start", Column::lower},
    {"upper", Column::upper},   {"end", Column::end},  // inclusive
    {"size", Column::size},     {"alignment", Column::alignment},
    {"hint", Column::hint},     {"gaps", Column::gaps},     {"offset", Column::offset},
};

/// The columns that a line names; nothing where it is no header.
std::optional<std::vector<Column>> columns_of(std::string_view line) {
  std::vector<Column> columns;
  std::array<int, 9> named{};
  for (auto more = true; more;) {
    const auto comma = line.find(',');
    const auto name = text::trim(line.substr(0, comma));
    const auto* const known = std::find_if(std::begin(kColumns), std::end(kColumns),
                                           [&](const auto& column) { return column.first == name; });
    if (known == std::end(kColumns)) return std::nullopt;
    columns.push_back(known->second);
    ++named[static_cast<std::size_t>(known->second)];
    more = comma != std::string_view::npos;
    if (more) line.remove_prefix(comma + 1);
  }
  const auto times = [&](Column column) { return named[static_cast<std::size_t>(column)]; };
  const auto whole = times(Column::id) == 1 && times(Column::lower) == 1 && times(Column::size) == 1 &&
                     times(Column::upper) + times(Column::end) == 1;
  if (!whole || *std::max_element(named.begin(), named.end()) > 1) return std::nullopt;
  return columns;
}

int sniff(std::string_view prefix) {
  auto sure = 0;
  first_lines(prefix, 1, [&](std::string_view line) { sure = columns_of(line) ? 95 : 0; });
  return sure;
}

/// What a row says that a trace has no place for.
struct LeftOut {
  std::uint64_t hints = 0, gaps = 0, offsets = 0;
};

struct Fields {
  PlacementRow row;
  bool hint = false, gaps = false, offset = false;
  std::size_t id_at = 0;
};

/// The decimal number that a column is, where it is nothing else and sure to fit.
struct PlainNumber {
  std::uint64_t value = 0;
  std::size_t digits = 0;
};
std::optional<PlainNumber> plain_number(std::string_view rest) {
  constexpr std::size_t kMostDigits = 19;
  PlainNumber number;
  for (const auto c : rest) {
    if (c == ',') break;
    if (c < '0' || c > '9' || number.digits == kMostDigits) return std::nullopt;
    number.value = number.value * 10 + static_cast<std::uint64_t>(c - '0');
    ++number.digits;
  }
  if (number.digits == 0) return std::nullopt;
  return number;
}

std::optional<BadField> parse(std::string_view line, const std::vector<Column>& columns, Fields& fields) {
  fields = {};
  auto& row = fields.row;
  std::size_t at = 0;
  for (const auto column : columns) {
    const auto plain = plain_number(line.substr(at));
    const auto comma = plain ? at + plain->digits : std::min(line.find(',', at), line.size());
    const auto value = plain ? line.substr(at, plain->digits) : text::trim(line.substr(at, comma - at));
    const auto number = [&](std::string_view what, std::string_view expected,
                            std::uint64_t& into) -> std::optional<BadField> {
      if (plain) {
        into = plain->value;
        return std::nullopt;
      }
      const auto said = value.find_first_of("xX") == std::string_view::npos ? text::to_u64(value) : std::nullopt;
      if (!said) return BadField{.what = what, .value = value, .at = at, .expected = expected};
      into = *said;
      return std::nullopt;
    };
    std::optional<BadField> bad;
    std::uint64_t unused = 0;
    switch (column) {
      case Column::id:
        row.id = value;
        fields.id_at = at;
        if (!plain && (value.empty() || value.size() > kIdBytes || !std::all_of(value.begin(), value.end(), is_id_character))) {
          bad = BadField{.what = "id", .value = value, .at = at,
                         .expected = "an id: a count, or 1 to 64 letters, digits and _.:/-"};
        }
        break;
      case Column::lower: bad = number("lower", "a time", row.lower); break;
      case Column::upper:
      case Column::end: {
        const auto inclusive = column == Column::end;
        constexpr std::string_view kAfter = "a time after the buffer's first";
        bad = number(inclusive ? "end" : "upper", kAfter, row.upper);
        if (!bad && inclusive) ++row.upper;
        if (!bad && row.upper <= row.lower) {
          bad = BadField{.what = inclusive ? "end" : "upper", .value = value, .at = at, .expected = kAfter};
        }
        break;
      }
      case Column::size: bad = number("size", "a count of bytes", row.size); break;
      case Column::alignment:
        if (value.empty()) break;
        bad = number("alignment", "a power of two", row.align);
        if (!bad && (row.align & (row.align - 1)) != 0) {
          bad = BadField{.what = "alignment", .value = value, .at = at, .expected = "a power of two"};
        }
        if (row.align == 1) row.align = 0;
        break;
      case Column::hint: fields.hint = !value.empty() && value != "-1"; break;
      case Column::gaps: fields.gaps = !value.empty(); break;
      case Column::offset:
        fields.offset = !value.empty();
        if (fields.offset) bad = number("offset", "a count of bytes", unused);
        break;
    }
    if (bad) return bad;
    at = std::min(comma + 1, line.size());
  }
  const auto rest = line.substr(at);
  if (text::trim(rest).empty()) return std::nullopt;
  return BadField{.what = "the rest", .value = rest, .at = at, .expected = "the end of the line"};
}

Result<ImportCounts> read_problem(format::ByteSource& source, OperationSink& sink, const ImportOptions& options) {
  ImportRun run(source, sink, options);
  if (auto begun = run.header(placement_header()); !begun) return std::move(begun).error();

  PlacementRows rows(run);
  LeftOut left_out;
  std::vector<Column> columns;
  Fields fields;
  auto read = each_row(
      run,
      [&](std::string_view line) -> Result<std::optional<BadField>> {
        if (columns.empty()) {
          if (auto named = columns_of(line)) {
            columns = *std::move(named);
            fields = {};
            return std::optional<BadField>{};
          }
          return std::optional(BadField{.what = "the header", .value = line, .at = 0,
                                        .expected = "id,lower,upper,size, and any of alignment,hint,gaps,offset"});
        }
        if (auto bad = parse(line, columns, fields)) return bad;
        const auto id = fields.row.id;
        left_out.hints += fields.hint ? 1 : 0;
        left_out.gaps += fields.gaps ? 1 : 0;
        left_out.offsets += fields.offset ? 1 : 0;
        if (rows.add(fields.row)) return std::optional<BadField>{};
        return std::optional(BadField{.what = "id", .value = line.substr(fields.id_at, id.size()), .at = fields.id_at,
                                      .expected = "one that no row before it has"});
      },
      []() -> Status { return {}; });
  if (!read) return std::move(read).error();
  run.note(left_out.gaps, "buffers have gaps, in which their memory is not needed: taken as needed");
  run.note(left_out.hints, "buffers have a hint, which a trace does not keep");
  run.note(left_out.offsets, "buffers have been placed, which a trace does not keep");
  return rows.finish();
}

}  // namespace

extern constinit const Importer dsa_csv_importer{
    .name = "dsa-csv",
    .summary = "placement problems of MiniMalloc and idealloc: id,lower,upper,size or id,start,end,size",
    .from_documentation = false,
    .sniff = sniff,
    .read = read_problem,
};

}  // namespace emm
