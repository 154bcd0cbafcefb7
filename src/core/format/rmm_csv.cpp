#include "format/rmm_csv.hpp"

#include <charconv>
#include <cstring>

namespace emm::format::rmm {
namespace {

/// Builds a line. Every field is short, which bounds the row.
class RowWriter {
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
  /// Writes what printf's %p writes.
  void pointer(std::uint64_t value) noexcept {
    if (value == 0) {
      put(std::string_view("(nil)"));
    } else {
      hex(value);
    }
  }
  /// Writes what std::ostream << const void* writes.
  void streamed_pointer(std::uint64_t value) noexcept {
    if (value == 0) {
      put('0');
    } else {
      hex(value);
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
  char* limit() noexcept { return bytes_ + sizeof bytes_; }

  char bytes_[160];  // the longest row: six fields of at most 22 bytes
  char* end_ = bytes_;
};

}  // namespace

void append(std::string& out, const Row& row) {
  RowWriter line;
  line.decimal(row.thread);
  line.put(',');
  line.time_of_day(row.time_ns / 1000);
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

}  // namespace emm::format::rmm
