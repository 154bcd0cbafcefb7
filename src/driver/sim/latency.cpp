#include "driver/sim/latency.hpp"

#include <span>

#include "base/units.hpp"

namespace emm::sim {
namespace {

struct Point {
  std::uint64_t size, ns;
};

constexpr Point kMemAlloc[] = {
    {2_MiB, 39'000}, {32_MiB, 47'500}, {256_MiB, 78'600}, {2_GiB, 204'000}};
constexpr Point kMemFree[] = {
    {2_MiB, 33'500}, {32_MiB, 50'800}, {256_MiB, 143'400}, {2_GiB, 921'000}};
constexpr Point kHostAlloc[] = {
    {4_KiB, 696'000}, {1_MiB, 570'000}, {64_MiB, 27'000'000}, {1_GiB, 342'000'000}};
constexpr Point kFreeHost[] = {
    {4_KiB, 300'000}, {1_MiB, 213'000}, {64_MiB, 7'500'000}, {1_GiB, 89'600'000}};
constexpr Point kRegister[] = {{4_KiB, 46'800}, {1_MiB, 80'300}, {64_MiB, 1'830'000}};
constexpr Point kUnregister[] = {{4_KiB, 26'700}, {1_MiB, 43'100}, {64_MiB, 950'000}};
constexpr Point kManaged[] = {{1_MiB, 33'600}};
constexpr Point kGetInfo[] = {{0, 4'200}};
constexpr Point kAddressRange[] = {{0, 87}};
constexpr Point kIpcGet[] = {{0, 73}};
constexpr Point kEventCreate[] = {{0, 131}};
constexpr Point kEventDestroy[] = {{0, 92}};
constexpr Point kDevicePointer[] = {{0, 2'600}};
constexpr Point kEventRecord[] = {{0, 325}};
constexpr Point kEventQuery[] = {{0, 186}};
constexpr Point kAllocAsync[] = {{0, 285}};
constexpr Point kFreeAsync[] = {{0, 405}};
// In bulk, by the page: the table of batches.
constexpr Point kCreate[] = {{2_MiB, 5'900}, {32_MiB, 7'500}, {256_MiB, 10'800}, {1_GiB, 67'000}};
constexpr Point kRelease[] = {
    {2_MiB, 8'800}, {32_MiB, 16'600}, {256_MiB, 81'000}, {1_GiB, 230'000}};
constexpr Point kReserve[] = {{0, 1'400}};
constexpr Point kMap[] = {{2_MiB, 900}, {1_GiB, 7'800}};
constexpr Point kUnmap[] = {{2_MiB, 13'300}, {256_MiB, 20'600}};
constexpr Point kAccess[] = {{2_MiB, 22'000}, {1_GiB, 99'000}};
constexpr Point kReset[] = {{0, 55'000'000}};
// Not measured: the order of magnitude that the bandwidths of PCIe 5 and of the device's memory
// give.
constexpr Point kCopyHost[] = {{0, 8'000}, {1_GiB, 20'000'000}};
constexpr Point kCopyDevice[] = {{0, 5'000}, {1_GiB, 550'000}};
constexpr Point kFill[] = {{0, 5'000}, {1_GiB, 280'000}};
constexpr Point kIpcOpen[] = {{0, 60'000}};
constexpr Point kLaunch[] = {{0, 5'000}};
constexpr Point kPool[] = {{0, 10'000}};
constexpr Point kPoolAttribute[] = {{0, 200}};
constexpr Point kStream[] = {{0, 10'000}};
constexpr Point kSynchronize[] = {{0, 1'000}};
constexpr Point kCurrent[] = {{0, 50}};
constexpr Point kLibrary[] = {{0, 100'000}};

std::span<const Point> points_of(Call call) noexcept {
  switch (call) {
    case Call::mem_alloc:
    case Call::runtime_malloc:
      return kMemAlloc;
    case Call::mem_free:
    case Call::runtime_free:
      return kMemFree;
    case Call::mem_alloc_managed:
      return kManaged;
    case Call::mem_host_alloc:
      return kHostAlloc;
    case Call::mem_free_host:
      return kFreeHost;
    case Call::mem_host_register:
      return kRegister;
    case Call::mem_host_unregister:
      return kUnregister;
    case Call::mem_host_get_device_pointer:
      return kDevicePointer;
    case Call::mem_get_info:
    case Call::runtime_get_info:
      return kGetInfo;
    case Call::mem_get_address_range:
      return kAddressRange;
    case Call::ipc_get_mem_handle:
      return kIpcGet;
    case Call::ipc_open_mem_handle:
    case Call::ipc_close_mem_handle:
      return kIpcOpen;
    case Call::memset_d8:
    case Call::memset_d32:
      return kFill;
    case Call::memcpy_htod:
    case Call::memcpy_dtoh:
      return kCopyHost;
    case Call::memcpy_dtod:
      return kCopyDevice;
    case Call::memset_d8_async:
    case Call::memcpy_dtod_async:
    case Call::launch_host_func:
      return kLaunch;
    case Call::memcpy_peer:
      return kCopyHost;
    case Call::event_record:
    case Call::stream_wait_event:
      return kEventRecord;
    case Call::event_query:
    case Call::stream_query:
      return kEventQuery;
    case Call::mem_create:
      return kCreate;
    case Call::mem_release:
      return kRelease;
    case Call::mem_address_reserve:
    case Call::mem_address_free:
      return kReserve;
    case Call::mem_map:
      return kMap;
    case Call::mem_unmap:
      return kUnmap;
    case Call::mem_set_access:
      return kAccess;
    case Call::mem_pool_create:
    case Call::mem_pool_destroy:
    case Call::mem_pool_trim_to:
      return kPool;
    case Call::mem_get_allocation_granularity:
    case Call::device_get_default_mem_pool:
    case Call::mem_pool_set_attribute:
    case Call::mem_pool_get_attribute:
      return kPoolAttribute;
    case Call::mem_alloc_async:
    case Call::mem_alloc_from_pool_async:
      return kAllocAsync;
    case Call::mem_free_async:
      return kFreeAsync;
    case Call::ctx_enable_peer_access:
    case Call::ctx_disable_peer_access:
      return kPool;
    case Call::event_synchronize:
      return kSynchronize;
    case Call::event_create:
      return kEventCreate;
    case Call::event_destroy:
      return kEventDestroy;
    case Call::stream_create:
    case Call::stream_destroy:
      return kStream;
    case Call::stream_synchronize:
    case Call::ctx_synchronize:
      return kSynchronize;
    case Call::ctx_push_current:
    case Call::ctx_pop_current:
    case Call::can_access_peer:
      return kCurrent;
    case Call::library_load:
    case Call::library_unload:
      return kLibrary;
    case Call::primary_ctx_reset:
      return kReset;
  }
  return {};
}

// Below the first point, its cost; above the last, on along the last line. Integers only: the same
// everywhere.
std::uint64_t on_line(std::span<const Point> points, std::uint64_t size) noexcept {
  if (size <= points.front().size || points.size() == 1) return points.front().ns;
  std::size_t upper = 1;
  while (upper + 1 < points.size() && points[upper].size < size) ++upper;
  const auto a = points[upper - 1], b = points[upper];
  __extension__ using Wide = __int128;
  const auto rise =
      (static_cast<Wide>(b.ns) - static_cast<Wide>(a.ns)) * static_cast<Wide>(size - a.size);
  return static_cast<std::uint64_t>(static_cast<Wide>(a.ns) +
                                    rise / static_cast<Wide>(b.size - a.size));
}

constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 47;

// A request for more than there is searches the device before it is refused; an absurd one, which
// no address space could hold, is refused on sight; a wrong argument sooner still.
std::uint64_t refusal(Call call, std::uint64_t size, std::int32_t native) noexcept {
  if (native != 2) return 1'500;
  const bool device = call == Call::mem_alloc || call == Call::runtime_malloc;
  if (!device) return 5'000;
  return size < kAddressSpace ? 61'000'000 : 7'800;
}

// Frees of nothing and requests for nothing.
constexpr std::uint64_t kNothing = 100;

bool does_nothing(Call call, std::uint64_t size) noexcept {
  switch (call) {
    case Call::mem_free:
    case Call::mem_free_host:
    case Call::mem_host_alloc:
    case Call::mem_release:  // of a handle that is mapped
    case Call::runtime_malloc:
    case Call::runtime_free:
      return size == 0;
    default:
      return false;
  }
}

}  // namespace

std::uint64_t latency_ns(Call call, std::uint64_t size, std::int32_t native) noexcept {
  if (native != 0) return refusal(call, size, native);
  if (does_nothing(call, size)) return kNothing;
  return on_line(points_of(call), size);
}

std::uint64_t work_ns(Call call, std::uint64_t size) noexcept {
  constexpr std::uint64_t kStart = 3'500;  // of those 5,000 that a call on nothing costs
  return on_line(points_of(call), size) - kStart;
}

}  // namespace emm::sim
