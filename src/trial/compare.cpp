#include "trial/compare.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "harness/apart.hpp"
#include "harness/device_stack.hpp"
#include "harness/measured_stack.hpp"
#include "replay/null_manager.hpp"
#include "trial/setting.hpp"

namespace emm::trial {
namespace {

constexpr std::uint64_t kRounds =
    7;  ///< On a clock that measures: the fewest with 95 % and one to spare.

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

class Contest {
 public:
  Contest(const trace::Trace& trace, const CompareOptions& options)
      : trace_(trace), options_(options) {}

  Result<Comparison> run(const std::vector<ManagerFactory>& managers) {
    for (const auto& manager : managers) {
      if (manager.apart) apart_ = manager.apart;
    }
    for (const auto& manager : managers) {
      auto judged = replay(manager, {.on_oom = replay::ReplayOptions::OnOom::record});
      if (!judged) return std::move(judged).error();
      if (judged->abnormal) {
        result_.cut_off.push_back({.manager = manager.name,
                                   .words = judged->abnormal->words,
                                   .exit_code = exit_code(*judged)});
        continue;
      }
      result_.device = judged->device;
      result_.clock = judged->clock;
      const auto code = exit_code(*judged);
      result_.contestants.push_back(
          {.manager = manager.name, .judged = std::move(*judged), .exit_code = code});
      compared_.push_back(manager);
      step();
    }
    result_.interrupted = interrupted();
    if (compared_.empty()) return std::move(result_);
    result_.needs = inspect::bounds(inspect::Lifetimes(trace_));
    const bool simulated = result_.clock == "simulated";
    result_.passes = options_.passes;
    result_.rounds = options_.rounds.value_or(simulated ? 1 : kRounds);
    std::vector<double> engine;
    for (std::uint64_t round = 0; round < result_.rounds && !stopped(); ++round) {
      for (std::size_t i = 0; i < compared_.size() && !stopped(); ++i) {
        const auto turn = (i + round) % compared_.size();
        auto& contestant = result_.contestants[turn];
        if (auto timed = time(compared_[turn], contestant.first_ns, contestant.warm_ns,
                              contestant.simulated_ns);
            !timed) {
          return timed.error();
        }
        step();
      }
      std::vector<double> unused;
      std::optional<double> unmodelled;
      if (simulated || stopped()) continue;
      if (auto timed = time(replay::null_manager(), unused, engine, unmodelled); !timed)
        return timed.error();
    }
    result_.interrupted = interrupted();
    if (!stopped()) judge(engine);
    return std::move(result_);
  }

 private:
  Result<log::Summary> replay(ManagerFactory manager, replay::ReplayOptions options) {
    if (!manager.apart) manager.apart = apart_;
    const auto work = [&](const RunEnvironment& at) -> Result<log::Summary> {
      std::vector<std::string> said;
      auto stack = DeviceStack::create({.device = options_.device,
                                        .trace = &trace_,
                                        .manager = manager,
                                        .peer_program = options_.peer_program},
                                       &said);
      if (!stack) return std::move(stack).error();
      for (auto& line : said) at.words.push_back(std::move(line));
      options.interrupted = at.interrupted;
      options.kept = at.kept;
      if (!options_.host_clock) return replay::Engine(trace_, **stack, options).run();
      MeasuredStack measured(**stack);
      return replay::Engine(trace_, measured, options).run();
    };
    std::vector<std::string> said;
    auto summary = run_apart(
        {.trace = trace_, .manager = manager, .interrupted = options_.interrupted, .work = work},
        said);
    if (!said.empty() && result_.notes.empty()) result_.notes = said;
    return summary;
  }

  Status time(const ManagerFactory& manager, std::vector<double>& first, std::vector<double>& warm,
              std::optional<double>& simulated) {
    replay::ReplayOptions options;
    options.checks = false;
    options.repeat = static_cast<unsigned>(1 + options_.passes);
    auto summary = replay(manager, std::move(options));
    if (!summary) return std::move(summary).error();
    if (stopped()) return {};
    if (const auto& abnormal = summary->abnormal) {
      result_.cut_off.push_back(
          {.manager = manager.name, .words = abnormal->words, .exit_code = exit_code(*summary)});
      result_.unmeasured = true;
      return {};
    }
    std::vector<double> passes;
    for (const auto& pass : summary->repeats) passes.push_back(pass.ns_per_event);
    if (summary->repeats.back().simulated_ns)
      simulated = summary->repeats.back().simulated_ns_per_event;
    first.push_back(passes.front());
    passes.erase(passes.begin());
    warm.push_back(median(std::move(passes)));
    return {};
  }

  void judge(std::vector<double>& engine) {
    if (!engine.empty()) result_.engine = median_interval(std::move(engine));
    const auto& first = result_.contestants.front();
    for (auto& contestant : result_.contestants) {
      contestant.first = median_interval(contestant.first_ns);
      contestant.warm = median_interval(contestant.warm_ns);
      std::vector<double> ratios;
      for (std::size_t round = 0; round < contestant.warm_ns.size(); ++round) {
        if (first.warm_ns[round] > 0)
          ratios.push_back(contestant.warm_ns[round] / first.warm_ns[round]);
      }
      if (!ratios.empty()) contestant.over_first = median_interval(std::move(ratios));
    }
  }

  bool stopped() const { return interrupted() || result_.unmeasured; }
  bool interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed);
  }
  void step() {
    const auto managers = result_.contestants.size();
    if (options_.progress) options_.progress(++done_, managers + managers * result_.rounds);
  }

  const trace::Trace& trace_;
  const CompareOptions& options_;
  Comparison result_;
  std::vector<ManagerFactory> compared_;  // of the contestants
  std::uint64_t done_ = 0;
  // If one runs in processes of its own, all do: nobody may have opened a CUDA device before.
  std::optional<std::chrono::milliseconds> apart_;
};

}  // namespace

MedianInterval median_interval(std::vector<double> numbers) {
  EMM_ASSERT(!numbers.empty());
  std::sort(numbers.begin(), numbers.end());
  const auto count = numbers.size();
  MedianInterval interval{
      .median = numbers[count / 2], .low = numbers.front(), .high = numbers.back()};
  if (count % 2 == 0) interval.median = (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
  // The median lies outside of the k-th number from either end where fewer than k of `count` coins
  // fall on one side.
  double one_side = 1;  // that none does
  for (std::size_t i = 0; i < count; ++i) one_side /= 2;
  interval.confidence = 1 - 2 * one_side;
  double exactly = one_side;
  for (std::size_t k = 1; 2 * k < count; ++k) {
    exactly *= static_cast<double>(count - k + 1) / static_cast<double>(k);
    one_side += exactly;
    if (1 - 2 * one_side < 0.95) break;
    interval.low = numbers[k];
    interval.high = numbers[count - 1 - k];
    interval.confidence = 1 - 2 * one_side;
  }
  return interval;
}

std::optional<Below> below_bound(const log::Summary& judged, std::uint64_t reserved,
                                 std::uint64_t bound, std::uint64_t peak_live) {
  if (reserved >= bound) return std::nullopt;
  const auto& pass = judged.pass;
  const bool all_served = pass.failures == 0 && pass.unmade == 0 && judged.declined.empty() &&
                          judged.refused_again == 0 && !judged.stopped_at;
  if (!all_served) return Below::not_served;
  // A replay leaves out what other processes do.
  if (reserved < peak_live) return judged.skipped != 0 ? Below::not_served : Below::not_counted;
  return pass.hazards != 0 ? Below::hazard : Below::waits;
}

Result<Comparison> compare(const trace::Trace& trace, const std::vector<ManagerFactory>& managers,
                           const CompareOptions& options) {
  EMM_ASSERT(!managers.empty() && options.passes > 0);
  return Contest(trace, options).run(managers);
}

}  // namespace emm::trial
