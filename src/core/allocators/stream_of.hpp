#pragma once

#include <charconv>
#include <cstdint>

#include "trace/operation.hpp"

namespace emm::allocators {

/// Returns the stream handle of a recorded operation; 0 if it names none.
inline std::uint64_t stream_of(const trace::Operation& operation) {
  if (!operation.has(trace::Member::stream)) return 0;
  const auto text = operation.stream.text;
  if (operation.stream.is_number()) return operation.stream.number;
  if (text == "legacy") return 1;
  if (text == "per_thread") return 2;
  std::uint64_t value = 0;
  const auto digits = text.starts_with("0x") ? text.substr(2) : text;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace emm::allocators
