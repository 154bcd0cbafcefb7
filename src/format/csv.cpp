#include "format/csv.hpp"

namespace emm::format {

Result<bool> CsvReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  std::string_view line;
  auto more = lines_.next(line);
  if (!more || !*more) return more;
  line_ = lines_.line_number();

  if (line.find('"') == std::string_view::npos) {
    for (auto comma = line.find(','); comma != std::string_view::npos; comma = line.find(',')) {
      fields.push_back(line.substr(0, comma));
      line.remove_prefix(comma + 1);
    }
    fields.push_back(line);
    return true;
  }

  row_.clear();
  spans_.clear();
  const auto column = [&](std::size_t at) { return at + 1; };
  std::size_t at = 0;
  for (;;) {
    const auto begin = row_.size();
    if (at < line.size() && line[at] == '"') {
      ++at;
      for (;;) {
        if (at == line.size()) {
          row_.push_back('\n');
          more = lines_.next(line);
          if (!more) return more;
          if (!*more) {
            return fail(Errc::parse_error, "{}:{}: the file ends inside a quoted field",
                        lines_.source().name(), line_);
          }
          at = 0;
        } else if (line[at] != '"') {
          row_.push_back(line[at++]);
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          row_.push_back('"');
          at += 2;
        } else {
          ++at;
          break;
        }
      }
    } else {
      while (at < line.size() && line[at] != ',' && line[at] != '"') row_.push_back(line[at++]);
    }
    if (at < line.size() && line[at] != ',') {
      return fail(Errc::parse_error,
                  "{}:{}:{}: a quote out of place: expected a comma or the end of the row",
                  lines_.source().name(), lines_.line_number(), column(at));
    }
    spans_.emplace_back(begin, row_.size() - begin);
    if (at == line.size()) break;
    ++at;
  }
  for (const auto& [begin, size] : spans_)
    fields.push_back(std::string_view(row_).substr(begin, size));
  return true;
}

void append_csv_field(std::string& out, std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) {
    out.append(value);
    return;
  }
  out.push_back('"');
  for (const char c : value) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  out.push_back('"');
}

}  // namespace emm::format
