#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "inspect/profile.hpp"
#include "inspect/recording.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// The first request that would exceed the capacity of a device.
struct Overrun {
  std::uint32_t event = 0;
  std::uint64_t size = 0;
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
  bool has_history = false;    ///< Some allocation begins or ends within the recording.
  Holding held;                ///< At the recording's end.
  std::optional<Space> space;  ///< Likewise; set if addresses are recorded.
};
std::string_view name(FitCheck::Verdict verdict) noexcept;

/// Checks each device that has memory, in the order of devices. Each device has `capacity`.
std::vector<FitCheck> fit_checks(const Recording& recording, const trace::Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity);

}  // namespace emm::inspect
