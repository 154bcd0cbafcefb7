#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_value.hpp"
#include "trace/json/value_reader.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Reads one operation from its JSON and checks every rule of the format; no other reader decides
/// what an operation is. Errors are parse_error. The operation's views last until the next read()
/// and no longer than the node.
class OperationReader {
 public:
  explicit OperationReader(const std::string& source) : values_(source) {}
  Status read(const JsonValue& node, Operation& out);

 private:
  Status read_op(const JsonValue& node, Operation& out) const;
  Status read_extension(const JsonValue& node, Operation& out);
  Status take(Member member, const JsonValue& value, Operation& out);
  Status take_special(Member member, const JsonValue& value, Operation& out);
  Status take_result(const JsonValue& value, RecordedResult& out) const;
  Status take_expect(const JsonValue& value, Expect& out) const;
  Status take_ids(const JsonValue& value);
  Status take_frames(const JsonValue& value);

  ValueReader values_;
  std::vector<std::string_view> known_;
  Op known_of_ = Op::extension;
  std::vector<Id> ids_;
  std::vector<std::string_view> frames_;
  std::string extension_;
};

/// The names of the members that an operation may have, without "x-" ones. Its own come first.
std::vector<std::string_view> known_members(Op op);
/// The op with that name; `extension` for a name that begins with "x-"; nothing for any other.
std::optional<Op> op_of(std::string_view name) noexcept;
/// The member with that name, or nothing.
std::optional<Member> member_of(std::string_view name) noexcept;

}  // namespace emm::trace
