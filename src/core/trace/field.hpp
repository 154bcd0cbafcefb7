#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "trace/operation.hpp"

namespace emm::trace {

/// The type of a member's value.
enum class FieldType : std::uint8_t {
  bytes,
  count,
  nanoseconds,  // u64: a number up to kExactInteger, a string above it
  address,      // u64: always a string of hex digits
  flag,
  text,
  id,
  special,  // the member has a rule of its own
};

/// The type of a member's value and its place in Operation. Reader, writer and tests share these
/// rows.
struct Field {
  FieldType type = FieldType::special;
  std::uint64_t Operation::*number = nullptr;
  bool Operation::*flag = nullptr;
  std::string_view Operation::*text = nullptr;
  Id Operation::*id = nullptr;
};
const Field& field(Member member) noexcept;
std::span<const Field, kMemberCount> all_fields() noexcept;  ///< In the order of Member.

inline constexpr std::array<std::string_view, kMemberCount> kMemberNames{
    "op",          "seq",
    "enter",       "exit",
    "time_ns",     "duration_ns",
    "process",     "thread",
    "context",     "device",
    "layer",       "api",
    "kind",        "id",
    "size",        "align",
    "granted",     "stream",
    "pool",        "addr",
    "attach",      "mapped",
    "portable",    "wc",
    "read_only",   "io",
    "buffer",      "offset",
    "page_offset", "handle",
    "record",      "ids",
    "write",       "scope",
    "cause",       "blocking",
    "priority",    "release_threshold",
    "max_size",    "keep",
    "graph",       "range",
    "peer",        "parent",
    "preexisting", "name",
    "frames",      "phase",
    "text",        "lost",
    "reason",      "events",
    "live",        "live_bytes",
    "free",        "total",
    "count",       "bytes",
    "site",        "label",
    "result",      "expect",
    "x-"};

/// The greatest integer that every JSON reader keeps exact (RFC 7493). Greater ones are written as
/// strings.
inline constexpr std::uint64_t kExactInteger = (std::uint64_t{1} << 53) - 1;
inline constexpr std::uint32_t kPageOffsetMax = 4095;  // A page of the host has 4 KiB.
inline constexpr std::uint32_t kDeviceMax = 255;       // A column of the compact form has a byte.
inline constexpr std::size_t kIdBytes = 64;            // No name in a trace is longer.

constexpr bool is_id_character(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '.' || c == ':' || c == '/' || c == '-';
}

/// The names that `requires` may list.
inline constexpr std::array<std::string_view, 11> kFeatures{
    "streams",        "events",         "ipc",     "pools",
    "multi-device",   "multi-process",  "threads", "graphs",
    "host-functions", "virtual-memory", "peers"};

}  // namespace emm::trace
