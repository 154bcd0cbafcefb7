#include "format/json_reader.hpp"

#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text_format.hpp"

namespace emm::format {
namespace {

/// Gives the characters of a text in order and tracks positions for messages. nlohmann's lexer only
/// tells where it is now: one character past a number, or at the closing quote of a string. This
/// class therefore follows strings itself to know where the current token began.
class Characters {
 public:
  Characters(std::string_view text, std::uint64_t first_line)
      : at_(text.data()), end_(at_ + text.size()) {
    here_.line = first_line;
  }
  explicit Characters(ByteSource& source) : source_(&source) { refill(); }

  /// nlohmann calls this only when it wants one more character.
  bool at_end() noexcept {
    wanted_more_ = at_ == end_;
    return wanted_more_;
  }
  bool wanted_more() const noexcept { return wanted_more_; }
  char current() const noexcept { return *at_; }
  void advance() {
    const char c = *at_;
    follow(c);
    step();
    if (where_ == Where::between && is_space(c)) pass_spaces();
  }

  JsonPosition token() const noexcept { return token_; }
  JsonPosition here() const noexcept { return here_; }
  JsonPosition last() const noexcept { return last_; }
  const std::optional<Error>& failed() const noexcept { return failed_; }

 private:
  // A longer string or number is damage, and is not kept.
  static constexpr std::size_t kTokenBytesMax = std::size_t{16} << 20;
  enum class Where : std::uint8_t { between, scalar, string, escape };

  static bool is_space(char c) noexcept { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

  void step() {
    ++at_;
    if (at_ == end_ && source_ != nullptr) refill();
  }

  /// Passes on one space of several: the lexer stores all characters since the last token.
  void pass_spaces() {
    const auto first = last_;
    while (at_ != end_ && is_space(*at_)) {
      follow(*at_);
      step();
    }
    last_ = first;
  }

  void refill() {
    auto more = source_->next();
    if (more && token_is_too_long(more->size())) {
      more = fail(Errc::parse_error,
                  "{}:{}:{}: a string or number of more than {} bytes: expected less",
                  source_->name(), token_.line, token_.column, kTokenBytesMax);
    }
    if (!more) {
      failed_ = std::move(more).error();
      at_ = end_ = nullptr;
    } else {
      at_ = more->data();
      end_ = at_ + more->size();
    }
  }

  /// Is the token too long to hold in memory? Counts by chunk, since counting each character would
  /// cost too much.
  bool token_is_too_long(std::size_t more) noexcept {
    const auto same = where_ != Where::between && token_ == chunk_token_;
    token_bytes_ = same ? token_bytes_ + more : more;
    chunk_token_ = token_;
    return token_bytes_ > kTokenBytesMax;
  }

  void follow(char c) noexcept {
    last_ = here_;
    if (where_ == Where::string) {
      if (c == '"') where_ = Where::between;
      if (c == '\\') where_ = Where::escape;
    } else if (where_ == Where::escape) {
      where_ = Where::string;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':') {
      where_ = Where::between;
    } else if (c == ']' || c == '}') {
      where_ = Where::between;
      if (!number_may_end_here_) token_ = here_;
    } else if (where_ == Where::between || c == '"') {
      token_ = here_;
      where_ = c == '"' ? Where::string : c == '[' || c == '{' ? Where::between : Where::scalar;
    }
    number_may_end_here_ = where_ == Where::scalar;
    if (c == '\n') {
      ++here_.line;
      here_.column = 1;
    } else {
      ++here_.column;
    }
  }

  ByteSource* source_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  JsonPosition here_{}, last_{}, token_{}, chunk_token_{};
  std::size_t token_bytes_ = 0;
  Where where_ = Where::between;
  bool number_may_end_here_ = false;
  bool wanted_more_ = false;
  std::optional<Error> failed_;
};

/// The iterator through which nlohmann takes the characters.
class CharacterIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  CharacterIterator() = default;
  explicit CharacterIterator(Characters& characters) : characters_(&characters) {}
  /// nlohmann ends silently at a NUL. It refuses any other control character, so this gives it one.
  char operator*() const noexcept {
    const char c = characters_->current();
    return c == '\0' ? '\x01' : c;
  }
  CharacterIterator& operator++() {
    characters_->advance();
    return *this;
  }
  bool operator==(const CharacterIterator& other) const noexcept {
    return ended() == other.ended();
  }

 private:
  bool ended() const noexcept { return characters_ == nullptr || characters_->at_end(); }
  Characters* characters_ = nullptr;
};

/// nlohmann's reason, without its prefix and without its quotation of the input, which may be long.
std::string reason_of(std::string_view what) {
  const auto place = what.find("column ");
  if (const auto colon = what.find(": ", place == std::string_view::npos ? 0 : place);
      colon != std::string_view::npos) {
    what.remove_prefix(colon + 2);
  }
  const auto quotation = what.find("; last read: '");
  const auto expected = what.rfind("; expected ");
  std::string words(what.substr(0, quotation));
  if (quotation != std::string_view::npos && expected != std::string_view::npos &&
      expected > quotation)
    words.append(what.substr(expected));
  // Behind a value nlohmann names only the bracket. What begins another value lacks a comma.
  for (const std::string_view bracket : {"'}'", "']'"}) {
    const auto expects = text::format("; expected {}", bracket);
    if (!words.ends_with(expects)) continue;
    words.resize(words.size() - expects.size());
    const auto token = std::string_view(words).substr(words.rfind("unexpected ") + 11);
    const bool begins_value =
        token.starts_with("'{'") || token.starts_with("'['") || token.ends_with("literal");
    words += begins_value ? "; expected ','" : text::format("; expected ',' or {}", bracket);
  }
  return words;
}

/// Turns nlohmann's events into JsonHandler's.
class Adapter {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Adapter(const Characters& characters, JsonHandler& handler, const std::string& name)
      : characters_(characters), handler_(handler), name_(name) {}

  bool null() { return take(handler_.on_null(at())); }
  bool boolean(bool value) { return take(handler_.on_bool(value, at())); }
  bool number_integer(number_integer_t value) {
    std::string text;
    if (value == 0) text.push_back('-');
    text::append(text, value);
    return take(handler_.on_number(
        {.kind = JsonNumber::Kind::negative, .negative = value, .text = text}, at()));
  }
  bool number_unsigned(number_unsigned_t value) {
    return take(
        handler_.on_number({.kind = JsonNumber::Kind::unsigned_integer, .value = value}, at()));
  }
  bool number_float(number_float_t, const string_t& text) {
    return take(handler_.on_number({.kind = JsonNumber::Kind::other, .text = text}, at()));
  }
  bool string(const string_t& value) { return take(handler_.on_string(value, at())); }
  bool binary(const binary_t&) { return false; }
  bool key(const string_t& value) { return take(handler_.on_key(value, at())); }
  bool start_object(std::size_t) { return take(handler_.on_begin_object(at())); }
  bool end_object() { return take(handler_.on_end_object(at())); }
  bool start_array(std::size_t) { return take(handler_.on_begin_array(at())); }
  bool end_array() { return take(handler_.on_end_array(at())); }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    if (characters_.failed().has_value()) {
      result_ = *characters_.failed();
    } else if (characters_.wanted_more()) {
      result_ = handler_.on_torn(name_, characters_.here());
    } else {
      const auto words = reason_of(error.what());
      const auto wrong = std::string_view(words).substr(0, words.find(';'));
      const bool token_is_wrong = wrong.ends_with("literal");
      const auto place = token_is_wrong ? at() : characters_.last();
      result_ =
          fail(Errc::parse_error, "{}:{}:{}: not JSON: {}", name_, place.line, place.column, words);
    }
    return false;
  }

  Status result() && { return std::move(result_); }

 private:
  JsonPosition at() const noexcept { return characters_.token(); }
  bool take(Status status) {
    const bool good = status.has_value();
    if (!good) result_ = std::move(status);
    return good;
  }

  const Characters& characters_;
  JsonHandler& handler_;
  const std::string& name_;
  Status result_;
};

Status read(Characters& characters, JsonHandler& handler, const std::string& name) {
  Adapter adapter(characters, handler, name);
  nlohmann::json::sax_parse(CharacterIterator(characters), CharacterIterator(), &adapter);
  return std::move(adapter).result();
}

}  // namespace

Status JsonHandler::on_torn(const std::string& name, JsonPosition at) {
  return fail(Errc::parse_error, "{}:{}:{}: cut short inside a JSON value", name, at.line,
              at.column);
}

Status read_json(ByteSource& source, JsonHandler& handler) {
  Characters characters(source);
  return read(characters, handler, source.name());
}

Status read_json(std::string_view text, JsonHandler& handler, const std::string& name,
                 std::uint64_t first_line) {
  Characters characters(text, first_line);
  return read(characters, handler, name);
}

}  // namespace emm::format
