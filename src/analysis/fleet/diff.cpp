#include "fleet/diff.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "base/text.hpp"
#include "fleet/alignment.hpp"
#include "inspect/growth.hpp"
#include "trace/lifetimes.hpp"

namespace emm::fleet {
namespace {

using trace::kNever;

constexpr std::size_t kAgainLeast = 4;         // allocations that must be kept to look like a leak
constexpr std::uint64_t kPercentMatched = 90;  // of the shorter run, for a match by size
constexpr std::array<MeasureName, 6> kMeasures{{{"peak", true},
                                                {"reserved", true},
                                                {"live_at_end", true},
                                                {"requests", false},
                                                {"refused", false},
                                                {"changes", false}}};

/// Names what is counted together: a call site or, without one, a size, as in autograd's threads.
using Group = std::uint64_t;
constexpr Group kIsSite = std::uint64_t{1} << 63;  // the bit that tells a call site from a size

bool has_sites(const RecordedRun& run) {
  return std::any_of(run.allocations.begin(), run.allocations.end(),
                     [](const Allocation& each) { return each.site != 0; });
}

/// Makes a key for each request. Requests without a call site are all alike if `nameless`, else
/// those of one size are.
std::vector<std::uint64_t> keys_of(const RecordedRun& run, bool site, bool size,
                                   bool nameless = false) {
  std::vector<std::uint64_t> keys;
  keys.reserve(run.allocations.size());
  for (const auto& each : run.allocations) {
    std::uint64_t key = site && each.site != 0 ? each.site * 0xbf58476d1ce4e5b9 : 0;
    if (size || (key == 0 && !nameless)) key ^= (each.size + 1) * 0x9e3779b97f4a7c15;
    keys.push_back(key ^ (key >> 31));
  }
  return keys;
}

Alignment by_place(std::size_t count_a, std::size_t count_b) {
  Alignment out;
  out.of_a.assign(count_a, kUnmatched);
  out.of_b.assign(count_b, kUnmatched);
  for (std::uint32_t i = 0; i < std::min(count_a, count_b); ++i) out.of_a[i] = out.of_b[i] = i;
  out.matched = std::min(count_a, count_b);
  return out;
}

/// Matches requests by site and size if nearly all agree, else by site alone, because a batch may
/// be larger.
Alignment matched(const RecordedRun& a, const RecordedRun& b, bool sites) {
  const auto shorter = std::min(a.allocations.size(), b.allocations.size());
  auto out = align(keys_of(a, sites, true), keys_of(b, sites, true));
  if (out.matched * 100 >= shorter * kPercentMatched) return out;
  if (sites) {
    // Requests of autograd's threads have no call site. If both runs have as many, only sizes
    // differ.
    const auto nameless = [](const RecordedRun& run) {
      return std::count_if(run.allocations.begin(), run.allocations.end(),
                           [](const Allocation& each) { return each.site == 0; });
    };
    const bool as_many = nameless(a) == nameless(b);
    return align(keys_of(a, true, false, as_many), keys_of(b, true, false, as_many));
  }
  // Without call sites, the place may tell which request is which.
  if (a.allocations.size() != b.allocations.size()) return out;
  std::uint64_t same = 0;
  for (std::size_t i = 0; i < shorter; ++i)
    same += a.allocations[i].size == b.allocations[i].size ? 1 : 0;
  return same * 2 >= out.matched ? by_place(shorter, shorter) : out;
}

/// A stretch of consecutive requests that one run makes and the other does not.
struct Stretch {
  std::size_t begin = 0, end = 0;  // places
  bool has(std::size_t place) const noexcept { return begin <= place && place < end; }
};

/// Finds the stretch that holds nearly all unmatched requests, if it is long.
Stretch stretch_of(const std::vector<std::uint32_t>& matches) {
  constexpr std::size_t kLeast = 64, kBetween = 2;  // matched strays in it
  Stretch best, current, whole;
  std::size_t unmatched = 0;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (matches[i] != kUnmatched) continue;
    if (++unmatched == 1) whole.begin = i;
    whole.end = i + 1;
    if (current.end == 0 || i > current.end + kBetween) current.begin = i;
    current.end = i + 1;
    if (current.end - current.begin > best.end - best.begin) best = current;
  }
  // A warm-up has some requests that the first step makes too.
  if (unmatched >= kLeast && unmatched * 4 >= (whole.end - whole.begin) * 3) return whole;
  const auto length = best.end - best.begin;
  return length >= kLeast && length * 10 >= unmatched * 9 ? best : Stretch();
}

bool live_at_peak(const RecordedRun& run, const Allocation& each) noexcept {
  return each.birth <= run.peak_event && run.peak_event < each.death;
}

std::int64_t signed_of(std::uint64_t bytes) noexcept { return static_cast<std::int64_t>(bytes); }

/// Adds up what one call site does in both runs.
struct Account {
  std::uint64_t count_a = 0, count_b = 0;  // allocations
  std::uint64_t end_a = 0, end_b = 0;      // live at the end
  std::int64_t end_bytes = 0;
  std::uint64_t larger = 0, matched_a = 0, matched_b = 0;  // pairs of two sizes, and their bytes
  std::int64_t larger_at_peak = 0;
  std::int64_t at_peak = 0;  // of all requests
  std::uint32_t since_larger = kNever, since_more = kNever, since_fewer = kNever,
                since_kept = kNever, since_longer = kNever;
  std::vector<std::uint32_t> kept;  // births
};

/// Returns how many births each step has, if all steps have the same number. Returns 0 if not, or
/// if too few steps are known.
std::uint64_t in_each_step(const RecordedRun& run, const std::vector<std::uint32_t>& births) {
  constexpr std::size_t kStepsLeast = 3;  // two steps of the same count may be chance
  if (run.step_events.size() < kStepsLeast) return 0;
  std::uint64_t each = 0;
  for (const auto& [first, last] : run.step_events) {
    const auto from = std::lower_bound(births.begin(), births.end(), first);
    const auto to = std::upper_bound(from, births.end(), last);
    const auto count = static_cast<std::uint64_t>(to - from);
    if (count == 0 || (each != 0 && count != each)) return 0;
    each = count;
  }
  return each;
}

std::uint32_t earlier(std::uint32_t a, std::uint32_t b) noexcept { return std::min(a, b); }

/// Collects the findings. Call sites whose ratio agrees to a hundredth are one finding.
class Findings {
 public:
  void add(Change change, double times, const SiteChange& site) {
    // Sizes without a call site are one finding, whatever their ratios are.
    const bool alike = change != Change::kept && change != Change::longer && site.site != 0;
    auto& finding =
        all_[{static_cast<int>(change), site.site != 0, alike ? std::lround(times * 100) : 0}];
    finding.change = change;
    finding.times = times;
    finding.bytes += site.bytes;
    finding.since = finding.sites.empty() ? site.since : earlier(finding.since, site.since);
    finding.sites.push_back(site);
  }
  void add(Finding stretch) { stretches_.push_back(std::move(stretch)); }
  std::vector<Finding> take() {
    auto out = std::move(stretches_);
    for (auto& [key, finding] : all_) {
      std::uint64_t before = 0, after = 0;
      for (const auto& site : finding.sites) {
        before += finding.change == Change::larger ? site.asked_a : site.count_a;
        after += finding.change == Change::larger ? site.asked_b : site.count_b;
      }
      if (before > 0) finding.times = static_cast<double>(after) / static_cast<double>(before);
      std::stable_sort(finding.sites.begin(), finding.sites.end(),
                       [](const SiteChange& a, const SiteChange& b) {
                         return std::abs(a.bytes) > std::abs(b.bytes);
                       });
      out.push_back(std::move(finding));
    }
    std::stable_sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) {
      if (a.bytes != b.bytes) return a.bytes > b.bytes;
      return a.since < b.since;
    });
    return out;
  }

 private:
  std::map<std::tuple<int, bool, long>, Finding> all_;
  std::vector<Finding> stretches_;
};

}  // namespace

std::string_view name(Change change) noexcept {
  switch (change) {
    case Change::kept:
      return "kept";
    case Change::larger:
      return "larger";
    case Change::more:
      return "more";
    case Change::added:
      return "added";
    case Change::longer:
      return "longer";
    case Change::inserted:
      return "inserted";
    case Change::removed:
      return "removed";
    case Change::fewer:
      break;
  }
  return "fewer";
}

RecordedRun run_of(const inspect::Recording& recording, Sites& sites) {
  using MemoryKind = trace::Lifetime::MemoryKind;
  const auto& trace = recording.trace();
  const trace::Lifetimes lifetimes(trace);
  SiteNumbers numbers(trace, sites);
  RecordedRun run;
  run.name = trace.source();
  run.events = trace.size();
  std::uint64_t live = 0, count = 0, reserved = 0;
  lifetimes.walk(
      [&](std::uint32_t event, AllocId id) {
        const auto& each = lifetimes[id];
        if (each.what == MemoryKind::backing) {
          reserved += each.size;
          run.reserved = std::max(run.reserved.value_or(0), reserved);
        } else if (each.what == MemoryKind::device) {
          live += each.size;
          ++count;
          if (each.preexisting) {
            run.before += each.size;
          } else {
            run.allocations.push_back({event, each.death, numbers.of(each.site), each.size});
          }
        }
      },
      [&](std::uint32_t, AllocId id) {
        const auto& each = lifetimes[id];
        if (each.what == MemoryKind::backing) {
          reserved -= std::min(reserved, each.size);
        } else if (each.what == MemoryKind::device) {
          live -= each.size;
          --count;
        }
      },
      [&](std::uint32_t event) {
        run.refused += trace::is_refused(trace[event]);
        if (event < trace.first_moment() || live <= run.peak_live) return;
        run.peak_live = live;
        run.peak_count = count;
        run.peak_event = event;
      });
  run.live_at_end = live;
  const auto growth = inspect::growth(lifetimes);
  if (growth.source != inspect::Growth::Source::floors) {
    run.steps = growth.iterations.size();
    for (const auto& each : growth.iterations) run.step_events.emplace_back(each.first, each.last);
  }
  return run;
}

bool Diff::is_nothing() const noexcept {
  return findings.empty() && a.before == b.before && a.peak_live == b.peak_live &&
         a.reserved == b.reserved && a.refused == b.refused;
}

namespace {

/// The work of diff(): matches the requests of the two runs, keeps an account of each call site or
/// size, and says what the accounts find.
class Comparing {
 public:
  explicit Comparing(Diff& out) : out_(out), alignment_(matched(out.a, out.b, out.by_site)) {
    out_.matched = alignment_.matched;
    const auto shorter = std::min(out_.a.allocations.size(), out_.b.allocations.size());
    if (alignment_.matched * 2 < shorter) return;  // they are other programs
    gone_ = stretch_of(alignment_.of_a);
    come_ = stretch_of(alignment_.of_b);
  }

  void run() {
    account_for_first();
    account_for_second();
    for (const auto& [key, account] : accounts_) find(key, account);
    find_stretch(Change::inserted, out_.b, come_, alignment_.of_b);
    find_stretch(Change::removed, out_.a, gone_, alignment_.of_a);
    out_.findings = findings_.take();
    compare_peaks();
  }

 private:
  Group group(const Allocation& each) const {
    return out_.by_site && each.site != 0 ? kIsSite | each.site : each.size;
  }
  void account_for_first();
  void account_for_second();
  /// Adds what the account of one call site or size says.
  void find(Group key, const Account& account);
  /// Adds a stretch of requests that only one run has.
  void find_stretch(Change change, const RecordedRun& run, const Stretch& stretch,
                    const std::vector<std::uint32_t>& matches);
  /// Compares what was live at the two peaks, the greatest change first.
  void compare_peaks();

  Diff& out_;
  Alignment alignment_;
  Stretch gone_{}, come_{};
  std::map<Group, Account> accounts_;
  Findings findings_;
};

void Comparing::account_for_first() {
  const auto& a = out_.a;
  const auto& b = out_.b;
  for (std::size_t i = 0; i < a.allocations.size(); ++i) {
    const auto& each = a.allocations[i];
    const auto other = alignment_.of_a[i];
    // A matched request of another size belongs to its group in B.
    auto& account = accounts_[other == kUnmatched || (out_.by_site && each.site != 0)
                                  ? group(each)
                                  : group(b.allocations[other])];
    if (gone_.has(i) && other == kUnmatched && each.death != kNever) continue;
    ++account.count_a;
    if (each.death == kNever) {
      ++account.end_a;
      account.end_bytes -= signed_of(each.size);
    }
    if (live_at_peak(a, each)) account.at_peak -= signed_of(each.size);
    if (other == kUnmatched) account.since_fewer = earlier(account.since_fewer, each.birth);
  }
}

void Comparing::account_for_second() {
  const auto& a = out_.a;
  const auto& b = out_.b;
  for (std::size_t i = 0; i < b.allocations.size(); ++i) {
    const auto& each = b.allocations[i];
    auto& account = accounts_[group(each)];
    const auto other = alignment_.of_b[i];
    if (come_.has(i) && other == kUnmatched && each.death != kNever) continue;
    ++account.count_b;
    const auto* before = other == kUnmatched ? nullptr : &a.allocations[other];
    if (each.death == kNever) {
      ++account.end_b;
      account.end_bytes += signed_of(each.size);
      if (before == nullptr || before->death != kNever) {
        account.since_kept = earlier(account.since_kept, each.birth);
        account.kept.push_back(each.birth);
      }
    }
    if (live_at_peak(b, each)) {
      account.at_peak += signed_of(each.size);
      if (before != nullptr && !live_at_peak(a, *before))
        account.since_longer = earlier(account.since_longer, each.birth);
    }
    if (before == nullptr) {
      account.since_more = earlier(account.since_more, each.birth);
    } else if (before->size != each.size) {
      ++account.larger;
      account.matched_a += before->size;
      account.matched_b += each.size;
      account.since_larger = earlier(account.since_larger, each.birth);
      if (live_at_peak(b, each)) account.larger_at_peak += signed_of(each.size);
      if (live_at_peak(a, *before)) account.larger_at_peak -= signed_of(before->size);
    }
  }
}

void Comparing::find(Group key, const Account& account) {
  const auto& b = out_.b;
  const auto site = (key & kIsSite) != 0 ? static_cast<std::uint32_t>(key) : 0;
  const auto times = [](std::uint64_t more, std::uint64_t less) {
    return less == 0 ? 0 : static_cast<double>(more) / static_cast<double>(less);
  };
  // If A keeps all of a site too, such as parameters, B merely has more of them.
  const bool kept = account.end_b > account.end_a && account.since_kept != kNever &&
                    (account.count_a == 0 || account.end_a < account.count_a);
  if (kept) {
    findings_.add(
        Change::kept, 1,
        {.site = site,
         .count_a = account.end_a,
         .count_b = account.end_b,
         .bytes = account.end_bytes,
         .since = account.since_kept,
         .a_step = in_each_step(b, account.kept),
         .again = account.kept.size() >= kAgainLeast &&
                  std::uint64_t{2} * (account.kept.back() - account.kept.front()) >= b.events});
  }
  if (account.larger > 0) {
    findings_.add(Change::larger, times(account.matched_b, account.matched_a),
                  {.site = site,
                   .count_a = account.larger,
                   .count_b = account.larger,
                   .asked_a = account.matched_a,
                   .asked_b = account.matched_b,
                   .bytes = account.larger_at_peak,
                   .since = account.since_larger});
  }
  const auto more = account.count_b > account.count_a;
  const auto rest = account.at_peak - account.larger_at_peak;
  const bool same_as_kept =
      kept && account.count_b - account.count_a == account.end_b - account.end_a;
  if (account.count_b != account.count_a && !same_as_kept) {
    const auto change = !more ? Change::fewer : account.count_a == 0 ? Change::added : Change::more;
    auto since = more ? account.since_more : account.since_fewer;
    if (since == kNever) since = 0;
    findings_.add(change, times(account.count_b, account.count_a),
                  {.site = site,
                   .count_a = account.count_a,
                   .count_b = account.count_b,
                   .bytes = rest,
                   .since = since});
  } else if (rest > 0 && !kept && account.since_longer != kNever) {
    findings_.add(Change::longer, 1,
                  {.site = site,
                   .count_a = account.count_a,
                   .count_b = account.count_b,
                   .bytes = rest,
                   .since = account.since_longer});
  }
}

void Comparing::find_stretch(Change change, const RecordedRun& run, const Stretch& stretch,
                             const std::vector<std::uint32_t>& matches) {
  if (stretch.end == 0) return;
  const auto& earliest = run.allocations[stretch.begin];
  const auto& latest = run.allocations[stretch.end - 1];
  const bool at_peak = earliest.birth <= run.peak_event && run.peak_event <= latest.birth;
  findings_.add({.change = change,
                 .bytes = at_peak ? signed_of(out_.b.peak_live) - signed_of(out_.a.peak_live) : 0,
                 .sites = {},
                 .since = earliest.birth,
                 .count = static_cast<std::uint64_t>(std::count(
                     matches.begin() + static_cast<std::ptrdiff_t>(stretch.begin),
                     matches.begin() + static_cast<std::ptrdiff_t>(stretch.end), kUnmatched)),
                 .until = latest.birth,
                 .at_end = stretch.end == run.allocations.size()});
}

void Comparing::compare_peaks() {
  const auto& a = out_.a;
  const auto& b = out_.b;
  std::map<Group, AtPeaks> at_peaks;
  for (const auto& each : a.allocations) {
    if (!live_at_peak(a, each)) continue;
    auto& sum = at_peaks[group(each)];
    ++sum.count_a;
    sum.bytes_a += each.size;
  }
  for (const auto& each : b.allocations) {
    if (!live_at_peak(b, each)) continue;
    auto& sum = at_peaks[group(each)];
    ++sum.count_b;
    sum.bytes_b += each.size;
  }
  for (auto& [key, sum] : at_peaks) {
    if (sum.bytes_a == sum.bytes_b) continue;
    if ((key & kIsSite) != 0) {
      sum.site = static_cast<std::uint32_t>(key);
    } else {
      sum.size = key;
    }
    const auto& account = accounts_[key];
    auto since = earlier(account.since_larger, earlier(account.since_more, account.since_kept));
    if (since == kNever) since = account.since_longer;
    if (sum.bytes_b < sum.bytes_a && since == kNever) since = account.since_fewer;
    sum.differs = since != kNever;
    sum.since = sum.differs ? since : 0;
    out_.at_peaks.push_back(sum);
  }
  const auto change = [](const AtPeaks& each) {
    return std::llabs(signed_of(each.bytes_b) - signed_of(each.bytes_a));
  };
  std::stable_sort(out_.at_peaks.begin(), out_.at_peaks.end(),
                   [&](const auto& x, const auto& y) { return change(x) > change(y); });
}

}  // namespace

Diff diff(RecordedRun first, RecordedRun second) {
  Diff out;
  out.a = std::move(first);
  out.b = std::move(second);
  out.by_site = has_sites(out.a) && has_sites(out.b);
  Comparing(out).run();
  return out;
}

std::span<const MeasureName> diff_measures() noexcept { return kMeasures; }

namespace {

/// What a condition measures of one of the two runs.
double measured(const Condition& condition, const Diff& diff, const RecordedRun& run) {
  const auto measure = condition.measure();
  const auto changes = &run == &diff.a ? 0 : diff.findings.size();
  return static_cast<double>(measure == "peak"          ? run.peak_live
                             : measure == "reserved"    ? run.reserved.value_or(run.peak_live)
                             : measure == "live_at_end" ? run.live_at_end
                             : measure == "requests"    ? run.allocations.size()
                             : measure == "refused"     ? run.refused
                                                        : changes);
}

}  // namespace

std::string passed(const Condition& condition, const Diff& diff) {
  auto words =
      text::format("--fail-if {}: passes: {} of {} is {}", condition.words(), condition.measure(),
                   diff.b.name, condition.shown(measured(condition, diff, diff.b)));
  if (condition.is_relative())
    words += text::format(", against {} of {}", condition.shown(measured(condition, diff, diff.a)),
                          diff.a.name);
  return words;
}

std::optional<std::string> failure(const Condition& condition, const Diff& diff) {
  const auto value = measured(condition, diff, diff.b);
  const auto before = measured(condition, diff, diff.a);
  const auto bound = condition.is_relative() ? condition.bound() * before : condition.bound();
  if (!condition.holds(value, value, bound)) return std::nullopt;
  auto than = condition.shown(bound);
  if (condition.is_relative()) {
    than += text::format(", {} times the {} of {}", text::fixed(condition.bound(), 3),
                         condition.shown(before), diff.a.name);
  }
  return text::format("--fail-if {}: {} of {} is {}, {} than {}", condition.words(),
                      condition.measure(), diff.b.name, condition.shown(value),
                      condition.or_equal() ? "no better"
                      : condition.above()  ? "more"
                                           : "less",
                      than);
}

}  // namespace emm::fleet
