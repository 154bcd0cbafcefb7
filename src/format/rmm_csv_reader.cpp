#include "format/rmm_csv_reader.hpp"

#include <array>

#include "base/text.hpp"

namespace emm::format::rmm {
namespace {

/// Takes a line apart, column by column; remembers the first that is bad.
class Columns {
 public:
  explicit Columns(std::string_view line) noexcept : line_(line) {}

  std::string_view take() noexcept {
    at_ = next_;
    const auto comma = line_.find(',', at_);
    const auto end = comma == std::string_view::npos ? line_.size() : comma;
    next_ = comma == std::string_view::npos ? line_.size() : comma + 1;
    return line_.substr(at_, end - at_);
  }
  /// The last column, to the end of the line.
  std::string_view take_rest() noexcept {
    at_ = next_;
    next_ = line_.size();
    return line_.substr(at_);
  }
  void expect(bool good, std::string_view column, std::string_view value, std::string_view expected) noexcept {
    if (!good && !bad_) bad_ = BadColumn{.column = column, .value = value, .at = at_, .expected = expected};
  }

  std::uint64_t decimal(std::string_view column, std::string_view expected) noexcept {
    return decimal(column, take(), expected);
  }
  std::uint64_t decimal(std::string_view column, std::string_view value, std::string_view expected) noexcept {
    const auto number = value.find_first_of("xX") == std::string_view::npos ? text::to_u64(value) : std::nullopt;
    expect(number.has_value(), column, value, expected);
    return number.value_or(0);
  }
  std::uint64_t pointer(std::string_view column, std::string_view value) noexcept {
    if (value == "(nil)" || value == "0") return 0;
    const auto number = value.starts_with("0x") ? text::to_u64(value) : std::nullopt;
    expect(number.has_value(), column, value, "0x and hex digits, (nil) or 0");
    return number.value_or(0);
  }
  double seconds(std::string_view column) noexcept {
    const auto value = take();
    const auto number = text::to_double(value);
    const auto good = number.has_value() && *number >= 0 && *number < 1e9;
    expect(good, column, value, "seconds");
    return good ? *number : 0;
  }
  const std::optional<BadColumn>& bad() const noexcept { return bad_; }

 private:
  std::string_view line_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::optional<BadColumn> bad_;
};

/// "01:54:00.576568" or "01:54:00:576568" in microseconds.
std::optional<std::uint64_t> time_of_day(std::string_view text) noexcept {
  constexpr std::string_view kShape = "00:00:00.000000";
  if (text.size() != kShape.size()) return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    const auto c = text[i];
    const auto good = kShape[i] == '0'   ? c >= '0' && c <= '9'
                      : kShape[i] == '.' ? c == '.' || c == ':'
                                         : c == kShape[i];
    if (!good) return std::nullopt;
  }
  const auto digits = [&](std::size_t at, std::size_t count) {
    std::uint64_t value = 0;
    for (const auto c : text.substr(at, count)) value = value * 10 + static_cast<std::uint64_t>(c - '0');
    return value;
  };
  const auto hours = digits(0, 2), minutes = digits(3, 2), seconds = digits(6, 2);
  if (hours > 23 || minutes > 59 || seconds > 60) return std::nullopt;  // 60: a leap second
  return ((hours * 60 + minutes) * 60 + seconds) * 1'000'000 + digits(9, 6);
}

template <std::size_t N>
std::optional<std::size_t> position(const std::array<std::string_view, N>& names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Dialect> dialect_of(std::string_view header) noexcept {
  if (header == kHeader) return Dialect::with_thread;
  if (header == kHeaderWithoutThread) return Dialect::without_thread;
  return std::nullopt;
}

std::optional<BadColumn> parse(std::string_view line, Dialect dialect, Row& row) noexcept {
  Columns columns(line);
  row.thread = dialect == Dialect::with_thread ? columns.decimal("Thread", "a thread's number") : 0;
  const auto time = columns.take();
  const auto time_us = time_of_day(time);
  columns.expect(time_us.has_value(), "Time", time, "a time of day as 01:54:00.576568");
  row.time_us = time_us.value_or(0);
  const auto word = columns.take();
  const auto action = position(kActionNames, word);
  columns.expect(action.has_value(), "Action", word, "allocate, allocate failure or free");
  row.action = static_cast<Action>(action.value_or(0));
  row.pointer = columns.pointer("Pointer", columns.take());
  row.size = columns.decimal("Size", "a count of bytes");
  row.stream = columns.pointer("Stream", columns.take_rest());
  return columns.bad();
}

std::optional<BadColumn> parse(std::string_view line, LegacyRow& row) noexcept {
  Columns columns(line);
  const auto word = columns.take();
  const auto event = position(kLegacyEventNames, word);
  columns.expect(event.has_value(), "Event Type", word, "Alloc, Realloc or Free");
  row.event = static_cast<LegacyEvent>(event.value_or(0));
  const auto device = columns.take();
  const auto number = columns.decimal("Device ID", device, "a device's number");
  columns.expect(number < 256, "Device ID", device, "a device's number");
  row.device = static_cast<std::uint32_t>(number);
  row.address = columns.pointer("Address", columns.take());
  row.stream = columns.pointer("Stream", columns.take());
  row.size = columns.decimal("Size (bytes)", "a count of bytes");
  row.free = columns.decimal("Free Memory", "a count of bytes");
  row.total = columns.decimal("Total Memory", "a count of bytes");
  row.current_allocs = columns.decimal("Current Allocs", "a count");
  row.start_s = columns.seconds("Start");
  row.end_s = columns.seconds("End");
  row.elapsed_s = columns.seconds("Elapsed");
  row.location = columns.take_rest();
  return columns.bad();
}

}  // namespace emm::format::rmm
