#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/json_reader.hpp"

namespace emm::trace {

/// A JSON value that remembers where it was written, so that an error can say so. Held for one line
/// of a trace, one event of a document, or its header.
struct JsonNode {
  enum class Type : std::uint8_t { null, boolean, number, string, array, object };
  struct Member;

  Type type = Type::null;
  bool boolean = false;
  format::JsonNumber::Kind number_kind = format::JsonNumber::Kind::unsigned_integer;
  format::JsonPosition at{};
  std::uint64_t number = 0;  ///< Of an unsigned integer.
  std::string text{};        ///< A string; the text of other numbers.
  std::vector<JsonNode> elements;
  std::vector<Member> members;

  bool is_unsigned() const noexcept {
    return type == Type::number && number_kind == format::JsonNumber::Kind::unsigned_integer;
  }
};

struct JsonNode::Member {
  std::string key;
  format::JsonPosition at;
  JsonNode value{};
};

/// The value as a message quotes it: -4096, "abc", an object. Long texts are cut.
std::string quoted(const JsonNode& node);
/// As JSON, appended.
void append_json(std::string& out, const JsonNode& node);

/// Builds nodes from what a JSON reader says. A value is whole when depth() is 0 again.
class NodeBuilder {
 public:
  explicit NodeBuilder(const std::string& source) : source_(source) {}

  /// Begins another value.
  void clear();
  std::size_t depth() const noexcept { return open_.size(); }
  std::size_t values() const noexcept { return values_; }  ///< So many are in this one.
  JsonNode& root() noexcept { return root_; }

  /// The next value, to be filled in by the caller, who asks enough() whether it was one too many.
  JsonNode& place(JsonNode::Type type, format::JsonPosition at);
  void key(std::string_view key, format::JsonPosition at);
  Status open(JsonNode::Type type, format::JsonPosition at);
  void close() { open_.pop_back(); }
  /// parse_error where this value and `before` others hold more than JSON may in memory.
  Status enough(format::JsonPosition at, std::size_t before = 0) const;

 private:
  const std::string& source_;
  JsonNode root_;
  std::size_t values_ = 0;
  std::vector<JsonNode*> open_;  // a container grows only while it is the last: no pointer dangles
};

/// A JsonHandler that gives each value to a NodeBuilder, and hears of the ends of objects and
/// arrays.
class NodeHandler : public format::JsonHandler {
 public:
  explicit NodeHandler(const std::string& source) : nodes_(source) {}

  Status on_null(format::JsonPosition at) override;
  Status on_bool(bool value, format::JsonPosition at) override;
  Status on_number(const format::JsonNumber& number, format::JsonPosition at) override;
  Status on_string(std::string_view value, format::JsonPosition at) override;
  Status on_key(std::string_view key, format::JsonPosition at) override;
  Status on_begin_object(format::JsonPosition at) override;
  Status on_begin_array(format::JsonPosition at) override;
  Status on_end_object(format::JsonPosition at) override;
  Status on_end_array(format::JsonPosition at) override;

  const JsonNode& root() noexcept { return nodes_.root(); }

 protected:
  /// A value outside all others is whole.
  virtual Status on_value() { return {}; }
  NodeBuilder& nodes() noexcept { return nodes_; }

 private:
  Status done() { return nodes_.depth() == 0 ? on_value() : Status(); }
  Status placed(format::JsonPosition at);
  NodeBuilder nodes_;
};

}  // namespace emm::trace
