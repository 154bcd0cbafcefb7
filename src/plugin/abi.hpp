#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

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
/// Asks such a function, `ask(buffer, size)`, for its text; at most 1 MiB of it.
template <class Ask>
std::string get_text(Ask ask) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  std::string text(255, '\0');
  auto size = ask(text.data(), text.size() + 1);
  if (size > text.size()) {
    text.resize(size < kLongest ? size : kLongest);
    const auto again = ask(text.data(), text.size() + 1);
    size = again < text.size() ? again : text.size();
  }
  text.resize(size);
  return text;
}

}  // namespace emm::plugin
