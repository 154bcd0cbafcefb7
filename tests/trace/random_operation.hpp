#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/prng.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Operations with any members that the rules allow, and any values that the format can hold.
class RandomOperation {
 public:
  explicit RandomOperation(std::uint64_t seed) : random_(seed) {}

  /// Good until the next call.
  Operation next() {
    texts_.clear();
    Operation operation;
    operation.op = static_cast<Op>(random_.below(kOpCount));
    if (operation.op == Op::extension) {
      operation.extension = keep("x-" + id_text());
      if (random_.chance(0.5)) operation.text = R"("a":[1,{"b":null}],"size":"any")";
      return operation;
    }
    if (operation.op == Op::flush) operation.layer = Layer::backing;
    const auto& rules = rule(operation.op);
    for (std::size_t i = 1; i < kMemberCount; ++i) {
      const auto member = static_cast<Member>(i);
      const bool allowed = (rules.allowed | common_members()).has(member);
      if (rules.required.has(member) || (allowed && random_.chance(0.3))) fill(operation, member);
    }
    return operation;
  }

 private:
  std::string_view keep(std::string value) { return texts_.emplace_back(std::move(value)); }

  std::string id_text() {
    constexpr std::string_view kCharacters = "abcXYZ0189_.:/-";
    std::string value;
    for (auto left = random_.between(1, 64); left > 0; --left)
      value += kCharacters[random_.below(kCharacters.size())];
    return value;
  }
  std::string_view any_text() {
    constexpr std::string_view kPieces[] = {
        "a", " ", "\"", "\\", "\n", "\t", "\x01", "\xc3\xa9", "{}", "text", "\xf0\x9f\x90\x9a"};
    std::string value;
    for (auto left = random_.below(8); left > 0; --left)
      value += kPieces[random_.below(std::size(kPieces))];
    return keep(std::move(value));
  }
  Id any_id() {
    if (random_.chance(0.5)) return Id::of(any_number());
    return Id::of(keep(id_text()));
  }
  std::uint64_t any_number() {
    switch (random_.below(4)) {
      case 0:
        return random_.below(10);
      case 1:
        return random_.next();
      case 2:
        return kExactInteger - 1 + random_.below(3);
      default:
        return random_.log_uniform(1, ~std::uint64_t{0} >> 1);
    }
  }
  template <class Enum>
  Enum any(std::size_t first, std::size_t end) {
    return static_cast<Enum>(random_.between(first, end - 1));
  }

  void fill(Operation& operation, Member member) {
    operation.members.add(member);
    const auto& at = field(member);
    switch (at.type) {
      case FieldType::bytes:
      case FieldType::count:
      case FieldType::nanoseconds:
      case FieldType::address:
        operation.*at.number = any_number();
        return;
      case FieldType::flag:
        operation.*at.flag = random_.chance(0.5);
        return;
      case FieldType::text:
        operation.*at.text = any_text();
        return;
      case FieldType::id:
        operation.*at.id = any_id();
        return;
      case FieldType::special:
        break;
    }
    switch (member) {
      case Member::device:
        operation.device = static_cast<std::uint32_t>(random_.below(256));
        return;
      case Member::page_offset:
        operation.page_offset = static_cast<std::uint32_t>(random_.below(4096));
        return;
      case Member::layer:
        if (operation.op != Op::flush) operation.layer = any<Layer>(0, 2);
        return;
      case Member::kind:
        operation.kind = operation.op == Op::define ? Kind::device : any<Kind>(0, 3);
        if (operation.op == Op::define) operation.define_kind = any<DefineKind>(0, 4);
        return;
      case Member::attach:
        operation.attach_global = random_.chance(0.5);
        return;
      case Member::cause:
        operation.cause = any<Cause>(1, kCauseNames.size());
        return;
      case Member::phase:
        operation.phase = any<Phase>(0, 3);
        return;
      case Member::priority:
        operation.priority = static_cast<std::int32_t>(random_.next());
        return;
      case Member::result:
        operation.result.outcome = any<Outcome>(1, kOutcomeNames.size());
        if (random_.chance(0.5)) operation.result.code = static_cast<std::int32_t>(random_.next());
        if (random_.chance(0.3)) operation.result.name = any_text();
        return;
      case Member::expect:
        if (random_.chance(0.8)) operation.expect.outcome = any<Outcome>(1, kOutcomeNames.size());
        if (random_.chance(0.3)) operation.expect.align = any_number();
        if (random_.chance(0.3)) operation.expect.distinct = true;
        if (random_.chance(0.3)) operation.expect.free_at_least = any_number();
        if (random_.chance(0.3)) operation.expect.free_at_most = any_number();
        operation.expect.has_same_as = random_.chance(0.3);
        if (operation.expect.has_same_as) operation.expect.same_as = any_id();
        return;
      case Member::ids:
        ids_.clear();
        for (auto left = random_.below(4); left > 0; --left) ids_.push_back(any_id());
        operation.ids = ids_;
        return;
      case Member::frames:
        frames_.clear();
        for (auto left = random_.below(4); left > 0; --left) frames_.push_back(any_text());
        operation.frames = frames_;
        return;
      default:
        operation.extension = R"("x-mine":{"a":[1,2.50,-7]},"x-more":"\"")";
        return;
    }
  }

  Prng random_;
  std::deque<std::string> texts_;
  std::vector<Id> ids_;
  std::vector<std::string_view> frames_;
};

/// "" where `a` and `b` are the same operation, but for the line; else the name of a member that
/// differs.
inline std::string difference(const Operation& a, const Operation& b) {
  if (a.op != b.op) return "op";
  if (a.members != b.members) return "members";
  if (a.op == Op::extension)
    return a.extension == b.extension && a.text == b.text ? "" : "extension";
  for (std::size_t i = 1; i < kMemberCount; ++i) {
    const auto member = static_cast<Member>(i);
    if (!a.has(member)) continue;
    const auto& at = field(member);
    bool same = true;
    switch (at.type) {
      case FieldType::bytes:
      case FieldType::count:
      case FieldType::nanoseconds:
      case FieldType::address:
        same = a.*at.number == b.*at.number;
        break;
      case FieldType::flag:
        same = a.*at.flag == b.*at.flag;
        break;
      case FieldType::text:
        same = a.*at.text == b.*at.text;
        break;
      case FieldType::id:
        same = a.*at.id == b.*at.id;
        break;
      case FieldType::special:
        break;
    }
    switch (member) {
      case Member::device:
        same = a.device == b.device;
        break;
      case Member::page_offset:
        same = a.page_offset == b.page_offset;
        break;
      case Member::layer:
        same = a.layer == b.layer;
        break;
      case Member::kind:
        same = a.kind == b.kind && a.define_kind == b.define_kind;
        break;
      case Member::attach:
        same = a.attach_global == b.attach_global;
        break;
      case Member::cause:
        same = a.cause == b.cause;
        break;
      case Member::phase:
        same = a.phase == b.phase;
        break;
      case Member::priority:
        same = a.priority == b.priority;
        break;
      case Member::result:
        same = a.result == b.result;
        break;
      case Member::expect:
        same = a.expect == b.expect;
        break;
      case Member::ids:
        same = std::vector(a.ids.begin(), a.ids.end()) == std::vector(b.ids.begin(), b.ids.end());
        break;
      case Member::frames:
        same = std::vector(a.frames.begin(), a.frames.end()) ==
               std::vector(b.frames.begin(), b.frames.end());
        break;
      case Member::extension:
        same = a.extension == b.extension;
        break;
      default:
        break;
    }
    if (!same) return std::string(name(member));
  }
  return "";
}

}  // namespace emm::trace
