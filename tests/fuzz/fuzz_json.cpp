// Any bytes through the JSON reader: a value or an error, the same from a stream and from memory;
// and what parses is written and read the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/assert.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"

namespace {

using namespace emm;

class Transcript final : public format::JsonHandler {
 public:
  explicit Transcript(std::string& out) : json_(out) {}
  Status on_null(format::JsonPosition) override { return done(json_.null()); }
  Status on_bool(bool value, format::JsonPosition) override { return done(json_.value(value)); }
  Status on_number(const format::JsonNumber& number, format::JsonPosition) override {
    if (number.kind == format::JsonNumber::Kind::unsigned_integer)
      return done(json_.value(number.value));
    return done(json_.raw(number.text));
  }
  Status on_string(std::string_view value, format::JsonPosition) override {
    return done(json_.value(value));
  }
  Status on_key(std::string_view key, format::JsonPosition) override {
    return done(json_.key(key));
  }
  Status on_begin_object(format::JsonPosition) override {
    if (!deeper()) return too_deep();
    return done(json_.begin_object());
  }
  Status on_end_object(format::JsonPosition) override {
    --depth_;
    return done(json_.end_object());
  }
  Status on_begin_array(format::JsonPosition) override {
    if (!deeper()) return too_deep();
    return done(json_.begin_array());
  }
  Status on_end_array(format::JsonPosition) override {
    --depth_;
    return done(json_.end_array());
  }

 private:
  static Status done(const format::JsonWriter&) { return {}; }
  static Status too_deep() { return fail(Errc::parse_error, "too deep for the writer"); }
  bool deeper() noexcept { return ++depth_ <= 250; }
  format::JsonWriter json_;
  int depth_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string name = "fuzz.json";
  std::string from_memory;
  Transcript first(from_memory);
  const auto read = format::read_json(text, first, name);
  if (format::parse_json(text)) EMM_ASSERT(read.has_value());

  const auto source = format::ByteSource::memory(text, name);
  const auto peeked = source->peek(4);
  if (peeked && peeked->substr(0, 4) == text.substr(0, 4)) {  // not packed
    std::string streamed;
    Transcript second(streamed);
    EMM_ASSERT(format::read_json(*source, second).has_value() == read.has_value());
    EMM_ASSERT(!read || streamed == from_memory);
  }
  if (!read) return 0;
  std::string again;
  Transcript third(again);
  EMM_ASSERT(format::read_json(from_memory, third, name).has_value());
  EMM_ASSERT(again == from_memory);
  return 0;
}
