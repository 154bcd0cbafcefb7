#include "trial/setting.hpp"

#include "base/text.hpp"
#include "harness/device_stack.hpp"
#include "replay/engine.hpp"

namespace emm::trial {

Result<log::Summary> run(const trace::Trace& trace, const Setting& setting,
                         std::uint64_t capacity) {
  auto stack = DeviceStack::create(
      {.device = text::format("sim:capacity={},costs=none", capacity),
       .device_defaults = {.capacity = capacity, .devices = static_cast<int>(trace.device_count())},
       .manager = setting.manager,
       .profile = setting.profile,
       .peer_program = setting.peer_program},
      nullptr);
  if (!stack) return std::move(stack).error();
  replay::ReplayOptions options;
  options.on_oom = replay::ReplayOptions::OnOom::stop;
  options.interrupted = setting.interrupted;
  return replay::Engine(trace, **stack, std::move(options)).run();
}

int exit_code(const log::Summary& summary) noexcept {
  if (replay::found_failure(summary, false)) return 1;
  return replay::judged_nothing(summary) ? 3 : 0;
}

}  // namespace emm::trial
