#include "format/rmm_csv.hpp"

#include <charconv>
#include <cstring>

namespace emm::format::rmm {
namespace {

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
  /// std::ostream << double, at its default precision
  void streamed_double(double value) noexcept {
    end_ = std::to_chars(end_, limit(), value, std::chars_format::general, 6).ptr;
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
