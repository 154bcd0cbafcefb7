#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "trace/op.hpp"

namespace emm::trace {

/// A symbolic name in a file. A string of digits without leading zeros is the integer, so that 7
/// and "7" are one id. Text is a view into the reader's buffer, valid until the next operation.
struct Id {
  std::uint64_t number = 0;
  std::string_view text{};  ///< Empty: the id is `number`.

  static constexpr Id of(std::uint64_t number) noexcept { return {.number = number}; }
  /// `text` as an id: a number where its digits are one.
  static Id of(std::string_view text) noexcept;
  bool is_number() const noexcept { return text.empty(); }
  bool operator==(const Id&) const = default;
};

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

struct Expect {
  Outcome outcome = Outcome::none;
  std::uint64_t align = 0;          ///< 0: not asked.
  bool distinct = false;            ///< The address is not that of any live allocation.
  std::uint64_t free_at_least = 0;  ///< The result that get_memory_info must report.
  std::uint64_t free_at_most = ~std::uint64_t{0};
  Id same_as{};  ///< See has_same_as.
  bool has_same_as = false;
  bool operator==(const Expect&) const = default;
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

struct DeviceInfo {
  std::uint32_t id = 0;
  std::string name, uuid;
  std::uint64_t capacity = 0, free_at_start = 0, granularity = 0, alignment = 0;  ///< 0: unknown.
  bool operator==(const DeviceInfo&) const = default;
};

/// The framework of torch.profiler's traces: PyTorch, whose settings they do not tell.
inline constexpr std::string_view kTorchProfiler = "PyTorch profiler";

/// The header of a trace. Empty strings and 0 mean "unknown", except for `complete`.
struct Header {
  int minor = 0;  ///< The version is "1.<minor>".
  std::vector<std::string> requires_;
  std::string name, description;
  Level level = Level::unknown;
  bool complete = true, has_complete = false;
  std::string clock_source, boot_id;
  std::uint64_t clock_start_ns = 0, clock_start_realtime_ns = 0;
  bool has_clock = false;
  std::string tool, tool_version, framework, command, host, os;
  std::string source_options;  ///< JSON text of source.options, an object, or empty.
  std::int64_t driver_version = -1, cupti_version = -1;  ///< -1: unknown.
  std::vector<DeviceInfo> devices;
  std::string default_context, default_thread,
      default_process;  ///< As text; a number is spelled in digits.
  std::int64_t default_device = -1;
  Outcome default_expect = Outcome::none;
  std::string extensions;  ///< JSON text of the "x-" members, without braces.
  bool operator==(const Header&) const = default;
};

namespace compact {
class OperationRow;
}

/// Receives a trace: the header once, then the operations, then finish(). An error ends the trace.
class OperationSink {
 public:
  virtual ~OperationSink() = default;
  virtual Status on_header(const Header& header) = 0;
  virtual Status on_operation(const Operation& operation) = 0;
  /// Takes up to `most` operations of a block of a compact trace. The default calls on_operation()
  /// for each; a sink may override it with a faster way.
  virtual Status on_operations(compact::OperationRow& row, std::size_t most);
  virtual Status finish() { return {}; }
};

}  // namespace emm::trace
