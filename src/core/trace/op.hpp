#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace emm::trace {

/// The operations of a trace. Each has one spelling, NBEP-7's where it has one, in the file, in
/// logs, in messages and in --help. traces/README.md describes them.
enum class Op : std::uint8_t {
  // What a replay does to the manager
  initialize,
  memalloc,
  memallocmanaged,
  memhostalloc,
  mempin,
  free,
  get_ipc_handle,
  open_ipc_handle,
  close_ipc_handle,
  get_memory_info,
  defer_cleanup,
  end_defer_cleanup,
  reset,
  // Contexts, threads, streams, pools
  context_create,
  context_destroy,
  thread_begin,
  thread_end,
  device_sync,
  stream_create,
  stream_destroy,
  stream_sync,
  event_record,
  stream_wait,
  event_sync,
  use,
  record_stream,
  pool_create,
  pool_destroy,
  pool_trim,
  // Further calls of the driver that a recording has; no replay asks a manager for them
  graph_begin,
  graph_end,
  graph_launch,
  host_function,
  address_reserve,
  address_free,
  mem_map,
  mem_unmap,
  peer_enable,
  peer_disable,
  // What the recorded manager did (layer "backing")
  flush,
  // About the trace
  define,
  mark,
  gap,
  end,
  // "x-...": a reader may skip it and counts it
  extension,
};
inline constexpr std::size_t kOpCount = static_cast<std::size_t>(Op::extension) + 1;

inline constexpr std::array<std::string_view, kOpCount> kOpNames{"initialize",
                                                                 "memalloc",
                                                                 "memallocmanaged",
                                                                 "memhostalloc",
                                                                 "mempin",
                                                                 "free",
                                                                 "get_ipc_handle",
                                                                 "open_ipc_handle",
                                                                 "close_ipc_handle",
                                                                 "get_memory_info",
                                                                 "defer_cleanup",
                                                                 "end_defer_cleanup",
                                                                 "reset",
                                                                 "context_create",
                                                                 "context_destroy",
                                                                 "thread_begin",
                                                                 "thread_end",
                                                                 "device_sync",
                                                                 "stream_create",
                                                                 "stream_destroy",
                                                                 "stream_sync",
                                                                 "event_record",
                                                                 "stream_wait",
                                                                 "event_sync",
                                                                 "use",
                                                                 "record_stream",
                                                                 "pool_create",
                                                                 "pool_destroy",
                                                                 "pool_trim",
                                                                 "graph_begin",
                                                                 "graph_end",
                                                                 "graph_launch",
                                                                 "host_function",
                                                                 "address_reserve",
                                                                 "address_free",
                                                                 "mem_map",
                                                                 "mem_unmap",
                                                                 "peer_enable",
                                                                 "peer_disable",
                                                                 "flush",
                                                                 "define",
                                                                 "mark",
                                                                 "gap",
                                                                 "end",
                                                                 "x-"};

constexpr std::string_view name(Op op) noexcept { return kOpNames[static_cast<std::size_t>(op)]; }
constexpr bool asks_for_device_memory(Op op) noexcept {
  return op == Op::memalloc || op == Op::memallocmanaged;
}
/// Does the operation make memory, of the device or of the host?
constexpr bool asks_for_memory(Op op) noexcept {
  return asks_for_device_memory(op) || op == Op::memhostalloc || op == Op::mempin;
}
/// Does the operation give its id to memory? Opening a handle of another process does, too.
constexpr bool gives_memory_an_id(Op op) noexcept {
  return asks_for_memory(op) || op == Op::open_ipc_handle;
}

/// How an operation ended or must end. `none`: the trace does not say.
enum class Outcome : std::uint8_t { none, ok, oom, invalid, unsupported, error, any };
inline constexpr std::array<std::string_view, 7> kOutcomeNames{
    "", "ok", "oom", "invalid", "unsupported", "error", "any"};
constexpr std::string_view name(Outcome outcome) noexcept {
  return kOutcomeNames[static_cast<std::size_t>(outcome)];
}

enum class Cause : std::uint8_t { none, explicit_, finalizer, reset, exit };
inline constexpr std::array<std::string_view, 5> kCauseNames{"", "explicit", "finalizer", "reset",
                                                             "exit"};

enum class Kind : std::uint8_t { device, array, physical };  ///< What memalloc makes.
inline constexpr std::array<std::string_view, 3> kKindNames{"device", "array", "physical"};

enum class Layer : std::uint8_t { request, backing };
inline constexpr std::array<std::string_view, 2> kLayerNames{"request", "backing"};

enum class Level : std::uint8_t { unknown, emm, driver, runtime, framework, synthetic };
inline constexpr std::array<std::string_view, 6> kLevelNames{"",        "emm",       "driver",
                                                             "runtime", "framework", "synthetic"};

enum class Phase : std::uint8_t { instant, begin, end };
inline constexpr std::array<std::string_view, 3> kPhaseNames{"instant", "begin", "end"};

enum class DefineKind : std::uint8_t { site, thread, process, context };
inline constexpr std::array<std::string_view, 4> kDefineKindNames{"site", "thread", "process",
                                                                  "context"};

}  // namespace emm::trace
