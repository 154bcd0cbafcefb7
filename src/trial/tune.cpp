#include "trial/tune.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/host_memory.hpp"
#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "inspect/lifetimes.hpp"
#include "trial/fit.hpp"
#include "trial/fit_text.hpp"

namespace emm::trial {
namespace {

bool stops(const std::atomic<bool>* interrupted) {
  return interrupted != nullptr && interrupted->load(std::memory_order_relaxed);
}

bool passes(const pytorch::Program& program, pytorch::RunOptions options, Addresses order) {
  options.addresses = order;
  options.stop_at_failure = true;
  return !run(program, options).fails_at;
}

Tuned judge(const pytorch::Program& program, const pytorch::Settings& settings,
            std::uint64_t capacity, Limit limit) {
  Tuned tuned{.manager = spec_of(settings), .how = how_of(settings)};
  auto options = run_options(settings, capacity, limit);
  auto outcome = run(program, options);
  // What fails in one order of addresses may fail on the device.
  for (const auto order : kOrders) {
    if (outcome.fails_at || capacity == pytorch::kNoLimit || order == kOrders[0]) continue;
    if (passes(program, options, order)) continue;
    options.addresses = order;
    outcome = run(program, options);
    tuned.is_open = true;
  }
  tuned.served = !outcome.fails_at;
  tuned.fails_at = outcome.fails_at;
  tuned.failed_size = outcome.failed_size;
  tuned.peak_reserved = outcome.counts.peak_reserved;
  tuned.retries = outcome.counts.retries;
  tuned.device_calls = outcome.counts.device_allocs + outcome.counts.device_frees;
  return tuned;
}

/// The smallest capacities that serve in one order of addresses.
struct Threshold {
  std::uint64_t least = 0;  ///< One passes here.
  std::uint64_t safe = 0;   ///< From here on all that were tried pass.
};

/// Searches by halves, then looks around: an allocator may fail with more where less is enough.
Threshold threshold(std::uint64_t low, std::uint64_t high, Look look,
                    const std::function<bool(std::uint64_t)>& serves) {
  const auto halve = [&](std::uint64_t fails, std::uint64_t served) {
    while (served - fails > kStep) {
      const auto middle = fails + (served - fails) / 2 / kStep * kStep;
      (serves(middle) ? served : fails) = middle;
    }
    return served;
  };
  const std::uint64_t near = look == Look::closely ? 32 : 8, far = look == Look::closely ? 20 : 8;
  Threshold found;
  const auto middle = high > low ? halve(low, high) : high;
  found.least = found.safe = middle;
  const auto percent = std::max(middle / 100 / kStep * kStep, kStep);
  std::vector<std::uint64_t> distances;  // the farthest first
  for (auto i = far; i > 0; --i) distances.push_back(near * kStep + i * percent);
  for (auto i = near; i > 0; --i) distances.push_back(i * kStep);
  auto passed = high, failed = low;
  for (const auto distance : distances) {
    if (middle + distance >= high) continue;
    if (!serves(middle + distance)) {
      found.safe = halve(middle + distance, passed);
      break;
    }
    passed = middle + distance;
  }
  for (const auto distance : distances) {
    if (middle < distance + kStep || middle - distance <= low) continue;
    if (serves(middle - distance)) {
      found.least = halve(failed, middle - distance);
      break;
    }
    failed = middle - distance;
  }
  return found;
}

auto rank(const Tuned& tuned) {
  // A setting that fails later stands before one that fails earlier.
  return std::make_tuple(!tuned.served, tuned.fit ? tuned.fit->high : pytorch::kNoLimit,
                         ~tuned.fails_at.value_or(0), tuned.peak_reserved, tuned.retries,
                         !tuned.is_today, tuned.device_calls.value_or(pytorch::kNoLimit));
}

/// Our pool, by replays.
Result<Tuned> judge_pool(const trace::Trace& trace, const TuneOptions& options,
                         std::uint64_t limit) {
  auto factory = find_manager("pool");
  if (!factory) return std::move(factory).error();
  Tuned tuned{.manager = "pool", .how = "emmctl.torch.use(\"pool\"), of the package emmctl"};
  std::function<Result<ManagerFactory>(std::uint64_t)> limited;
  if (options.limit == Limit::fraction)
    limited = [](std::uint64_t max) { return find_manager(text::format("pool:max={}", max)); };
  const Setting setting{.manager = *std::move(factory),
                        .limited = std::move(limited),
                        .refusals_fail = true,
                        .peer_program = options.peer_program,
                        .interrupted = options.interrupted};
  const auto capacity = limit == pytorch::kNoLimit ? kCapacityMost : limit / kStep * kStep;
  const auto at = run(trace, setting, capacity);
  if (!at) return at.error();
  tuned.served = exit_code(*at) == 0 && at->outcomes.fails_fails == 0;
  tuned.peak_reserved = at->pass.peak_reserved_bytes;
  if (at->first_failure) {
    tuned.fails_at = at->first_failure->event;
    tuned.failed_size = at->first_failure->size;
  }
  const inspect::Lifetimes lifetimes(trace);
  if (auto summed = lifetimes.can_be_summed(); !summed) return tuned;
  const auto needs = inspect::bounds(lifetimes, inspect::Asked::all);
  const auto found = fit(trace, setting,
                         {.asked = inspect::Asked::all,
                          .start = need_of(needs),
                          .other_start = need_of(needs),
                          .hint = trace.least_capacity(),
                          .progress = {}});
  if (!found) return found.error();
  if (const auto fits = found->answer.capacity)
    tuned.fit = {.is_exact = true, .low = *fits, .likely = *fits, .high = *fits};
  tuned.interrupted = found->interrupted;
  return tuned;
}

}  // namespace

std::vector<pytorch::Settings> candidates(const pytorch::Program& program,
                                          const TuneOptions& options) {
  std::vector<pytorch::Settings> found;
  const auto add = [&](std::string_view conf) {
    pytorch::Settings settings;
    settings.fraction = program.settings.fraction;
    settings.total = program.settings.total;
    if (!read_conf(conf, settings)) return;
    if (std::find(found.begin(), found.end(), settings) == found.end()) found.push_back(settings);
  };
  found.push_back(program.settings);
  for (const auto& setting : options.settings) add(setting);
  if (!options.settings.empty()) return found;
  // What the documentation names one by one, and the pairs that people use together.
  add("");
  add("expandable_segments:True");
  for (const auto* const round : {"2", "4", "8", "16"}) {
    add(text::format("roundup_power2_divisions:{}", round));
    add(text::format("expandable_segments:True,roundup_power2_divisions:{}", round));
  }
  for (const auto* const split : {"32", "64", "128", "256", "512"}) {
    add(text::format("max_split_size_mb:{}", split));
    add(text::format("max_split_size_mb:{},roundup_power2_divisions:4", split));
    add(text::format("max_split_size_mb:{},max_non_split_rounding_mb:64", split));
  }
  for (const auto* const segment : {"40", "80"})
    add(text::format("large_segment_size_mb:{}", segment));
  // Garbage is collected only below a memory fraction.
  if (program.settings.limit() != pytorch::kNoLimit || options.capacity != pytorch::kNoLimit) {
    for (const auto* const threshold : {"0.6", "0.8", "0.9"}) {
      add(text::format("garbage_collection_threshold:{}", threshold));
      for (const auto* const split : {"64", "128", "256"})
        add(text::format("garbage_collection_threshold:{},max_split_size_mb:{}", threshold, split));
    }
  }
  return found;
}

pytorch::RunOptions run_options(const pytorch::Settings& of, std::uint64_t capacity, Limit limit) {
  auto settings = of;
  // Collection needs a limit, which a program sets as a fraction.
  const auto has_end = capacity != pytorch::kNoLimit;
  const auto by_fraction = has_end && limit == Limit::fraction;
  const auto collects =
      settings.garbage_collection_threshold > 0 && settings.limit() == pytorch::kNoLimit;
  if (by_fraction || (has_end && collects)) {
    settings.fraction = 1;
    settings.total = capacity;
  }
  return {.settings = settings,
          .capacity = by_fraction ? pytorch::kNoLimit : capacity,
          .addresses = kOrders[0],
          .refused_are_needed = true};
}

void side_by_side(std::size_t threads, std::size_t count,
                  const std::function<void(std::size_t)>& job) {
  if (threads == 0) threads = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (auto at = next++; at < count; at = next++) job(at);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) others.push_back(start_thread(work));
  work();
  for (auto& other : others) other.join();
}

const Tuned* Tuning::today() const noexcept {
  const auto found =
      std::find_if(ranking.begin(), ranking.end(), [](const Tuned& each) { return each.is_today; });
  return found == ranking.end() ? nullptr : &*found;
}

std::string spec_of(const pytorch::Settings& settings) {
  std::string spec = "pytorch";
  for (const auto& [name, value] : named(settings))
    spec += text::format("{}{}={}", spec == "pytorch" ? ":" : ",", name, value);
  return spec;
}

std::string how_of(const pytorch::Settings& settings) {
  const auto conf = to_conf(settings);
  if (conf.empty()) return "without PYTORCH_ALLOC_CONF";
  auto how = "PYTORCH_ALLOC_CONF=" + conf;
  if (settings.garbage_collection_threshold > 0)
    how += " and torch.cuda.set_per_process_memory_fraction()";
  return how;
}

std::optional<FitRange> fit_of(const pytorch::Program& program, const pytorch::Settings& of,
                               Limit limit, Look look, const std::atomic<bool>* interrupted) {
  // A fraction is a capacity by another name: what is searched takes its place.
  auto settings = of;
  settings.fraction.reset();
  std::optional<FitRange> range;
  for (const auto order : kOrders) {
    if (stops(interrupted)) break;
    auto unlimited = run_options(settings, pytorch::kNoLimit, limit);
    unlimited.addresses = order;
    const auto most = run(program, unlimited);
    if (most.fails_at) return std::nullopt;
    const auto serves = [&](std::uint64_t capacity) {
      return stops(interrupted) || passes(program, run_options(settings, capacity, limit), order);
    };
    // What it reserves where there is no end is enough; less is, where it can release some.
    const auto high = (most.counts.peak_reserved + kStep - 1) / kStep * kStep;
    if (!serves(high)) return std::nullopt;
    const auto found = threshold((std::max<std::uint64_t>(most.peak_live, 1) - 1) / kStep * kStep,
                                 high, look, serves);
    if (!range) range = {.low = found.least, .likely = found.safe, .high = found.safe};
    range->low = std::min(range->low, found.least);
    range->high = std::max(range->high, found.safe);
  }
  if (!range) return range;
  range->is_exact = std::none_of(std::begin(kOrders), std::end(kOrders), [&](Addresses order) {
    return range->high > kStep &&
           passes(program, run_options(settings, range->high - kStep, limit), order);
  });
  return range;
}

Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options) {
  Tuning tuning;
  tuning.capacity = options.capacity;
  tuning.limit = options.limit;
  const auto settings = candidates(program, options);
  std::vector<Tuned> found(settings.size());
  std::atomic<std::uint64_t> done{0};
  std::mutex mutex;
  const auto told = [&](std::uint64_t total) {
    const auto count = ++done;
    if (!options.progress) return;
    const std::lock_guard lock(mutex);
    options.progress(count, total);
  };
  side_by_side(options.jobs, settings.size(), [&](std::size_t i) {
    if (stops(options.interrupted)) {
      found[i] = {.manager = spec_of(settings[i]), .how = how_of(settings[i]), .interrupted = true};
      return;
    }
    found[i] = judge(program, settings[i], options.capacity, options.limit);
    found[i].is_today = i == 0;
    told(settings.size());
  });
  auto unlimited = program.settings;
  unlimited.fraction.reset();
  tuning.peak_live =
      run(program, run_options(unlimited, pytorch::kNoLimit, options.limit)).peak_live;

  // The smallest capacity: of all where that takes seconds, else of the best five and of today's.
  // What reserves least with room to spare is not always what fits the smallest device.
  constexpr std::size_t kBest = 5, kFewCalls = 200'000;
  const auto all = options.fit_all || program.calls.size() <= kFewCalls;
  std::vector<std::size_t> order(settings.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return rank(found[a]) < rank(found[b]); });
  std::vector<std::size_t> searched;
  for (const auto each : order) {
    if (all || searched.size() < kBest || found[each].is_today) searched.push_back(each);
  }
  const auto search = [&](const std::vector<std::size_t>& some, Look look) {
    side_by_side(options.jobs, some.size(), [&](std::size_t i) {
      auto& each = found[some[i]];
      each.fit = fit_of(program, settings[some[i]], options.limit, look, options.interrupted);
      each.interrupted = stops(options.interrupted);
    });
  };
  search(searched, Look::about);
  std::stable_sort(searched.begin(), searched.end(),
                   [&](auto a, auto b) { return rank(found[a]) < rank(found[b]); });
  std::vector<std::size_t> closely;
  for (const auto each : searched) {
    if (closely.size() < kBest || found[each].is_today || !options.settings.empty())
      closely.push_back(each);
  }
  if (!stops(options.interrupted)) search(closely, Look::closely);
  if (!stops(options.interrupted)) {
    auto pool = judge_pool(trace, options, std::min(options.capacity, program.settings.limit()));
    if (!pool) return std::move(pool).error();
    found.push_back(*std::move(pool));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Tuned& a, const Tuned& b) { return rank(a) < rank(b); });
  tuning.ranking = std::move(found);
  tuning.interrupted = stops(options.interrupted);
  return tuning;
}

}  // namespace emm::trial
