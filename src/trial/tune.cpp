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

/// The settings that are tried. What the documentation names one by one, and the pairs that people
/// use together.
std::vector<pytorch::Settings> candidates(const pytorch::Program& program, std::uint64_t capacity) {
  std::vector<pytorch::Settings> found;
  const auto add = [&](std::string_view conf) {
    pytorch::Settings settings;
    settings.fraction = program.settings.fraction;
    settings.total = program.settings.total;
    if (!read_conf(conf, settings)) return;
    if (std::find(found.begin(), found.end(), settings) == found.end()) found.push_back(settings);
  };
  found.push_back(program.settings);
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
  if (program.settings.limit() != pytorch::kNoLimit || capacity != pytorch::kNoLimit) {
    for (const auto* const threshold : {"0.6", "0.8", "0.9"}) {
      add(text::format("garbage_collection_threshold:{}", threshold));
      for (const auto* const split : {"64", "128", "256"})
        add(text::format("garbage_collection_threshold:{},max_split_size_mb:{}", threshold, split));
    }
  }
  return found;
}

/// The settings as they are run: collection needs a limit, which a program sets as a fraction.
pytorch::Settings limited(pytorch::Settings settings, std::uint64_t capacity) {
  if (settings.garbage_collection_threshold > 0 && settings.limit() == pytorch::kNoLimit &&
      capacity != pytorch::kNoLimit) {
    settings.fraction = 1;
    settings.total = capacity;
  }
  return settings;
}

bool stops(const std::atomic<bool>* interrupted) {
  return interrupted != nullptr && interrupted->load(std::memory_order_relaxed);
}

Tuned judge(const pytorch::Program& program, const pytorch::Settings& settings,
            std::uint64_t capacity) {
  Tuned tuned{.manager = spec_of(settings), .how = how_of(settings)};
  const auto outcome = run(
      program,
      {.settings = limited(settings, capacity), .capacity = capacity, .refused_are_needed = true});
  tuned.served = !outcome.fails_at;
  tuned.fails_at = outcome.fails_at;
  tuned.failed_size = outcome.failed_size;
  tuned.peak_reserved = outcome.counts.peak_reserved;
  tuned.retries = outcome.counts.retries;
  tuned.device_calls = outcome.counts.device_allocs + outcome.counts.device_frees;
  return tuned;
}

/// Runs `jobs` functions at a time, in order.
void side_by_side(std::size_t threads, std::size_t count,
                  const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (auto at = next++; at < count; at = next++) job(at);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) others.push_back(start_thread(work));
  work();
  for (auto& other : others) other.join();
}

auto rank(const Tuned& tuned) {
  // A setting that fails later stands before one that fails earlier.
  return std::make_tuple(!tuned.served, tuned.fit_bytes.value_or(pytorch::kNoLimit),
                         ~tuned.fails_at.value_or(0), tuned.peak_reserved, tuned.retries,
                         !tuned.is_today, tuned.device_calls.value_or(pytorch::kNoLimit));
}

/// Our pool, by replays.
Result<Tuned> judge_pool(const trace::Trace& trace, const TuneOptions& options,
                         std::uint64_t limit) {
  auto factory = find_manager("pool");
  if (!factory) return std::move(factory).error();
  Tuned tuned{.manager = "pool", .how = "emmctl.torch.use(\"pool\"), of the package emmctl"};
  const Setting setting{.manager = *std::move(factory),
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
  tuned.fit_bytes = found->answer.capacity;
  tuned.interrupted = found->interrupted;
  return tuned;
}

}  // namespace

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

std::optional<std::uint64_t> fit_of(const pytorch::Program& program, const pytorch::Settings& of,
                                    const std::atomic<bool>* interrupted) {
  // A fraction is a capacity by another name: what is searched takes its place.
  auto settings = of;
  settings.fraction.reset();
  const auto passes = [&](std::uint64_t capacity) {
    return !run(program, {.settings = limited(settings, capacity),
                          .capacity = capacity,
                          .stop_at_failure = true,
                          .refused_are_needed = true})
                .fails_at;
  };
  const auto most =
      run(program, {.settings = limited(settings, pytorch::kNoLimit), .refused_are_needed = true});
  if (most.fails_at) return std::nullopt;
  // What it reserves where there is no end is enough; less is, where it can release some.
  auto high = (most.counts.peak_reserved + kStep - 1) / kStep * kStep;
  auto low = most.peak_live / kStep * kStep;
  if (!passes(high)) return std::nullopt;
  while (high - low > kStep && !stops(interrupted)) {
    const auto middle = low + (high - low) / 2 / kStep * kStep;
    (passes(middle) ? high : low) = middle;
  }
  return high;
}

Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options) {
  Tuning tuning;
  tuning.capacity = options.capacity;
  const auto settings = candidates(program, options.capacity);
  const auto threads = options.jobs != 0
                           ? options.jobs
                           : std::max<std::size_t>(1, std::thread::hardware_concurrency());
  std::vector<Tuned> found(settings.size());
  std::atomic<std::uint64_t> done{0};
  std::mutex mutex;
  const auto told = [&](std::uint64_t total) {
    const auto count = ++done;
    if (!options.progress) return;
    const std::lock_guard lock(mutex);
    options.progress(count, total);
  };
  side_by_side(threads, settings.size(), [&](std::size_t i) {
    if (stops(options.interrupted)) {
      found[i] = {.manager = spec_of(settings[i]), .how = how_of(settings[i]), .interrupted = true};
      return;
    }
    found[i] = judge(program, settings[i], options.capacity);
    found[i].is_today = i == 0;
    told(settings.size());
  });
  auto unlimited = program.settings;
  unlimited.fraction.reset();
  tuning.peak_live = run(program, {.settings = unlimited, .refused_are_needed = true}).peak_live;

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
  side_by_side(threads, searched.size(), [&](std::size_t i) {
    auto& each = found[searched[i]];
    if (!stops(options.interrupted))
      each.fit_bytes = fit_of(program, settings[searched[i]], options.interrupted);
    each.interrupted = stops(options.interrupted);
  });
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
