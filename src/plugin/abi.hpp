#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "driver/types.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// The status that stands for `error` across the boundary: the driver's own where there is one.
emm_status status_of(const Error& error) noexcept;
/// What a status that is not success means here.
Errc meaning_of(emm_status status) noexcept;

/// The flags of memhostalloc and of mempin.
HostAllocFlags host_alloc_flags(std::uint32_t bits) noexcept;
HostRegisterFlags host_register_flags(std::uint32_t bits) noexcept;

/// `given` as this side knows it: what it does not reach to is zero. `given` begins with its
/// struct_size.
template <class Table>
Table as_known_here(const Table& given) noexcept {
  Table table{};
  std::memcpy(&table, &given,
              given.struct_size < sizeof(Table) ? given.struct_size : sizeof(Table));
  return table;
}

/// Writes `text` as last_error() and report() do.
std::size_t put_text(const std::string& text, char* buffer, std::size_t size) noexcept;
/// The text of such a function, and whether it kept to the room that it was given and ended it
/// with a NUL.
struct GivenText {
  std::string text;
  bool whole = true;
};
/// Asks such a function, `ask(buffer, size)`, for its text; at most 1 MiB of it. It is first given
/// little room, then enough: one that does not heed `size` is seen.
template <class Ask>
GivenText get_text(Ask ask) {
  constexpr std::size_t kLittle = 8, kLongest = std::size_t{1} << 20, kBehind = 256;
  constexpr char kGuard = '\x5a';
  GivenText given;
  std::string buffer;
  const auto fill = [&](std::size_t room) {
    buffer.assign(room + kBehind, kGuard);
    const auto length = ask(buffer.data(), room);
    const auto end = length < room ? length : room - 1;
    given.whole = given.whole && buffer.find_first_not_of(kGuard, room) == std::string::npos &&
                  buffer[end] == '\0';
    buffer.resize(end);
    return length;
  };
  // A length that fills the room may be of all of the text, or of what there was room for.
  if (const auto length = fill(kLittle); length >= kLittle - 1) {
    const auto again = fill((length < kLongest ? length + kLittle : kLongest) + 1);
    given.whole = given.whole && (length != kLittle - 1 || again == length);
  }
  given.text = std::move(buffer);
  // No room, room for the NUL alone, and for all but the NUL.
  for (const auto room : {std::size_t{0}, std::size_t{1}, given.text.size()}) {
    buffer.assign(room + kBehind, kGuard);
    ask(buffer.data(), room);
    given.whole = given.whole && buffer.find_first_not_of(kGuard, room) == std::string::npos &&
                  (room == 0 || buffer.find('\0') < room);
  }
  return given;
}

}  // namespace emm::plugin
