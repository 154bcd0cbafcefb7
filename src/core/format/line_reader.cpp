#include <cstring>

#include "format/byte_source.hpp"

namespace emm::format {

Result<bool> LineReader::next(std::string_view& line) {
  carried_.clear();
  for (;;) {
    const auto* const end = rest_.empty() ? nullptr : std::memchr(rest_.data(), '\n', rest_.size());
    if (end != nullptr) {
      const auto size = static_cast<std::size_t>(static_cast<const char*>(end) - rest_.data());
      line = rest_.substr(0, size);
      rest_.remove_prefix(size + 1);
      if (!carried_.empty()) carried_.append(line);
      break;
    }
    carried_.append(rest_);
    rest_ = {};
    if (carried_.size() > max_line_) break;
    if (!ended_) {
      auto more = source_.next();
      if (!more) return std::move(more).error();
      rest_ = *more;
      ended_ = rest_.empty();
    }
    if (ended_) {
      if (carried_.empty()) return false;
      unterminated_ = true;
      break;
    }
  }
  ++line_number_;
  if (!carried_.empty()) {
    constexpr std::size_t kPadding = 64;  // readable bytes behind a line, as a ByteSource gives
    carried_.reserve(carried_.size() + kPadding);
    line = carried_;
  }
  if (line.size() > max_line_) {
    return fail(Errc::parse_error,
                "{}:{}: a line of more than {} bytes: expected one record a line", source_.name(),
                line_number_, max_line_);
  }
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

}  // namespace emm::format
