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
#include "order/physical_extents.hpp"
#include "order/shadow_memory.hpp"
#include "order/streams.hpp"

namespace emm::order {

/// While one lives, what this thread asks of a watched driver is the harness's own business and
/// orders nothing.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  static bool is_on() noexcept;
};

/// Memory went to another owner while work may still touch it that nothing orders before that.
struct Hazard {
  enum class How : std::uint8_t {
    handed_out,  ///< To an allocation of the trace; live memory only at another address.
    unmapped,    ///< By mem_unmap, or its access was taken away.
    given_back,  ///< Released to the driver by a call that does not wait for that work.
  };
  How how = How::handed_out;
  std::uint32_t id = 0;                ///< The allocation whose work it is.
  std::uint64_t born = 0;              ///< The event of the trace that made the allocation.
  std::optional<std::uint64_t> ended;  ///< The event that ended it; nothing while it is live.
  std::uint32_t stream = 0;            ///< The stream of the work: a tag, or Streams::kUntagged.
  std::uint64_t event = 0;             ///< The event that was executed when it was found.
  std::uint32_t to = 0;                ///< handed_out: the allocation that has the memory.
  std::uint32_t to_stream = 0;         ///< handed_out: the stream of that allocation.
  Told told{};                         ///< Of the allocation; empty unless tell_of_each().
};

class Watch;

/// Finds hazards: by the stream rule, an allocation implies work on its stream from its birth until
/// its free is asked for, and on each stream that record_stream or `use` names. Memory may be
/// handed out only to a stream on which that work comes before, and unmapped or released only when
/// it is done. Memory is followed by its place, through whatever address it is reached: memory that
/// cuMemMap maps at several addresses is one memory.
///
/// The engine tells it what the trace does. It decorates the driver of each device and so sees what
/// a manager asks: events, waits, synchronisation, and which calls wait for running work
/// (cuMemFree, cuMemFreeHost and cuMemHostUnregister do, cuMemUnmap does not: measured on an H200,
/// driver 580.159.04). It never looks at a device's state, so it is the same on all.
///
/// Any thread may call. The caller must call ending() before it frees the memory with the manager,
/// and allocated() after the manager gave it.
class Checker {
 public:
  /// `current_event` returns the event of the trace that the calling thread executes.
  explicit Checker(std::uint64_t (*current_event)() noexcept) noexcept;
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Calls `tell` for each allocation as it is made and as it ends, so that hazards tell of it.
  void tell_of_each(std::function<void(std::uint32_t id, bool ended, Told& told)> tell) {
    tell_ = std::move(tell);
  }
  /// Decorates `device`; the result must not outlive this.
  OpenedDevice watch(OpenedDevice device, std::uint32_t ordinal);

  // What the trace does. A device is its ordinal, a stream its handle there.
  void name_stream(std::uint32_t device, StreamHandle stream, std::uint32_t tag);
  void allocated(std::uint32_t device, std::uint32_t id, DevicePtr ptr, std::uint64_t size,
                 StreamHandle stream);
  /// Work on `stream` touches the memory.
  void used(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// Work on `stream` touched the memory until here, and its own stream waits for that.
  void came_back(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// The memory is to be freed on `stream`; 0 where nobody named a stream.
  void ending(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  void event_recorded(std::uint32_t record, std::uint32_t device, StreamHandle stream);
  void stream_waits(std::uint32_t device, StreamHandle stream, std::uint32_t record);
  void host_waits(std::uint32_t record);
  void host_waits(std::uint32_t device, StreamHandle stream);
  void host_waits_for_device(std::uint32_t device);
  /// No later operation names the record.
  void forget_record(std::uint32_t record);

  /// The hazards found since the last call, in the order of finding.
  std::vector<Hazard> take_found();
  bool any_found() const noexcept { return any_found_.load(std::memory_order_relaxed); }

 private:
  friend class Watch;
  struct Device {
    PhysicalExtents extents;
    ShadowMemory shadow;
    std::map<std::uint64_t, std::uint64_t> given;  ///< Handed out by the driver: base to size.
    std::uint64_t allocation_count = 0;            ///< All there have been.
    std::map<std::uint64_t, VectorClock> events;   ///< What each handle last recorded.
    std::size_t sweep_at = 1024;
  };

  void found(Hazard::How how, const TracedAllocation& allocation, std::uint32_t timeline,
             std::uint32_t to = 0, std::uint32_t to_stream = 0);
  /// The timeline of work that touches `allocation` and is not `ordered`.
  template <class Ordered>
  std::optional<std::uint32_t> unordered(const TracedAllocation& allocation, Ordered ordered) const;
  static TracedAllocation* live(Device& device, DevicePtr ptr, std::uint32_t id);
  void end_of_range(Device& device, std::uint64_t begin, std::uint64_t size, Hazard::How how,
                    std::optional<std::uint32_t> on, std::uint64_t allocation_count);
  void sweep(Device& device);

  std::uint64_t (*current_event_)() noexcept;
  std::function<void(std::uint32_t, bool, Told&)> tell_;
  std::mutex mutex_;
  Streams streams_;
  std::map<std::uint32_t, Device> devices_;
  std::map<std::uint32_t, VectorClock> records_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<Hazard> found_;
  std::atomic<bool> any_found_{false};
};

}  // namespace emm::order
