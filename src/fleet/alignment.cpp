#include "fleet/alignment.hpp"

#include <algorithm>
#include <unordered_map>

namespace emm::fleet {
namespace {

constexpr std::size_t kRun = 4;          // keys that must agree before both go on
constexpr std::size_t kReach = 1 << 16;  // keys that may be left out at once
constexpr std::size_t kNearby = 256;     // places by which threads change the order

std::uint64_t run_at(std::span<const std::uint64_t> keys, std::size_t at) noexcept {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < kRun; ++i)
    hash = (hash ^ keys[at + i]) * 0x9e3779b97f4a7c15 + (hash >> 31);
  return hash;
}

/// Where each run of keys begins, in order.
class Runs {
 public:
  explicit Runs(std::span<const std::uint64_t> keys) {
    for (std::size_t at = 0; at + kRun <= keys.size(); ++at)
      places_[run_at(keys, at)].push_back(static_cast<std::uint32_t>(at));
  }
  /// The first place of that run from `from` on, or kUnmatched.
  std::uint32_t first(std::uint64_t run, std::size_t from) const {
    const auto found = places_.find(run);
    if (found == places_.end()) return kUnmatched;
    const auto place = std::lower_bound(found->second.begin(), found->second.end(), from);
    return place == found->second.end() ? kUnmatched : *place;
  }

 private:
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> places_;
};

/// Left-over keys of both sides that are alike and stand nearby.
void match_nearby(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b,
                  Alignment& out) {
  // Places are compared by how many were matched before them.
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

}  // namespace

Alignment align(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  Alignment out;
  out.of_a.assign(a.size(), kUnmatched);
  out.of_b.assign(b.size(), kUnmatched);
  const Runs runs(a);
  std::size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (a[i] == b[k]) {
      out.of_a[i] = static_cast<std::uint32_t>(k);
      out.of_b[k] = static_cast<std::uint32_t>(i);
      ++out.matched;
      ++i;
      ++k;
      continue;
    }
    std::size_t best = kReach, best_i = 0, best_k = 0;
    for (std::size_t skipped = 0; skipped < best && k + skipped + kRun <= b.size(); ++skipped) {
      const auto place = runs.first(run_at(b, k + skipped), i);
      if (place == kUnmatched) continue;
      const auto cost = skipped + (place - i);
      if (cost >= best) continue;
      best = cost;
      best_i = place;
      best_k = k + skipped;
    }
    if (best == kReach) {
      // Nothing that follows agrees for long: this place differs.
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
