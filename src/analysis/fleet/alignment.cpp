#include "fleet/alignment.hpp"

#include <algorithm>
#include <unordered_map>

namespace emm::fleet {
namespace {

constexpr std::size_t kRun = 4;          // keys that must agree before both go on
constexpr std::size_t kReach = 1 << 16;  // keys that may be left out at once
constexpr std::size_t kLooksMost = 1 << 24, kShortReach = 64;  // after many looks, a shorter reach
constexpr std::int64_t kEditsMost = 4000;                      // needs 32 MiB for a moment
constexpr std::size_t kNearby = 256;  // places by which threads change the order

std::uint64_t run_at(std::span<const std::uint64_t> keys, std::size_t at) noexcept {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < kRun; ++i)
    hash = (hash ^ keys[at + i]) * 0x9e3779b97f4a7c15 + (hash >> 31);
  return hash;
}

/// Holds the places at which each run of kRun keys begins, in ascending order.
class Runs {
 public:
  explicit Runs(std::span<const std::uint64_t> keys) {
    for (std::size_t at = 0; at + kRun <= keys.size(); ++at)
      places_[run_at(keys, at)].push_back(static_cast<std::uint32_t>(at));
  }
  /// Returns the first place of that run from `from` on, or kUnmatched.
  std::uint32_t first(std::uint64_t run, std::size_t from) const {
    const auto found = places_.find(run);
    if (found == places_.end()) return kUnmatched;
    const auto place = std::lower_bound(found->second.begin(), found->second.end(), from);
    return place == found->second.end() ? kUnmatched : *place;
  }

 private:
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> places_;
};

/// Matches equal keys that are left over on both sides and stand nearby.
void match_nearby(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b,
                  Alignment& out) {
  // Places are compared by the number of matches before them.
  struct Left {
    std::uint32_t place, before;
  };
  std::unordered_map<std::uint64_t, std::vector<Left>> left;
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < a.size(); ++i) {
    if (out.of_a[i] != kUnmatched) {
      ++before;
    } else {
      left[a[i]].push_back({i, before});
    }
  }
  std::unordered_map<std::uint64_t, std::size_t> next;
  before = 0;
  for (std::uint32_t i = 0; i < b.size(); ++i) {
    if (out.of_b[i] != kUnmatched) {
      ++before;
      continue;
    }
    const auto found = left.find(b[i]);
    if (found == left.end()) continue;
    auto& at = next[b[i]];
    auto& all = found->second;
    while (at < all.size() && all[at].before + kNearby < before) ++at;
    if (at == all.size() || all[at].before > before + kNearby) continue;
    out.of_b[i] = all[at].place;
    out.of_a[all[at].place] = i;
    ++out.matched;
    ++at;
  }
}

/// Finds the alignment that leaves out the fewest keys (Myers, "An O(ND) Difference Algorithm").
/// Returns false if more than kEditsMost are left out. Among several it matches early keys, so that
/// what a longer run has besides is at its end.
bool match_most(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b,
                Alignment& out) {
  const auto n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  const auto most = std::min<std::int64_t>(kEditsMost, n + m);
  // Row d says how far into `a` d edits reach on each diagonal k = x - y, for k = -d, -d+2, ...
  std::vector<std::vector<std::int32_t>> far;
  std::vector<std::int32_t> now(static_cast<std::size_t>(2 * most + 3), 0);
  const auto at = [&](std::int64_t k) -> std::int32_t& {
    return now[static_cast<std::size_t>(k + most + 1)];
  };
  std::int64_t edits = -1;
  for (std::int64_t d = 0; d <= most && edits < 0; ++d) {
    auto& kept = far.emplace_back();
    kept.reserve(static_cast<std::size_t>(d) + 1);
    for (std::int64_t k = -d; k <= d; k += 2) {
      const bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
      std::int64_t x = d == 0 ? 0 : down ? at(k + 1) : at(k - 1) + 1;
      std::int64_t y = x - k;
      while (x < n && y >= 0 && y < m &&
             a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]) {
        ++x;
        ++y;
      }
      at(k) = static_cast<std::int32_t>(x);
      kept.push_back(at(k));
      if (x >= n && y >= m) {
        edits = d;
        break;
      }
    }
  }
  if (edits < 0) return false;
  std::int64_t x = n, y = m;
  for (auto d = edits;; --d) {
    const auto k = x - y;
    std::int64_t from_x = 0, from_y = 0;
    if (d > 0) {
      const auto before = [&](std::int64_t of) {
        return far[static_cast<std::size_t>(d - 1)][static_cast<std::size_t>((of + d - 1) / 2)];
      };
      const bool down = k == -d || (k != d && before(k - 1) < before(k + 1));
      from_x = down ? before(k + 1) : before(k - 1);
      from_y = from_x - (down ? k + 1 : k - 1);
    }
    while (x > from_x && y > from_y && (d == 0 || x - from_x + y - from_y > 1)) {
      --x;
      --y;
      out.of_a[static_cast<std::size_t>(x)] = static_cast<std::uint32_t>(y);
      out.of_b[static_cast<std::size_t>(y)] = static_cast<std::uint32_t>(x);
      ++out.matched;
    }
    if (d == 0) break;
    x = from_x;
    y = from_y;
  }
  return true;
}

}  // namespace

Alignment align(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  Alignment out;
  out.of_a.assign(a.size(), kUnmatched);
  out.of_b.assign(b.size(), kUnmatched);
  if (match_most(a, b, out)) {
    match_nearby(a, b, out);
    return out;
  }
  const Runs runs(a);
  std::size_t i = 0, k = 0, looked = 0;
  while (i < a.size() && k < b.size()) {
    if (a[i] == b[k]) {
      out.of_a[i] = static_cast<std::uint32_t>(k);
      out.of_b[k] = static_cast<std::uint32_t>(i);
      ++out.matched;
      ++i;
      ++k;
      continue;
    }
    const auto reach = looked < kLooksMost ? kReach : kShortReach;
    std::size_t best = reach, best_i = 0, best_k = 0;
    for (std::size_t skipped = 0; skipped < best && k + skipped + kRun <= b.size(); ++skipped) {
      ++looked;
      const auto place = runs.first(run_at(b, k + skipped), i);
      if (place == kUnmatched) continue;
      const auto cost = skipped + (place - i);
      if (cost >= best) continue;
      best = cost;
      best_i = place;
      best_k = k + skipped;
    }
    if (best == reach) {
      // No run of keys agrees within reach: this place differs.
      ++i;
      ++k;
    } else {
      i = best_i;
      k = best_k;
    }
  }
  match_nearby(a, b, out);
  return out;
}

}  // namespace emm::fleet
