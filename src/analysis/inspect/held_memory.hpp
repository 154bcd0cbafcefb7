#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace emm::inspect {

/// Allocations with the same key.
template <class Key>
struct Group {
  Key key{};
  std::uint64_t count = 0, bytes = 0;
  bool operator==(const Group&) const = default;
};
/// Groups, the most bytes first; then by count and key.
using BySize = std::vector<Group<std::uint64_t>>;
using BySite = std::vector<Group<SiteId>>;

/// Allocations of device memory, as requested.
struct HeldMemory {
  std::uint64_t count = 0, bytes = 0;
  BySize by_size;
  BySite by_site;
};

template <class Key>
std::vector<Group<Key>> ranked(const std::unordered_map<Key, Group<Key>>& groups) {
  std::vector<Group<Key>> out;
  out.reserve(groups.size());
  for (const auto& [key, group] : groups) out.push_back(group);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    if (a.bytes != b.bytes) return a.bytes > b.bytes;
    return a.count != b.count ? a.count > b.count : a.key < b.key;
  });
  return out;
}

/// Adds up allocations.
class HeldMemorySum {
 public:
  void add(std::uint64_t size, SiteId site) {
    ++holding_.count;
    holding_.bytes += size;
    add_to(by_size_[size], size, size);
    add_to(by_site_[site], site, size);
  }
  HeldMemory sum() {
    holding_.by_size = ranked(by_size_);
    holding_.by_site = ranked(by_site_);
    return std::move(holding_);
  }

 private:
  template <class Key>
  static void add_to(Group<Key>& group, Key key, std::uint64_t size) {
    group.key = key;
    ++group.count;
    group.bytes += size;
  }
  HeldMemory holding_;
  std::unordered_map<std::uint64_t, Group<std::uint64_t>> by_size_;
  std::unordered_map<SiteId, Group<SiteId>> by_site_;
};

}  // namespace emm::inspect
