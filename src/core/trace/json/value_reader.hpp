#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/json_value.hpp"
#include "trace/field.hpp"

namespace emm::trace {

using format::JsonValue;

/// Reads single values of a trace and words what is wrong with them: "run.json:1841:7: "size" is
/// -4096: expected a count of bytes". Every check and every wording for a value is here.
class ValueReader {
 public:
  explicit ValueReader(const std::string& source) : source_(source) {}

  Error wrong(std::string_view member, const JsonValue& value, std::string_view expected) const;
  /// The error for `whole`, which lacks a required member; `all` lists the required ones.
  Error missing(std::string_view member, const JsonValue& whole, std::string_view what,
                std::string_view all) const;

  Status number(std::string_view member, FieldType type, const JsonValue& value,
                std::uint64_t& out) const;
  /// Accepts an unsigned integer up to `max`, never a string.
  Status integer(std::string_view member, const JsonValue& value, std::uint64_t max,
                 std::uint64_t& out) const;
  Status signed_integer(std::string_view member, const JsonValue& value, std::int32_t& out) const;
  Status flag(std::string_view member, const JsonValue& value, bool& out) const;
  /// Gives a view into `value`.
  Status text(std::string_view member, const JsonValue& value, std::string_view& out) const;
  Status text(std::string_view member, const JsonValue& value, std::string& out) const;
  Status id(std::string_view member, const JsonValue& value, Id& out) const;
  /// Finds an enumerator by its name. Nameless enumerators cannot be written.
  template <class Enum>
  Status choice(std::string_view member, const JsonValue& value,
                std::span<const std::string_view> names, Enum& out) const {
    const auto found = index_of(member, value, names);
    if (!found) return found.error();
    out = static_cast<Enum>(*found);
    return {};
  }

  /// Calls `take(key, value) -> Status` for each member. Refuses a member that occurs twice, and
  /// one that is neither in `known` nor, with `extensions`, begins with "x-".
  template <class Take>
  Status members(const JsonValue& object, std::string_view what,
                 std::span<const std::string_view> known, bool extensions, Take take) const {
    for (std::size_t i = 0; i < object.members.size(); ++i) {
      if (auto good = check_member(object, i, what, known, extensions); !good) return good;
      if (auto taken = take(std::string_view(object.members[i].key), object.members[i].value);
          !taken)
        return taken;
    }
    return {};
  }

 private:
  Result<std::size_t> index_of(std::string_view member, const JsonValue& value,
                               std::span<const std::string_view> names) const;
  Status check_member(const JsonValue& object, std::size_t index, std::string_view what,
                      std::span<const std::string_view> known, bool extensions) const;

  const std::string& source_;
};

}  // namespace emm::trace
