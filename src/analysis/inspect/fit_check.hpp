#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/address_space.hpp"
#include "inspect/profile.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// The first request that would exceed the capacity of a device.
struct Overrun {
  std::uint32_t event = 0;
  std::uint64_t size = 0;  ///< 0: what existed before the recording exceeds it.
  std::uint64_t held = 0;  ///< Bytes held, with this request.
};

/// Answers whether one device's part of a recording fits into a capacity that it was not recorded
/// with. Sizes are in bytes, and peaks are taken over all events.
struct FitCheck {
  enum class Verdict : std::uint8_t {
    not_asked,  ///< No capacity was given.
    fails,      ///< Every manager fails: the live bytes exceed the capacity.
    depends,    ///< The live bytes fit; the recorded manager's or the no-wait need do not.
    fits,       ///< All of these fit.
  };

  std::uint32_t device = 0;
  Peak live;
  std::uint64_t no_wait = 0;     ///< The no-wait need, by stream_need().
  std::optional<Peak> reserved;  ///< By the recorded manager; count: segments.
  std::optional<std::uint64_t> capacity;
  Verdict verdict = Verdict::not_asked;
  std::optional<Overrun> live_overrun, reserved_overrun;
  /// The recording has requests: two or more beside what existed before it.
  bool has_history = false;
  HeldMemory held;                    ///< At the recording's end.
  std::optional<AddressSpace> space;  ///< Likewise; set if addresses are recorded.

  /// The free bytes of one pool and stream at the recording's end: those that the allocator gives
  /// back before a request fails, and those in segments that are partly in use.
  struct Inactive {
    std::string pool;
    bool is_private = false;  ///< A graph or a MemPool has it, and keeps it while it lasts.
    std::uint64_t stream = 0;
    std::uint64_t returnable = 0, stuck = 0;
  };
  bool is_divided = false;  ///< `inactive` is known, as a model of the allocator has told it.
  std::vector<Inactive> inactive;
  /// The largest request that would be served from there with `capacity`; 0: none.
  std::optional<std::uint64_t> largest_request;
  bool largest_from_block = false;  ///< By a free block; otherwise by a new segment.

  /// Is there something to say of the state at the end, beside of a history?
  bool says_state() const noexcept {
    return !has_history || (space && space->segments && space->size != 0);
  }
};
std::string_view name(FitCheck::Verdict verdict) noexcept;

/// Checks each device that has memory, in the order of devices. Each device has `capacity`.
std::vector<FitCheck> fit_checks(const Recording& recording, const trace::Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity);

}  // namespace emm::inspect
