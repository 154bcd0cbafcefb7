#include "format/rmm_csv_reader.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.hpp"

namespace emm::format::rmm {
namespace {

// The columns of a log and of a legacy log, by the names in RMM's own headers.
enum LogColumn : std::uint8_t { kThread, kTime, kAction, kPointer, kSize, kStream };
constexpr CsvColumnName kLogColumns[] = {{"thread", kThread}, {"time", kTime},
                                         {"action", kAction}, {"pointer", kPointer},
                                         {"size", kSize},     {"stream", kStream}};
enum LegacyColumn : std::uint8_t {
  kEvent,
  kDevice,
  kAddress,
  kLegacyStream,
  kLegacySize,
  kFree,
  kTotal,
  kAllocs,
  kStart,
  kEnd,
  kElapsed,
  kLocation,
};
constexpr CsvColumnName kLegacyColumns[] = {{"event type", kEvent},
                                            {"device id", kDevice},
                                            {"address", kAddress},
                                            {"stream", kLegacyStream},
                                            {"size (bytes)", kLegacySize},
                                            {"free memory", kFree},
                                            {"total memory", kTotal},
                                            {"current allocs", kAllocs},
                                            {"start", kStart},
                                            {"end", kEnd},
                                            {"elapsed", kElapsed},
                                            {"location", kLocation}};

template <class... Column>
constexpr std::uint64_t bits(Column... columns) noexcept {
  return ((std::uint64_t{1} << columns) | ...);
}

/// Reads a line column by column and remembers the first bad column. `walk` goes through the line
/// once; the columns must be asked for in the order of RMM's own header. `split` follows the rules
/// of CSV.
class Columns {
 public:
  enum class Way { walk, split };

  Columns(std::string_view line, Dialect& dialect, Way way)
      : line_(line), dialect_(dialect), by_layout_(way == Way::split) {
    if (!by_layout_) return;
    dialect.line.split(line);
    const auto count = dialect.layout.columns().size();
    const auto surplus = dialect.line[count];
    expect(surplus.empty(), "the rest", surplus, dialect.line.at(count), "the end of the line");
  }

  /// Empty if the file has no such column.
  std::string_view take(std::uint8_t column) noexcept {
    if (by_layout_) {
      const auto& columns = dialect_.layout.columns();
      const auto place = static_cast<std::size_t>(
          std::find(columns.begin(), columns.end(), column) - columns.begin());
      if (place == columns.size()) return {};
      at_ = dialect_.line.at(place);
      return dialect_.line[place];
    }
    if (!dialect_.layout.has(column)) return {};
    at_ = next_;
    const auto comma = line_.find(',', at_);
    const auto end = comma == std::string_view::npos ? line_.size() : comma;
    next_ = comma == std::string_view::npos ? line_.size() : comma + 1;
    return line_.substr(at_, end - at_);
  }
  /// Takes the last column up to the end of the line.
  std::string_view take_rest(std::uint8_t column) noexcept {
    if (by_layout_) return take(column);
    at_ = next_;
    next_ = line_.size();
    return line_.substr(at_);
  }
  bool has(std::uint8_t column) const noexcept { return dialect_.layout.has(column); }
  void expect(bool good, std::string_view column, std::string_view value,
              std::string_view expected) noexcept {
    expect(good, column, value, at_, expected);
  }

  std::uint64_t decimal(std::string_view column, std::string_view value,
                        std::string_view expected) noexcept {
    const auto number =
        value.starts_with("0x") || value.starts_with("0X") ? std::nullopt : text::to_u64(value);
    expect(number.has_value(), column, value, expected);
    return number.value_or(0);
  }
  std::uint64_t pointer(std::string_view column, std::string_view value) noexcept {
    if (value == "(nil)" || value == "0") return 0;
    const auto number = value.starts_with("0x") ? text::to_u64(value) : std::nullopt;
    expect(number.has_value(), column, value, "0x and hex digits, (nil) or 0");
    return number.value_or(0);
  }
  double seconds(std::string_view column, std::string_view value) noexcept {
    const auto number = text::to_double(value);
    const auto good = number.has_value() && *number >= 0 && *number < 1e9;
    expect(good, column, value, "seconds");
    return good ? *number : 0;
  }
  const std::optional<BadColumn>& bad() const noexcept { return bad_; }

 private:
  void expect(bool good, std::string_view column, std::string_view value, std::size_t at,
              std::string_view expected) noexcept {
    if (!good && !bad_)
      bad_ = BadColumn{.column = column, .value = value, .at = at, .expected = expected};
  }

  std::string_view line_;
  Dialect& dialect_;
  bool by_layout_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::optional<BadColumn> bad_;
};

/// Parses "01:54:00.576568" or "01:54:00:576568", with up to nine digits of the second, into
/// nanoseconds.
std::optional<std::uint64_t> time_of_day(std::string_view text) noexcept {
  // Characters of hh:mm:ss, and of that with nine digits more.
  constexpr std::size_t kSeconds = 8, kMost = 18;
  if (text.size() < kSeconds || text.size() == kSeconds + 1 || text.size() > kMost)
    return std::nullopt;
  unsigned worst = 0;  // the greatest digit; above 9 if a character is not a digit
  const auto digits = [&](std::size_t at, std::size_t count) {
    std::uint64_t value = 0;
    for (const auto c : text.substr(at, count)) {
      const auto digit = static_cast<std::uint8_t>(c - '0');
      worst = std::max<unsigned>(worst, digit);
      value = value * 10 + digit;
    }
    return value;
  };
  const auto hours = digits(0, 2), minutes = digits(3, 2), seconds = digits(6, 2);
  std::uint64_t ns = 0;
  if (text.size() > kSeconds) {
    if (text[kSeconds] != '.' && text[kSeconds] != ':') return std::nullopt;
    constexpr std::uint64_t kOfLast[] = {100'000'000, 10'000'000, 1'000'000, 100'000, 10'000,
                                         1'000,       100,        10,        1};
    const auto count = text.size() - kSeconds - 1;
    ns = digits(kSeconds + 1, count) * kOfLast[count - 1];
  }
  if (worst > 9 || text[2] != ':' || text[5] != ':') return std::nullopt;
  if (hours > 23 || minutes > 59 || seconds > 60)
    return std::nullopt;  // second 60 is a leap second
  return ((hours * 60 + minutes) * 60 + seconds) * 1'000'000'000 + ns;
}

/// Reads a row as RMM writes it, in one pass. For any other line returns false and leaves `row`
/// undefined.
class PlainRow {
 public:
  explicit PlainRow(std::string_view line) noexcept : at_(line.data()), end_(at_ + line.size()) {}

  bool read(bool with_thread, Row& row) noexcept {
    constexpr std::size_t kTime = 15;  // characters of hh:mm:ss:uuuuuu
    row.thread = 0;
    if (with_thread && !(decimal(row.thread) && comma())) return false;
    if (left() <= kTime) return false;
    const auto time_ns = time_of_day({at_, kTime});
    if (!time_ns) return false;
    row.time_ns = *time_ns;
    at_ += kTime;
    if (!comma()) return false;
    if (take("allocate,")) {
      row.action = Action::allocate;
    } else if (take("free,")) {
      row.action = Action::free;
    } else {
      return false;
    }
    return hex(row.pointer) && comma() && decimal(row.size) && comma() && stream(row.stream) &&
           left() == 0;
  }

 private:
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
  bool take(std::string_view word) noexcept {
    if (left() < word.size() || std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }
  bool comma() noexcept { return left() != 0 && *at_++ == ','; }
  bool decimal(std::uint64_t& value) noexcept {
    constexpr std::ptrdiff_t kMostDigits = 19;  // that 64 bits hold, whatever they are
    const auto* const begin = at_;
    for (value = 0; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint64_t>(*at_ - '0');
    }
    return at_ != begin && at_ - begin <= kMostDigits;
  }
  bool hex(std::uint64_t& value) noexcept {
    constexpr std::ptrdiff_t kMostDigits = 16;  // of 64 bits
    if (!take("0x")) return false;
    const auto* const begin = at_;
    for (value = 0; at_ != end_; ++at_) {
      const auto digit = static_cast<std::uint8_t>(*at_ - '0'),
                 letter = static_cast<std::uint8_t>(*at_ - 'a');
      if (digit > 9 && letter > 5) break;
      value = value << 4 | (digit <= 9 ? digit : letter + 10u);
    }
    return at_ != begin && at_ - begin <= kMostDigits;
  }
  bool stream(std::uint64_t& value) noexcept {
    if (left() != 1 || *at_ != '0') return hex(value);
    value = 0;
    ++at_;
    return true;
  }

  const char* at_;
  const char* end_;
};

template <std::size_t N>
std::optional<std::size_t> position(const std::array<std::string_view, N>& names,
                                    std::string_view name) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

}  // namespace

bool Dialect::has_thread() const noexcept { return layout.has(kThread); }

std::optional<Dialect> dialect_of(std::string_view header) {
  auto layout = CsvLayout::of(header, kLogColumns, bits(kTime, kAction, kPointer, kSize));
  if (!layout) return std::nullopt;
  return Dialect{.layout = *std::move(layout),
                 .is_own = header == kHeader || header == kHeaderWithoutThread};
}

std::optional<Dialect> legacy_dialect_of(std::string_view header) {
  auto layout = CsvLayout::of(header, kLegacyColumns, bits(kEvent, kAddress, kLegacySize));
  if (!layout) return std::nullopt;
  return Dialect{.layout = *std::move(layout), .is_own = header == kLegacyHeader};
}

namespace {

std::optional<BadColumn> fill(Row& row, Columns columns) {
  row.thread = columns.has(kThread)
                   ? columns.decimal("Thread", columns.take(kThread), "a thread's number")
                   : 0;
  const auto time = columns.take(kTime);
  const auto time_ns = time_of_day(time);
  columns.expect(time_ns.has_value(), "Time", time, "a time of day as 01:54:00.576568");
  row.time_ns = time_ns.value_or(0);
  const auto word = columns.take(kAction);
  const auto action = position(kActionNames, word);
  columns.expect(action.has_value(), "Action", word, "allocate, allocate failure or free");
  row.action = static_cast<Action>(action.value_or(0));
  row.pointer = columns.pointer("Pointer", columns.take(kPointer));
  row.size = columns.decimal("Size", columns.take(kSize), "a count of bytes");
  row.stream = columns.has(kStream) ? columns.pointer("Stream", columns.take_rest(kStream)) : 0;
  return columns.bad();
}

std::optional<BadColumn> fill(LegacyRow& row, Columns columns) {
  const auto count = [&](std::uint8_t column, std::string_view name, std::string_view expected) {
    return columns.has(column) ? columns.decimal(name, columns.take(column), expected) : 0;
  };
  const auto seconds = [&](std::uint8_t column, std::string_view name) {
    return columns.has(column) ? columns.seconds(name, columns.take(column)) : 0;
  };
  const auto word = columns.take(kEvent);
  const auto event = position(kLegacyEventNames, word);
  columns.expect(event.has_value(), "Event Type", word, "Alloc, Realloc or Free");
  row.event = static_cast<LegacyEvent>(event.value_or(0));
  row.device = 0;
  if (columns.has(kDevice)) {
    const auto device = columns.take(kDevice);
    const auto number = columns.decimal("Device ID", device, "a device's number");
    columns.expect(number < 256, "Device ID", device, "a device's number");
    row.device = static_cast<std::uint32_t>(number);
  }
  row.address = columns.pointer("Address", columns.take(kAddress));
  row.stream =
      columns.has(kLegacyStream) ? columns.pointer("Stream", columns.take(kLegacyStream)) : 0;
  row.size = count(kLegacySize, "Size (bytes)", "a count of bytes");
  row.free = count(kFree, "Free Memory", "a count of bytes");
  row.total = count(kTotal, "Total Memory", "a count of bytes");
  row.current_allocs = count(kAllocs, "Current Allocs", "a count");
  row.start_s = seconds(kStart, "Start");
  row.end_s = seconds(kEnd, "End");
  row.elapsed_s = seconds(kElapsed, "Elapsed");
  row.location = columns.take_rest(kLocation);
  return columns.bad();
}

/// RMM quotes nothing and writes no blanks. If a line under RMM's own header has quotes or is bad
/// as it stands, tries it by the rules of CSV.
template <class AnyRow>
std::optional<BadColumn> parse_quoted_or_not(std::string_view line, Dialect& dialect, AnyRow& row) {
  auto bad =
      fill(row, Columns(line, dialect, dialect.is_own ? Columns::Way::walk : Columns::Way::split));
  const auto is_plain = line.find('"') == std::string_view::npos;
  if (!dialect.is_own || (is_plain && !bad)) return bad;
  AnyRow quoted;
  if (fill(quoted, Columns(line, dialect, Columns::Way::split))) return bad;
  row = quoted;
  return std::nullopt;
}

}  // namespace

std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, Row& row) {
  if (dialect.is_own && PlainRow(line).read(dialect.has_thread(), row)) return std::nullopt;
  return parse_quoted_or_not(line, dialect, row);
}

std::optional<BadColumn> parse(std::string_view line, Dialect& dialect, LegacyRow& row) {
  return parse_quoted_or_not(line, dialect, row);
}

}  // namespace emm::format::rmm
