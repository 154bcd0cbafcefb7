#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "trace/operation.hpp"

/// The bytes of a compact trace (.emmb). traces/README.md describes each field. All integers are
/// little-endian.
namespace emm::trace::compact {

/// The file begins with this. As with PNG, no text file has it and a copy in text mode destroys it.
inline constexpr std::string_view kMagic(
    "\x89"
    "EMMB\r\n\x1a",
    8);
/// A file that was cut does not end with this.
inline constexpr std::string_view kEndMagic("EMMB.end", 8);
// The version of the form. A reader refuses another major version.
inline constexpr std::uint16_t kMajor = 1, kMinorVersion = 0;
/// Magic, u16 major, u16 minor, and the low 32 bits of hash64() of the bytes before it.
inline constexpr std::size_t kFileHeadBytes = 16;

/// The start of a chunk; `bytes` of payload follow.
struct ChunkHead {
  std::array<char, 4> tag{};
  std::uint32_t check = 0;  ///< The low 32 bits of hash64() of the 32 bytes after it.
  std::uint64_t bytes = 0;  ///< The payload's bytes.
  std::uint64_t hash = 0;   ///< hash64() of the payload.
  std::uint64_t first = 0;  ///< OPER, LIVE: the number of operations in the file before this chunk.
  std::uint64_t operations = 0;  ///< OPER: in it. INDX: 1 if LIVE chunks are incomplete.
};
static_assert(sizeof(ChunkHead) == 40);
inline constexpr std::size_t kChecked = 8;  ///< The offset of the bytes that `check` covers.

/// The kinds of chunks, as letters that a hex dump shows.
inline constexpr std::array<char, 4> kHeaderTag{'H', 'E', 'A', 'D'};
inline constexpr std::array<char, 4> kBlockTag{'O', 'P', 'E', 'R'};
inline constexpr std::array<char, 4> kLiveTag{'L', 'I', 'V', 'E'};
inline constexpr std::array<char, 4> kIndexTag{'I', 'N', 'D', 'X'};

/// One row of the index: the place of a block and what its operations are. A row without operations
/// belongs to a chunk of live operations. Its `first_time_ns` is the number of events before the
/// chunk, and its `last_time_ns` is kSitesNotLive if the chunk has the call sites that are new
/// since the last one.
struct IndexRow {
  std::uint64_t offset = 0;  ///< Offset of the block's chunk in the file.
  std::uint64_t first = 0, operations = 0;
  std::uint64_t first_time_ns = 0, last_time_ns = 0;  ///< 0 if no operation has a time.
};
static_assert(sizeof(IndexRow) == 40);

// In IndexRow::last_time_ns of a list of what is live: its chunks define call sites.
inline constexpr std::uint64_t kSitesNotLive = 1;

inline constexpr std::size_t kTailBytes = 16;  ///< u64 offset of the index, end magic.

/// A list of what is live is written after kLiveEvery events, or kLiveEventsEach events for each
/// live id if those are more.
inline constexpr std::uint64_t kLiveEvery = std::uint64_t{1} << 19, kLiveEventsEach = 8;

// A block with so many operations is full.
inline constexpr std::size_t kBlockOperations = std::size_t{1} << 14;
// A reader refuses blocks and chunks beyond these, which no writer of ours makes.
inline constexpr std::size_t kBlockOperationsMax = std::size_t{1} << 20;
inline constexpr std::size_t kBlockTextBytes = std::size_t{8}
                                               << 20;  ///< A block with more text is full.
inline constexpr std::size_t kBlockShapes = 512;       ///< A block with as many shapes is full.
// Beyond these a file is damaged: a reader takes no more memory for what a file says.
inline constexpr std::size_t kBlockShapesMax = 4096;
inline constexpr std::uint64_t kChunkBytesMax = std::uint64_t{256} << 20;

/// The columns that every block begins with. The columns of its shapes follow.
enum FixedColumn : std::uint8_t {
  kShapeColumn,
  kSeqColumn,
  kEnterColumn,
  kExitColumn,
  kTimeColumn,
  kLengthColumn,  ///< Lengths of the strings of the dictionary.
  kTextColumn,    ///< Bytes of the strings of the dictionary.
  kFixedColumns,
};

/// What the values of a column mean and how they are written.
enum class ColumnKind : std::uint8_t {
  // One column for all operations of the block:
  seq,    ///< Zigzag difference to the operation before.
  enter,  ///< As seq.
  exit,   ///< Zigzag difference to the operation's own `enter`, or else to the last `exit`.
  time,   ///< As seq.
  // A column for each shape:
  number,
  small,     ///< 32 bits.
  flag,      ///< 0 or 1.
  text,      ///< A string of the dictionary.
  json,      ///< As text; the string is the JSON text of members.
  id,        ///< Twice the number, or twice the place of a string plus 1.
  made,      ///< As id; the number is the zigzag difference to the id made last plus 1.
  ended,     ///< As id; the number is the zigzag difference from it to the id made last.
  parent,    ///< Zigzag difference from it to the last `seq`.
  choice,    ///< An enumerator.
  integer,   ///< Zigzag.
  distinct,  ///< Part of `expect`: bit 0 is "distinct", bit 1 says whether it has "same_as".
  ids,       ///< A count; as many `ended` follow in the next column.
  frames,    ///< A count; as many `text` follow in the next column.
};

struct ColumnField {
  ColumnKind part = ColumnKind::number;
  Member member = Member::op;
  std::uint8_t nth = 0;        ///< Selects the field of `result` or `expect`, which have several.
  std::uint8_t least = 0;      ///< choice: a nameless enumerator is not written.
  std::uint32_t greatest = 0;  ///< choice, small and distinct.
};
/// The columns of a shape in their order, without those of seq, enter, exit and time_ns, which
/// belong to the block.
std::vector<ColumnField> places(Op op, Members members);

constexpr bool is_fixed(ColumnKind part) noexcept { return part <= ColumnKind::time; }

constexpr std::uint64_t zigzag(std::uint64_t difference) noexcept {
  return (difference << 1) ^ (0 - (difference >> 63));
}
constexpr std::uint64_t unzigzag(std::uint64_t value) noexcept {
  return (value >> 1) ^ (0 - (value & 1));
}
static_assert(unzigzag(zigzag(~std::uint64_t{41})) == ~std::uint64_t{41});
/// Ids with greater numbers are written as strings, since a difference must leave one bit free.
inline constexpr std::uint64_t kIdNumberMax = (std::uint64_t{1} << 61) - 1;

/// The values that a block's first differences start from.
struct Predictor {
  std::uint64_t seq = 0, enter = 0, exit = 0, time_ns = 0, made = 0;
};

template <class T>
void append_bytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
/// Takes a value from the front of `in`; false if there is none.
inline bool take_varint(std::string_view& in, std::uint64_t& value) noexcept {
  value = 0;
  for (unsigned shift = 0, at = 0; at < in.size() && shift < 64; shift += 7, ++at) {
    const auto byte = static_cast<unsigned char>(in[at]);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      in.remove_prefix(at + 1);
      return true;
    }
  }
  return false;
}

}  // namespace emm::trace::compact
