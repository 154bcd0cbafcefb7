#include "trial/compare.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "replay/apart.hpp"
#include "replay/device_stack.hpp"
#include "replay/engine.hpp"
#include "replay/measured_stack.hpp"
#include "replay/null_manager.hpp"
#include "trial/one_processor.hpp"
#include "trial/setting.hpp"
#include "trial/verdict.hpp"

namespace emm::trial {
namespace {

/// Confidence of a ratio of times. It exceeds 95 % because it is looked at after each round.
constexpr double kConfidence = 0.99;
constexpr std::uint64_t kRoundsLeast = 8;  ///< For an interval with kConfidence.
// Timed passes of a turn, whose median counts: at least, and of a short trace.
constexpr std::uint64_t kPasses = 5, kPassesMost = 2000;
/// On a clock that measures, the passes of a turn have about this many events: ten milliseconds.
constexpr std::uint64_t kEventsATurn = 200'000;
/// Passes with fewer events are timed by the clock, because a call to the kernel would distort
/// them.
constexpr std::uint64_t kEventsOfProcessorTime = 20'000;

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

/// Heap memory that a turn allocates first, to move all its later addresses. An address that
/// happens to suit one manager then suits another in the next turn.
class HeapOffset {
 public:
  HeapOffset() = default;
  explicit HeapOffset(std::minstd_rand& random) : bytes_(1 + random() % kMost) {}
  std::vector<char> take() const { return std::vector<char>(bytes_); }

 private:
  // Bytes, sixteen pages: where the stack begins moves by whole pages too.
  static constexpr std::size_t kMost = std::size_t{64} << 10;
  std::size_t bytes_ = 0;
};

/// Begins the line in which the process of a turn returns its count beside its answer.
constexpr std::string_view kCounted = "instructions: ";

class Contest {
 public:
  Contest(const trace::Trace& trace, const CompareOptions& options)
      : trace_(trace), options_(options) {}

  Result<Comparison> run(const std::vector<ManagerFactory>& managers) {
    for (const auto& manager : managers) {
      if (manager.apart) apart_ = manager.apart;
    }
    // A fork of this process could not use a CUDA device that this process has opened.
    if (!options_.device.starts_with("sim") && !apart_) apart_ = std::chrono::milliseconds(0);
    for (const auto& manager : managers) {
      auto judged = replay(manager, {.on_oom = replay::ReplayOptions::OnOom::record});
      if (!judged) return std::move(judged).error();
      if (judged->abnormal) {
        result_.cut_off.push_back({.manager = manager.name,
                                   .words = judged->abnormal->words,
                                   .exit_code = replay::exit_code(*judged)});
        continue;
      }
      result_.device = judged->device;
      result_.clock = judged->clock;
      const auto code = replay::exit_code(*judged);
      result_.contestants.push_back(
          {.manager = manager.name, .judged = std::move(*judged), .exit_code = code});
      compared_.push_back(manager);
      step();
    }
    result_.interrupted = interrupted();
    if (compared_.empty()) return std::move(result_);
    result_.needs = inspect::bounds(trace::Lifetimes(trace_));
    const bool simulated = result_.clock == "simulated";
    measures_ = !simulated;
    if (measures_ && !apart_) apart_ = std::chrono::milliseconds(0);
    const auto events = std::max<std::uint64_t>(trace_.size(), 1);
    result_.passes = options_.passes.value_or(
        simulated ? kPasses : std::clamp(kEventsATurn / events, kPasses, kPassesMost));
    result_.threshold = options_.threshold;
    began_ = std::chrono::steady_clock::now();
    Contestant nothing;
    for (std::uint64_t round = 0; !stopped() && !is_enough(round); ++round) {
      result_.rounds = round + 1;
      processor_ = current_processor();
      for (std::size_t i = 0; i < compared_.size() && !stopped(); ++i) {
        const auto turn = (i + round) % compared_.size();
        if (auto timed = time(compared_[turn], result_.contestants[turn]); !timed)
          return timed.error();
        step();
      }
      if (simulated || stopped()) continue;
      if (auto timed = time(replay::null_manager(), nothing); !timed) return timed.error();
    }
    auto& engine = nothing.warm_ns;
    result_.interrupted = interrupted();
    if (!stopped()) judge(engine);
    return std::move(result_);
  }

 private:
  /// Replays the trace once. `counted` is not null for a timed replay, and receives its
  /// instructions if the machine counts them.
  Result<log::Summary> replay(ManagerFactory manager, replay::ReplayOptions options,
                              std::optional<std::uint64_t>* counted = nullptr) {
    if (!manager.apart) manager.apart = apart_;
    const bool timed = counted != nullptr && measures_ && manager.apart;
    const auto place = timed ? HeapOffset(random_) : HeapOffset();
    const auto work = [&](const RunEnvironment& at) -> Result<log::Summary> {
      if (timed && processor_ && on_simulated_device()) stay_on(*processor_);
      const auto elsewhere = place.take();
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
      const bool by_processor = on_simulated_device() && trace_.size() >= kEventsOfProcessorTime;
      MeasuredStack measured(**stack, by_processor ? MeasuredStack::Measure::processors
                                                   : MeasuredStack::Measure::time);
      const InstructionCounter counter;
      auto summary = replay::Engine(trace_, measured, options).run();
      if (const auto count = counter.count(); timed && count)
        at.words.push_back(text::format("{}{}", kCounted, *count));
      return summary;
    };
    std::vector<std::string> said;
    auto summary = run_apart(
        {.trace = trace_, .manager = manager, .interrupted = options_.interrupted, .work = work},
        said);
    if (!said.empty() && said.back().starts_with(kCounted)) {
      *counted = text::to_u64(std::string_view(said.back()).substr(kCounted.size()));
      said.pop_back();
    }
    if (!said.empty() && result_.notes.empty()) result_.notes = said;
    return summary;
  }

  Status time(const ManagerFactory& manager, Contestant& contestant) {
    replay::ReplayOptions options;
    options.checks = false;
    options.repeat = static_cast<unsigned>(1 + result_.passes);
    std::optional<std::uint64_t> counted;
    auto summary = replay(manager, std::move(options), &counted);
    if (!summary) return std::move(summary).error();
    if (stopped()) return {};
    if (const auto& abnormal = summary->abnormal) {
      result_.cut_off.push_back({.manager = manager.name,
                                 .words = abnormal->words,
                                 .exit_code = replay::exit_code(*summary)});
      result_.unmeasured = true;
      return {};
    }
    std::vector<double> passes;
    for (const auto& pass : summary->repeats) passes.push_back(pass.ns_per_event);
    const auto& last = summary->repeats.back();
    if (last.simulated_ns) contestant.simulated_ns = last.simulated_ns_per_event;
    if (counted && last.events != 0) {
      contestant.instructions.push_back(static_cast<double>(*counted) /
                                        static_cast<double>(last.events * passes.size()));
    }
    contestant.first_ns.push_back(passes.front());
    passes.erase(passes.begin());
    contestant.warm_ns.push_back(median(std::move(passes)));
    return {};
  }

  bool on_simulated_device() const { return result_.device.starts_with("sim"); }

  bool is_enough(std::uint64_t rounds) {
    if (options_.rounds || !measures_) return rounds >= options_.rounds.value_or(1);
    const auto taken = std::chrono::steady_clock::now() - began_;
    const auto most = std::chrono::nanoseconds(options_.time_ns);
    rounds_expected_ = rounds + 1;
    if (rounds > 0 && taken < most) rounds_expected_ += (most - taken) / (taken / rounds);
    if (rounds < kRoundsLeast) return false;
    if (taken >= most) return true;
    // Each ratio costs a sort of all rounds.
    if (rounds % std::max<std::uint64_t>(rounds / 16, 1) != 0) return false;
    for (std::size_t i = 1; i < result_.contestants.size(); ++i) {
      for (std::size_t against = 0; against < i; ++against) {
        const auto ratio =
            ratio_of(result_.contestants[i].warm_ns, result_.contestants[against].warm_ns);
        if (!ratio) continue;
        const auto reach = std::max(ratio->high - ratio->median, ratio->median - ratio->low);
        if (reach > options_.threshold / 2 * ratio->median) return false;
        if (standing_of(*ratio, options_.threshold) == Standing::inconclusive) return false;
      }
    }
    return true;
  }

  void judge(std::vector<double>& engine) {
    if (!engine.empty()) result_.engine = median_interval(std::move(engine));
    const auto& first = result_.contestants.front();
    for (auto& contestant : result_.contestants) {
      contestant.first = median_interval(contestant.first_ns);
      contestant.warm = median_interval(contestant.warm_ns);
      if (const auto ratio = ratio_of(contestant.warm_ns, first.warm_ns))
        contestant.over_first = *ratio;
    }
  }

  bool stopped() const { return interrupted() || result_.unmeasured; }
  bool interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed);
  }
  void step() {
    const auto managers = result_.contestants.size();
    const auto rounds = options_.rounds.value_or(measures_ ? rounds_expected_ : 1);
    if (options_.progress) options_.progress(++done_, managers + managers * rounds);
  }

  const trace::Trace& trace_;
  const CompareOptions& options_;
  Comparison result_;
  std::vector<ManagerFactory> compared_;  // parallel to the contestants
  std::uint64_t done_ = 0;
  // If one manager runs in its own process, all do: the parent must never open a CUDA device.
  std::optional<std::chrono::milliseconds> apart_;
  bool measures_ = false;         // The clock is not a model.
  std::optional<int> processor_;  // The processor that this round's turns share.
  std::uint64_t rounds_expected_ = kRoundsLeast;
  std::chrono::steady_clock::time_point began_;
  std::minstd_rand random_{static_cast<std::minstd_rand::result_type>(random_seed())};
};

}  // namespace

std::optional<MedianInterval> ratio_of(const std::vector<double>& numbers,
                                       const std::vector<double>& over) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < std::min(numbers.size(), over.size()); ++round) {
    if (over[round] > 0) ratios.push_back(numbers[round] / over[round]);
  }
  if (ratios.empty()) return std::nullopt;
  return median_interval(std::move(ratios), kConfidence);
}

MedianInterval median_interval(std::vector<double> numbers, double confidence) {
  EMM_ASSERT(!numbers.empty());
  std::sort(numbers.begin(), numbers.end());
  const auto count = numbers.size();
  MedianInterval interval{
      .median = numbers[count / 2], .low = numbers.front(), .high = numbers.back()};
  if (count % 2 == 0) interval.median = (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
  // The true median lies beyond the k-th number from one end with the probability that fewer than k
  // of `count` coins show heads.
  double one_side = 1;  // for k = 1: that none does
  for (std::size_t i = 0; i < count; ++i) one_side /= 2;
  interval.confidence = 1 - 2 * one_side;
  double exactly = one_side;
  for (std::size_t k = 1; 2 * k < count; ++k) {
    exactly *= static_cast<double>(count - k + 1) / static_cast<double>(k);
    one_side += exactly;
    if (1 - 2 * one_side < confidence) break;
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
  EMM_ASSERT(!managers.empty() && options.passes.value_or(1) > 0);
  return Contest(trace, options).run(managers);
}

}  // namespace emm::trial
