#include "fleet/ranks.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

namespace emm::fleet {
namespace {

constexpr std::size_t kWindow = 256;  // requests by which a neighbour may come earlier or later
constexpr std::size_t kEnd = 8;       // the same at the end of the shorter recording

std::uint64_t median(std::vector<std::uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::uint64_t hash_of(const Request& request, bool with_site) noexcept {
  auto hash = request.size * 0x9e3779b97f4a7c15;
  if (with_site) hash ^= (request.site + 1) * 0xbf58476d1ce4e5b9;
  return hash ^ (hash >> 29);
}

bool has_sites(const Rank& rank) {
  std::size_t with = 0;
  for (const auto& request : rank.requests) with += request.site != 0;
  return 2 * with > rank.requests.size();
}

/// Requests of two ranks side by side: what one has asked for and the other not yet.
class SideBySide {
 public:
  SideBySide(const Rank& a, const Rank& b, bool with_site)
      : sides_{&a, &b}, with_site_(with_site) {}

  std::optional<std::pair<std::optional<std::size_t>, std::optional<std::size_t>>> parting() {
    const auto common = std::min(sides_[0]->requests.size(), sides_[1]->requests.size());
    for (std::size_t i = 0; i < common; ++i) {
      for (const int side : {0, 1}) take(side, i);
      for (const int side : {0, 1}) {
        drop_matched(side);
        if (!waiting_[side].empty() && i - waiting_[side].front() >= kWindow) return found();
      }
    }
    // The longer one may ask later for what the shorter one asked for last.
    const int longer = sides_[0]->requests.size() > common ? 0 : 1;
    const auto& rest = sides_[longer]->requests;
    for (auto i = common; i < std::min(rest.size(), common + kWindow); ++i) take(longer, i);
    for (const int side : {0, 1}) drop_matched(side);
    if (!waiting_[1 - longer].empty()) return found();
    if (waiting_[longer].empty()) return std::nullopt;
    // What the shorter one would have asked for next parts them as little as that it ends.
    if (waiting_[longer].front() + kEnd < common) return found();
    return std::nullopt;
  }

 private:
  void take(int side, std::size_t place) {
    const auto hash = hash_of(sides_[side]->requests[place], with_site_);
    auto& balance = balance_[hash];
    const int sign = side == 0 ? 1 : -1;
    if (balance * sign >= 0) waiting_[side].push_back(place);
    balance += sign;
    if (balance == 0) balance_.erase(hash);
  }
  /// The oldest of a side that the other has asked for since.
  void drop_matched(int side) {
    auto& waiting = waiting_[side];
    while (!waiting.empty()) {
      const auto found =
          balance_.find(hash_of(sides_[side]->requests[waiting.front()], with_site_));
      const auto sign = side == 0 ? 1 : -1;
      if (found != balance_.end() && found->second * sign > 0) return;
      waiting.pop_front();
    }
  }
  std::pair<std::optional<std::size_t>, std::optional<std::size_t>> found() const {
    std::optional<std::size_t> a, b;
    if (!waiting_[0].empty()) a = waiting_[0].front();
    if (!waiting_[1].empty()) b = waiting_[1].front();
    return {a, b};
  }

  const Rank* sides_[2];
  bool with_site_;
  std::unordered_map<std::uint64_t, int> balance_;
  std::deque<std::size_t> waiting_[2];
};

std::optional<Parting> parting_of(const std::vector<Rank>& ranks, std::size_t rank,
                                  std::size_t other, bool with_site) {
  const auto& a = ranks[rank].requests;
  const auto& b = ranks[other].requests;
  const auto found = SideBySide(ranks[rank], ranks[other], with_site).parting();
  if (!found) return std::nullopt;
  Parting parting{.rank = rank, .other = other, .here = {}, .there = {}};
  const auto first = std::min(found->first.value_or(a.size()), found->second.value_or(b.size()));
  parting.alike = first;
  // One that makes no request of its own there is shown by what it asks for in that place.
  const auto here = found->first.value_or(first), there = found->second.value_or(first);
  if (here < a.size()) parting.here = a[here];
  if (there < b.size()) parting.there = b[there];
  return parting;
}

bool same_to_the_end(const Rank& a, const Rank& b) {
  return a.requests.size() == b.requests.size() &&
         std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(),
                    [](const Request& one, const Request& other) {
                      return one.size == other.size && one.site == other.site;
                    });
}

/// The excess of a rank over the median of others, of what a function makes of its keys.
template <class K, class Of>
std::vector<Excess> excess(const Rank& rank, const std::vector<const Rank*>& others, const Of& of) {
  std::map<K, Held> own;
  std::map<K, std::vector<Held>> theirs;
  for (const auto& [key, held] : rank.at_peak) {
    auto& sum = own[of(key)];
    sum.count += held.count;
    sum.bytes += held.bytes;
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    for (const auto& [key, held] : others[i]->at_peak) {
      if (own.find(of(key)) == own.end()) continue;
      auto& all = theirs[of(key)];
      all.resize(others.size());
      all[i].count += held.count;
      all[i].bytes += held.bytes;
    }
  }
  std::vector<Excess> out;
  for (const auto& [key, held] : own) {
    std::vector<std::uint64_t> counts(others.size()), bytes(others.size());
    if (const auto found = theirs.find(key); found != theirs.end()) {
      for (std::size_t i = 0; i < others.size(); ++i) {
        counts[i] = found->second[i].count;
        bytes[i] = found->second[i].bytes;
      }
    }
    Excess each{.count = held.count,
                .bytes = held.bytes,
                .others_count = median(counts),
                .others_bytes = median(bytes)};
    if constexpr (std::is_same_v<K, Key>) {
      each.site = key.first;
      each.size = key.second;
    } else {
      each.site = key;
    }
    if (each.bytes > each.others_bytes) out.push_back(each);
  }
  std::stable_sort(out.begin(), out.end(), [](const Excess& a, const Excess& b) {
    return a.more() != b.more() ? a.more() > b.more() : a.bytes > b.bytes;
  });
  return out;
}

bool nearly(std::uint64_t a, std::uint64_t b) noexcept {
  return (a > b ? a - b : b - a) * 10 <= std::max(a, b);
}

std::optional<Larger> larger_of(const Rank& rank, const std::vector<const Rank*>& others) {
  // Which ranks ask for a size at all: one is named, or several.
  constexpr auto kSeveral = ~std::size_t{0};
  std::map<std::uint64_t, std::size_t> asked_by;
  const auto note = [&](const Rank& of, std::size_t which) {
    for (const auto& request : of.requests) {
      const auto [found, added] = asked_by.try_emplace(request.size, which);
      if (!added && found->second != which) found->second = kSeveral;
    }
  };
  for (std::size_t i = 0; i < others.size(); ++i) note(*others[i], i);
  note(rank, others.size());
  const auto own_of = [&](const Rank& of, std::size_t which) {
    Held own;
    for (const auto& [key, held] : of.at_peak) {
      const auto found = asked_by.find(key.second);
      if (found == asked_by.end() || found->second != which) continue;
      own.count += held.count;
      own.bytes += held.bytes;
    }
    return own;
  };
  std::vector<std::uint64_t> counts, bytes;
  for (std::size_t i = 0; i < others.size(); ++i) {
    counts.push_back(others[i]->peak_count);
    bytes.push_back(own_of(*others[i], i).bytes);
  }
  const auto own = own_of(rank, others.size());
  const Larger larger{.allocations = rank.peak_count,
                      .others_allocations = median(std::move(counts)),
                      .own_sizes = own.count,
                      .bytes = own.bytes,
                      .others_bytes = median(std::move(bytes))};
  if (!nearly(larger.allocations, larger.others_allocations) || larger.bytes <= larger.others_bytes)
    return std::nullopt;
  return larger;
}

}  // namespace

std::string_view name(Reason reason) noexcept {
  switch (reason) {
    case Reason::live:
      return "live";
    case Reason::idle:
      return "idle";
    case Reason::outside:
      return "outside";
    case Reason::nothing:
      break;
  }
  return "nothing";
}

bool Comparison::is_whole() const noexcept {
  return missing.empty() && std::all_of(ranks.begin(), ranks.end(),
                                        [](const Rank& rank) { return rank.fault.empty(); });
}

Comparison compare(std::string name, std::vector<Rank> ranks, std::vector<std::uint64_t> missing) {
  Comparison out;
  out.name = std::move(name);
  out.missing = std::move(missing);
  out.ranks = std::move(ranks);
  out.partings.resize(out.ranks.size());
  std::vector<std::size_t> read;
  for (std::size_t i = 0; i < out.ranks.size(); ++i) {
    if (out.ranks[i].read) read.push_back(i);
  }
  if (read.empty()) return out;
  const auto all = [&](auto has) {
    return std::all_of(read.begin(), read.end(), [&](std::size_t i) { return has(out.ranks[i]); });
  };
  // What only some of them tell would make these look worse.
  const bool outside = all([](const Rank& rank) { return rank.outside.has_value(); });
  const bool reserved = all([](const Rank& rank) { return rank.reserved.has_value(); });
  out.by_room = all([](const Rank& rank) { return rank.limit.has_value(); });
  const auto used = [&](const Rank& rank) {
    auto bytes = reserved ? rank.held() : rank.peak_live;
    if (rank.refusal) bytes = std::max(bytes, rank.refusal->live + rank.refusal->size);
    return bytes + (outside ? *rank.outside : 0);
  };
  auto order = read;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto& one = out.ranks[a];
    const auto& other = out.ranks[b];
    if ((one.refused != 0) != (other.refused != 0)) return one.refused != 0;
    if (!out.by_room) return used(one) > used(other);
    const auto left = [&](const Rank& rank) {
      return static_cast<std::int64_t>(*rank.limit) - static_cast<std::int64_t>(used(rank));
    };
    return left(one) < left(other);
  });
  const auto tightest = order.front();
  out.tightest = tightest;
  const auto& rank = out.ranks[tightest];
  std::uint64_t sum = 0;
  for (const auto i : read) sum += used(out.ranks[i]) / read.size();
  out.even = sum;
  if (order.size() < 2) return out;
  out.next = order[1];
  std::vector<const Rank*> others;
  for (const auto i : read) {
    if (i != tightest) others.push_back(&out.ranks[i]);
  }
  const auto median_of = [&](auto of) {
    std::vector<std::uint64_t> values;
    for (const auto* other : others) values.push_back(of(*other));
    return median(std::move(values));
  };
  out.median_used = median_of(used);
  const auto consider = [&](Reason reason, auto of) {
    const auto own = of(rank), theirs = median_of(of);
    if (own <= theirs || own - theirs <= out.reason_bytes) return;
    out.reason = reason;
    out.reason_bytes = own - theirs;
  };
  consider(Reason::live, [](const Rank& each) {
    return each.refusal ? std::max(each.peak_live, each.refusal->live + each.refusal->size)
                        : each.peak_live;
  });
  if (reserved)
    consider(Reason::idle,
             [](const Rank& each) { return each.held() - std::min(each.held(), each.peak_live); });
  if (outside) consider(Reason::outside, [](const Rank& each) { return *each.outside; });
  // A hundredth more is no reason.
  if (out.reason_bytes * 100 <= used(rank)) out.reason = Reason::nothing;

  out.sites = excess<std::uint32_t>(rank, others, [](const Key& key) { return key.first; });
  out.keys = excess<Key>(rank, others, [](const Key& key) { return key; });
  out.larger = larger_of(rank, others);

  const bool own_sites = has_sites(rank);
  for (const auto i : read) {
    if (i == tightest) continue;
    const bool with_site = own_sites == has_sites(out.ranks[i]);
    out.partings[i] = parting_of(out.ranks, tightest, i, with_site);
    const auto& found = out.partings[i];
    if (!found) continue;
    if (!out.parting || found->alike > out.parting->alike) out.parting = found;
  }
  std::vector<bool> grouped(out.ranks.size());
  for (const auto i : read) {
    if (grouped[i]) continue;
    std::vector<std::size_t> group{i};
    for (const auto k : read) {
      if (k <= i || grouped[k] || !same_to_the_end(out.ranks[i], out.ranks[k])) continue;
      group.push_back(k);
      grouped[k] = true;
    }
    if (group.size() > 1) out.alike.push_back(std::move(group));
  }
  return out;
}

}  // namespace emm::fleet
