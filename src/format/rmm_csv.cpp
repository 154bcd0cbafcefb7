#include "format/rmm_csv.hpp"

#include <bit>
#include <charconv>
#include <cstring>

namespace emm::format::rmm {
namespace {

/// 10^0 to 10^16: more than there are nanoseconds in 10^6 seconds.
constexpr auto kPowers = [] {
  std::array<std::uint64_t, 17> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
  return powers;
}();

/// A line in the making. Every field but the location is short, so that a bound on them is a bound
/// on the row.
class Line {
 public:
  void put(std::string_view text) noexcept {
    std::memcpy(end_, text.data(), text.size());
    end_ += text.size();
  }
  void put(char c) noexcept { *end_++ = c; }
  void decimal(std::uint64_t value) noexcept { end_ = std::to_chars(end_, limit(), value).ptr; }
  void two_digits(std::uint64_t value) noexcept {
    put(static_cast<char>('0' + value / 10));
    put(static_cast<char>('0' + value % 10));
  }
  void hex(std::uint64_t value) noexcept {
    put(std::string_view("0x"));
    end_ = std::to_chars(end_, limit(), value, 16).ptr;
  }
  /// printf's %p
  void pointer(std::uint64_t value) noexcept {
    if (value == 0) {
      put(std::string_view("(nil)"));
    } else {
      hex(value);
    }
  }
  /// std::ostream << const void*
  void streamed_pointer(std::uint64_t value) noexcept {
    if (value == 0) {
      put('0');
    } else {
      hex(value);
    }
  }
  /// std::ostream << double, at its default precision: six significant digits, "%g". Times that are
  /// whole nanoseconds, and not just between two such numbers, need no more than integers.
  void streamed_double(double value) noexcept {
    const auto ns = value >= 0 && value < 1e6 ? static_cast<std::uint64_t>(value * 1e9 + 0.5) : 0;
    if (ns == 0 || static_cast<double>(ns) * 1e-9 != value || !whole_ns(ns)) {
      end_ = std::to_chars(end_, limit(), value, std::chars_format::general, 6).ptr;
    }
  }
  /// "01:54:00.576568"
  void time_of_day(std::uint64_t us) noexcept {
    const auto seconds = us / 1'000'000 % 86'400;
    two_digits(seconds / 3600);
    put(':');
    two_digits(seconds / 60 % 60);
    put(':');
    two_digits(seconds % 60);
    put('.');
    const auto fraction = us % 1'000'000;
    two_digits(fraction / 10'000);
    two_digits(fraction / 100 % 100);
    two_digits(fraction % 100);
  }
  std::string_view text() const noexcept {
    return {bytes_, static_cast<std::size_t>(end_ - bytes_)};
  }

 private:
  /// `ns` nanoseconds as seconds, below 10^6; false, and nothing put, where two six-digit numbers
  /// are as near.
  bool whole_ns(std::uint64_t ns) noexcept {
    // Decimal digits by binary ones: 1233/4096 is a little above log10(2).
    auto digits = static_cast<std::size_t>(std::bit_width(ns)) * 1233 >> 12;
    if (ns >= kPowers[digits]) ++digits;
    auto exponent = static_cast<int>(digits) - 10;  // of the first digit
    auto six = ns;
    if (digits < 6) {
      six *= kPowers[6 - digits];
    } else if (digits > 6) {
      const auto unit = kPowers[digits - 6];
      six = ns / unit;
      const auto twice = (ns - six * unit) * 2;
      if (twice == unit) return false;
      if (twice > unit && ++six == 1'000'000) {
        six = 100'000;
        ++exponent;
      }
    }
    if (exponent > 5) return false;
    char text[6];
    for (int i = 5; i >= 0; --i, six /= 10) text[i] = static_cast<char>('0' + six % 10);
    int significant = 6;
    while (significant > 1 && text[significant - 1] == '0') --significant;
    const auto part = [&](int begin, int end) {
      put(std::string_view(text + begin, static_cast<std::size_t>(end - begin)));
    };
    if (exponent < -4) {
      put(text[0]);
      if (significant > 1) put('.');
      part(1, significant);
      put(std::string_view("e-"));
      two_digits(static_cast<std::uint64_t>(-exponent));
    } else if (exponent < 0) {
      put(std::string_view("0.0000").substr(0, static_cast<std::size_t>(1 - exponent)));
      part(0, significant);
    } else {
      const int whole = exponent + 1;
      part(0, whole);
      if (significant > whole) put('.');
      if (significant > whole) part(whole, significant);
    }
    return true;
  }
  char* limit() noexcept { return bytes_ + sizeof bytes_; }

  char bytes_[320];  // the longest row: twelve fields of at most 22 bytes
  char* end_ = bytes_;
};

}  // namespace

void append(std::string& out, const Row& row) {
  Line line;
  line.decimal(row.thread);
  line.put(',');
  line.time_of_day(row.time_us);
  line.put(',');
  line.put(name(row.action));
  line.put(',');
  line.pointer(row.pointer);
  line.put(',');
  line.decimal(row.size);
  line.put(',');
  line.streamed_pointer(row.stream);
  line.put('\n');
  out.append(line.text());
}

void append(std::string& out, const LegacyRow& row) {
  Line line;
  line.put(name(row.event));
  line.put(',');
  line.decimal(row.device);
  line.put(',');
  line.streamed_pointer(row.address);
  line.put(',');
  line.streamed_pointer(row.stream);
  line.put(',');
  line.decimal(row.size);
  line.put(',');
  line.decimal(row.free);
  line.put(',');
  line.decimal(row.total);
  line.put(',');
  line.decimal(row.current_allocs);
  line.put(',');
  line.streamed_double(row.start_s);
  line.put(',');
  line.streamed_double(row.end_s);
  line.put(',');
  line.streamed_double(row.elapsed_s);
  line.put(',');
  out.append(line.text());
  out.append(row.location);
  out.push_back('\n');
}

}  // namespace emm::format::rmm
