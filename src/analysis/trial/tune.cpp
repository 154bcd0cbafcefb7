#include "trial/tune.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/side_by_side.hpp"
#include "base/text.hpp"
#include "emm/manager_entry.hpp"
#include "replay/engine.hpp"
#include "trace/lifetimes.hpp"
#include "trial/device_time.hpp"
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

std::size_t keys_of(const pytorch::Settings& settings) { return named(settings).size(); }

/// Runs a program, and adds up what the driver's calls take.
pytorch::Outcome run_timed(const pytorch::Program& program, pytorch::RunOptions options,
                           std::uint64_t& ns) {
  ns = 0;
  options.told = [&](const pytorch::DeviceCall& call) { ns += device_ns(call); };
  return run(program, options);
}

bool passes(const Case& of, pytorch::RunOptions options) {
  options.addresses = of.addresses;
  options.stop_at_failure = true;
  return !run(*of.program, options).fails_at;
}

Tuned judge(const pytorch::Program& program, const std::vector<pytorch::Program>& late,
            const pytorch::Settings& settings, const Question& question) {
  Tuned tuned{.manager = spec_of(settings, program.settings),
              .how = how_of(settings),
              .keys = keys_of(settings)};
  auto options = run_options(settings, question.capacity, question.limit);
  std::uint64_t ns = 0;
  auto outcome = run_timed(program, options, ns);
  tuned.reserved = reserved_of(late, options, program, outcome, question.below);
  // A request that fails in one case may fail on the device.
  const auto cases = cases_of(program, late);
  for (std::size_t i = 1; i < cases.size(); ++i) {
    if (outcome.fails_at || question.capacity == pytorch::kNoLimit) break;
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
  if (tuned.served && question.capacity != pytorch::kNoLimit) tuned.lost_ns = ns;
  auto unlimited = settings;
  unlimited.drop_limit();
  const auto without_limit = run_options(unlimited, pytorch::kNoLimit, question.limit);
  tuned.unlimited_reserved = run(program, without_limit).counts.peak_reserved;
  tuned.unlimited = {.low = tuned.unlimited_reserved, .high = tuned.unlimited_reserved};
  for (const auto& each : late) {
    const auto peak = run(each, without_limit).counts.peak_reserved;
    tuned.unlimited.low = std::min(tuned.unlimited.low, peak);
    tuned.unlimited.high = std::max(tuned.unlimited.high, peak);
  }
  return tuned;
}

/// Adds what the driver's calls take at the fitted size, where the capacity has not told it.
void add_time(Tuned& tuned, const pytorch::Program& program, pytorch::Settings settings,
              Limit limit) {
  if (tuned.lost_ns || !tuned.fit) return;
  settings.drop_limit();  // The fitted size takes its place.
  std::uint64_t ns = 0;
  if (!run_timed(program, run_options(settings, tuned.fit->high, limit), ns).fails_at)
    tuned.lost_ns = ns;
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
  std::optional<FitRange> range(SearchDepth depth) {
    std::optional<FitRange> range;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (stops(interrupted_)) break;
      const auto end = ends(i);
      if (!end) return std::nullopt;
      const auto middle = halve(i, *end);
      const auto safe = highest(i, *end, middle, depth);
      const auto least = lowest(i, *end, middle, depth);
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

 private:
  /// A capacity that fails, or is less than the need, and a larger one that serves.
  struct Between {
    std::uint64_t fails = 0, served = 0;
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
    auto high = (most.counts.peak_reserved + kStep - 1) / kStep * kStep;
    // A limit is compared with what a whole new segment would take, even where a request takes
    // less.
    constexpr auto kSegment = std::uint64_t{20} << 20;
    for (auto more = kSegment; !passes(i, high); more *= 2) {
      if (more > high) return std::nullopt;
      high += more;
    }
    const auto low = (std::max<std::uint64_t>(most.peak_live, 1) - 1) / kStep * kStep;
    order.ends = Between{.fails = std::min(low, high), .served = high};
    return order.ends;
  }

  /// Halves until the two are a step apart, and returns the capacity that serves.
  std::uint64_t halve(std::size_t i, Between between) {
    while (between.served > between.fails && between.served - between.fails > kStep) {
      const auto middle = between.fails + (between.served - between.fails) / 2 / kStep * kStep;
      (passes(i, middle) ? between.served : between.fails) = middle;
    }
    return between.served;
  }

  static std::vector<std::uint64_t> distances(std::uint64_t middle, SearchDepth depth) {
    const std::uint64_t near = depth == SearchDepth::closely ? 32 : 8,
                        far = depth == SearchDepth::closely ? 20 : 8;
    const auto percent = std::max(middle / 100 / kStep * kStep, kStep);
    std::vector<std::uint64_t> found;  // the farthest first
    for (auto at = far; at > 0; --at) found.push_back(near * kStep + at * percent);
    for (auto at = near; at > 0; --at) found.push_back(at * kStep);
    return found;
  }

  /// Looks above `middle`, which serves: an allocator may fail with more memory where less
  /// suffices.
  std::uint64_t highest(std::size_t i, const Between& ends, std::uint64_t middle,
                        SearchDepth depth) {
    auto passed = ends.served;
    for (const auto distance : distances(middle, depth)) {
      if (middle + distance >= ends.served) continue;
      if (!passes(i, middle + distance))
        return halve(i, {.fails = middle + distance, .served = passed});
      passed = middle + distance;
    }
    return middle;
  }
  std::uint64_t lowest(std::size_t i, const Between& ends, std::uint64_t middle,
                       SearchDepth depth) {
    auto failed = ends.fails;
    for (const auto distance : distances(middle, depth)) {
      if (middle < distance + kStep || middle - distance <= ends.fails) continue;
      if (passes(i, middle - distance))
        return halve(i, {.fails = failed, .served = middle - distance});
      failed = middle - distance;
    }
    return middle;
  }

  std::vector<Case> cases_;
  std::vector<Known> known_;  // One for each case.
  pytorch::Settings settings_;
  const Limit limit_;
  const std::atomic<bool>* interrupted_;
};

/// The number of settings that are searched closely, besides today's.
constexpr std::size_t kBest = 5;

/// Leaves those of `some` whose figure is as good as the best one's.
template <class Figure>
void keep_best(std::vector<const Tuned*>& some, const Figure& figure, double alike) {
  auto best = static_cast<double>(pytorch::kNoLimit);
  for (const auto* each : some) best = std::min(best, static_cast<double>(figure(*each)));
  std::erase_if(
      some, [&](const Tuned* each) { return static_cast<double>(figure(*each)) > alike * best; });
}

/// Keeps what needs the least memory. A little more of it is worth a tenth of the time.
void keep_least(std::vector<const Tuned*>& some, bool has_capacity) {
  const auto fit = [](const Tuned& each) { return each.fit_bytes().value_or(pytorch::kNoLimit); };
  if (has_capacity) return keep_best(some, fit, kAlike);  // too little memory: the least counts
  const auto lost = [](const Tuned* each) { return each->lost_ns.value_or(pytorch::kNoLimit); };
  auto near = some;
  keep_best(near, fit, kLittleMore);
  keep_best(some, fit, kAlike);
  auto least_lost = pytorch::kNoLimit;
  for (const auto* each : some) least_lost = std::min(least_lost, lost(each));
  std::erase_if(near, [&](const Tuned* each) {
    return kMuchFaster * static_cast<double>(lost(each)) >= static_cast<double>(least_lost);
  });
  if (near.empty()) return;
  some = near;
  keep_best(some, fit, kAlike);
}

/// Is this what PyTorch's own out-of-memory message recommends?
bool is_recommended(const Tuned& each) {
  return each.manager.find("expandable_segments=True") != std::string::npos;
}

/// Picks the first of the ranking. Equality within 3 % is not transitive, so what ranks next is
/// picked anew from the rest.
const Tuned* best_of(std::vector<const Tuned*> some, bool has_capacity) {
  const auto keep = [&](const auto& figure, double alike) { keep_best(some, figure, alike); };
  keep([](const Tuned& each) { return each.served ? 0 : 1; }, 1);
  const auto served = some.front()->served;
  if (!served || !has_capacity) keep_least(some, has_capacity);
  // Among settings whose need is not known, the one that fails last ranks first.
  constexpr auto kLast = std::uint64_t{1} << 40;
  if (!served && !some.front()->fit)
    keep([=](const Tuned& each) { return kLast - std::min(each.fails_at.value_or(0), kLast); }, 1);
  keep([](const Tuned& each) { return each.lost_ns.value_or(pytorch::kNoLimit); }, kAlike);
  keep([](const Tuned& each) { return each.unlimited_reserved; }, kAlike);
  keep([](const Tuned& each) { return each.is_today ? 0 : each.keys + 1; }, 1);
  keep([](const Tuned& each) { return is_recommended(each) ? 0 : 1; }, 1);
  keep([](const Tuned& each) { return each.retries; }, 1);
  return some.front();
}

/// Returns the places of `all` in their ranking.
std::vector<std::size_t> ranks_of(const std::vector<Tuned>& all, bool has_capacity) {
  std::vector<const Tuned*> left;
  for (const auto& each : all) left.push_back(&each);
  std::vector<std::size_t> ranks;
  while (!left.empty()) {
    const auto* const best = best_of(left, has_capacity);
    ranks.push_back(static_cast<std::size_t>(best - all.data()));
    left.erase(std::find(left.begin(), left.end(), best));
  }
  return ranks;
}

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
Result<Tuned> judge_pool(const trace::Trace& trace, const TuneOptions& options) {
  const auto made = pool_setting(options);
  if (!made) return made.error();
  const auto& setting = *made;
  // Another allocator is more of a change than any keys.
  constexpr std::size_t kMoreThanKeys = 100;
  Tuned tuned{.manager = "pool", .how = std::string(kHowPool), .keys = kMoreThanKeys};
  const auto limit = options.question.capacity;
  const auto has_capacity = limit != pytorch::kNoLimit;
  const auto unlimited = run_timed(trace, setting, kCapacityMost);
  if (!unlimited) return unlimited.error();
  tuned.unlimited_reserved = unlimited->pass.peak_reserved_bytes;
  tuned.unlimited = {.low = tuned.unlimited_reserved, .high = tuned.unlimited_reserved};
  const auto at = has_capacity ? run_timed(trace, setting, limit / kStep * kStep) : unlimited;
  if (!at) return at.error();
  tuned.served = replay::exit_code(*at) == 0 && at->outcomes.failed_as_recorded == 0;
  tuned.peak_reserved = at->pass.peak_reserved_bytes;
  if (tuned.served && has_capacity) tuned.lost_ns = driver_ns_of(*at);
  tuned.reserved = {.low = tuned.peak_reserved, .high = tuned.peak_reserved};
  add_counts(tuned, *at);
  if (at->first_failure) {
    tuned.fails_at = at->first_failure->event;
    tuned.failed_size = at->first_failure->size;
  }
  const trace::Lifetimes lifetimes(trace);
  if (auto summed = lifetimes.can_be_summed(); !summed) return tuned;
  const auto needs = inspect::bounds(lifetimes, trace::CountedRequests::all);
  const auto found = fit(trace, setting,
                         {.asked = trace::CountedRequests::all,
                          .start = need_of(needs),
                          .other_start = need_of(needs),
                          .hint = trace.least_capacity(),
                          .jobs = options.jobs,
                          .progress = {}});
  if (!found) return found.error();
  if (const auto fits = found->answer.capacity) {
    tuned.fit = {.is_exact = true, .low = *fits, .likely = *fits, .high = *fits};
    if (!tuned.lost_ns) {
      const auto fitted = run_timed(trace, setting, *fits);
      if (fitted) tuned.lost_ns = driver_ns_of(*fitted);
    }
  }
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
  if (options.question.limit == Limit::fraction) {
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
    auto settings = program.settings;
    settings.drop_conf();
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
  if (program.settings.limit() != pytorch::kNoLimit ||
      options.question.capacity != pytorch::kNoLimit) {
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

std::string spec_of(const pytorch::Settings& settings, const pytorch::Settings& recorded) {
  const auto is_plain = [](pytorch::Settings one) {
    const auto whole = one;
    one.drop_conf();
    return one == whole;
  };
  std::string spec = "pytorch";
  if (is_plain(settings) && !is_plain(recorded)) spec += ":expandable_segments=False";
  for (const auto& [name, value] : named(settings))
    spec += text::format("{}{}={}", spec == "pytorch" ? ":" : ",", name, value);
  return spec;
}

std::string how_of(const pytorch::Settings& settings) {
  const auto conf = to_conf(settings);
  return conf.empty() ? "unset PYTORCH_ALLOC_CONF" : "PYTORCH_ALLOC_CONF=" + conf;
}

std::string fraction_line(std::uint64_t capacity, std::uint64_t total) {
  if (total == 0)
    return text::format(
        "torch.cuda.set_per_process_memory_fraction({} / torch.cuda.mem_get_info()[1])",
        // PyTorch drops what the division leaves behind the point.
        capacity + 1);
  // The fewest digits that allow as many pages of the device.
  constexpr int kFewest = 3, kMost = 12;
  const auto least = capacity / kStep * kStep;
  const auto whole = static_cast<double>(total);
  for (auto digits = kFewest;; ++digits) {
    const auto scale = std::pow(10.0, digits);
    const auto fraction =
        std::min(std::ceil(static_cast<double>(least) / whole * scale) / scale, 1.0);
    const auto allowed = static_cast<std::uint64_t>(fraction * whole);
    if ((allowed >= least && allowed < least + kStep) || digits == kMost)
      return text::format("torch.cuda.set_per_process_memory_fraction({})",
                          text::fixed(fraction, digits));
  }
}

pytorch::Program smaller(const pytorch::Program& program, std::uint64_t eighths) {
  auto made = program;
  for (auto& call : made.calls) {
    if (call.size > pytorch::kSmallSize) call.size -= call.size / 8 * eighths;
  }
  return made;
}

std::string_view name(AskedBy by) noexcept {
  switch (by) {
    case AskedBy::user:
      return "user";
    case AskedBy::recording:
      return "recording";
    case AskedBy::inference:
      return "inference";
    case AskedBy::refusal:
      return "refusal";
    case AskedBy::nobody:
      break;
  }
  return "nobody";
}

Question question_of(const pytorch::Recording& recording, const pytorch::Settings& settings,
                     std::optional<std::uint64_t> asked, Limit limit,
                     std::optional<std::uint64_t> event) {
  if (asked) return {.capacity = *asked, .limit = limit, .by = AskedBy::user};
  const auto own = settings.limit();
  if (own != pytorch::kNoLimit) {
    const auto is_inferred = recording.limit_is_inferred() && !settings.fraction;
    const auto inferred = is_inferred ? inferred_limit(recording) : std::nullopt;
    return {.capacity = own,
            .limit = Limit::fraction,
            .by = is_inferred ? AskedBy::inference : AskedBy::recording,
            .below = inferred ? inferred->range.below : 0};
  }
  if (!recording.is_recording()) return {.limit = limit};
  if (const auto inferred = inferred_limit(recording))
    return {.capacity = inferred->range.least,
            .limit = Limit::fraction,
            .by = AskedBy::inference,
            .below = inferred->range.below};
  using Kind = pytorch::Step::Kind;
  std::uint64_t reserved = 0;
  for (const auto& step : recording.steps()) {
    if (step.kind == Kind::segment_begin) reserved += step.size;
    if (step.kind == Kind::segment_end) reserved -= std::min(reserved, step.size);
    if (step.kind != Kind::refused || (event && step.event != *event)) continue;
    // Where the free bytes are not recorded, it had what it held, at least.
    return {.capacity = reserved + step.device_free, .limit = limit, .by = AskedBy::refusal};
  }
  return {.limit = limit};
}

std::optional<FitRange> fit_of(const pytorch::Program& program, const pytorch::Settings& settings,
                               Limit limit, SearchDepth depth,
                               const std::atomic<bool>* interrupted) {
  const auto late = as_late(program);
  return CapacitySearch(cases_of(program, late), settings, limit, interrupted).range(depth);
}

const Tuned* Tuning::least() const noexcept {
  const Tuned* found = nullptr;
  for (const auto& each : ranking) {
    if (each.fit && (found == nullptr || each.fit->high < found->fit->high)) found = &each;
  }
  return found;
}

namespace {

/// Finds the largest batch that a setting serves at the capacity, and the first of the ranking
/// that does.
std::optional<Smaller> smaller_batch(const Tuning& tuning, const pytorch::Program& program,
                                     const std::vector<pytorch::Settings>& settings,
                                     const TuneOptions& options) {
  std::vector<const pytorch::Settings*> order;
  for (const auto& each : tuning.ranking) {
    for (const auto& setting : settings) {
      if (spec_of(setting, program.settings) != each.manager) continue;
      order.push_back(&setting);
      break;
    }
  }
  for (const std::uint64_t eighths : {1, 2, 4}) {
    const auto made = smaller(program, eighths);
    for (const auto* each : order) {
      if (stops(options.interrupted)) return std::nullopt;
      const auto at = run_options(*each, tuning.question.capacity, tuning.question.limit);
      if (!std::all_of(std::begin(kOrders), std::end(kOrders), [&](Addresses of) {
            return passes(Case{.program = &made, .addresses = of}, at);
          }))
        continue;
      return Smaller{
          .eighths = eighths, .manager = spec_of(*each, program.settings), .how = how_of(*each)};
    }
  }
  return std::nullopt;
}

/// What is known before a setting is tried.
Tuning begin_tuning(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options) {
  Tuning tuning;
  tuning.question = options.question;
  tuning.total = program.settings.total;
  tuning.before_reserved = program.before.reserved();
  for (const auto& block : program.before.blocks) tuning.before_live += block.requested;
  const auto& framework = trace.header().framework;
  tuning.knows_today = framework != trace::kTorchProfiler;
  if (tuning.knows_today && !framework.starts_with("torch")) tuning.other_framework = framework;
  tuning.lateness = lateness_of(program);
  tuning.caught = caught_failures(program);
  auto unlimited = program.settings;
  unlimited.drop_limit();
  tuning.peak_live =
      run(program, run_options(unlimited, pytorch::kNoLimit, options.question.limit)).peak_live;
  tuning.pool_untried = why_no_pool(program, trace);
  return tuning;
}

/// The settings that are tried, and what came of each. options.jobs threads work at a time.
class SettingTrials {
 public:
  SettingTrials(const pytorch::Program& program, const TuneOptions& options)
      : program_(program),
        options_(options),
        question_(options.question),
        has_capacity_(question_.capacity != pytorch::kNoLimit),
        late_(as_late(program)),
        settings_(candidates(program, options)),
        found_(settings_.size()) {
    for (const auto& each : settings_)
      searches_.emplace_back(cases_of(program, late_), each, question_.limit, options.interrupted);
  }

  const std::vector<pytorch::Settings>& settings() const noexcept { return settings_; }

  /// Runs the program with each setting. The first setting is today's, if `knows_today`.
  void judge_all(bool knows_today) {
    side_by_side(options_.jobs, settings_.size(), [&](std::size_t i) {
      if (stops(options_.interrupted)) {
        found_[i] = {.manager = spec_of(settings_[i], program_.settings),
                     .how = how_of(settings_[i]),
                     .interrupted = true};
        return;
      }
      found_[i] = judge(program_, late_, settings_[i], question_);
      found_[i].is_today = i == 0 && knows_today;
      if (i == 0 && question_.capacity == pytorch::kNoLimit) {
        // The recording tells it.
        const auto peak = found_[i].peak_reserved;
        found_[i].reserved = {.low = peak, .high = peak};
        const auto unlimited = found_[i].unlimited_reserved;
        if (unlimited == peak) found_[i].unlimited = found_[i].reserved;
      }
      told(settings_.size());
    });
  }

  /// Searches the smallest capacity that a setting serves: about, then closely for the best.
  void search_capacities() {
    const auto searched = searched_about();
    search(searched, SearchDepth::about);
    std::vector<std::size_t> closely;
    for (const auto each : ranks_of(found_, has_capacity_)) {
      if (std::find(searched.begin(), searched.end(), each) == searched.end()) continue;
      if (closely.size() < kBest || found_[each].is_today || !options_.settings.empty())
        closely.push_back(each);
    }
    for (const auto each : closely) {
      // The time is that of the size that is found now.
      if (!found_[each].served || !has_capacity_) found_[each].lost_ns.reset();
    }
    if (!stops(options_.interrupted)) search(closely, SearchDepth::closely);
  }

  /// Garbage is collected below a fraction of the device. Where none is set, the program sets it.
  void add_fraction_lines(std::uint64_t total) {
    if (question_.limit == Limit::fraction) return;
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      auto& each = found_[i];
      if (settings_[i].garbage_collection_threshold == 0 ||
          settings_[i].limit() != pytorch::kNoLimit)
        continue;
      if (each.served && has_capacity_)
        each.how += "\n" + fraction_line(question_.capacity, total);
      else if (each.fit)
        each.how += "\n" + fraction_line(each.fit->high, total);
    }
  }

  void add(Tuned one) { found_.push_back(std::move(one)); }

  /// All that was found, best first.
  std::vector<Tuned> ranking() const {
    std::vector<Tuned> all;
    for (const auto each : ranks_of(found_, has_capacity_)) all.push_back(found_[each]);
    return all;
  }

 private:
  /// All settings if that takes seconds, else the best five and today's. The one that reserves
  /// least with room to spare is not always the one that fits the smallest device.
  std::vector<std::size_t> searched_about() const {
    constexpr std::size_t kFewCalls = 200'000;  // a search of all settings then takes seconds
    const auto any_serves =
        has_capacity_ &&
        std::any_of(found_.begin(), found_.end(), [](const Tuned& each) { return each.served; });
    const auto all = options_.fit_all ||
                     (program_.calls.size() <= kFewCalls && !(options_.fit_few && any_serves));
    std::vector<std::size_t> searched;
    for (const auto each : ranks_of(found_, has_capacity_)) {
      if (all || searched.size() < kBest || found_[each].is_today) searched.push_back(each);
    }
    return searched;
  }

  void search(const std::vector<std::size_t>& some, SearchDepth depth) {
    side_by_side(options_.jobs, some.size(), [&](std::size_t i) {
      auto& each = found_[some[i]];
      each.fit = searches_[some[i]].range(depth);
      each.interrupted = stops(options_.interrupted);
      if (!each.interrupted) add_time(each, program_, settings_[some[i]], question_.limit);
      if (depth == SearchDepth::about) told(settings_.size() + some.size());
    });
  }

  /// Any thread calls it when one more piece of work is done.
  void told(std::uint64_t total) {
    const auto count = ++done_;
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    options_.progress(count, total);
  }

  const pytorch::Program& program_;
  const TuneOptions& options_;
  const Question& question_;
  bool has_capacity_;
  std::vector<pytorch::Program> late_;  // outlives the searches, which run it too
  std::vector<pytorch::Settings> settings_;
  std::vector<Tuned> found_;             // of settings_, and behind them what add() added
  std::deque<CapacitySearch> searches_;  // of settings_
  std::atomic<std::uint64_t> done_{0};
  std::mutex mutex_;  // of options_.progress
};

}  // namespace

Result<Tuning> tune(const pytorch::Program& program, const trace::Trace& trace,
                    const TuneOptions& options) {
  const auto capacity = options.question.capacity;
  const auto has_capacity = capacity != pytorch::kNoLimit;
  if (has_capacity && (capacity < kStep || capacity > kCapacityMost)) {
    return fail(Errc::usage, "a capacity of {} bytes: expected 2MiB to 4TiB",
                text::grouped(capacity));
  }
  auto tuning = begin_tuning(program, trace, options);
  SettingTrials trials(program, options);
  trials.judge_all(tuning.knows_today && tuning.other_framework.empty());
  trials.search_capacities();
  trials.add_fraction_lines(tuning.total);
  if (tuning.pool_untried.empty() && !stops(options.interrupted)) {
    auto pool = judge_pool(trace, options);
    if (!pool) return std::move(pool).error();
    trials.add(*std::move(pool));
  }
  tuning.ranking = trials.ranking();
  tuning.interrupted = stops(options.interrupted);
  if (has_capacity && !tuning.ranking.front().served && !tuning.interrupted)
    tuning.smaller = smaller_batch(tuning, program, trials.settings(), options);
  return tuning;
}

}  // namespace emm::trial
