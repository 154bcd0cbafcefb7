#include "trace/json_node.hpp"

#include "base/text.hpp"
#include "format/json_writer.hpp"

namespace emm::trace {
namespace {

using format::JsonNumber;
using format::JsonPosition;

void write(format::JsonWriter& json, const JsonNode& node) {
  switch (node.type) {
    case JsonNode::Type::null:
      json.null();
      return;
    case JsonNode::Type::boolean:
      json.value(node.boolean);
      return;
    case JsonNode::Type::string:
      json.value(node.text);
      return;
    case JsonNode::Type::number:
      if (node.is_unsigned()) {
        json.value(node.number);
      } else {
        json.raw(node.text);
      }
      return;
    case JsonNode::Type::array:
      json.begin_array();
      for (const auto& element : node.elements) write(json, element);
      json.end_array();
      return;
    case JsonNode::Type::object:
      json.begin_object();
      for (const auto& member : node.members) {
        json.key(member.key);
        write(json, member.value);
      }
      json.end_object();
      return;
  }
}

}  // namespace

std::string quoted(const JsonNode& node) {
  if (node.type == JsonNode::Type::array) return "an array";
  if (node.type == JsonNode::Type::object) return "an object";
  std::string out;
  append_json(out, node);
  constexpr std::size_t kLong = 60;
  if (out.size() > kLong) {
    out.resize(kLong);
    while ((static_cast<unsigned char>(out.back()) & 0xc0u) == 0x80)
      out.pop_back();  // not inside a character
    if (static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out.append("...");
  }
  return out;
}

void append_json(std::string& out, const JsonNode& node) {
  format::JsonWriter json(out);
  write(json, node);
}

void NodeBuilder::clear() {
  root_ = JsonNode();
  values_ = 0;
  open_.clear();
}

Status NodeBuilder::enough(JsonPosition at, std::size_t before) const {
  if (before + values_ <= format::kJsonValuesMax) return {};
  return format::too_many_json_values(source_, at);
}

JsonNode& NodeBuilder::place(JsonNode::Type type, JsonPosition at) {
  ++values_;
  auto* made = &root_;
  if (!open_.empty()) {
    auto& in = *open_.back();
    made =
        in.type == JsonNode::Type::object ? &in.members.back().value : &in.elements.emplace_back();
  }
  made->type = type;
  made->at = at;
  return *made;
}

void NodeBuilder::key(std::string_view key, JsonPosition at) {
  open_.back()->members.push_back({.key = std::string(key), .at = at});
}

Status NodeBuilder::open(JsonNode::Type type, JsonPosition at) {
  constexpr std::size_t kDepth = 100;  // writing and destroying a value recurse
  if (open_.size() == kDepth) {
    return fail(Errc::parse_error, "{}:{}:{}: values nested deeper than {}: expected a trace",
                source_, at.line, at.column, kDepth);
  }
  auto& made = place(type, at);
  open_.push_back(&made);
  return enough(at);
}

Status NodeHandler::placed(JsonPosition at) {
  if (auto enough = nodes_.enough(at); !enough) return enough;
  return done();
}

Status NodeHandler::on_null(JsonPosition at) {
  nodes_.place(JsonNode::Type::null, at);
  return placed(at);
}

Status NodeHandler::on_bool(bool value, JsonPosition at) {
  nodes_.place(JsonNode::Type::boolean, at).boolean = value;
  return placed(at);
}

Status NodeHandler::on_number(const JsonNumber& number, JsonPosition at) {
  auto& node = nodes_.place(JsonNode::Type::number, at);
  node.number_kind = number.kind;
  node.number = number.value;
  node.text = number.text;
  return placed(at);
}

Status NodeHandler::on_string(std::string_view value, JsonPosition at) {
  nodes_.place(JsonNode::Type::string, at).text = value;
  return placed(at);
}

Status NodeHandler::on_key(std::string_view key, JsonPosition at) {
  nodes_.key(key, at);
  return {};
}

Status NodeHandler::on_begin_object(JsonPosition at) {
  return nodes_.open(JsonNode::Type::object, at);
}
Status NodeHandler::on_begin_array(JsonPosition at) {
  return nodes_.open(JsonNode::Type::array, at);
}

Status NodeHandler::on_end_object(JsonPosition) {
  nodes_.close();
  return done();
}

Status NodeHandler::on_end_array(JsonPosition) {
  nodes_.close();
  return done();
}

}  // namespace emm::trace
