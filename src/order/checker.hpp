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
#include "order/places.hpp"
#include "order/streams.hpp"
#include "order/touched.hpp"

namespace emm::order {

/// While one lives, what this thread asks of a watched driver is the harness's own business and
/// orders nothing.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  static bool now() noexcept;
};

/// Memory went to somebody else while work that nothing orders may still touch it.
struct Hazard {
  enum class How : std::uint8_t {
    handed_out,  ///< To an allocation of the trace. Of what is live, at another address only.
    unmapped,    ///< mem_unmap, or its access was taken away.
    given_back,  ///< Freed in a way that does not wait for that work.
  };
  How how = How::handed_out;
  std::uint32_t id = 0;                ///< The allocation whose work it is,
  std::uint64_t born = 0;              ///< the event of the trace that made it,
  std::optional<std::uint64_t> ended;  ///< and that ended it; nothing where it is live.
  std::uint32_t stream = 0;            ///< Where the work is: a tag, or Streams::kUntagged.
  std::uint64_t event = 0;             ///< The event being served when it was found.
  std::uint32_t to = 0;                ///< handed_out: the allocation that has the memory,
  std::uint32_t to_stream = 0;         ///< and its stream.
};

class Watch;

/// Finds hazards: by the stream rule, an allocation implies work on its stream from its birth until
/// its free is asked for, and on each stream that record_stream or `use` names. Memory may be
/// handed out only to a stream on which that work comes before, and unmapped or given back only
/// when it is done. Memory is followed by where it is, through whatever address it is reached: what
/// is mapped at several (cuMemMap) is one memory.
///
/// It is told what the trace does, and sees what a manager asks of a device by standing around its
/// driver: events, waits, synchronisation, and which calls wait for running work (cuMemFree,
/// cuMemFreeHost and cuMemHostUnregister do, cuMemUnmap does not: measured on an H200, driver
/// 580.159.04). It never looks at a device's state, so it is the same on all.
///
/// Any thread may call; what the caller must do is to tell of the end of memory before the manager
/// hears of it, and of memory after the manager gave it.
class Checker {
 public:
  /// `serving` tells the event of the trace that the calling thread serves.
  explicit Checker(std::uint64_t (*serving)() noexcept) noexcept;
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// `device` with this around it; must not outlive this.
  OpenedDevice watch(OpenedDevice device, std::uint32_t ordinal);

  // What the trace does. A device is its ordinal, a stream its handle there.
  void name_stream(std::uint32_t device, StreamHandle stream, std::uint32_t tag);
  void allocated(std::uint32_t device, std::uint32_t id, DevicePtr ptr, std::uint64_t size,
                 StreamHandle stream);
  /// Work on `stream` touches it.
  void used(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// Work on `stream` touched it until here, and its own stream waits for that.
  void came_back(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  /// Its end is asked for on `stream`; 0: nobody said where.
  void ending(std::uint32_t device, std::uint32_t id, DevicePtr ptr, StreamHandle stream);
  void event_recorded(std::uint32_t record, std::uint32_t device, StreamHandle stream);
  void stream_waits(std::uint32_t device, StreamHandle stream, std::uint32_t record);
  void host_waits(std::uint32_t record);
  void host_waits(std::uint32_t device, StreamHandle stream);
  void host_waits_for_device(std::uint32_t device);
  /// No later operation names the record.
  void forget_record(std::uint32_t record);
  /// The context of the device is gone, with all in it.
  void forget_device(std::uint32_t device);

  /// What was found since the last call, in the order of finding.
  std::vector<Hazard> take_found();
  bool any_found() const noexcept { return any_found_.load(std::memory_order_relaxed); }

 private:
  friend class Watch;
  struct Device {
    Places places;
    Touched touched;
    std::map<std::uint64_t, std::uint64_t> given;  ///< By the driver: base to size.
    std::uint64_t blocks = 0;                      ///< How many there have been.
    std::map<std::uint64_t, Frontier> events;      ///< What each handle last recorded.
    std::size_t sweep_at = 1024;
  };

  void found(Hazard::How how, const Block& block, std::uint32_t timeline, std::uint32_t to = 0,
             std::uint32_t to_stream = 0);
  /// Where the work that touches `block` would not be over: its timeline.
  template <class Ordered>
  std::optional<std::uint32_t> unordered(const Block& block, Ordered ordered) const;
  static Block* live(Device& device, DevicePtr ptr, std::uint32_t id);
  void end_of_range(Device& device, std::uint64_t begin, std::uint64_t size, Hazard::How how,
                    std::optional<std::uint32_t> on, std::uint64_t blocks);
  void sweep(Device& device);

  std::uint64_t (*serving_)() noexcept;
  std::mutex mutex_;
  Streams streams_;
  std::map<std::uint32_t, Device> devices_;
  std::map<std::uint32_t, Frontier> records_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::vector<Hazard> found_;
  std::atomic<bool> any_found_{false};
};

}  // namespace emm::order
