#include "trial/minimize.hpp"

#include <algorithm>
#include <limits>

#include "base/assert.hpp"

namespace emm::trial {
namespace {

using trace::Op;

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();  // no event
constexpr std::uint64_t kSmall = 512;  // Bytes. Smaller sizes are not shrunk.

/// Answers whether the event only describes the trace, so that a replay does not carry it out.
bool is_about_the_trace(const trace::Event& event) noexcept {
  return event.has(trace::event_flag::backing) || event.op == Op::mark || event.op == Op::gap ||
         event.op == Op::flush || event.op == Op::thread_begin || event.op == Op::thread_end;
}

class Minimizer {
 public:
  Minimizer(const trace::Trace& trace, Examiner& examiner, const MinimizeOptions& options)
      : trace_(trace), examiner_(examiner), options_(options), parts_(trace), builder_(trace) {}

  Result<Reduction> run() {
    reduction_.draft = whole(trace_, parts_);
    auto first = examiner_.examine(trace_);
    if (!first) return std::move(first).error();
    reduction_.before = reduction_.after = *first;
    reduction_.interrupted = first->interrupted;
    reduction_.shown = first->shown;
    examiner_.set_least_of_other(first->reserved_by_other / 2);
    if (first->shown) reduce();
    reduction_.trials = examiner_.trials();
    return std::move(reduction_);
  }

 private:
  const trace::Event& event_of(const Step& step) const { return trace_[step.event]; }
  Steps& steps() { return reduction_.draft.steps; }
  bool stopped() const { return reduction_.interrupted; }

  /// Takes the draft over if it fails in the same way. Returns whether it does.
  bool accept(const Draft& draft) {
    if (stopped() || draft == reduction_.draft) return false;
    const auto built = builder_.build(draft);
    if (!built) return false;
    const auto found = examiner_.examine(*built);
    if (options_.progress) options_.progress(steps().size());
    if (!found) return false;
    if (found->interrupted) {
      reduction_.interrupted = true;
      return false;
    }
    if (!found->shown || (target_ != kNone && failing(draft, *found) != target_)) return false;
    reduction_.draft = draft;
    reduction_.after = *found;
    return true;
  }
  bool accept_steps(Steps steps) {
    Draft draft = reduction_.draft;
    draft.steps = std::move(steps);
    return accept(draft);
  }

  /// Returns the original event that fails first in a draft's trial, or kNone.
  static std::uint32_t failing(const Draft& draft, const Finding& finding) {
    if (!finding.failure || finding.failure->line == 0) return kNone;
    return draft.steps[finding.failure->line - 1].event;
  }

  void reduce() {
    cut_the_end();
    leave_out_noise();
    leave_out_in_bulk();
    leave_out(parts_here(), steps().size());
    for (std::size_t before = 0; before != steps().size() && !stopped();) {
      before = steps().size();
      merge();
      leave_out(parts_here(), kFine);
    }
    simplify_streams();
    for (Steps before; before != steps() && !stopped();) {
      before = steps();
      shrink();
      merge();
      leave_out(parts_here(), kFine);
    }
  }

  /// Drops what comes after the failure, which has no part in it.
  void cut_the_end() {
    const auto& failure = reduction_.before.failure;
    if (failure && failure->event < trace_.size()) {
      const auto failed = static_cast<std::uint32_t>(failure->event);
      Steps begin(steps().begin(), steps().begin() + failed + 1);
      if (steps().size() == failed + 1 || accept_steps(std::move(begin))) {
        target_ = failed;
        reduction_.target = failed;
      }
      return;
    }
    // If no event failed, halving looks for the shortest beginning that shows the symptom.
    std::size_t fails_not = 0;
    auto size = steps().size();
    while (size - fails_not > 1 && !stopped()) {
      const auto middle = fails_not + (size - fails_not) / 2;
      const bool good = accept_steps(
          Steps(steps().begin(), steps().begin() + static_cast<std::ptrdiff_t>(middle)));
      (good ? size : fails_not) = middle;
    }
  }

  void leave_out_noise() {
    std::vector<std::uint32_t> noise;
    for (const auto& step : steps()) {
      if (is_about_the_trace(event_of(step))) noise.push_back(step.part);
    }
    try_without(noise);
  }

  bool try_without(const std::vector<std::uint32_t>& parts) {
    if (parts.empty() || stopped()) return false;
    std::vector<bool> out(parts_.count);
    for (const auto part : parts) out[part] = true;
    if (target_ != kNone && out[parts_.of[target_]]) return false;
    Steps left;
    left.reserve(steps().size());
    for (const auto& step : steps()) {
      if (!out[step.part]) left.push_back(step);
    }
    return left.size() < steps().size() && accept_steps(std::move(left));
  }

  /// Returns the parts of the draft without the target's, in the order of their first events.
  std::vector<std::uint32_t> parts_here() {
    std::vector<bool> seen(parts_.count);
    if (target_ != kNone) seen[parts_.of[target_]] = true;
    std::vector<std::uint32_t> parts;
    for (const auto& step : steps()) {
      if (seen[step.part]) continue;
      seen[step.part] = true;
      parts.push_back(step.part);
    }
    return parts;
  }

  /// Tries the draft without runs of `parts`. A run is half of the parts at first, at most half of
  /// `longest`; then half as long, and so on, down to one part or while there are at most `runs`
  /// runs.
  void leave_out(std::vector<std::uint32_t> parts, std::size_t longest, std::size_t runs = kAll) {
    auto length = std::max<std::size_t>(std::min(longest, parts.size()) / 2, 1);
    for (; !parts.empty() && parts.size() / length <= runs && !stopped(); length /= 2) {
      std::vector<std::uint32_t> kept;
      for (std::size_t at = 0; at < parts.size(); at += length) {
        const auto end = std::min(at + length, parts.size());
        const std::vector<std::uint32_t> some(parts.begin() + static_cast<std::ptrdiff_t>(at),
                                              parts.begin() + static_cast<std::ptrdiff_t>(end));
        if (!try_without(some)) kept.insert(kept.end(), some.begin(), some.end());
      }
      parts = std::move(kept);
      if (length == 1) break;
    }
  }

  /// Tries the draft without the first of `parts`, as many as halving finds. Returns the others.
  std::vector<std::uint32_t> leave_out_beginning(std::vector<std::uint32_t> parts) {
    for (auto length = parts.size(); length > 0 && !stopped();) {
      const auto end = parts.begin() + static_cast<std::ptrdiff_t>(length);
      if (try_without({parts.begin(), end})) {
        parts.erase(parts.begin(), end);
        length = std::min(length, parts.size());
      } else {
        length /= 2;
      }
    }
    return parts;
  }

  /// Leaves out what is small and ended before the failure, which is most events but few bytes;
  /// then what ended long ago; then what is small and live.
  void leave_out_in_bulk() {
    struct Found {
      std::uint64_t size = 0;
      std::uint32_t end = kNone;
    };
    std::vector<Found> found(parts_.count);
    for (const auto& step : steps()) {
      found[step.part].size = std::max(found[step.part].size, step.size);
      if (event_of(step).op == Op::free) found[step.part].end = step.event;
    }
    const auto by = [&](auto key) {
      return
          [&found, key](std::uint32_t a, std::uint32_t b) { return found[a].*key < found[b].*key; };
    };
    auto parts = parts_here();
    std::stable_sort(parts.begin(), parts.end(), by(&Found::end));
    const auto first_live = std::find_if(
        parts.begin(), parts.end(), [&](std::uint32_t part) { return found[part].end == kNone; });
    std::vector<std::uint32_t> ended(parts.begin(), first_live), live(first_live, parts.end());
    std::stable_sort(ended.begin(), ended.end(), by(&Found::size));
    ended = leave_out_beginning(std::move(ended));
    std::stable_sort(ended.begin(), ended.end(), by(&Found::end));
    leave_out(leave_out_beginning(std::move(ended)), kAll, kCoarse);
    std::stable_sort(live.begin(), live.end(), by(&Found::size));
    leave_out(leave_out_beginning(std::move(live)), kAll, kCoarse);
    merge();
  }

  /// The number of events of a part, and the draft's index of its free. `end` is kNone if it has no
  /// free, or if another event follows the free.
  struct PartEnd {
    std::uint32_t events = 0, end = kNone;
  };

  bool alike(const Step& a, const Step& b) const {
    const auto& one = event_of(a);
    const auto& other = event_of(b);
    const auto& draft = reduction_.draft;
    const auto stream = [&](const trace::Event& event) {
      return draft.plain_stream[index(event.stream)] ? StreamId{} : event.stream;
    };
    return one.op == other.op && one.context == other.context &&
           (draft.one_thread || one.thread == other.thread) && stream(one) == stream(other) &&
           one.flags == other.flags && one.outcomes == other.outcomes && one.detail == other.detail;
  }

  /// Returns each step that can be merged into the one before it.
  std::vector<std::uint32_t> mergeable() {
    std::vector<PartEnd> part_ends(parts_.count);
    for (std::uint32_t i = 0; i < steps().size(); ++i) {
      auto& place = part_ends[steps()[i].part];
      ++place.events;
      if (!asks_for_memory(event_of(steps()[i]).op))
        place.end = event_of(steps()[i]).op == Op::free ? i : kNone;
    }
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 1; i < steps().size(); ++i) {
      const auto& a = steps()[i - 1];
      const auto& b = steps()[i];
      if (!asks_for_memory(event_of(a).op) || !alike(a, b) || a.event == target_ ||
          b.event == target_)
        continue;
      const auto& of_a = part_ends[a.part];
      const auto& of_b = part_ends[b.part];
      if (a.size > std::numeric_limits<std::uint64_t>::max() - b.size) continue;
      const bool both_stay = of_a.events == 1 && of_b.events == 1;
      const bool both_end = of_a.events == 2 && of_b.events == 2 && of_a.end != kNone &&
                            of_b.end != kNone &&
                            (of_a.end + 1 == of_b.end || of_b.end + 1 == of_a.end) &&
                            alike(steps()[of_a.end], steps()[of_b.end]);
      if (both_stay || both_end) found.push_back(i);
    }
    return found;
  }

  /// Returns the steps with those at `pairs` merged into the ones before them. Of consecutive ones,
  /// merges every second.
  Steps merged(const std::vector<std::uint32_t>& pairs) {
    Steps out = steps();
    std::vector<bool> gone(parts_.count);
    std::uint32_t last = 0;
    for (const auto i : pairs) {
      if (last != 0 && i == last + 1) continue;
      auto& into = out[i - 1];
      const auto& from = out[i];
      into.size += from.size;
      into.whole += from.whole;
      into.stands_for += from.stands_for;
      gone[from.part] = true;
      last = i;
    }
    std::erase_if(out, [&](const Step& step) { return gone[step.part]; });
    return out;
  }

  void merge() {
    // Merge all pairs at once, as often as that works; then halves of those that stay.
    for (auto pairs = mergeable(); !pairs.empty() && accept_steps(merged(pairs));
         pairs = mergeable()) {
    }
    for (std::size_t length = mergeable().size() / 2; length > 0 && !stopped(); length /= 2) {
      for (std::size_t at = 0;; at += length) {
        const auto pairs = mergeable();
        if (at >= pairs.size() || stopped()) break;
        const auto end = std::min(at + length, pairs.size());
        accept_steps(merged({pairs.begin() + static_cast<std::ptrdiff_t>(at),
                             pairs.begin() + static_cast<std::ptrdiff_t>(end)}));
      }
    }
  }

  void simplify_streams() {
    Draft draft = reduction_.draft;
    draft.plain_stream.assign(draft.plain_stream.size(), true);
    if (!accept(draft)) {
      for (std::size_t i = 1; i < draft.plain_stream.size(); ++i) {
        draft = reduction_.draft;
        draft.plain_stream[i] = true;
        accept(draft);
      }
    }
    draft = reduction_.draft;
    draft.one_thread = true;
    accept(draft);
  }

  /// Makes sizes small or, if that fails, round.
  void shrink() {
    for (std::size_t i = 0; i < steps().size() && !stopped(); ++i) {
      const auto size = steps()[i].size;
      if (!asks_for_memory(event_of(steps()[i]).op) || size <= kSmall ||
          steps()[i].event == target_)
        continue;
      for (const auto smaller : smaller_sizes(size)) {
        Steps changed = steps();
        changed[i].size = smaller;
        if (accept_steps(std::move(changed))) break;
      }
    }
  }
  static std::vector<std::uint64_t> smaller_sizes(std::uint64_t size) {
    std::vector<std::uint64_t> sizes;
    const auto add = [&](std::uint64_t smaller) {
      if (smaller > 0 && smaller < size) sizes.push_back(smaller);
    };
    for (const unsigned power : {9u, 16u, 21u, 25u, 28u}) add(std::uint64_t{1} << power);
    for (unsigned power = 42; power >= 9; power -= power > 20 ? 2 : 4) add(size >> power << power);
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
  }

  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kFine = 8;     // parts: longer runs were tried in bulk before
  static constexpr std::size_t kCoarse = 64;  // runs: shorter ones are tried later, of fewer parts

  const trace::Trace& trace_;
  Examiner& examiner_;
  const MinimizeOptions& options_;
  EventParts parts_;
  DraftBuilder builder_;
  Reduction reduction_;
  std::uint32_t target_ = kNone;  // The event that fails first, and must go on doing so.
};

}  // namespace

Result<Reduction> minimize(const trace::Trace& trace, Examiner& examiner,
                           const MinimizeOptions& options) {
  return Minimizer(trace, examiner, options).run();
}

}  // namespace emm::trial
