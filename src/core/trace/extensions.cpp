#include "trace/extensions.hpp"

#include <algorithm>

#include "base/text_format.hpp"

namespace emm::trace {
namespace {

/// The end of the member that begins at `at`: a comma outside of strings and brackets, or the end
/// of the text.
std::size_t end_of(std::string_view members, std::size_t at) {
  int depth = 0;
  bool in_string = false;
  for (; at < members.size(); ++at) {
    const auto c = members[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return members.size();
}

/// The member `key`, from its quote to its end; empty if there is none.
std::string_view find(std::string_view members, std::string_view key) {
  for (std::size_t at = 0; at < members.size();) {
    const auto end = end_of(members, at);
    const auto member = members.substr(at, end - at);
    if (member.starts_with(key)) return member;
    at = end + 1;
  }
  return {};
}

std::string key_of(std::string_view name) { return text::format("\"{}\":", name); }

}  // namespace

std::string_view extension(std::string_view members, std::string_view name) {
  const auto key = key_of(name);
  const auto member = find(members, key);
  return member.empty() ? member : member.substr(key.size());
}

void set_extension(std::string& members, std::string_view name, std::string_view value) {
  const auto key = key_of(name);
  if (const auto member = find(members, key); !member.empty()) {
    const auto at = static_cast<std::size_t>(member.data() - members.data());
    const auto is_first = at == 0;
    // Erases the comma before the member, or the one behind it if the member is first.
    members.erase(is_first ? 0 : at - 1, std::min(member.size() + 1, members.size()));
  }
  if (value.empty()) return;
  if (!members.empty()) members += ',';
  members += key;
  members += value;
}

}  // namespace emm::trace
