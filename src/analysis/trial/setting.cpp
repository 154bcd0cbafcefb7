#include "trial/setting.hpp"

#include <numeric>
#include <vector>

#include "base/text.hpp"
#include "replay/apart.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"

namespace emm::trial {

Result<log::Summary> run(const trace::Trace& trace, const Setting& setting,
                         std::uint64_t capacity) {
  auto manager = setting.manager;
  if (setting.limited) {
    auto limited = setting.limited(capacity);
    if (!limited) return std::move(limited).error();
    manager = *std::move(limited);
    capacity = kCapacityMost;
  }
  const auto work = [&](const RunEnvironment& at) -> Result<log::Summary> {
    auto stack = DeviceStack::create(
        {.device = text::format("sim:capacity={},costs={}", capacity, setting.costs),
         .trace = &trace,
         .manager = manager,
         .profile = setting.profile,
         .peer_program = setting.peer_program},
        nullptr);
    if (!stack) return std::move(stack).error();
    replay::ReplayOptions options;
    options.on_oom = replay::ReplayOptions::OnOom::stop;
    options.refusals_fail = setting.refusals_fail;
    options.interrupted = at.interrupted;
    options.kept = at.kept;
    return replay::Engine(trace, **stack, std::move(options)).run();
  };
  std::vector<std::string> words;
  return run_apart(
      {.trace = trace, .manager = manager, .interrupted = setting.interrupted, .work = work},
      words);
}

std::string renumbered(const trace::Trace& trace) {
  std::vector<int> numbers(trace.device_count());
  std::iota(numbers.begin(), numbers.end(), 0);
  return emm::renumbered(trace.devices(), numbers, "sim");
}

}  // namespace emm::trial
