#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The raw recording: what the library inside a recorded program writes while it runs, and what is
/// left where the program was killed. docs/recording.md describes it for other readers.
///
/// There is one file for each process. A file is a header of kHeaderBytes and then blocks of
/// kBlockBytes each. A block belongs to one thread, so threads share nothing but what numbers their
/// calls. A block is a BlockHeader and then records. A record whose
/// `seq` is 0 was not written. All numbers are little-endian.
namespace emm::record {

inline constexpr char kMagic[8] = {'e', 'm', 'm', 'r', 'a', 'w', '\r', '\n'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 8192;
inline constexpr std::size_t kBlockBytes = std::size_t{128} << 10;
inline constexpr std::size_t kDevicesMost = 16;
inline constexpr std::size_t kContextsMost = 200;
/// The handle of a context that has ended. Its number waits for another of the same device.
inline constexpr std::uint64_t kEndedContext = ~std::uint64_t{0};
inline constexpr std::size_t kReadyMost = 32;
/// The device of what lies in host memory, and of managed memory that prefers no device.
inline constexpr std::uint64_t kHost = 0xffffffff, kAnyDevice = 0xfffffffe;
/// The `seq` of a record that has no place in the order: `thread`, `frame_text`, `stack` and
/// `about`. The last four numbers of a piece are its text, or its frames, of 32 bits each.
inline constexpr std::uint64_t kNoPlace = ~std::uint64_t{0};

/// What a record is about. A number keeps its meaning for ever, so new ones come at the end.
enum class Call : std::uint16_t {
  none,
  thread,   ///< The records that follow in this block are those of thread `address`.
  kernels,  ///< `size` launches on stream `stream`, the last one at `ticks` + `duration`.
  mem_alloc,
  mem_alloc_pitch,    ///< `size` is pitch times height, `extra` the pitch.
  mem_alloc_managed,  ///< `extra` is the flags.
  mem_free,
  mem_host_alloc,     ///< `extra` is the flags.
  mem_host_register,  ///< `extra` is the flags.
  mem_free_host,
  mem_host_unregister,
  array_create,  ///< `size` is that of the array without padding.
  array_destroy,
  mem_alloc_async,  ///< `extra` is the pool, 0 for the device's current one.
  mem_free_async,
  pool_create,  ///< `address` is the pool, `size` its limit, `stream` its device, or kHost or
                ///< kAnyDevice.
  pool_destroy,
  pool_trim,           ///< `size` is what it keeps.
  pool_set_attribute,  ///< `extra` is the attribute, `size` its value.
  device_get_pool,     ///< `address` is the pool of device `stream`; `extra`: 1 default, 2 of the
                       ///< host.
  device_set_pool,
  mem_address_reserve,  ///< `extra` is the alignment.
  mem_address_free,
  mem_create,  ///< `address` is the handle, `extra` the kinds of handles that it can export,
               ///< `stream` its device, or kHost.
  mem_release,
  mem_map,              ///< `stream` is the handle, `extra` the offset.
  mem_unmap,            ///< A range, which may hold several mappings.
  mem_set_access,       ///< `stream` is the device that gets access, `extra` the flags.
  mem_retain_handle,    ///< `address` is the handle, `stream` an address in its mapping.
  mem_export,           ///< `address` is the handle, `extra` the kind.
  mem_import,           ///< `address` is the handle, `extra` the kind.
  ipc_get_mem_handle,   ///< `extra` is the handle's fingerprint.
  ipc_open_mem_handle,  ///< `extra` is the handle's fingerprint.
  ipc_close_mem_handle,
  peer_enable,  ///< `address` is the peer's context, `extra` its number, `stream` its device.
  peer_disable,
  stream_create,  ///< `stream` is the stream, `extra` the flags, `size` the priority.
  stream_destroy,
  stream_synchronize,
  stream_wait_event,  ///< `address` is the event.
  event_create,
  event_destroy,
  event_record,
  event_synchronize,
  ctx_synchronize,
  capture_begin,      ///< `address` is the graph that gets the nodes; 0: a new one.
  capture_end,        ///< `address` is the graph.
  graph_instantiate,  ///< `address` is the executable graph, `extra` the graph.
  graph_launch,       ///< `address` is the executable graph.
  graph_exec_destroy,
  graph_destroy,
  graph_add_alloc,  ///< `extra` is the graph.
  graph_add_free,   ///< `extra` is the graph.
  host_function,
  ctx_retain,  ///< The primary context of `device`.
  ctx_release,
  ctx_reset,
  ctx_create,
  ctx_destroy,
  mem_get_info,  ///< `address` is what is free, `size` is all.
  module_load,
  module_unload,
  frame_text,  ///< Frame `ticks` has `duration` characters: piece `flags`, of 32.
  stack,       ///< Stack `ticks` has `duration` frames, innermost first: piece `flags`, of 8.
  about,       ///< The thread's next record was made by stack `address` for request `size`.
  window,      ///< Recording begins, or begins again, and is window `address`. What lives follows.
  mem_peer_register,      ///< `extra` is the number of the peer's context.
  mem_peer_unregister,    ///< Likewise.
  ipc_get_event_handle,   ///< `address` is the event, `extra` the handle's fingerprint.
  ipc_open_event_handle,  ///< Likewise.
  pool_set_access,  ///< `address` is the pool, `stream` the device that gets access, `extra` the
                    ///< flags.
  pool_export,      ///< `address` is the pool, `extra` the kind of handle.
  pool_import,      ///< Likewise.
  pool_export_pointer,  ///< `extra` is the fingerprint of what is exported.
  pool_import_pointer,  ///< `stream` is the pool, `extra` the fingerprint.
  mem_map_array,     ///< `size` parts of arrays; of the first, `address` is the array, `extra` the
                     ///< memory.
  mem_export_range,  ///< `extra` is the kind of handle.
  multicast_create,  ///< `address` is the handle, `extra` the number of devices.
  multicast_add_device,    ///< `stream` is the device.
  multicast_bind_mem,      ///< `extra` is the memory's handle, `stream` the offset in the object.
  multicast_bind_address,  ///< `extra` is the memory's address, `stream` the offset in the object.
  multicast_unbind,        ///< `stream` is the device, `extra` the offset in the object.
  external_import,         ///< `address` is the external memory, `extra` the type of its handle.
  external_map_buffer,     ///< `stream` is the external memory, `extra` the offset in it.
  external_map_array,      ///< Likewise.
  external_destroy,
  green_ctx_create,   ///< `address` is the green context, `stream` its device.
  green_ctx_destroy,  ///< Memory is the primary context's, and lives on.
  ctx_attach,         ///< `extra` is the context's number.
  ctx_detach,         ///< Likewise. Ends the context where every attach was detached before.
  stream_wait_value,  ///< `size` is the value, `extra` the flags.
  graph_add_node,     ///< `stream` is CUDA's number of the node's type, `extra` the graph.
  graph_mem_trim,     ///< `stream` is the device.
  count_
};

/// One call of the driver. `seq` is its place in the order of the process: calls that give (memory,
/// a stream, a handle) took it after the driver had answered, calls that take did before they
/// asked. In this order no address is live twice, and none is freed while it is dead. It is written
/// last, so a record that has one is whole.
struct Record {
  std::uint64_t seq;
  std::uint64_t ticks;     ///< When the call began, in FileHeader's ticks.
  std::uint32_t duration;  ///< Ticks that it took; the largest number where it took longer.
  Call call;
  std::uint8_t device;   ///< Ordinal of the context's device; 255: not known.
  std::uint8_t context;  ///< Number of the context, from 1; 0: none.
  std::int32_t result;   ///< CUresult.
  std::uint32_t flags;   ///< See record_flag.
  std::uint64_t address;
  std::uint64_t size;
  std::uint64_t stream;  ///< The handle; 0 and 1 are the legacy default stream, 2 the thread's own.
  std::uint64_t extra;
};
static_assert(sizeof(Record) == 64 && std::is_trivially_copyable_v<Record>);

namespace record_flag {
/// The call was failed by `emmctl run`, and did not reach the driver.
inline constexpr std::uint32_t injected = 1;
/// The call was made before recording began, and what it gave lives.
inline constexpr std::uint32_t preexisting = 2;
/// The duration was not measured, and `ticks` is when the call took its place.
inline constexpr std::uint32_t unmeasured = 4;
}  // namespace record_flag

/// The first bytes of a block. It is as large as a record.
struct BlockHeader {
  std::uint64_t magic;    ///< kBlockMagic.
  std::uint64_t turn;     ///< How many blocks the file had taken before, from 1.
  std::uint64_t dropped;  ///< Records that this place held before a ring used it again.
  std::uint64_t used;     ///< Records in it, once its thread has ended.
  std::uint64_t state;    ///< 1 while a thread writes to it; 2 when it is full.
  std::uint64_t number;   ///< Its place in the file, from 1.
  std::uint64_t reserved[2];
};
static_assert(sizeof(BlockHeader) == sizeof(Record));
inline constexpr std::uint64_t kBlockMagic = 0x6b636f6c62776172;  // "rawblock"
inline constexpr std::size_t kBlockRecords = kBlockBytes / sizeof(Record) - 1;

/// The first page of a file.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes, block_bytes, record_bytes;
  std::uint64_t pid, parent;
  std::uint64_t start_ticks, start_ns, start_realtime_ns;  ///< ns of CLOCK_MONOTONIC.
  /// A later pair of the same clocks, from which a tick's length follows.
  std::uint64_t later_ticks, later_ns;
  std::uint64_t lost;      ///< Calls for which there was no room.
  std::int32_t stopped;    ///< The errno for which no more blocks could be had; 0: none.
  std::uint32_t bypassed;  ///< Wrapped functions of which the driver gave another address.
  std::uint64_t blocks;    ///< Taken, those that a ring used again included.
  std::int32_t driver_version;
  std::uint32_t device_count;
  char boot_id[40];
  char program[512];  ///< Its command line, arguments separated by blanks.
  char driver[256];   ///< The path of the real library.
  struct Device {
    std::uint32_t ordinal;
    std::uint32_t known;
    std::uint64_t capacity, free_at_start;
    char name[104];
  } devices[kDevicesMost];
  struct Context {
    std::uint64_t handle;
    std::uint64_t device;      ///< Its ordinal.
  } contexts[kContextsMost];   ///< Number 1 is the first. A number's device stays.
  std::uint64_t only_windows;  ///< 1: recording began when a signal said so, if it ever did.
  /// What the process and `emmctl record` agree on while it runs. A block has room in the file
  /// before it is used. That takes time, so `emmctl record` writes zeros to blocks ahead of the
  /// process, and puts the number of each, from 1, into `ready`. Who takes a number out owns the
  /// block. Where none is there the process makes room for the next one itself.
  std::uint64_t numbered;  ///< Blocks that have been given a number.
  std::uint64_t ready[kReadyMost];
  std::uint64_t cut;     ///< 1: the trace was made while the process went on.
  std::uint64_t unkept;  ///< Allocations of which no account was kept, for want of memory.
  /// Times that a thread was found in a context for which there was no number.
  std::uint64_t unnumbered;
};
static_assert(sizeof(FileHeader) <= kHeaderBytes);

/// A page that `emmctl record` and the recorded processes share: the file "control" beside theirs.
struct Control {
  std::uint32_t on = 0;  ///< 0: calls are passed on without a record. Else how often it began.
  std::uint32_t apart[31] = {};
  std::uint32_t taken =
      0;  ///< Blocks that processes took. `emmctl record` waits for it, as a futex.
  std::uint64_t failed = 0;    ///< Processes that could not open their file, and said so.
  std::int32_t init_code = 0;  ///< What the driver last answered to a cuInit that failed.
};

}  // namespace emm::record
