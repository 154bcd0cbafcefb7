#include "trial/tune.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/side_by_side.hpp"
#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "replay/engine.hpp"
#include "trace/lifetimes.hpp"
#include "trial/fit.hpp"
#include "trial/fit_text.hpp"

namespace emm::trial {
namespace {

bool stops(const std::atomic<bool>* interrupted) {
  return interrupted != nullptr && interrupted->load(std::memory_order_relaxed);
}

/// What the recording leaves open: the driver's addresses, and when late frees complete.
struct Case {
  const pytorch::Program* program = nullptr;
  Addresses addresses{};
};

/// The likeliest first. `late` is as_late() of the program.
std::vector<Case> cases_of(const pytorch::Program& program,
                           const std::vector<pytorch::Program>& late) {
  std::vector<Case> cases;
  for (const auto order : kOrders) cases.push_back({.program = &program, .addresses = order});
  for (const auto& each : late) cases.push_back({.program = &each, .addresses = kOrders[0]});
  return cases;
}

bool passes(const Case& of, pytorch::RunOptions options) {
  options.addresses = of.addresses;
  options.stop_at_failure = true;
  return !run(*of.program, options).fails_at;
}

Tuned judge(const pytorch::Program& program, const std::vector<pytorch::Program>& late,
            const pytorch::Settings& settings, std::uint64_t capacity, Limit limit) {
  Tuned tuned{.manager = spec_of(settings), .how = how_of(settings)};
  auto options = run_options(settings, capacity, limit);
  auto outcome = run(program, options);
  tuned.reserved = reserved_of(late, options, program, outcome.counts);
  // A request that fails in one case may fail on the device.
  const auto cases = cases_of(program, late);
  for (std::size_t i = 1; i < cases.size(); ++i) {
    if (outcome.fails_at || capacity == pytorch::kNoLimit) break;
    if (passes(cases[i], options)) continue;
    options.addresses = cases[i].addresses;
    outcome = run(*cases[i].program, options);
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

/// Searches the smallest capacity that serves a program under one setting. Skips a replay if an
/// earlier one already tells its result. One thread at a time.
class CapacitySearch {
 public:
  CapacitySearch(std::vector<Case> cases, const pytorch::Settings& settings, Limit limit,
                 const std::atomic<bool>* interrupted)
      : cases_(std::move(cases)),
        known_(cases_.size()),
        settings_(settings),
        limit_(limit),
        interrupted_(interrupted) {
    // A fraction is a capacity by another name, so the searched capacity replaces it.
    settings_.drop_limit();
  }

  /// Empty if a limit of the setting refuses a request at any capacity.
  std::optional<FitRange> range(Look look) {
    std::optional<FitRange> range;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (stops(interrupted_)) break;
      const auto end = ends(i);
      if (!end) return std::nullopt;
      const auto middle = halve(i, *end, pytorch::kNoLimit).served;
      const auto safe = highest(i, *end, middle, look, pytorch::kNoLimit).served;
      const auto least = lowest(i, *end, middle, look);
      if (!range) range = {.low = least, .likely = safe, .high = safe};
      range->low = std::min(range->low, least);
      range->high = std::max(range->high, safe);
    }
    if (!range) return range;
    range->is_exact = true;
    for (std::size_t i = 0; i < cases_.size() && range->high > kStep; ++i)
      range->is_exact = range->is_exact && !passes(i, range->high - kStep);
    return range;
  }

  /// The `high` of a range. The search ends once it is known, or known to be above `bound`.
  struct High {
    bool is_known = false;
    /// kNoLimit if there is no range. If it is not known, a lower bound.
    std::uint64_t bytes = 0;
  };
  High high(Look look, std::uint64_t bound) {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (stops(interrupted_)) break;
      const auto end = ends(i);
      if (!end) return {.is_known = true, .bytes = pytorch::kNoLimit};
      const auto halved = halve(i, *end, bound);
      if (!halved.is_known()) return {.is_known = false, .bytes = halved.fails + kStep};
      const auto safe = highest(i, *end, halved.served, look, bound);
      if (!safe.is_known()) return {.is_known = false, .bytes = safe.fails + kStep};
      most = std::max(most, safe.served);
    }
    return {.is_known = true, .bytes = most == 0 ? pytorch::kNoLimit : most};
  }

 private:
  /// A capacity that fails, or is less than the need, and a larger one that serves.
  struct Between {
    std::uint64_t fails = 0, served = 0;
    bool is_known() const noexcept { return served <= fails || served - fails <= kStep; }
  };
  struct Known {
    bool is_run = false;
    std::optional<Between> ends{};
    struct Alike {
      std::uint64_t below = 0;
      bool passes = false;
    };
    std::map<std::uint64_t, Alike> known{};  // by the least capacity alike
  };

  bool passes(std::size_t i, std::uint64_t capacity) {
    if (stops(interrupted_)) return true;
    auto& known = known_[i].known;
    if (const auto after = known.upper_bound(capacity); after != known.begin()) {
      const auto& before = std::prev(after)->second;
      if (capacity < before.below) return before.passes;
    }
    auto options = run_options(settings_, capacity, limit_);
    options.addresses = cases_[i].addresses;
    options.stop_at_failure = true;
    const auto outcome = run(*cases_[i].program, options);
    const auto is_device = options.settings.limit() == pytorch::kNoLimit;
    known[is_device ? outcome.alike.least : capacity] = {
        .below = is_device ? outcome.alike.below : capacity + 1, .passes = !outcome.fails_at};
    return !outcome.fails_at;
  }

  /// Returns bounds to begin with: what the program reserves without a limit serves, and less than
  /// its peak live cannot.
  std::optional<Between> ends(std::size_t i) {
    auto& order = known_[i];
    if (order.is_run) return order.ends;
    order.is_run = true;
    auto unlimited = run_options(settings_, pytorch::kNoLimit, limit_);
    unlimited.addresses = cases_[i].addresses;
    const auto most = run(*cases_[i].program, unlimited);
    if (most.fails_at) return std::nullopt;
    // With a capacity, settings that collect garbage have a limit, so this run tells nothing of
    // theirs.
    if (run_options(settings_, most.alike.least, limit_).settings.limit() == pytorch::kNoLimit)
      order.known[most.alike.least] = {.below = most.alike.below, .passes = true};
    const auto high = (most.counts.peak_reserved + kStep - 1) / kStep * kStep;
    if (!passes(i, high)) return std::nullopt;
    const auto low = (std::max<std::uint64_t>(most.peak_live, 1) - 1) / kStep * kStep;
    order.ends = Between{.fails = std::min(low, high), .served = high};
    return order.ends;
  }

  /// Halves until the two are a step apart, or until nothing up to `bound` serves.
  Between halve(std::size_t i, Between between, std::uint64_t bound) {
    while (!between.is_known() && between.fails < bound) {
      const auto middle = between.fails + (between.served - between.fails) / 2 / kStep * kStep;
      (passes(i, middle) ? between.served : between.fails) = middle;
    }
    return between;
  }

  static std::vector<std::uint64_t> distances(std::uint64_t middle, Look look) {
    const std::uint64_t near = look == Look::closely ? 32 : 8, far = look == Look::closely ? 20 : 8;
    const auto percent = std::max(middle / 100 / kStep * kStep, kStep);
    std::vector<std::uint64_t> found;  // the farthest first
    for (auto at = far; at > 0; --at) found.push_back(near * kStep + at * percent);
    for (auto at = near; at > 0; --at) found.push_back(at * kStep);
    return found;
  }

  /// Looks above `middle`, which serves: an allocator may fail with more memory where less
  /// suffices.
  Between highest(std::size_t i, const Between& ends, std::uint64_t middle, Look look,
                  std::uint64_t bound) {
    auto passed = ends.served;
    for (const auto distance : distances(middle, look)) {
      if (middle + distance >= ends.served) continue;
      if (!passes(i, middle + distance))
        return halve(i, {.fails = middle + distance, .served = passed}, bound);
      passed = middle + distance;
    }
    return {.fails = middle, .served = middle};
  }
  std::uint64_t lowest(std::size_t i, const Between& ends, std::uint64_t middle, Look look) {
    auto failed = ends.fails;
    for (const auto distance : distances(middle, look)) {
      if (middle < distance + kStep || middle - distance <= ends.fails) continue;
      if (passes(i, middle - distance))
        return halve(i, {.fails = failed, .served = middle - distance}, pytorch::kNoLimit).served;
      failed = middle - distance;
    }
    return middle;
  }

  std::vector<Case> cases_;
  std::vector<Known> known_;  // Of each case.
  pytorch::Settings settings_;
  const Limit limit_;
  const std::atomic<bool>* interrupted_;
};

auto rank(const Tuned& tuned, std::uint64_t fit_high) {
  // Among settings that fail, the one that fails last ranks first.
  return std::make_tuple(!tuned.served, fit_high, ~tuned.fails_at.value_or(0), tuned.peak_reserved,
                         tuned.retries, !tuned.is_today,
                         tuned.device_calls.value_or(pytorch::kNoLimit));
}
auto rank(const Tuned& tuned) {
  return rank(tuned, tuned.fit ? tuned.fit->high : pytorch::kNoLimit);
}

/// The number of settings that are searched closely, besides today's.
constexpr std::size_t kBest = 5;

/// Ranks settings. Searches the smallest capacity of each only as far as the ranking needs; the
/// order is as if all had been searched.
class Ranks {
 public:
  Ranks(std::vector<Tuned> all, std::deque<CapacitySearch>& searches, const TuneOptions& options)
      : searches_(searches), options_(options) {
    for (auto& each : all) all_.push_back({.tuned = std::move(each)});
  }

  /// Returns the results that options.wants() takes, today's and those in options.also. Only those
  /// of `searched` get a smallest capacity.
  std::vector<Tuned> wanted(const std::vector<std::size_t>& searched, std::optional<Tuned> pool) {
    for (auto& each : all_) each.high = {.is_known = true, .bytes = pytorch::kNoLimit};
    for (const auto each : searched) all_[each].high = {};
    auto left = searched;
    std::size_t best = 0;
    best_first(left, [&](std::size_t i) {
      all_[i].look = Look::closely;
      return ++best < kBest;
    });
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].tuned.is_today) all_[i].look = Look::closely;
      if (all_[i].look == Look::closely) all_[i].high = {};
    }
    left.clear();
    if (pool) {
      const auto high = pool->fit ? pool->fit->high : pytorch::kNoLimit;
      all_.push_back({.tuned = *std::move(pool), .high = {.is_known = true, .bytes = high}});
    }
    for (std::size_t i = 0; i < all_.size(); ++i) left.push_back(i);
    std::vector<Tuned> ranking;
    best_first(left, [&](std::size_t i) {
      ranking.push_back(answer(i));
      return options_.wants(ranking.back());
    });
    std::erase_if(left, [&](std::size_t i) {
      const auto& name = all_[i].tuned.manager;
      const auto& also = options_.also;
      return !all_[i].tuned.is_today && std::find(also.begin(), also.end(), name) == also.end();
    });
    side_by_side(options_.jobs, left.size(),
                 [&](std::size_t i) { search(left[i], pytorch::kNoLimit); });
    for (const auto i : left) ranking.push_back(answer(i));
    std::stable_sort(ranking.begin(), ranking.end(),
                     [](const Tuned& a, const Tuned& b) { return rank(a) < rank(b); });
    return ranking;
  }

 private:
  struct One {
    Tuned tuned;
    Look look = Look::about;
    CapacitySearch::High high{};
  };

  auto key(std::size_t i) const {
    return std::make_pair(rank(all_[i].tuned, all_[i].high.bytes), i);
  }
  void search(std::size_t i, std::uint64_t bound) {
    if (!all_[i].high.is_known) all_[i].high = searches_[i].high(all_[i].look, bound);
  }
  Tuned answer(std::size_t i) const {
    auto tuned = all_[i].tuned;
    const auto& high = all_[i].high;
    tuned.interrupted = stops(options_.interrupted);
    if (!tuned.fit && high.is_known && high.bytes != pytorch::kNoLimit)
      tuned.fit = {.is_exact = false, .low = high.bytes, .likely = high.bytes, .high = high.bytes};
    return tuned;
  }

  /// Takes the best out of `left` again and again, until `take` returns false.
  void best_first(std::vector<std::size_t>& left, const std::function<bool(std::size_t)>& take) {
    const auto threads = options_.jobs != 0
                             ? options_.jobs
                             : std::max<std::size_t>(1, std::thread::hardware_concurrency());
    while (!left.empty()) {
      std::sort(left.begin(), left.end(), [&](auto a, auto b) { return key(a) < key(b); });
      if (all_[left.front()].high.is_known || stops(options_.interrupted)) {
        const auto first = left.front();
        left.erase(left.begin());
        if (!take(first)) return;
        continue;
      }
      // Each of the first is searched until it is known, or known to rank after the next one.
      std::vector<std::size_t> some;
      for (std::size_t at = 0; at < left.size() && some.size() < threads; ++at) {
        if (!all_[left[at]].high.is_known) some.push_back(at);
      }
      std::vector<std::uint64_t> bounds;
      for (const auto at : some) {
        const auto is_bounded =
            at + 1 < left.size() && all_[left[at]].tuned.served == all_[left[at + 1]].tuned.served;
        bounds.push_back(is_bounded ? all_[left[at + 1]].high.bytes : pytorch::kNoLimit);
      }
      side_by_side(threads, some.size(), [&](std::size_t i) { search(left[some[i]], bounds[i]); });
    }
  }

  std::vector<One> all_;
  std::deque<CapacitySearch>& searches_;
  const TuneOptions& options_;
};

/// Adds what the manager of a replay counted, over all contexts.
void add_counts(Tuned& tuned, const log::Summary& summary) {
  const auto sum = [](const NamedStatistics& all, std::string_view name, std::uint64_t& to) {
    for (const auto& each : all) to += each.name == name ? each.value : 0;
  };
  if (summary.statistics.empty()) return;
  std::uint64_t calls = 0;
  for (const auto& context : summary.statistics) {
    sum(context.torch, "num_alloc_retries", tuned.retries);
    sum(context.torch, "num_device_alloc", calls);
    sum(context.torch, "num_device_free", calls);
    sum(context.other, "stream_waits", tuned.stream_waits);
  }
  tuned.device_calls = calls;
}

/// Judges our pool by replays.
Result<Tuned> judge_pool(const trace::Trace& trace, const TuneOptions& options,
                         std::uint64_t limit) {
  const auto made = pool_setting(options);
  if (!made) return made.error();
  const auto& setting = *made;
  Tuned tuned{.manager = "pool", .how = std::string(kHowPool)};
  const auto capacity = limit == pytorch::kNoLimit ? kCapacityMost : limit / kStep * kStep;
  const auto at = run(trace, setting, capacity);
  if (!at) return at.error();
  tuned.served = replay::exit_code(*at) == 0 && at->outcomes.failed_as_recorded == 0;
  tuned.peak_reserved = at->pass.peak_reserved_bytes;
  tuned.reserved = {.low = tuned.peak_reserved, .high = tuned.peak_reserved};
  add_counts(tuned, *at);
  if (at->first_failure) {
    tuned.fails_at = at->first_failure->event;
    tuned.failed_size = at->first_failure->size;
  }
  const trace::Lifetimes lifetimes(trace);
  if (auto summed = lifetimes.can_be_summed(); !summed) return tuned;
  const auto needs = inspect::bounds(lifetimes, trace::Asked::all);
  const auto found = fit(trace, setting,
                         {.asked = trace::Asked::all,
                          .start = need_of(needs),
                          .other_start = need_of(needs),
                          .hint = trace.least_capacity(),
                          .jobs = options.jobs,
                          .progress = {}});
  if (!found) return found.error();
  if (const auto fits = found->answer.capacity)
    tuned.fit = {.is_exact = true, .low = *fits, .likely = *fits, .high = *fits};
  tuned.interrupted = found->interrupted;
  return tuned;
}

}  // namespace

std::string_view why_no_pool(const pytorch::Program& program, const trace::Trace& trace) noexcept {
  if (std::any_of(program.calls.begin(), program.calls.end(),
                  [](const pytorch::Call& call) { return !call.pool.is_default(); })) {
    return "The pool is not tried: the recording has private pools, of graphs or MemPools, whose "
           "memory a replay with it would lend to others.";
  }
  if (!program.before.segments.empty()) {
    return "The pool is not tried: what existed before the first row stays where PyTorch put it, "
           "and "
           "a replay with the pool would lay it out anew.";
  }
  if (trace.device_count() > 1)
    return "The pool is not tried: a replay would be of all devices of the trace, not of one.";
  return {};
}

Result<Setting> pool_setting(const TuneOptions& options) {
  auto factory = find_manager("pool");
  if (!factory) return std::move(factory).error();
  Setting setting{.manager = *std::move(factory),
                  .refusals_fail = true,
                  .peer_program = options.peer_program,
                  .interrupted = options.interrupted};
  if (options.limit == Limit::fraction) {
    setting.limited = [](std::uint64_t max) {
      return find_manager(text::format("pool:max={}", max));
    };
  }
  return setting;
}

std::vector<pytorch::Settings> candidates(const pytorch::Program& program,
                                          const TuneOptions& options) {
  std::vector<pytorch::Settings> found;
  const auto add = [&](std::string_view conf) {
    pytorch::Settings settings;
    settings.fraction = program.settings.fraction;
    settings.total = program.settings.total;
    settings.known_limit = program.settings.known_limit;
    settings.host = program.settings.host;  // Not tuned.
    if (!read_conf(conf, settings)) return;
    if (std::find(found.begin(), found.end(), settings) == found.end()) found.push_back(settings);
  };
  found.push_back(program.settings);
  for (const auto& setting : options.settings) add(setting);
  if (!options.settings.empty()) return found;
  // The settings that PyTorch's documentation names, and pairs that people use together.
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
  // Garbage collection needs a limit, which a program sets as a fraction.
  const auto has_end = capacity != pytorch::kNoLimit;
  const auto by_fraction = has_end && limit == Limit::fraction;
  const auto collects =
      settings.garbage_collection_threshold > 0 && settings.limit() == pytorch::kNoLimit;
  if (by_fraction || (has_end && collects)) {
    settings.drop_limit();
    settings.known_limit = capacity;  // The device's total stays.
  }
  return {.settings = settings,
          .capacity = by_fraction ? pytorch::kNoLimit : capacity,
          .addresses = kOrders[0],
          .refused_are_needed = true};
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
    how += ", and the capacity as torch.cuda.set_per_process_memory_fraction()";
  return how;
}

std::optional<FitRange> fit_of(const pytorch::Program& program, const pytorch::Settings& settings,
                               Limit limit, Look look, const std::atomic<bool>* interrupted) {
  const auto late = as_late(program);
  return CapacitySearch(cases_of(program, late), settings, limit, interrupted).range(look);
}

Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options) {
  Tuning tuning;
  tuning.capacity = options.capacity;
  tuning.limit = options.limit;
  tuning.own_limit = program.settings.limit();
  tuning.before_reserved = program.before.reserved();
  for (const auto& block : program.before.blocks) tuning.before_live += block.requested;
  const auto settings = candidates(program, options);
  tuning.lateness = lateness_of(program);
  const auto late = as_late(program);
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
    found[i] = judge(program, late, settings[i], options.capacity, options.limit);
    found[i].is_today = i == 0;
    if (i == 0 && options.capacity == pytorch::kNoLimit) {
      // The recording tells it.
      const auto peak = found[i].peak_reserved;
      found[i].reserved = {.low = peak, .high = peak};
    }
    told(settings.size());
  });
  auto unlimited = program.settings;
  unlimited.drop_limit();
  tuning.peak_live =
      run(program, run_options(unlimited, pytorch::kNoLimit, options.limit)).peak_live;

  tuning.pool_untried = why_no_pool(program, trace);
  const auto tries_pool = [&] {
    return tuning.pool_untried.empty() && !stops(options.interrupted);
  };

  // Search the smallest capacity of all settings if that takes seconds, else of the best five and
  // of today's. The one that reserves least with room to spare is not always the one that fits the
  // smallest device.
  constexpr std::size_t kFewCalls = 200'000;
  const auto all = options.fit_all || program.calls.size() <= kFewCalls;
  std::vector<std::size_t> order(settings.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return rank(found[a]) < rank(found[b]); });
  std::vector<std::size_t> searched;
  for (const auto each : order) {
    if (all || searched.size() < kBest || found[each].is_today) searched.push_back(each);
  }
  std::deque<CapacitySearch> searches;
  for (const auto& each : settings)
    searches.emplace_back(cases_of(program, late), each, options.limit, options.interrupted);
  if (options.wants) {
    std::optional<Tuned> pool;
    if (tries_pool()) {
      auto judged =
          judge_pool(trace, options, std::min(options.capacity, program.settings.limit()));
      if (!judged) return std::move(judged).error();
      pool = *std::move(judged);
    }
    tuning.ranking = Ranks(std::move(found), searches, options).wanted(searched, std::move(pool));
    tuning.interrupted = stops(options.interrupted);
    return tuning;
  }
  const auto search = [&](const std::vector<std::size_t>& some, Look look) {
    side_by_side(options.jobs, some.size(), [&](std::size_t i) {
      auto& each = found[some[i]];
      each.fit = searches[some[i]].range(look);
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
  if (tries_pool()) {
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
