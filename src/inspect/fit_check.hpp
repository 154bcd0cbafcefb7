#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "inspect/profile.hpp"
#include "inspect/recording.hpp"
#include "inspect/space.hpp"

namespace emm::inspect {

/// The first request with which a device would hold more than its capacity.
struct Overrun {
  std::uint32_t event = 0;
  std::uint64_t size = 0;
  std::uint64_t held = 0;  ///< Bytes, with it.
};

/// What the recording of one device says of a capacity that it was not recorded with. Bytes; peaks
/// are over events.
struct FitCheck {
  enum class Verdict : std::uint8_t {
    not_asked,  ///< No capacity was given.
    fails,      ///< With every manager: more is live than the capacity.
    depends,  ///< What is live fits; what the recorded manager held, or a manager that never waits
              ///< needs, does not.
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
  bool has_history = false;  ///< Something begins or ends in it, and is not only there from before.
  Holding held;              ///< At its end.
  std::optional<Space> space;  ///< Likewise, where addresses are recorded.
};
std::string_view name(FitCheck::Verdict verdict) noexcept;

/// Of each device that has memory, by device. `capacity`: of each.
std::vector<FitCheck> fit_checks(const Recording& recording, const Lifetimes& lifetimes,
                                 std::optional<std::uint64_t> capacity);

}  // namespace emm::inspect
