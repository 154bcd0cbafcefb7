#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "trace/operation.hpp"

/// The bytes of a compact trace (.emmb), which traces/README.md describes one by one. All integers
/// are little-endian.
namespace emm::trace::compact {

/// What the file begins with. As of PNG, no text has it and no copy in text mode leaves it whole.
inline constexpr std::string_view kMagic(
    "\x89"
    "EMMB\r\n\x1a",
    8);
inline constexpr std::string_view kEndMagic("EMMB.end", 8);
inline constexpr std::uint16_t kMajor = 1, kMinorVersion = 0;
/// Magic, u16 major, u16 minor, u32: the low half of hash64() of what is before it.
inline constexpr std::size_t kFileHeadBytes = 16;

/// A chunk begins with this and goes on with `bytes` of payload.
struct ChunkHead {
  std::array<char, 4> tag{};
  std::uint32_t check = 0;       ///< The low half of hash64() of the 36 bytes after it.
  std::uint64_t bytes = 0;       ///< Of payload.
  std::uint64_t hash = 0;        ///< hash64() of the payload.
  std::uint64_t first = 0;       ///< OPER, LIVE: operations of the file before this chunk.
  std::uint64_t operations = 0;  ///< OPER: operations in it. INDX: 1 where LIVE tells too little.
};
static_assert(sizeof(ChunkHead) == 40);
inline constexpr std::size_t kChecked = 8;  ///< Where the bytes begin that `check` is about.

inline constexpr std::array<char, 4> kHeaderTag{'H', 'E', 'A', 'D'};
inline constexpr std::array<char, 4> kBlockTag{'O', 'P', 'E', 'R'};
inline constexpr std::array<char, 4> kLiveTag{'L', 'I', 'V', 'E'};
inline constexpr std::array<char, 4> kIndexTag{'I', 'N', 'D', 'X'};

/// One row of the index: where a block is, and what its operations are. One without operations is
/// of a chunk of what is live: `first_time_ns` is then how many events are before it, and
/// `last_time_ns` kSitesNotLive where it has the call sites that are new since the one before.
struct IndexRow {
  std::uint64_t offset = 0;  ///< Of its chunk in the file.
  std::uint64_t first = 0, operations = 0;
  std::uint64_t first_time_ns = 0, last_time_ns = 0;  ///< 0 where none of them has a time.
};
static_assert(sizeof(IndexRow) == 40);

inline constexpr std::uint64_t kSitesNotLive = 1;

inline constexpr std::size_t kTailBytes = 16;  ///< u64 offset of the index, end magic.

/// What is live is written once so many events came, and so many for each live id.
inline constexpr std::uint64_t kLiveEvery = std::uint64_t{1} << 19, kLiveEventsEach = 8;

inline constexpr std::size_t kBlockOperations = std::size_t{1} << 14;
inline constexpr std::size_t kBlockOperationsMax = std::size_t{1} << 20;
inline constexpr std::size_t kBlockTextBytes = std::size_t{8} << 20;  ///< More begin another block.
inline constexpr std::size_t kBlockShapes = 512;  ///< As many begin another block.
inline constexpr std::size_t kBlockShapesMax = 4096;
inline constexpr std::uint64_t kChunkBytesMax = std::uint64_t{256} << 20;

/// The columns that every block begins with. Those of its shapes follow.
enum FixedColumn : std::uint8_t {
  kShapeColumn,
  kSeqColumn,
  kEnterColumn,
  kExitColumn,
  kTimeColumn,
  kLengthColumn,  ///< Of the strings of the dictionary.
  kTextColumn,    ///< Their bytes.
  kFixedColumns,
};

/// What a value of a column says, and how it is written.
enum class Part : std::uint8_t {
  // One column for all operations of the block:
  seq,    ///< Zigzag difference to the one before.
  enter,  ///< The same.
  exit,   ///< Zigzag difference to the operation's own `enter`, else to the `exit` before.
  time,   ///< As seq.
  // A column for each shape:
  number,
  small,     ///< 32 bits.
  flag,      ///< 0 or 1.
  text,      ///< A string of the dictionary.
  json,      ///< The same: the text of members, which is JSON.
  id,        ///< Twice a number, or twice a string's place plus 1.
  made,      ///< The same; the number is the zigzag difference to 1 more than the one made before.
  ended,     ///< The same; it is the zigzag difference from it to the one made last.
  parent,    ///< Zigzag difference from it to the last `seq`.
  choice,    ///< An enumerator.
  integer,   ///< Zigzag.
  distinct,  ///< Of `expect`: bit 0 is "distinct", bit 1 whether it has "same_as".
  ids,       ///< A count; as many `ended` follow in the next column.
  frames,    ///< A count; as many `text` follow in the next column.
};

struct ColumnField {
  Part part = Part::number;
  Member member = Member::op;
  std::uint8_t nth = 0;        ///< `result` and `expect` have several.
  std::uint8_t least = 0;      ///< choice: a nameless enumerator is not written.
  std::uint32_t greatest = 0;  ///< choice, small and distinct.
};
/// What the columns of a shape say, in their order; those of seq, enter, exit and time_ns are the
/// block's own.
std::vector<ColumnField> places(Op op, Members members);

constexpr bool is_fixed(Part part) noexcept { return part <= Part::time; }

constexpr std::uint64_t zigzag(std::uint64_t difference) noexcept {
  return (difference << 1) ^ (0 - (difference >> 63));
}
constexpr std::uint64_t unzigzag(std::uint64_t value) noexcept {
  return (value >> 1) ^ (0 - (value & 1));
}
static_assert(unzigzag(zigzag(~std::uint64_t{41})) == ~std::uint64_t{41});
/// Greater numbers of ids are strings: their differences have to leave a bit free.
inline constexpr std::uint64_t kIdNumberMax = (std::uint64_t{1} << 61) - 1;

/// What a block's differences begin from.
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
/// Takes one from the front of `in`; false where there is none.
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
