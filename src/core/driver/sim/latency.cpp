#include "driver/sim/latency.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "base/units.hpp"
#include "driver/call.hpp"

namespace emm::sim {
namespace {

struct CostPoint {
  std::uint64_t size, ns;
};

/// The cost of a kind of call, as points of a line over sizes. calls.def assigns the costs to
/// calls.
struct Cost {
  constexpr Cost(std::initializer_list<CostPoint> line, bool of_nothing = false)
      : count(line.size()), can_be_of_nothing(of_nothing) {
    std::copy(line.begin(), line.end(), storage.begin());
  }
  constexpr std::span<const CostPoint> points() const noexcept { return {storage.data(), count}; }

  std::array<CostPoint, 4> storage{};
  std::size_t count;
  bool can_be_of_nothing;  ///< Size 0 has a cost: a request for nothing, a free of null or of a
                           ///< mapped handle.
};

constexpr bool kOrOfNothing = true;

// Nanoseconds by size in bytes, the medians of an H200 that latency.hpp names. A cost of one point
// is the same at any size.
constexpr Cost kMemAlloc({{2_MiB, 39'000}, {32_MiB, 47'500}, {256_MiB, 78'600}, {2_GiB, 204'000}},
                         kOrOfNothing);
constexpr Cost kMemFree({{2_MiB, 33'500}, {32_MiB, 50'800}, {256_MiB, 143'400}, {2_GiB, 921'000}},
                        kOrOfNothing);
constexpr Cost kHostAlloc(
    {{4_KiB, 696'000}, {1_MiB, 570'000}, {64_MiB, 27'000'000}, {1_GiB, 342'000'000}}, kOrOfNothing);
constexpr Cost kFreeHost(
    {{4_KiB, 300'000}, {1_MiB, 213'000}, {64_MiB, 7'500'000}, {1_GiB, 89'600'000}}, kOrOfNothing);
constexpr Cost kRegister({{4_KiB, 46'800}, {1_MiB, 80'300}, {64_MiB, 1'830'000}});
constexpr Cost kUnregister({{4_KiB, 26'700}, {1_MiB, 43'100}, {64_MiB, 950'000}});
constexpr Cost kManaged({{1_MiB, 33'600}});
constexpr Cost kGetInfo({{0, 4'200}});
constexpr Cost kAddressRange({{0, 87}});
constexpr Cost kIpcGet({{0, 73}});
constexpr Cost kEventCreate({{0, 131}});
constexpr Cost kEventDestroy({{0, 92}});
constexpr Cost kDevicePointer({{0, 2'600}});
constexpr Cost kEventRecord({{0, 325}});
constexpr Cost kEventQuery({{0, 186}});
constexpr Cost kAllocAsync({{0, 285}});
constexpr Cost kFreeAsync({{0, 405}});
// Virtual memory, measured with many calls in a row.
constexpr Cost kCreate({{2_MiB, 5'900}, {32_MiB, 7'500}, {256_MiB, 10'800}, {1_GiB, 67'000}});
constexpr Cost kRelease({{2_MiB, 8'800}, {32_MiB, 16'600}, {256_MiB, 81'000}, {1_GiB, 230'000}},
                        kOrOfNothing);
constexpr Cost kReserve({{0, 1'400}});
constexpr Cost kMap({{2_MiB, 900}, {1_GiB, 7'800}});
constexpr Cost kUnmap({{2_MiB, 13'300}, {256_MiB, 20'600}});
constexpr Cost kAccess({{2_MiB, 22'000}, {1_GiB, 99'000}});
constexpr Cost kReset({{0, 55'000'000}});
// Not measured. The order of magnitude follows from the bandwidths of PCIe 5 and of the device's
// memory.
constexpr Cost kCopyHost({{0, 8'000}, {1_GiB, 20'000'000}});
constexpr Cost kCopyDevice({{0, 5'000}, {1_GiB, 550'000}});
constexpr Cost kFill({{0, 5'000}, {1_GiB, 280'000}});
constexpr Cost kIpcOpen({{0, 60'000}});
constexpr Cost kLaunch({{0, 5'000}});
constexpr Cost kPool({{0, 10'000}});
constexpr Cost kPoolAttribute({{0, 200}});
constexpr Cost kStream({{0, 10'000}});
constexpr Cost kSynchronize({{0, 1'000}});
constexpr Cost kCurrent({{0, 50}});
constexpr Cost kLibrary({{0, 100'000}});

/// The cost of each call.
constexpr Cost kCosts[] = {
#define EMM_CALL(result, name, cuda, shape, fault, cost, ...) cost,
#define EMM_RUNTIME_CALL(name, cuda, shape, fault, cost) cost,
#include "driver/calls.def"
};

const Cost& cost_of(Call call) noexcept { return kCosts[static_cast<std::size_t>(call)]; }

// Below the first point returns the first cost, and above the last point extends the last line.
// Uses only integers, so that every machine gets the same times.
std::uint64_t on_line(std::span<const CostPoint> points, std::uint64_t size) noexcept {
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

// Bytes: no request above it is looked for.
constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 47;

// The cost of a refusal. A request for too much memory fails only after the device was searched. A
// request that no address space could hold fails sooner, and a wrong argument sooner still.
std::uint64_t refusal(Call call, std::uint64_t size, std::int32_t native) noexcept {
  if (native != 2) return 1'500;
  const bool device = call == Call::mem_alloc || call == Call::runtime_malloc;
  if (!device) return 5'000;
  return size < kAddressSpace ? 61'000'000 : 7'800;
}

constexpr std::uint64_t kNothing = 100;  // ns of a call that does nothing

}  // namespace

std::uint64_t latency_ns(Call call, std::uint64_t size, std::int32_t native) noexcept {
  if (native != 0) return refusal(call, size, native);
  const auto& cost = cost_of(call);
  if (size == 0 && cost.can_be_of_nothing) return kNothing;
  return on_line(cost.points(), size);
}

std::uint64_t work_ns(Call call, std::uint64_t size) noexcept {
  constexpr std::uint64_t kStart = 3'500;  // part of the 5,000 ns of a call on 0 bytes
  return on_line(cost_of(call).points(), size) - kStart;
}

}  // namespace emm::sim
