#include "trial/fit.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/side_by_side.hpp"
#include "replay/engine.hpp"

namespace emm::trial {
namespace {

using trace::CountedRequests;

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kStep - 1) / kStep * kStep;
}

/// Runs the trials of both questions. Several threads may call pass() at once; the rest is for one.
class Trials {
 public:
  Trials(const trace::Trace& trace, const Setting& setting, const FitOptions& options)
      : trace_(trace), setting_(setting), options_(options) {}

  /// Answers whether the trace passes. Empty once the search has to end.
  std::optional<bool> pass(std::uint64_t capacity, CountedRequests asked) {
    if (stopped()) return std::nullopt;
    auto summary = run(capacity, asked, setting_.interrupted);
    const std::lock_guard lock(mutex_);
    if (!summary) {
      if (!error_) error_ = std::move(summary).error();
      return std::nullopt;
    }
    if (summary->interrupted) {
      interrupted_ = true;
      return std::nullopt;
    }
    if (summary->abnormal && summary->abnormal->hung) {
      hung_ = std::move(summary->abnormal);
      return std::nullopt;
    }
    const auto code = replay::exit_code(*summary);
    judged_nothing_ = code == 3;
    ++count_;
    if (ahead_ > 1) --ahead_;
    if (options_.progress) options_.progress(count_, count_ + ahead_);
    return code == 0;
  }

  /// Returns how many trials may run at once; 0: one per processor. A foreign manager runs in a
  /// child process, which is forked while this process has no other thread.
  std::size_t jobs() const noexcept {
    return setting_.manager.apart.has_value() ? 1 : options_.jobs;
  }

  /// Repeats a trial for its details. It cannot be interrupted.
  std::optional<log::Summary> again(std::uint64_t capacity, CountedRequests asked) const {
    auto summary = run(capacity, asked, nullptr);
    return summary ? std::optional(std::move(*summary)) : std::nullopt;
  }

  /// Repeats a trial on a device whose calls take what they take on an H200, and returns what they
  /// took. It cannot be interrupted.
  std::optional<std::uint64_t> driver_ns(std::uint64_t capacity, CountedRequests asked) const {
    const auto summary = run_timed(trace_, setting_for(asked, nullptr), capacity);
    // A manager that calls another driver leaves the simulated device's clock where it was.
    if (!summary || driver_ns_of(*summary) == 0) return std::nullopt;
    return driver_ns_of(*summary);
  }

  /// Sets about how many trials are still to come.
  void expect(std::uint64_t ahead) noexcept { ahead_ = ahead; }

  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return error_.has_value() || interrupted_ || hung_.has_value();
  }
  bool interrupted() const { return interrupted_; }
  const std::optional<log::Abnormal>& hung() const { return hung_; }
  bool judged_nothing() const { return judged_nothing_; }
  std::uint64_t count() const { return count_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  Setting setting_for(CountedRequests asked, const std::atomic<bool>* interrupted) const {
    auto setting = setting_;
    setting.refusals_fail = asked == CountedRequests::all;
    setting.interrupted = interrupted;
    return setting;
  }
  Result<log::Summary> run(std::uint64_t capacity, CountedRequests asked,
                           const std::atomic<bool>* interrupted) const {
    return trial::run(trace_, setting_for(asked, interrupted), capacity);
  }

  const trace::Trace& trace_;
  const Setting& setting_;
  const FitOptions& options_;
  mutable std::mutex mutex_;
  std::uint64_t count_ = 0, ahead_ = 0;
  std::optional<Error> error_;
  bool interrupted_ = false, judged_nothing_ = false;
  std::optional<log::Abnormal> hung_;
};

/// About how many trials it takes to find an answer, and to look above it.
constexpr std::uint64_t kTrialsToFind = 12, kTrialsAbove = kNearAbove / kStep + 90;

/// Answers one question.
class FitSearch {
 public:
  /// `known` holds results that need no trial. `after` is the expected number of trials after this
  /// search.
  FitSearch(Trials& trials, const FitOptions& options, CountedRequests asked, std::uint64_t after,
            std::map<std::uint64_t, bool> known = {})
      : trials_(trials),
        after_(after),
        asked_(asked),
        start_(asked == options.asked ? options.start : options.other_start),
        hint_(options.hint) {
    answer_.trials = std::move(known);
  }

  Answer run() {
    trials_.expect(kTrialsToFind + kTrialsAbove + kTriesBelow + after_);
    answer_.capacity = least();
    if (!answer_.capacity) return std::move(answer_);
    do {
      trials_.expect(kTrialsAbove + kTriesBelow + after_);
    } while (rise());
    trials_.expect(kTriesBelow + after_);
    look_below();
    return std::move(answer_);
  }

 private:
  /// Answers whether the trace passes at `capacity`. Once the search has to end, the answer is
  /// always no.
  bool passes(std::uint64_t capacity) {
    if (const auto known = answer_.trials.find(capacity); known != answer_.trials.end()) {
      return known->second;
    }
    const auto passed = trials_.pass(capacity, asked_);
    if (passed) answer_.trials.emplace(capacity, *passed);
    return passed.value_or(false);
  }

  /// Tries the capacities that were not tried yet, several at once.
  void try_all(const std::set<std::uint64_t>& capacities) {
    std::vector<std::uint64_t> left;
    for (const auto capacity : capacities) {
      if (capacity <= kCapacityMost && !answer_.trials.contains(capacity)) left.push_back(capacity);
    }
    std::vector<std::optional<bool>> passed(left.size());
    side_by_side(trials_.jobs(), left.size(),
                 [&](std::size_t i) { passed[i] = trials_.pass(left[i], asked_); });
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (passed[i]) answer_.trials.emplace(left[i], *passed[i]);
    }
  }

  /// Finds a capacity at which the trace passes, and fails with one step less.
  std::optional<std::uint64_t> least() {
    const auto good = passing();
    if (!good) return std::nullopt;
    const auto found = first_passing(failing_below(*good), *good);
    if (trials_.stopped()) return std::nullopt;
    return found;
  }

  /// Halves between `bad`, which fails, and `good`, which passes. Returns a capacity that passes,
  /// while one step less fails.
  std::uint64_t first_passing(std::uint64_t bad, std::uint64_t good) {
    while (good - bad > kStep && !trials_.stopped()) {
      const auto middle = bad + (good - bad) / kStep / 2 * kStep;
      const bool passed = passes(middle);
      if (!trials_.stopped()) (passed ? good : bad) = middle;
    }
    return good;
  }

  std::optional<std::uint64_t> passing() {
    const auto start = std::clamp(round_up(start_), kStep, kCapacityMost);
    for (std::uint64_t above = 0; start + above < kCapacityMost && !trials_.stopped();
         above = above == 0 ? kStep : above * 2) {
      if (passes(start + above)) return start + above;
      if (trials_.judged_nothing()) return std::nullopt;
    }
    if (passes(kCapacityMost)) return kCapacityMost;
    const auto hint = std::min(hint_ / kStep * kStep, kCapacityMost);
    if (hint != 0 && passes(hint)) return hint;
    return std::nullopt;
  }

  /// Returns the greatest capacity below `good` that is known to fail. If none is known, searches
  /// one in steps of doubling length. Returns 0, which no device has, if all pass.
  std::uint64_t failing_below(std::uint64_t good) {
    auto known = answer_.trials.lower_bound(good);
    while (known != answer_.trials.begin()) {
      if (--known; !known->second) return known->first;
    }
    for (auto step = kStep; step < good && !trials_.stopped(); step *= 2) {
      if (!passes(good - step)) return good - step;
    }
    return 0;
  }

  /// Tries capacities above the answer. If one fails, the answer becomes greater, and the
  /// capacities above that have to be tried too: returns true.
  bool rise() {
    const auto from = *answer_.capacity;
    std::set<std::uint64_t> wanted;
    for (auto above = kStep; above <= kNearAbove; above += kStep) wanted.insert(from + above);
    for (std::uint64_t percent = 1; percent <= 100; ++percent) {
      const auto above = round_up(from / 100 * percent);
      if (above > kNearAbove) wanted.insert(from + above);
    }
    try_all(wanted);
    // Look for a capacity further up that passes again.
    const auto fails_last = [&] { return !answer_.trials.rbegin()->second; };
    for (auto above = 2 * from; fails_last() && above < kCapacityMost; above *= 2)
      try_all({2 * above});
    if (fails_last()) try_all({kCapacityMost});

    auto top = answer_.trials.end();
    while (!(--top)->second) {
    }
    answer_.fails_from.reset();
    if (const auto next = std::next(top); next != answer_.trials.end()) {
      answer_.fails_from = first_failing(top->first, next->first);
    }
    auto fails = answer_.trials.find(top->first);
    while (fails->first > from && fails->second) --fails;
    if (fails->first <= from) return false;
    const auto found = first_passing(fails->first, std::next(fails)->first);
    answer_.capacity = found;
    return !trials_.stopped();
  }

  /// Halves between `good`, which passes, and the larger `bad`, which fails. Returns one that
  /// fails.
  std::uint64_t first_failing(std::uint64_t good, std::uint64_t bad) {
    while (bad - good > kStep && !trials_.stopped()) {
      const auto middle = good + (bad - good) / kStep / 2 * kStep;
      const bool passed = passes(middle);
      if (!trials_.stopped()) (passed ? good : bad) = middle;
    }
    return bad;
  }

  void look_below() {
    const auto found = *answer_.capacity;
    // Half of the tries are close below, the others spread over the rest.
    constexpr auto kNear = kTriesBelow / 2;
    std::vector<std::uint64_t> wanted;
    for (std::uint64_t i = 2; i < kNear + 2; ++i) wanted.push_back(i);
    const auto steps = found / kStep;
    const auto near = kNear + 2;
    if (steps > near) {
      const auto start = round_up(start_) / kStep;
      const auto lowest = start < steps - near ? std::max<std::uint64_t>(start, 1) : 1;
      const auto span = steps - near - lowest + 1;
      for (std::uint64_t i = 0; i < kNear; ++i)
        wanted.push_back(steps - (lowest + span * i / kNear));
    }
    // If a capacity was tried before, the nearest lower one is tried instead.
    std::set<std::uint64_t> chosen;
    for (auto below : wanted) {
      const auto is_taken = [&](std::uint64_t capacity) {
        return answer_.trials.contains(capacity) || chosen.contains(capacity);
      };
      while (below < steps && is_taken(found - below * kStep)) ++below;
      if (below < steps) chosen.insert(found - below * kStep);
    }
    try_all(chosen);
  }

  Trials& trials_;
  std::uint64_t after_;
  CountedRequests asked_;
  std::uint64_t start_, hint_;
  Answer answer_;
};

std::uint64_t count_refused(const trace::Trace& trace) {
  std::uint64_t count = 0;
  for (std::size_t at = 0; at < trace.size(); ++at) count += trace::is_refused(trace[at]) ? 1 : 0;
  return count;
}

/// Returns what one answer says about the other question. What passes with all requests also passes
/// without the refused ones; what fails without them also fails with them.
std::map<std::uint64_t, bool> known_from(const Answer& answer, CountedRequests asked) {
  std::map<std::uint64_t, bool> known;
  for (const auto& [capacity, passes] : answer.trials) {
    if (passes == (asked == CountedRequests::all)) known.emplace(capacity, passes);
  }
  return known;
}

void explain(Fit& fit, const Trials& trials) {
  const auto& answer = fit.answer;
  if (!answer.capacity) {
    if (!fit.judged_nothing && answer.trials.contains(kCapacityMost) && !trials.stopped()) {
      fit.below = trials.again(kCapacityMost, fit.asked);
    }
    return;
  }
  if (answer.is_least()) fit.below = trials.again(*answer.capacity - kStep, fit.asked);
  if (answer.fails_from) fit.above = trials.again(*answer.fails_from, fit.asked);
  const auto at_it = trials.again(*answer.capacity, fit.asked);
  if (!at_it) return;
  fit.peak_reserved = at_it->pass.peak_reserved_bytes;
  fit.refused_again = at_it->refused_again;
  fit.driver_ns = trials.driver_ns(*answer.capacity, fit.asked);
}

}  // namespace

bool Answer::is_least() const {
  if (!capacity || *capacity <= kStep) return false;
  const auto less = trials.find(*capacity - kStep);
  return less != trials.end() && !less->second;
}

std::vector<std::uint64_t> Answer::below(bool passing_only) const {
  std::vector<std::uint64_t> found;
  for (const auto& [size, passes] : trials) {
    if (capacity && size < *capacity && (passes || !passing_only)) found.push_back(size);
  }
  return found;
}

std::vector<std::uint64_t> Answer::above(bool failing_only) const {
  std::vector<std::uint64_t> found;
  for (const auto& [size, passes] : trials) {
    if (capacity && size > *capacity && (!passes || !failing_only)) found.push_back(size);
  }
  return found;
}

std::optional<std::uint64_t> Answer::least_passing() const {
  for (const auto& [size, passes] : trials) {
    if (passes) return size;
  }
  return std::nullopt;
}

const Answer* Fit::of(CountedRequests question) const noexcept {
  if (refused == 0 || question == asked) return &answer;
  return other ? &*other : nullptr;
}

Result<Fit> fit(const trace::Trace& trace, const Setting& setting, const FitOptions& options) {
  Fit fit;
  fit.asked = options.asked;
  fit.refused = count_refused(trace);
  Trials trials(trace, setting, options);
  const auto after = fit.refused == 0 ? 0 : kTrialsToFind + kTriesBelow;
  fit.answer = FitSearch(trials, options, options.asked, after).run();
  fit.judged_nothing = trials.judged_nothing();
  if (fit.refused != 0 && !trials.stopped() && !fit.judged_nothing) {
    const auto other =
        options.asked == CountedRequests::all ? CountedRequests::served : CountedRequests::all;
    fit.other = FitSearch(trials, options, other, 0, known_from(fit.answer, options.asked)).run();
  }
  if (trials.error()) return *trials.error();
  fit.trials = trials.count();
  fit.interrupted = trials.interrupted();
  fit.hung = trials.hung();
  if (!fit.hung) explain(fit, trials);  // each further trial may hang too
  return fit;
}

}  // namespace emm::trial
