#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The raw recording. The library inside a recorded program writes it while the program runs, and
/// it survives if the program is killed. docs/recording.md describes it for other readers.
///
/// There is one file for each process: a header of kHeaderBytes, then blocks of kBlockBytes each. A
/// block is a BlockHeader followed by records. It belongs to one thread, so threads share nothing
/// but the counter that orders their calls. A record whose `seq` is 0 was not written. All numbers
/// are little-endian.
namespace emm::record {

/// A copy in text mode changes the last two bytes, so that it is seen.
inline constexpr char kMagic[8] = {'e', 'm', 'm', 'r', 'a', 'w', '\r', '\n'};
inline constexpr std::uint32_t kVersion = 2;  ///< Version 1 had no FileHeader::full.
/// Two pages: FileHeader fits, and a block begins at a page.
inline constexpr std::size_t kHeaderBytes = 8192;
/// A block holds 2,047 records of one thread.
inline constexpr std::size_t kBlockBytes = std::size_t{128} << 10;
/// What FileHeader has room for.
inline constexpr std::size_t kDevicesMost = 16;
inline constexpr std::size_t kContextsMost = 200;
/// Stands for the handle of a context that has ended. Its number can go to another context of the
/// same device.
inline constexpr std::uint64_t kEndedContext = ~std::uint64_t{0};
inline constexpr std::size_t kReadyMost = 32;
/// The device of what lies in host memory, and of managed memory that prefers no device.
inline constexpr std::uint64_t kHost = 0xffffffff, kAnyDevice = 0xfffffffe;
/// The `seq` of a record without a place in the order: `thread`, `frame_text`, `stack` and `about`.
/// The last four numbers of a `frame_text` or `stack` record hold a piece of the text, or frame
/// numbers of 32 bits each.
inline constexpr std::uint64_t kNoPlace = ~std::uint64_t{0};

/// What a record is about. Numbers keep their meaning for ever, so new ones are added at the end.
enum class Call : std::uint16_t {
  none,
  thread,   ///< The following records in this block are of thread `address`.
  kernels,  ///< `size` launches on stream `stream`; the last one was at `ticks` + `duration`.
  mem_alloc,
  mem_alloc_pitch,    ///< `size` is pitch times height, `extra` the pitch.
  mem_alloc_managed,  ///< `extra` is the flags.
  mem_free,
  mem_host_alloc,     ///< `extra` is the flags.
  mem_host_register,  ///< `extra` is the flags.
  mem_free_host,
  mem_host_unregister,
  array_create,  ///< `size` excludes padding.
  array_destroy,
  mem_alloc_async,  ///< `extra` is the pool; 0: the device's current one.
  mem_free_async,
  pool_create,  ///< `address` is the pool, `size` its limit, `stream` its device, or kHost or
                ///< kAnyDevice.
  pool_destroy,
  pool_trim,           ///< `size` is how many bytes the pool keeps.
  pool_set_attribute,  ///< `extra` is the attribute, `size` its value.
  device_get_pool,     ///< `address` is the pool of device `stream`; `extra`: 1 the default pool, 2
                       ///< the host's.
  device_set_pool,
  mem_address_reserve,  ///< `extra` is the alignment.
  mem_address_free,
  mem_create,  ///< `address` is the handle, `extra` the kinds of handles that it can be exported
               ///< as, `stream` its device, or kHost.
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
  capture_begin,      ///< `address` is the graph that nodes are added to; 0: a new one.
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
  mem_get_info,  ///< `address` is the free memory, `size` the total.
  module_load,
  module_unload,
  frame_text,  ///< One piece of frame `ticks`, which has `duration` characters. Piece `flags` holds
               ///< 32 of them.
  stack,       ///< One piece of stack `ticks`, which has `duration` frames, innermost first. Piece
               ///< `flags` holds 8 of them.
  about,       ///< Stack `address` made the thread's next record for request `size`.
  window,      ///< Recording begins, or begins again, with window `address`. Records of live memory
               ///< follow.
  preview_108,            ///< A call that only the first preview of CUDA 4.0 declared. Not written.
  preview_109,            ///< Likewise.
  ipc_get_event_handle,   ///< `address` is the event, `extra` the handle's fingerprint.
  ipc_open_event_handle,  ///< Likewise.
  pool_set_access,  ///< `address` is the pool, `stream` the device that gets access, `extra` the
                    ///< flags.
  pool_export,      ///< `address` is the pool, `extra` the kind of handle.
  pool_import,      ///< Likewise.
  pool_export_pointer,   ///< `extra` is the fingerprint of what is exported.
  pool_import_pointer,   ///< `stream` is the pool, `extra` the fingerprint.
  mem_map_array,         ///< `size` pieces of arrays are mapped or unmapped; the first is of array
                         ///< `address` and memory `extra`.
  mem_export_range,      ///< `extra` is the kind of handle.
  multicast_create,      ///< `address` is the handle, `extra` the number of devices.
  multicast_add_device,  ///< `stream` is the device.
  multicast_bind_mem,    ///< `extra` is the memory's handle, `stream` the offset in the object.
  multicast_bind_address,  ///< `extra` is the memory's address, `stream` the offset in the object.
  multicast_unbind,        ///< `stream` is the device, `extra` the offset in the object.
  external_import,         ///< `address` is the external memory, `extra` the type of its handle.
  external_map_buffer,     ///< `stream` is the external memory, `extra` the offset in it.
  external_map_array,      ///< Likewise.
  external_destroy,
  green_ctx_create,   ///< `address` is the green context, `stream` its device.
  green_ctx_destroy,  ///< The memory belongs to the primary context and lives on.
  ctx_attach,         ///< `extra` is the context's number.
  ctx_detach,         ///< Likewise. Ends the context when all earlier attaches have been detached.
  stream_wait_value,  ///< `size` is the value, `extra` the flags.
  graph_add_node,     ///< `stream` is CUDA's number of the node's type, `extra` the graph.
  graph_mem_trim,     ///< `stream` is the device.
  count_
};

/// One call of the driver. `seq` is its place in the order of the process. A call that gives
/// memory, a stream or a handle takes its place after the driver has answered; a call that ends
/// one takes it before it calls the driver. In this order no address is live twice, and none is
/// freed while it is not live. `seq` is written last, so a record that has one is complete.
struct CallRecord {
  std::uint64_t seq;
  std::uint64_t ticks;     ///< When the call began, in FileHeader's ticks.
  std::uint32_t duration;  ///< Ticks that it took; the largest number if it took longer.
  Call call;
  std::uint8_t device;   ///< Ordinal of the context's device; 255: unknown.
  std::uint8_t context;  ///< Number of the context, counted from 1; 0: none.
  std::int32_t result;   ///< CUresult.
  std::uint32_t flags;   ///< Flags of namespace record_flag.
  std::uint64_t address;
  std::uint64_t size;
  std::uint64_t stream;  ///< The handle; 0 and 1 are the legacy default stream, 2 the thread's
                         ///< default stream.
  std::uint64_t extra;
};
static_assert(sizeof(CallRecord) == 64 && std::is_trivially_copyable_v<CallRecord>);

namespace record_flag {
/// `emmctl run` failed the call before it reached the driver.
inline constexpr std::uint32_t injected = 1;
/// The call was made before recording began, and what it gave is still live.
inline constexpr std::uint32_t preexisting = 2;
/// The duration was not measured; `ticks` is when the call took its place.
inline constexpr std::uint32_t unmeasured = 4;
}  // namespace record_flag

/// The first bytes of a block. It is as large as a record.
struct BlockHeader {
  std::uint64_t magic;  ///< kBlockMagic.
  std::uint64_t turn;  ///< Counts the blocks that threads take, from 1; an emptied one counts anew.
                       ///< Two blocks with the same turn hold the same records.
  std::uint64_t dropped;  ///< Records that were overwritten here when a ring reused the block.
  std::uint64_t used;     ///< Records in it, set when its thread has ended.
  std::uint64_t state;    ///< 1 while a thread writes to it; 2 when it is full.
  std::uint64_t number;   ///< Its place in the file, from 1.
  std::uint64_t reserved[2];
};
static_assert(sizeof(BlockHeader) == sizeof(CallRecord));
inline constexpr std::uint64_t kBlockMagic = 0x6b636f6c62776172;  // "rawblock"
// One place is the BlockHeader's.
inline constexpr std::size_t kBlockRecords = kBlockBytes / sizeof(CallRecord) - 1;

/// The first page of a file.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes, block_bytes, record_bytes;
  std::uint64_t pid, parent;
  /// When the file was opened. start_ns is of CLOCK_MONOTONIC.
  std::uint64_t start_ticks, start_ns, start_realtime_ns;
  /// A later reading of the same clocks, which gives the length of a tick.
  std::uint64_t later_ticks, later_ns;
  std::uint64_t lost;      ///< Calls that found no room.
  std::int32_t stopped;    ///< The errno that kept the file from growing; 0: none.
  std::uint32_t bypassed;  ///< Wrapped functions for which the driver returned another address, so
                           ///< that they were not recorded.
  std::uint64_t blocks;    ///< Blocks taken; each reuse counts.
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
  } contexts[kContextsMost];   ///< Number 1 is the first. A number stays with its device.
  std::uint64_t only_windows;  ///< 1: recording waited for a signal to begin.
  /// The process and `emmctl record` share what follows while the process runs. A block needs room
  /// in the file before it is used. Making room takes time, so `emmctl record` writes zeros to
  /// blocks ahead of the process and puts the number of each, counted from 1, into `ready`. Whoever
  /// takes a number out owns the block. When `ready` is empty, the process makes room for the next
  /// block itself. It puts full blocks into `full` (below).
  std::uint64_t numbered;  ///< Blocks that have been given a number.
  std::uint64_t ready[kReadyMost];
  std::uint64_t cut;     ///< 1: the trace was made while the process was still running.
  std::uint64_t unkept;  ///< Allocations without an account, because there was no memory for it.
  /// How often a thread was in a context for which there was no number left.
  std::uint64_t unnumbered;
  /// Full blocks. `emmctl record` copies each to a new block, then writes zeros to the old one and
  /// moves its number to `ready`. So the process writes to memory that it has mapped already.
  /// When no place is free, the process leaves a full block where it is.
  std::uint64_t full[kReadyMost];
  /// Bytes of each device that `emmctl run --capacity` let the process have; 0: no limit of ours.
  std::uint64_t run_capacity;
};
/// FileHeader::stopped where `emmctl record` was killed and the process has written as much as it
/// may write then.
inline constexpr std::int32_t kNobodyCollects = EOWNERDEAD;
/// What all processes of a program may write after `emmctl record` was killed: 64 MiB, a million
/// calls. That shows what came after the kill, and fills no disk.
inline constexpr std::uint64_t kUncollectedBlocksMost = (std::uint64_t{64} << 20) / kBlockBytes;
static_assert(sizeof(FileHeader) <= kHeaderBytes);

/// A page that `emmctl record` shares with the recorded processes: the file "control" beside
/// theirs.
struct Control {
  std::uint32_t on = 0;  ///< 0: calls are passed on unrecorded. Else how often recording has begun.
  std::uint32_t apart[31] = {};
  std::uint32_t taken =
      0;  ///< Blocks that processes took. `emmctl record` waits for it, as a futex.
  std::uint64_t failed = 0;    ///< Processes that could not open their file. Each has said so.
  std::int32_t init_code = 0;  ///< What the driver last answered to a cuInit that failed.
  /// 1: `emmctl record` holds a lock of this file (F_OFD_SETLK) for as long as it collects.
  std::uint32_t locked = 0;
  std::uint32_t inner = 0;  ///< A process of the program that ran `emmctl record` itself; 0: none.
  std::uint64_t uncollected = 0;  ///< Blocks that processes took while nobody collected.
};

}  // namespace emm::record
