#include "inspect/statistics.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"

namespace emm::inspect {
namespace {

constexpr std::size_t kStatisticsWidth = 80;  // columns of prose

std::string words_of(const Figure& figure, std::string (*bytes)(std::uint64_t)) {
  if (!figure.value) return "unknown";
  const auto shown_value = [&](std::uint64_t value) {
    return figure.unit == Figure::Unit::bytes ? bytes(value) : text::grouped(value);
  };
  const auto low = shown_value(figure.value->low), high = shown_value(figure.value->high);
  return low == high ? low : text::format("{} to {}", low, high);
}

std::string sentences(std::string_view title, const std::vector<std::string>& all) {
  if (all.empty()) return "";
  std::string out = text::format("\n{}\n", title);
  for (const auto& each : all) {
    bool first = true;
    auto lines = format::wrapped(each, kStatisticsWidth - 4);
    for (std::size_t at = 0; at < lines.size();) {
      const auto end = std::min(lines.find('\n', at), lines.size());
      out += text::format("{}{}\n", first ? "  - " : "    ", lines.substr(at, end - at));
      first = false;
      at = end + 1;
    }
  }
  return out;
}

}  // namespace

Stated minus(Stated from, Stated what) noexcept {
  return {from.low > what.high ? from.low - what.high : 0,
          from.high > what.low ? from.high - what.low : 0};
}

Result<const StatisticsReader*> detect_statistics(format::ByteSource& source) {
  constexpr std::size_t kPrefixBytes = std::size_t{64} << 10;  // what a reader's sniff() is shown
  const auto prefix = source.peek(kPrefixBytes);
  if (!prefix) return prefix.error();
  const StatisticsReader* surest = nullptr;
  auto how_sure = 0;
  for (const auto* reader : statistics_readers()) {
    const auto sure = reader->sniff(*prefix);
    if (sure <= how_sure) continue;
    surest = reader;
    how_sure = sure;
  }
  return surest;
}

std::vector<Growing> growth_of(const Statistics& before, const Statistics& after) {
  std::map<std::string, Growing> by_name;
  for (const auto& row : before.rows) by_name[row.name].before += row.bytes;
  for (const auto& row : after.rows) by_name[row.name].after += row.bytes;
  std::vector<Growing> all;
  for (auto& [name, each] : by_name) {
    if (each.before == each.after) continue;
    each.name = name;
    all.push_back(each);
  }
  std::stable_sort(all.begin(), all.end(), [](const Growing& a, const Growing& b) {
    // As signed numbers: what grew most comes first, what shrank most last.
    return static_cast<std::int64_t>(a.after - a.before) >
           static_cast<std::int64_t>(b.after - b.before);
  });
  return all;
}

format::Brief brief(const Statistics& statistics, const std::string& file) {
  constexpr std::size_t kName = 40;  // columns of a name
  format::Brief out;
  out.answer.push_back(text::format("{}: {}", format::file_name(file),
                                    text::printable(statistics.what, kStatisticsWidth)));
  for (std::size_t i = 0; i < statistics.reading.size() && i < 2; ++i) {
    out.answer.push_back(statistics.reading[i]);
  }
  if (!statistics.rows.empty()) {
    out.sides = "rrl";
    out.rows = {{"bytes", "count", ""}};
    for (const auto& row : statistics.rows) {
      if (out.rows.size() > format::Brief::kRows) {
        out.rows.push_back(
            {"", "", text::format("{} more", statistics.rows.size() - format::Brief::kRows)});
        break;
      }
      out.rows.push_back({units::short_bytes(row.bytes), text::grouped(row.count),
                          std::string(text::printable(row.name, kName))});
    }
  } else if (!statistics.groups.empty()) {
    out.sides = "lr";
    const auto& group = statistics.groups.front();
    out.rows = {{text::printable(group.name.empty() ? "as stated" : group.name, kName), ""}};
    for (const auto& figure : group.figures) {
      if (out.rows.size() <= format::Brief::kRows)
        out.rows.push_back({figure.name, words_of(figure, units::short_bytes)});
    }
  }
  out.more = "all figures, what the file cannot tell, and what to record instead";
  return out;
}

std::string to_text(const Statistics& statistics, const std::string& file, std::size_t top) {
  auto out = format::wrapped(text::format("{}: {}", text::printable(file, std::string::npos),
                                          text::printable(statistics.what, std::string::npos)),
                             kStatisticsWidth);
  for (const auto& each : statistics.reading) out += format::wrapped(each, kStatisticsWidth);
  for (const auto& group : statistics.groups) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& figure : group.figures)
      rows.push_back({figure.name, words_of(figure, units::bytes)});
    out += text::format("\nAs stated{}{}\n", group.name.empty() ? "" : " of ",
                        text::printable(group.name, std::string::npos)) +
           format::columns("lr", rows);
  }
  if (!statistics.rows.empty()) {
    constexpr std::size_t kName = 48;  // columns of a name
    std::vector<std::vector<std::string>> rows{{"bytes", "count", ""}};
    for (std::size_t i = 0; i < statistics.rows.size() && i < top; ++i) {
      const auto& row = statistics.rows[i];
      rows.push_back({units::bytes(row.bytes), text::grouped(row.count),
                      std::string(text::printable(row.name, kName))});
    }
    out += text::format("\n{}\n", statistics.rows_title) + format::columns("rrl", rows);
    if (statistics.rows.size() > top)
      out += text::format("  ... and {} more\n", statistics.rows.size() - top);
  }
  return out + sentences("What the file cannot tell", statistics.unknown) +
         sentences("To know more", statistics.next);
}

std::string to_json(const Statistics& statistics, const StatisticsReader& reader,
                    const std::string& file) {
  format::JsonAnswer json("emmctl.statistics/1");
  json.member("file", file).member("format", reader.name).member("what", statistics.what);
  json.objects("groups", statistics.groups, [&](const FigureGroup& group) {
    json.member("name", group.name).objects("figures", group.figures, [&](const Figure& each) {
      json.member("name", each.name);
      json.member("unit", each.unit == Figure::Unit::bytes ? "bytes" : "count");
      const auto value = each.value.value_or(Stated());
      json.member_or_null("low", each.value.has_value(), value.low);
      json.member_or_null("high", each.value.has_value(), value.high);
    });
  });
  json.member("rows", statistics.rows).member("reading", statistics.reading);
  json.member("unknown", statistics.unknown).member("next", statistics.next);
  return json.finish();
}

std::string to_json(const std::vector<Growing>& growing, const StatisticsReader& reader,
                    const std::string& before, const std::string& after) {
  format::JsonAnswer json("emmctl.grown/1");
  json.member("format", reader.name).member("before", before).member("after", after);
  json.objects("rows", growing, [&](const Growing& each) {
    json.member("name", each.name).member("before_bytes", each.before);
    json.member("after_bytes", each.after);
  });
  return json.finish();
}

std::string to_text(const std::vector<Growing>& growing, const std::string& before,
                    const std::string& after, std::size_t top) {
  if (growing.empty()) return text::format("{} has the same rows as {}\n", after, before);
  constexpr std::size_t kName = 40;  // columns of a name
  std::vector<std::vector<std::string>> rows{{"change", "before", "after", ""}};
  std::uint64_t sum_before = 0, sum_after = 0;
  for (const auto& each : growing) sum_before += each.before, sum_after += each.after;
  const auto change = [](std::uint64_t from, std::uint64_t to) {
    return to >= from ? "+" + units::bytes(to - from) : "-" + units::bytes(from - to);
  };
  for (std::size_t i = 0; i < growing.size() && i < top; ++i) {
    const auto& each = growing[i];
    rows.push_back({change(each.before, each.after), units::bytes(each.before),
                    units::bytes(each.after), std::string(text::printable(each.name, kName))});
  }
  auto out =
      format::wrapped(text::format("{} has {} {} than {}", after,
                                   units::bytes(sum_after >= sum_before ? sum_after - sum_before
                                                                        : sum_before - sum_after),
                                   sum_after >= sum_before ? "more" : "less", before),
                      kStatisticsWidth) +
      "\nWhat grew, and what shrank\n" + format::columns("rrrl", rows);
  if (growing.size() > top) out += text::format("  ... and {} more\n", growing.size() - top);
  return out;
}

}  // namespace emm::inspect
