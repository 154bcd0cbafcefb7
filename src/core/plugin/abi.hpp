#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/result.hpp"
#include "driver/call.hpp"
#include "driver/types.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// Returns the status that stands for `error` across the boundary: the driver's own status if there
/// is one.
emm_status status_of(const Error& error) noexcept;
/// Translates a status other than success into an error code.
Errc meaning_of(emm_status status) noexcept;

/// These decode the flags of memhostalloc and of mempin.
HostAllocFlags host_alloc_flags(std::uint32_t bits) noexcept;
HostRegisterFlags host_register_flags(std::uint32_t bits) noexcept;

/// Returns a copy of `given` in this side's version of the struct. Members beyond the struct_size
/// of `given` are zero.
template <class Table>
Table as_known_here(const Table& given) noexcept {
  Table table{};
  std::memcpy(&table, &given,
              given.struct_size < sizeof(Table) ? given.struct_size : sizeof(Table));
  return table;
}

/// Writes `text` by the rules of last_error() and report(): at most `size` bytes with the NUL.
/// Returns the whole length.
std::size_t put_text(const std::string& text, char* buffer, std::size_t size) noexcept;
/// The text of such a function. `whole` is true if the function wrote no more than the given size
/// and ended the text with a NUL.
struct GivenText {
  std::string text;
  bool whole = true;
};
/// Calls such a function, `ask(buffer, size)`, for its text, at most 1 MiB. The first call offers
/// few bytes and the next one enough, so that a function that ignores `size` is caught.
template <class Ask>
GivenText get_text(Ask ask) {
  // Bytes: a first buffer that is too small, the longest text that is taken, and what is guarded
  // behind a buffer.
  constexpr std::size_t kLittle = 8, kLongest = std::size_t{1} << 20, kBehind = 256;
  constexpr char kGuard = '\x5a';  // no letter that a text is likely to end with
  GivenText given;
  std::string buffer;
  const auto fill = [&](std::size_t room) {
    buffer.assign(room + kBehind, kGuard);
    const auto length = ask(buffer.data(), room);
    const auto nul = buffer.find('\0');
    // A text that does not fit may be cut before a character of up to four bytes.
    const bool is_ended = length < room ? buffer[length] == '\0' : nul < room && nul + 4 >= room;
    given.whole =
        given.whole && buffer.find_first_not_of(kGuard, room) == std::string::npos && is_ended;
    buffer.resize(std::min(length < room ? length : nul, room - 1));
    return length;
  };
  // A returned length that fills the room may be that of the whole text or of the part that fitted.
  if (const auto length = fill(kLittle); length >= kLittle - 1) {
    const auto again = fill((length < kLongest ? length + kLittle : kLongest) + 1);
    given.whole = given.whole && (length != kLittle - 1 || again == length);
  }
  given.text = std::move(buffer);
  // Three more calls check the edges: no room, room for the NUL alone, room for all but the NUL.
  for (const auto room : {std::size_t{0}, std::size_t{1}, given.text.size()}) {
    buffer.assign(room + kBehind, kGuard);
    ask(buffer.data(), room);
    given.whole = given.whole && buffer.find_first_not_of(kGuard, room) == std::string::npos &&
                  (room == 0 || buffer.find('\0') < room);
  }
  return given;
}

}  // namespace emm::plugin
