#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "inspect/profile.hpp"
#include "inspect/recording.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// The first request that would take a device beyond its capacity.
struct Overrun {
  std::uint32_t event = 0;
  std::uint64_t size = 0;
  std::uint64_t held = 0;  ///< Bytes that are held with this request.
};

/// Answers whether one device's part of a recording fits into a capacity that it was not recorded
/// with. Sizes are in bytes, and peaks are taken over all events.
struct FitCheck {
  enum class Verdict : std::uint8_t {
    not_asked,  ///< No capacity was given.
    fails,      ///< Every manager fails: more is live than the capacity.
    depends,  ///< The live bytes fit. What the recorded manager held, or what a manager needs that
              ///< never waits, does not.
    fits,     ///< All of these fit.
  };

  std::uint32_t device = 0;
  Peak live;
  std::uint64_t no_wait = 0;     ///< What a manager needs that never waits for another stream, nor
                                 ///< orders it (stream_need).
  std::optional<Peak> reserved;  ///< By the recorded manager; count: segments.
  std::optional<std::uint64_t> capacity;
  Verdict verdict = Verdict::not_asked;
  std::optional<Overrun> live_overrun, reserved_overrun;
  bool has_history = false;    ///< Some allocation begins or ends within the recording.
  Holding held;                ///< At its end.
  std::optional<Space> space;  ///< Likewise, where addresses are recorded.
};
std::string_view name(FitCheck::Verdict verdict) noexcept;

/// Checks each device that has memory, in the order of devices. Each device has `capacity`.
std::vector<FitCheck> fit_checks(const Recording& recording, const Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity);

}  // namespace emm::inspect
