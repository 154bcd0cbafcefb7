#include "format/printed_lines.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/utf8.hpp"

namespace emm::format {
namespace {

/// The length of a JSON string with its quotes, which `text` begins with. 0 if it does not end.
std::size_t json_string_size(std::string_view text) {
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return 0;
}

/// Appends what stands between the quotes of a JSON string.
void append_unescaped(std::string_view inside, std::string& out) {
  for (std::size_t at = 0; at < inside.size(); ++at) {
    if (inside[at] != '\\' || at + 1 == inside.size()) {
      out += inside[at];
      continue;
    }
    const auto c = inside[++at];
    std::uint16_t unit = 0;
    const auto hex = inside.substr(at + 1, 4);
    if (c == 'u' &&
        std::from_chars(hex.data(), hex.data() + hex.size(), unit, 16).ptr ==
            hex.data() + hex.size() &&
        hex.size() == 4) {
      // Half of a pair is no letter by itself, and no figure.
      text::append_utf8(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
      at += 4;
      continue;
    }
    out += c == 'n' || c == 'r' ? '\n' : c == 't' ? '\t' : c;
  }
}

/// Appends what the line holds of printed lines.
void append_printed(std::string_view line, std::string& out) {
  bool any = false;
  for (std::size_t at = 0; (at = line.find('"', at)) != std::string_view::npos;) {
    const auto size = json_string_size(line.substr(at));
    if (size == 0) break;
    const auto inside = line.substr(at + 1, size - 2);
    const auto around = std::string(line.substr(0, at)).append(line.substr(at + size));
    const bool is_alone = around.find_first_not_of(" \t,") == std::string::npos;
    if (is_alone || inside.find("\\n") != std::string_view::npos) {
      append_unescaped(inside, out);
      if (!out.ends_with('\n')) out += '\n';
      any = true;
    }
    at += size;
  }
  if (!any) out.append(line).append("\n");
}

class PrintedLines final : public ByteSource {
 public:
  explicit PrintedLines(std::unique_ptr<ByteSource> source)
      : source_(std::move(source)), lines_(*source_) {}

  const std::string& name() const noexcept override { return source_->name(); }
  std::uint64_t consumed() const noexcept override { return source_->consumed(); }
  std::uint64_t total() const noexcept override { return source_->total(); }
  bool truncated() const noexcept override { return source_->truncated(); }

  Result<std::string_view> peek(std::size_t size) override {
    if (!peeked_) {
      auto first = next();
      if (!first) return first;
      peeked_ = true;
    }
    return std::string_view(text_).substr(0, std::min(size, size_));
  }

  Result<std::string_view> next() override {
    if (std::exchange(peeked_, false)) return std::string_view(text_).substr(0, size_);
    // Bytes of a piece, and those behind it that may be read.
    constexpr std::size_t kPiece = std::size_t{64} << 10, kReadable = 64;
    text_.clear();
    for (std::string_view line; text_.size() < kPiece;) {
      auto more = lines_.next(line);
      if (!more) return std::move(more).error();
      if (!*more) break;
      append_printed(line, text_);
    }
    size_ = text_.size();
    text_.append(kReadable, '\0');
    return std::string_view(text_).substr(0, size_);
  }

 private:
  std::unique_ptr<ByteSource> source_;
  LineReader lines_;
  std::string text_;
  std::size_t size_ = 0;
  bool peeked_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> printed_lines(std::unique_ptr<ByteSource> source) {
  // Bytes: as much as an importer's sniff() is shown.
  constexpr std::size_t kPrefix = std::size_t{64} << 10;
  const auto begin = source->peek(kPrefix);
  const bool is_json = begin && (begin->starts_with('{') || begin->starts_with('[')) &&
                       begin->find("\\n") != std::string_view::npos;
  return is_json ? std::make_unique<PrintedLines>(std::move(source)) : std::move(source);
}

}  // namespace emm::format
