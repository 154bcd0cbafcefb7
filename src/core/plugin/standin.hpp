#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "driver/decorate/call_hook.hpp"

namespace emm::plugin {

inline constexpr std::string_view kNoStandIns =
    "the stand-in for libcuda.so.1, by which a class of Python's runs on the simulated device, is "
    "not beside this program: expected ../lib/emmctl/standin";

/// The folder of this program, with a slash at its end.
std::string folder_of_program();

/// The stand-ins for libcuda.so.1 and libcudart.so.13 in this process. A library that is loaded
/// later and needs one of these gets the stand-in, and so the simulated device that
/// EMM_STANDIN_DEVICE names.
class StandIns {
 public:
  /// Their folder, with a slash at its end; empty if there is none.
  static std::string folder();
  /// Loads them from their folder beside this program: ../standin in a build, ../lib/emmctl/standin
  /// in an installation. Empty if they are not there. Call it before anything loads the real ones.
  static std::optional<StandIns> load();

  /// Tells `hook` of every call that reaches the device. `hook` may be null, and must outlive the
  /// last call.
  void tap(CallHook* hook) const { tap_(hook); }
  /// How often a program asked for undocumented driver tables, as a statically linked cudart does.
  std::uint64_t asked_for_tables() const { return asked_(); }
  /// How many calls came before cuInit, or without a current context.
  std::uint64_t strays() const { return strays_(); }

 private:
  using Count = std::uint64_t (*)();
  StandIns(void (*tap_with)(CallHook*), Count asked, Count strays_seen) noexcept
      : tap_(tap_with), asked_(asked), strays_(strays_seen) {}
  void (*tap_)(CallHook*);
  Count asked_;
  Count strays_;
};

}  // namespace emm::plugin
