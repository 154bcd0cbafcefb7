#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/expect.hpp"
#include "trace/id.hpp"
#include "trace/op.hpp"

namespace emm::trace {

/// The members of an operation, in the order in which they are written.
enum class Member : std::uint8_t {
  op,
  seq,
  enter,
  exit,
  time_ns,
  duration_ns,
  process,
  thread,
  context,
  device,
  layer,
  api,
  kind,
  id,
  size,
  align,
  granted,
  stream,
  pool,
  addr,
  attach,
  mapped,
  portable,
  wc,
  read_only,
  io,
  buffer,
  offset,
  page_offset,
  handle,
  record,
  ids,
  write,
  scope,
  cause,
  blocking,
  priority,
  release_threshold,
  max_size,
  keep,
  graph,
  range,
  peer,
  parent,
  preexisting,
  name,
  frames,
  phase,
  text,
  lost,
  reason,
  events,
  live,
  live_bytes,
  free,
  total,
  count,
  bytes,
  site,
  label,
  result,
  expect,
  extension,
};
inline constexpr std::size_t kMemberCount = static_cast<std::size_t>(Member::extension) + 1;
static_assert(kMemberCount <= 64, "Members is one word");
std::string_view name(Member member) noexcept;

/// A set of members.
class Members {
 public:
  constexpr Members() = default;
  template <class... M>
  constexpr explicit Members(M... members) noexcept : bits_((bit(members) | ... | 0)) {}
  constexpr bool has(Member member) const noexcept { return (bits_ & bit(member)) != 0; }
  constexpr void add(Member member) noexcept { bits_ |= bit(member); }
  constexpr void remove(Member member) noexcept { bits_ &= ~bit(member); }
  constexpr Members operator|(Members other) const noexcept { return from(bits_ | other.bits_); }
  constexpr Members operator&(Members other) const noexcept { return from(bits_ & other.bits_); }
  constexpr Members without(Members other) const noexcept { return from(bits_ & ~other.bits_); }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr std::uint64_t bits() const noexcept { return bits_; }
  bool operator==(const Members&) const = default;

 private:
  static constexpr std::uint64_t bit(Member m) noexcept {
    return std::uint64_t{1} << static_cast<unsigned>(m);
  }
  static constexpr Members from(std::uint64_t bits) noexcept {
    Members members;
    members.bits_ = bits;
    return members;
  }
  std::uint64_t bits_ = 0;
};

/// What the format allows in an operation. There is one row for each. The reader, the writer,
/// `check` and the schema test share them.
struct OpRule {
  Members required;  ///< Beside `op`.
  Members allowed;   ///< Beside `op`, the required and the common members.
};
const OpRule& rule(Op op) noexcept;
/// Allowed in every operation.
Members common_members() noexcept;

struct RecordedResult {
  Outcome outcome = Outcome::none;
  std::int32_t code = 0;
  std::string_view name{};
  bool operator==(const RecordedResult&) const = default;
};

/// One operation of a trace with everything that the format can hold, as a reader found it or an
/// importer made it. A field means something only if `members` has it. Views live until the next
/// operation.
///
/// Readers and importers make Operations. An OperationSink takes them: the writer, `check`, the
/// statistics, or trace::Trace, which keeps what a replay needs.
struct Operation {
  Op op = Op::initialize;
  Members members{};
  std::uint32_t line = 0;  ///< Its line in the source file, from 1; 0: none.

  std::uint64_t seq = 0, enter = 0, exit = 0;
  std::uint64_t time_ns = 0, duration_ns = 0;
  Id process{}, thread{}, context{};
  std::uint32_t device = 0;
  Layer layer = Layer::request;
  RecordedResult result{};
  Expect expect{};
  Id site{};
  std::string_view label{}, api{};

  Id id{}, stream{}, pool{}, handle{}, buffer{}, record{}, scope{}, graph{}, range{};
  std::uint64_t size = 0, align = 0, granted = 0, addr = 0, offset = 0;
  std::uint32_t page_offset = 0;
  Kind kind = Kind::device;
  DefineKind define_kind = DefineKind::site;  ///< Member::kind of `define`.
  bool attach_global = true;                  ///< Member::attach: "global" or "host".
  bool mapped = false, portable = false, wc = false, read_only = false, io = false;
  bool preexisting = false, write = false, blocking = true;
  std::int32_t priority = 0;
  Cause cause = Cause::none;
  Phase phase = Phase::instant;
  std::uint64_t free = 0, total = 0;   ///< get_memory_info, as recorded.
  std::uint64_t count = 0, bytes = 0;  ///< flush: frees made, bytes counted.
  std::uint64_t release_threshold = 0, max_size = 0, keep = 0;
  std::uint64_t peer = 0;    ///< peer_enable, peer_disable: the other device.
  std::uint64_t parent = 0;  ///< The `seq` of the operation for which this one was made.
  std::uint64_t lost = 0, events = 0, live = 0, live_bytes = 0;
  std::string_view name{}, text{}, reason{};
  std::span<const Id> ids{};
  std::span<const std::string_view> frames{};
  /// For an "x-" operation its name; `text` is then the JSON text of all its other members, without
  /// braces, and no other field means anything. For any other operation the JSON text of its "x-"
  /// members, without braces.
  std::string_view extension{};

  bool has(Member member) const noexcept { return members.has(member); }
};

}  // namespace emm::trace
