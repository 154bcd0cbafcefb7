#include "trial/fit.hpp"

#include <algorithm>

namespace emm::trial {
namespace {

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kStep - 1) / kStep * kStep;
}

class Search {
 public:
  Search(const trace::Trace& trace, const Setting& setting, const FitOptions& options)
      : trace_(trace), setting_(setting), options_(options) {}

  Result<Fit> run() {
    find();
    if (error_) return *std::move(error_);
    if (fit_.capacity && fit_.refused != 0 && !interrupted_) {
      Search all(trace_, setting_, options_);
      all.all_served_ = true;
      fit_.all_served = all.least();
      interrupted_ = all.interrupted_;
    }
    fit_.interrupted = interrupted_;
    return std::move(fit_);
  }

 private:
  /// Does the trace pass there? Once the search has to end, always no.
  bool passes(std::uint64_t capacity) {
    if (const auto known = fit_.trials.find(capacity); known != fit_.trials.end()) {
      return known->second;
    }
    if (error_ || interrupted_) return false;
    auto summary = trial::run(trace_, setting_, capacity);
    if (!summary) {
      error_ = std::move(summary).error();
      return false;
    }
    if (summary->interrupted) {
      interrupted_ = true;
      return false;
    }
    const auto code = exit_code(*summary);
    fit_.judged_nothing = code == 3;
    const bool passed = code == 0 && (!all_served_ || summary->outcomes.fails_fails == 0);
    fit_.trials.emplace(capacity, passed);
    if (options_.progress) options_.progress(fit_.trials.size());
    return passed;
  }

  /// A capacity that the trace passes at, and not at one step less.
  std::optional<std::uint64_t> least() {
    auto good = passing();
    if (!good) return std::nullopt;
    auto bad = failing_below(*good);
    while (*good - bad > kStep && !stopped()) {
      const auto middle = bad + (*good - bad) / kStep / 2 * kStep;
      (passes(middle) ? *good : bad) = middle;
    }
    if (stopped()) return std::nullopt;
    return good;
  }

  void find() {
    const auto good = least();
    if (!good) {
      if (!fit_.judged_nothing && fit_.trials.contains(kCapacityMost) && !stopped()) {
        keep_failure(kCapacityMost);
      }
      return;
    }
    fit_.capacity = *good;
    look_below();
    if (*good > kStep) keep_failure(*good - kStep);
    const auto at_it = again(*good);
    if (!at_it) return;
    fit_.peak_reserved = at_it->pass.peak_reserved_bytes;
    fit_.refused = at_it->outcomes.fails_fails;
    fit_.served = at_it->outcomes.fails_works;
  }

  std::optional<std::uint64_t> passing() {
    const auto start = std::clamp(round_up(options_.start), kStep, kCapacityMost);
    for (std::uint64_t above = 0; start + above < kCapacityMost && !stopped();
         above = above == 0 ? kStep : above * 2) {
      if (passes(start + above)) return start + above;
      if (fit_.judged_nothing) return std::nullopt;
    }
    if (passes(kCapacityMost)) return kCapacityMost;
    const auto hint = std::min(options_.hint / kStep * kStep, kCapacityMost);
    if (hint != 0 && passes(hint)) return hint;
    return std::nullopt;
  }

  /// The greatest capacity known to fail below one that passes, or, by steps of doubling length,
  /// one that is found to; 0, which no device has, where all pass.
  std::uint64_t failing_below(std::uint64_t good) {
    auto known = fit_.trials.lower_bound(good);
    while (known != fit_.trials.begin()) {
      if (--known; !known->second) return known->first;
    }
    for (auto step = kStep; step < good && !stopped(); step *= 2) {
      if (!passes(good - step)) return good - step;
    }
    return 0;
  }

  void look_below() {
    const auto found = *fit_.capacity;
    constexpr auto kNear = kTriesBelow / 2;
    std::vector<std::uint64_t> wanted;
    for (std::uint64_t i = 2; i < kNear + 2; ++i) wanted.push_back(i);
    const auto steps = found / kStep;
    const auto near = kNear + 2;
    if (steps > near) {
      const auto start = round_up(options_.start) / kStep;
      const auto lowest = start < steps - near ? std::max<std::uint64_t>(start, 1) : 1;
      const auto span = steps - near - lowest + 1;
      for (std::uint64_t i = 0; i < kNear; ++i)
        wanted.push_back(steps - (lowest + span * i / kNear));
    }
    // What was tried on the way is passed over, and what is as near to it tried instead.
    for (auto below : wanted) {
      while (below < steps && fit_.trials.contains(found - below * kStep)) ++below;
      if (below >= steps || stopped()) continue;
      passes(found - below * kStep);
      fit_.tried_below.push_back(found - below * kStep);
    }
    std::sort(fit_.tried_below.begin(), fit_.tried_below.end());
    for (const auto& [capacity, passed] : fit_.trials) {
      if (passed && capacity < found) fit_.passing_below.push_back(capacity);
    }
  }

  void keep_failure(std::uint64_t capacity) {
    auto summary = again(capacity);
    if (summary) fit_.below = std::move(*summary);
  }

  /// A trial for what it says, which is not interrupted.
  Result<log::Summary> again(std::uint64_t capacity) const {
    auto setting = setting_;
    setting.interrupted = nullptr;
    return trial::run(trace_, setting, capacity);
  }

  bool stopped() const { return error_.has_value() || interrupted_; }

  const trace::Trace& trace_;
  const Setting& setting_;
  const FitOptions& options_;
  Fit fit_;
  std::optional<Error> error_;
  bool interrupted_ = false;
  bool all_served_ = false;  // nothing that the recording refused may fail, either
};

}  // namespace

Result<Fit> fit(const trace::Trace& trace, const Setting& setting, const FitOptions& options) {
  return Search(trace, setting, options).run();
}

}  // namespace emm::trial
