#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "driver/device_entry.hpp"
#include "stream_order/physical_extents.hpp"
#include "stream_order/shadow_memory.hpp"
#include "stream_order/streams.hpp"

namespace emm::stream_order {

/// While one lives, the checker ignores the driver calls of this thread: they are the harness's own
/// and order nothing.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  static bool is_on() noexcept;
};

/// Memory went to another owner while earlier work may still touch it, because nothing orders that
/// work before the new owner.
struct Hazard {
  enum class How : std::uint8_t {
    /// To an allocation of the trace. If the memory was still live, it was reached by another
    /// address.
    handed_out,
    unmapped,    ///< By mem_unmap, or by taking away its access.
    given_back,  ///< Released to the driver by a call that does not wait for the work.
  };
  How how = How::handed_out;
  std::uint32_t id = 0;                 ///< The allocation that the work belongs to.
  std::uint64_t born = 0;               ///< The event of the trace that made the allocation.
  std::optional<std::uint64_t> ended;   ///< The event that ended it. Nothing while it is live.
  std::uint32_t stream = 0;             ///< The stream of the work: a tag, or Streams::kUntagged.
  std::uint64_t event = 0;              ///< The event that was executing when the hazard was found.
  std::uint32_t to = 0;                 ///< handed_out: the allocation that got the memory.
  std::uint32_t to_stream = 0;          ///< handed_out: the stream of that allocation.
  AllocationDescription description{};  ///< What tell_of_each() said of the allocation; else empty.
};

class Watch;

/// Finds hazards by the stream rule. An allocation implies work on its own stream from its birth
/// until its free is requested, and on each stream that record_stream or `use` names. A manager may
/// hand out the memory only to a stream that is ordered after that work. It may unmap or release
/// the memory only when that work is done. The checker identifies memory by its physical place, so
/// memory that cuMemMap maps at several addresses is one memory.
///
/// The engine reports what the trace does. The checker decorates the driver of each device and so
/// sees what a manager calls: events, waits, synchronisation, and the calls that wait for running
/// work. cuMemFree, cuMemFreeHost and cuMemHostUnregister wait; cuMemUnmap does not (measured on an
/// H200, driver 580.159.04). It never reads a device's state, so its answer is the same on all
/// devices.
///
/// Any thread may call. The caller must call ending() before the manager frees the memory, and
/// allocated() after the manager returned it.
class Checker {
 public:
  /// `current_event` returns the event of the trace that the calling thread executes.
  explicit Checker(std::uint64_t (*current_event)() noexcept) noexcept;
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Registers `tell`, which is called when an allocation is made and when it ends. Hazards carry
  /// what it fills in.
  void tell_of_each(
      std::function<void(std::uint32_t id, bool ended, AllocationDescription& description)> tell) {
    tell_ = std::move(tell);
  }
  /// Decorates `device`. The result must not outlive the checker.
  OpenedDevice watch(OpenedDevice device, std::uint32_t ordinal);

  // What the trace does. `device` is an ordinal, `stream` a handle on that device.
  void name_stream(std::uint32_t device, StreamHandle stream, std::uint32_t tag);
  void allocated(std::uint32_t device, std::uint32_t id, DevicePtr ptr, std::uint64_t size,
                 StreamHandle stream);
  /// Work on `stream` touches the memory.
  void used(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// Work on `stream` touched the memory until now, and the memory's own stream waits for that
  /// work.
  void came_back(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// The memory is about to be freed on `stream`; 0 if the caller named no stream.
  void ending(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  void event_recorded(std::uint32_t record, std::uint32_t device, StreamHandle stream);
  void stream_waits(std::uint32_t device, StreamHandle stream, std::uint32_t record);
  void host_waits(std::uint32_t record);
  void host_waits(std::uint32_t device, StreamHandle stream);
  void host_waits_for_device(std::uint32_t device);
  /// No later operation names the record.
  void forget_record(std::uint32_t record);

  /// Returns the hazards found since the last call, oldest first.
  std::vector<Hazard> take_found();
  bool any_found() const noexcept { return any_found_.load(std::memory_order_relaxed); }

 private:
  friend class Watch;
  struct Device {
    PhysicalExtents extents;
    ShadowMemory shadow;
    std::map<std::uint64_t, std::uint64_t> given;  ///< Memory from the driver: base to size.
    std::uint64_t allocation_count = 0;            ///< Counts all allocations so far.
    std::map<std::uint64_t, VectorClock> events;   ///< What each event handle last recorded.
    std::size_t sweep_at = 1024;
  };

  void report_hazard(Hazard::How how, const TracedAllocation& allocation, std::uint32_t timeline,
                     std::uint32_t to = 0, std::uint32_t to_stream = 0);
  /// The timeline of a use of `allocation` for which `ordered` is false.
  template <class Ordered>
  std::optional<std::uint32_t> unordered(const TracedAllocation& allocation, Ordered ordered) const;
  static TracedAllocation* live(Device& device, DevicePtr ptr, std::uint32_t id);
  void end_of_range(Device& device, std::uint64_t begin, std::uint64_t size, Hazard::How how,
                    std::optional<std::uint32_t> on, std::uint64_t allocation_count);
  void sweep(Device& device);

  std::uint64_t (*current_event_)() noexcept;
  std::function<void(std::uint32_t, bool, AllocationDescription&)> tell_;
  std::mutex mutex_;
  Streams streams_;
  std::map<std::uint32_t, Device> devices_;
  std::map<std::uint32_t, VectorClock> records_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<Hazard> found_;
  std::atomic<bool> any_found_{false};
};

}  // namespace emm::stream_order
