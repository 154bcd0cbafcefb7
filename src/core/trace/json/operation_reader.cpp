#include "trace/json/operation_reader.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

constexpr std::array<std::string_view, 2> kAttachNames{"host", "global"};

std::string listed(Members members) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kMemberCount; ++i) {
    if (members.has(static_cast<Member>(i))) names.push_back(name(static_cast<Member>(i)));
  }
  return text::join(names);
}

void append_extension(std::string& out, const JsonValue::Member& member) {
  if (!out.empty()) out.push_back(',');
  format::append_json_string(out, member.key);
  out.push_back(':');
  append_json(out, member.value);
}

}  // namespace

std::vector<std::string_view> known_members(Op op) {
  std::vector<std::string_view> names;
  const auto& rules = rule(op);
  const auto add = [&](Members members) {
    for (std::size_t i = 0; i < kMemberCount; ++i) {
      const auto member = static_cast<Member>(i);
      if (members.has(member) && member != Member::extension) names.push_back(name(member));
    }
  };
  add(rules.required | rules.allowed);
  names.push_back(name(Member::op));
  add(common_members());
  return names;
}

std::optional<Op> op_of(std::string_view name) noexcept {
  if (name.starts_with("x-")) return Op::extension;
  const auto found = std::find(kOpNames.begin(), kOpNames.end(), name);
  if (found == kOpNames.end()) return std::nullopt;
  return static_cast<Op>(found - kOpNames.begin());
}

std::optional<Member> member_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kMemberCount; ++i) {
    const auto member = static_cast<Member>(i);
    if (trace::name(member) == name && member != Member::extension) return member;
  }
  return std::nullopt;
}

Status OperationReader::read(const JsonValue& node, Operation& out) {
  out = Operation{};
  out.line = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(node.at.line, std::numeric_limits<std::uint32_t>::max()));
  if (node.type != JsonValue::Type::object)
    return values_.wrong("operation", node, "an object with an \"op\"");
  if (auto known = read_op(node, out); !known) return known;
  if (out.op == Op::extension) return read_extension(node, out);
  if (known_.empty() || known_of_ != out.op) {
    known_ = known_members(out.op);
    known_of_ = out.op;
  }
  if (out.op == Op::flush) out.layer = Layer::backing;

  extension_.clear();
  const auto taken = values_.members(
      node, name(out.op), known_, true, [&](std::string_view key, const JsonValue& value) {
        const auto member = member_of(key).value_or(Member::extension);
        out.members.add(member);
        return take(member, value, out);
      });
  if (!taken) return taken;
  for (const auto& member : node.members) {
    if (member.key.starts_with("x-")) append_extension(extension_, member);
  }
  out.extension = extension_;
  out.members.remove(Member::op);

  const auto lacking = rule(out.op).required.without(out.members);
  if (!lacking.empty()) {
    const auto all = listed(lacking);
    return values_.missing(all.substr(0, all.find(',')), node, name(out.op),
                           listed(rule(out.op).required));
  }
  return {};
}

Status OperationReader::read_op(const JsonValue& node, Operation& out) const {
  constexpr std::string_view kExpected =
      "an operation of the format, or a name that begins with \"x-\"";
  for (const auto& [key, at, value] : node.members) {
    if (key != name(Member::op)) continue;
    if (value.type != JsonValue::Type::string) return values_.wrong("op", value, kExpected);
    if (const auto op = op_of(value.text)) {
      out.op = *op;
      return {};
    }
    const auto near = text::nearest(value.text, kOpNames.data(), kOpNames.size() - 1);
    return values_.wrong("op", value,
                         near ? text::format("\"{}\"", *near) : std::string(kExpected));
  }
  return values_.missing("op", node, "an operation", kExpected);
}

/// Keeps the members of an "x-" operation as JSON text, except `op`.
Status OperationReader::read_extension(const JsonValue& node, Operation& out) {
  extension_.clear();
  std::vector<std::string_view> keys;
  for (const auto& member : node.members) keys.push_back(member.key);
  const auto taken = values_.members(node, "an operation", keys, true,
                                     [&](std::string_view key, const JsonValue& value) {
                                       if (key == name(Member::op))
                                         return values_.text(key, value, out.extension);
                                       return Status();
                                     });
  if (!taken) return taken;
  for (const auto& member : node.members) {
    if (member.key != name(Member::op)) append_extension(extension_, member);
  }
  out.text = extension_;
  return {};
}

Status OperationReader::take(Member member, const JsonValue& value, Operation& out) {
  const auto& at = field(member);
  const auto key = name(member);
  switch (at.type) {
    case FieldType::bytes:
    case FieldType::count:
    case FieldType::nanoseconds:
    case FieldType::address:
      return values_.number(key, at.type, value, out.*at.number);
    case FieldType::flag:
      return values_.flag(key, value, out.*at.flag);
    case FieldType::text:
      return values_.text(key, value, out.*at.text);
    case FieldType::id:
      return values_.id(key, value, out.*at.id);
    case FieldType::special:
      return take_special(member, value, out);
  }
  return {};
}

Status OperationReader::take_special(Member member, const JsonValue& value, Operation& out) {
  const auto key = name(member);
  std::uint64_t number = 0;
  switch (member) {
    case Member::device: {
      auto taken = values_.integer(key, value, kDeviceMax, number);
      out.device = static_cast<std::uint32_t>(number);
      return taken;
    }
    case Member::page_offset: {
      auto taken = values_.integer(key, value, kPageOffsetMax, number);
      out.page_offset = static_cast<std::uint32_t>(number);
      return taken;
    }
    case Member::layer:
      if (out.op == Op::flush) {
        return values_.choice(key, value, std::span(kLayerNames).last(1), number);
      }
      return values_.choice(key, value, kLayerNames, out.layer);
    case Member::kind:
      if (out.op == Op::define)
        return values_.choice(key, value, kDefineKindNames, out.define_kind);
      return values_.choice(key, value, kKindNames, out.kind);
    case Member::attach:
      return values_.choice(key, value, kAttachNames, out.attach_global);
    case Member::cause:
      return values_.choice(key, value, kCauseNames, out.cause);
    case Member::phase:
      return values_.choice(key, value, kPhaseNames, out.phase);
    case Member::priority:
      return values_.signed_integer(key, value, out.priority);
    case Member::result:
      return take_result(value, out.result);
    case Member::expect:
      return take_expect(value, out.expect);
    case Member::ids: {
      auto taken = take_ids(value);
      out.ids = ids_;
      return taken;
    }
    case Member::frames: {
      auto taken = take_frames(value);
      out.frames = frames_;
      return taken;
    }
    default:
      return {};  // op was read before; x- members are kept as text
  }
}

Status OperationReader::take_result(const JsonValue& value, RecordedResult& out) const {
  if (value.type != JsonValue::Type::object)
    return values_.choice("result", value, kOutcomeNames, out.outcome);
  constexpr std::array<std::string_view, 3> kKnown{"outcome", "code", "name"};
  const auto taken = values_.members(value, "\"result\"", kKnown, false,
                                     [&](std::string_view key, const JsonValue& of) {
                                       if (key == "outcome")
                                         return values_.choice(key, of, kOutcomeNames, out.outcome);
                                       if (key == "code")
                                         return values_.signed_integer(key, of, out.code);
                                       return values_.text(key, of, out.name);
                                     });
  if (!taken) return taken;
  if (out.outcome == Outcome::none)
    return values_.missing("outcome", value, "\"result\"", "outcome");
  return {};
}

Status OperationReader::take_expect(const JsonValue& value, Expect& out) const {
  if (value.type != JsonValue::Type::object)
    return values_.choice("expect", value, kOutcomeNames, out.outcome);
  constexpr std::array<std::string_view, 6> kKnown{"outcome",       "align",        "distinct",
                                                   "free_at_least", "free_at_most", "same_as"};
  return values_.members(value, "\"expect\"", kKnown, false,
                         [&](std::string_view key, const JsonValue& of) {
                           if (key == "outcome")
                             return values_.choice(key, of, kOutcomeNames, out.outcome);
                           if (key == "align")
                             return values_.number(key, FieldType::bytes, of, out.align);
                           if (key == "distinct") return values_.flag(key, of, out.distinct);
                           if (key == "free_at_least")
                             return values_.number(key, FieldType::bytes, of, out.free_at_least);
                           if (key == "free_at_most")
                             return values_.number(key, FieldType::bytes, of, out.free_at_most);
                           out.has_same_as = true;
                           return values_.id(key, of, out.same_as);
                         });
}

Status OperationReader::take_ids(const JsonValue& value) {
  ids_.clear();
  if (value.type != JsonValue::Type::array) return values_.wrong("ids", value, "an array of ids");
  for (const auto& element : value.elements) {
    if (auto taken = values_.id("ids", element, ids_.emplace_back()); !taken) return taken;
  }
  return {};
}

Status OperationReader::take_frames(const JsonValue& value) {
  frames_.clear();
  if (value.type != JsonValue::Type::array)
    return values_.wrong("frames", value, "an array of strings");
  for (const auto& element : value.elements) {
    if (auto taken = values_.text("frames", element, frames_.emplace_back()); !taken) return taken;
  }
  return {};
}

}  // namespace emm::trace
