#pragma once

#include <cstdint>
#include <type_traits>

#include "base/ids.hpp"
#include "trace/op.hpp"

namespace emm::trace {

/// What a replay needs of one operation, in 40 bytes. Trace::detail() has the fields that only few
/// operations use.
struct Event {
  std::uint64_t size = 0;     ///< Bytes: requested by memalloc, memallocmanaged, memhostalloc and
                              ///< mempin; kept by pool_trim.
  std::uint64_t time_ns = 0;  ///< From the first event on; 0 if the trace has no times.
  AllocId id{};               ///< The memory that the operation makes, uses or ends.
  std::uint32_t line = 0;     ///< Its line in the trace file, for error messages.
  std::uint32_t detail = 0;   ///< Index into the side table; 0: none.
  SiteId site{};
  ThreadId thread{};
  StreamId stream{};
  ContextId context{};
  Op op = Op::initialize;
  std::uint8_t flags = 0;     ///< See event_flag.
  std::uint8_t outcomes = 0;  ///< Recorded in the low four bits, expected in the high four.

  Outcome recorded() const noexcept { return static_cast<Outcome>(outcomes & 15u); }
  Outcome expected() const noexcept { return static_cast<Outcome>(outcomes >> 4u); }
  bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
};
static_assert(sizeof(Event) == 40 && std::is_trivially_copyable_v<Event>);

/// Did the operation succeed, as far as the trace says?
inline bool worked(const Event& event) noexcept {
  const auto outcome = event.recorded() == Outcome::none ? event.expected() : event.recorded();
  return outcome == Outcome::none || outcome == Outcome::ok || outcome == Outcome::any;
}

namespace event_flag {
inline constexpr std::uint8_t mapped = 1;
inline constexpr std::uint8_t portable = 2;
inline constexpr std::uint8_t wc = 4;
inline constexpr std::uint8_t read_only = 8;
inline constexpr std::uint8_t attach_host = 16;
inline constexpr std::uint8_t backing = 32;  ///< What the recorded manager did; not replayed.
inline constexpr std::uint8_t preexisting =
    64;                                    ///< Live, or its free asked for, before the recording.
inline constexpr std::uint8_t late = 128;  ///< A free of memory that an earlier reset has ended.
// stream_create and mark use bits that mean something else for memory:
inline constexpr std::uint8_t non_blocking =
    1;  ///< The legacy default stream does not order with this stream.
inline constexpr std::uint8_t begins = 1;  ///< The phase of the mark is "begin".
inline constexpr std::uint8_t ends = 2;    ///< The phase of the mark is "end".
// Until Trace::finish(), operations that name earlier memory may have this bit:
inline constexpr std::uint8_t follows =
    1;  ///< The operation names neither context nor device; it takes those of the memory.
}  // namespace event_flag

}  // namespace emm::trace
