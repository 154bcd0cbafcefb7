#include "trial/setting.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/text_format.hpp"
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

Result<log::Summary> run_timed(const trace::Trace& trace, Setting setting, std::uint64_t capacity) {
  setting.costs = "h200";
  return run(trace, setting, capacity);
}

std::uint64_t driver_ns_of(const log::Summary& run) {
  return run.pass.simulated_ns.value_or(run.pass.elapsed_ns);
}

std::size_t best_of(const std::vector<Cost>& costs) {
  // Finds the best one that takes at most `times` the least memory, and less time than `ns`.
  const auto find = [&](double times, double ns, const auto& is_better) {
    auto least = costs.front().bytes;
    for (const auto& each : costs) least = std::min(least, each.bytes);
    auto found = costs.size();
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (costs[i].bytes > times * least || costs[i].ns >= ns) continue;
      if (found == costs.size() || is_better(costs[i], costs[found])) found = i;
    }
    return found;
  };
  const auto is_faster = [](const Cost& a, const Cost& b) { return a.ns < b.ns; };
  const auto takes_less = [&](const Cost& a, const Cost& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && is_faster(a, b));
  };
  constexpr auto kAny = std::numeric_limits<double>::infinity();
  const auto alike = find(kAlike, kAny, is_faster);
  const auto much_faster = find(kLittleMore, costs[alike].ns / kMuchFaster, takes_less);
  if (much_faster < costs.size()) return much_faster;
  const auto least = find(1, kAny, takes_less);
  constexpr double kWorthMore = 2;  // else it is not worth a byte
  return kWorthMore * costs[alike].ns < costs[least].ns ? alike : least;
}

std::string_view beside_least(std::uint64_t bytes, std::uint64_t least) {
  if (bytes == least) return "least";
  return static_cast<double>(bytes) <= kAlike * static_cast<double>(least)
             ? "about the least"
             : "little more than the least";
}

std::string renumbered(const trace::Trace& trace) {
  std::vector<int> numbers(trace.device_count());
  std::iota(numbers.begin(), numbers.end(), 0);
  return emm::renumbered(trace.devices(), numbers, "sim");
}

}  // namespace emm::trial
