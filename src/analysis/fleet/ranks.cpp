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

/// Walks the requests of two ranks side by side, and tracks those that one has made and the other
/// has not made yet.
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
    // The longer rank may make later what the shorter one requested last.
    const int longer = sides_[0]->requests.size() > common ? 0 : 1;
    const auto& rest = sides_[longer]->requests;
    for (auto i = common; i < std::min(rest.size(), common + kWindow); ++i) take(longer, i);
    for (const int side : {0, 1}) drop_matched(side);
    if (!waiting_[1 - longer].empty()) return found();
    if (waiting_[longer].empty()) return std::nullopt;
    // The end of the shorter recording is no parting, nor are requests that it would have made
    // next.
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
  /// Drops the oldest requests of a side that the other side has made since.
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
  // A rank without a request of its own near that place is shown by its request there.
  const auto place = [&](const std::optional<std::size_t>& own) {
    return own && *own - first <= kEnd ? *own : first;
  };
  const auto here = place(found->first), there = place(found->second);
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

/// Returns by how much a rank exceeds the median of others. `of` maps a key to its group.
template <class K, class Of>
std::vector<Excess> excess(const Rank& rank, const std::vector<const Rank*>& others, const Of& of,
                           std::map<Key, SiteTotal> Rank::*figures = &Rank::at_peak) {
  std::map<K, SiteTotal> own;
  std::map<K, std::vector<SiteTotal>> theirs;
  for (const auto& [key, held] : rank.*figures) {
    auto& sum = own[of(key)];
    sum.count += held.count;
    sum.bytes += held.bytes;
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    for (const auto& [key, held] : others[i]->*figures) {
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
  // Each size maps to the one rank that requests it, or to kSeveral.
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
    SiteTotal own;
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

/// Compares the same parts of recordings that are about as long.
std::optional<Spike> spike_of(const Rank& rank, const std::vector<const Rank*>& others) {
  constexpr auto kParts = Rank::kParts;
  constexpr std::size_t kSpikeMost = kParts / 4;  // more is a level, not a spike
  if (rank.requests.size() < kParts) return std::nullopt;
  std::array<std::uint64_t, kParts> more{}, theirs_at{};
  for (std::size_t part = 0; part < kParts; ++part) {
    std::vector<std::uint64_t> theirs;
    for (const auto* other : others) {
      if (nearly(other->requests.size(), rank.requests.size()))
        theirs.push_back(other->course[part]);
    }
    if (2 * theirs.size() < others.size()) return std::nullopt;
    theirs_at[part] = median(std::move(theirs));
    more[part] = rank.course[part] - std::min(rank.course[part], theirs_at[part]);
  }
  const auto most = *std::max_element(more.begin(), more.end());
  const auto is_more = [&](std::size_t part) { return 2 * more[part] > most; };
  // Each step of a training has a peak. To have more at most of them is no spike.
  const auto highest = *std::max_element(theirs_at.begin(), theirs_at.end());
  std::size_t peaks = 0, more_at_peaks = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    if (!nearly(theirs_at[part], highest)) continue;
    ++peaks;
    more_at_peaks += is_more(part) ? 1 : 0;
  }
  Spike spike;
  bool at_peak = false;
  for (std::size_t part = 0; part < kParts; ++part) {
    if (!is_more(part)) {
      spike.elsewhere = std::max(spike.elsewhere, rank.course[part]);
      continue;
    }
    const auto end =
        part + 1 < kParts ? rank.begins[part + 1] - 1 : static_cast<std::uint32_t>(rank.events - 1);
    at_peak = at_peak || (rank.begins[part] <= rank.peak_event && rank.peak_event <= end);
    if (part > 0 && is_more(part - 1)) {
      spike.events.back().second = end;
    } else {
      spike.events.emplace_back(rank.begins[part], end);
    }
    ++spike.parts;
  }
  if (most == 0 || !at_peak || spike.parts > kSpikeMost || 2 * more_at_peaks > peaks)
    return std::nullopt;
  return spike;
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
  return missing.empty() && missing_places.empty() &&
         std::all_of(ranks.begin(), ranks.end(),
                     [](const Rank& rank) { return rank.fault.empty(); });
}

namespace {

/// Says which figures of a rank are compared. Figures that only some ranks have would make these
/// ranks look worse, so each figure counts only where all ranks that were read have it.
class Yardstick {
 public:
  Yardstick(const std::vector<Rank>& ranks, const std::vector<std::size_t>& read) {
    const auto all = [&](auto has) {
      return std::all_of(read.begin(), read.end(), [&](std::size_t i) { return has(ranks[i]); });
    };
    outside_ = all([](const Rank& rank) { return rank.outside.has_value(); });
    reserved_ = all([](const Rank& rank) { return rank.reserved.has_value(); });
    limited_ = all([](const Rank& rank) { return rank.limit.has_value(); });
  }

  bool has_outside() const noexcept { return outside_; }
  bool has_reserved() const noexcept { return reserved_; }
  bool has_limits() const noexcept { return limited_; }

  /// Bytes of the device that are in use at the rank's peak, or that a refused request would have
  /// needed.
  std::uint64_t used(const Rank& rank) const {
    auto bytes = reserved_ ? rank.held() : rank.peak_live;
    if (rank.refusal) bytes = std::max(bytes, rank.refusal->live + rank.refusal->size);
    return bytes + (outside_ ? *rank.outside : 0);
  }
  /// Bytes that are left. Without limits below 0: then it only orders the ranks.
  std::int64_t room(const Rank& rank) const {
    const auto limit = limited_ ? static_cast<std::int64_t>(*rank.limit) : 0;
    return limit - static_cast<std::int64_t>(used(rank));
  }

 private:
  bool outside_ = false, reserved_ = false, limited_ = false;
};

/// The ranks that were read, the tightest first: those that were refused a request, then those with
/// less room, then those with more live.
std::vector<std::size_t> tightest_first(const std::vector<Rank>& ranks,
                                        const std::vector<std::size_t>& read, const Yardstick& of) {
  auto order = read;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto& one = ranks[a];
    const auto& other = ranks[b];
    if ((one.refused != 0) != (other.refused != 0)) return one.refused != 0;
    if (of.room(one) != of.room(other)) return of.room(one) < of.room(other);
    return one.peak_live > other.peak_live;
  });
  return order;
}

/// The ranks behind the first of `order` that are as tight as it, by number. A rank that was
/// refused a request has none: what it would have taken is not known.
std::vector<std::size_t> as_tight_as_first(const std::vector<Rank>& ranks,
                                           const std::vector<std::size_t>& order,
                                           const Yardstick& of) {
  const auto& rank = ranks[order.front()];
  std::vector<std::size_t> found;
  for (std::size_t i = 1; i < order.size() && rank.refused == 0; ++i) {
    const auto& each = ranks[order[i]];
    if (of.room(each) != of.room(rank) || each.peak_live != rank.peak_live) break;
    found.push_back(order[i]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The mean of what is used, without a sum that may overflow.
std::uint64_t even_use(const std::vector<Rank>& ranks, const std::vector<std::size_t>& read,
                       const Yardstick& of) {
  std::uint64_t even = 0, rest = 0;
  for (const auto i : read) {
    even += of.used(ranks[i]) / read.size();
    rest += of.used(ranks[i]) % read.size();
  }
  return even + rest / read.size();
}

/// Finds why the rank holds more than the median of the others, and the second reason.
void find_reasons(Comparison& out, const Rank& rank, const std::vector<const Rank*>& others,
                  const Yardstick& of) {
  const auto median_of = [&](auto figure) {
    std::vector<std::uint64_t> values;
    for (const auto* other : others) values.push_back(figure(*other));
    return median(std::move(values));
  };
  out.median_used = median_of([&](const Rank& each) { return of.used(each); });
  const auto consider = [&](Reason reason, auto figure) {
    const auto own = figure(rank), theirs = median_of(figure);
    if (own <= theirs || own - theirs <= out.also_bytes) return;
    out.also = reason;
    out.also_bytes = own - theirs;
    if (out.also_bytes <= out.reason_bytes) return;
    std::swap(out.also, out.reason);
    std::swap(out.also_bytes, out.reason_bytes);
  };
  consider(Reason::live, [](const Rank& each) {
    return each.refusal ? std::max(each.peak_live, each.refusal->live + each.refusal->size)
                        : each.peak_live;
  });
  if (of.has_reserved())
    consider(Reason::idle,
             [](const Rank& each) { return each.held() - std::min(each.held(), each.peak_live); });
  if (of.has_outside()) consider(Reason::outside, [](const Rank& each) { return *each.outside; });
  // A hundredth more is no reason, and less than a quarter of the first is no second one.
  constexpr std::uint64_t kHundredth = 100, kQuarter = 4;
  if (out.reason_bytes * kHundredth <= of.used(rank)) out.reason = Reason::nothing;
  if (out.also_bytes * kHundredth <= of.used(rank) || out.also_bytes * kQuarter < out.reason_bytes)
    out.also = Reason::nothing;
  if (out.reason == Reason::live || out.also == Reason::live) out.spike = spike_of(rank, others);
}

/// Finds where the others part from the tightest rank. With call sites if both ranks have them or
/// both have none.
void find_partings(Comparison& out, const std::vector<std::size_t>& read, std::size_t tightest) {
  const bool own_sites = has_sites(out.ranks[tightest]);
  for (const auto i : read) {
    if (i == tightest) continue;
    const bool with_site = own_sites == has_sites(out.ranks[i]);
    out.partings[i] = parting_of(out.ranks, tightest, i, with_site);
    const auto& found = out.partings[i];
    if (!found) continue;
    if (!out.parting || found->alike > out.parting->alike) out.parting = found;
  }
}

/// Groups the ranks that make the same requests.
std::vector<std::vector<std::size_t>> groups_of_same(const std::vector<Rank>& ranks,
                                                     const std::vector<std::size_t>& read) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> grouped(ranks.size());
  for (const auto i : read) {
    if (grouped[i]) continue;
    std::vector<std::size_t> group{i};
    for (const auto k : read) {
      if (k <= i || grouped[k] || !same_to_the_end(ranks[i], ranks[k])) continue;
      group.push_back(k);
      grouped[k] = true;
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

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
  const Yardstick of(out.ranks, read);
  out.by_room = of.has_limits();
  const auto order = tightest_first(out.ranks, read, of);
  const auto tightest = order.front();
  out.tightest = tightest;
  out.as_tight = as_tight_as_first(out.ranks, order, of);
  out.even = even_use(out.ranks, read, of);
  if (order.size() < 2) return out;

  const bool all_as_tight = out.as_tight.size() + 1 == order.size();
  out.next = order[all_as_tight ? 1 : out.as_tight.size() + 1];
  std::vector<const Rank*> others;
  for (const auto i : read) {
    const bool as_tight = std::binary_search(out.as_tight.begin(), out.as_tight.end(), i);
    if (i != tightest && (all_as_tight || !as_tight)) others.push_back(&out.ranks[i]);
  }
  const auto& rank = out.ranks[tightest];
  find_reasons(out, rank, others, of);
  out.sites = excess<std::uint32_t>(rank, others, [](const Key& key) { return key.first; });
  out.keys = excess<Key>(rank, others, [](const Key& key) { return key; });
  out.grown = excess<Key>(
      rank, others, [](const Key& key) { return key; }, &Rank::grown);
  out.larger = larger_of(rank, others);
  find_partings(out, read, tightest);
  out.alike = groups_of_same(out.ranks, read);
  return out;
}

}  // namespace emm::fleet
