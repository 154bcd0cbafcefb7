#include "bounds/instance.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/assert.hpp"

namespace emm::bounds {
namespace {

auto key(const Item& item) { return std::tie(item.first, item.last, item.size, item.alignment); }

// Sorts items by key, and equal items by position.
void sort_items(Instance& instance) {
  std::vector<std::size_t> order(instance.items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    return std::tuple_cat(key(instance.items[a]), std::tie(instance.positions[a])) <
           std::tuple_cat(key(instance.items[b]), std::tie(instance.positions[b]));
  });
  Instance sorted{.items = {}, .positions = {}, .sections = instance.sections};
  for (const auto i : order) {
    sorted.items.push_back(instance.items[i]);
    sorted.positions.push_back(instance.positions[i]);
  }
  instance = std::move(sorted);
}

// Keeps the instance or reverses its time, whichever compares less.
void make_canonical(Instance& instance) {
  auto reversed = instance;
  for (auto& item : reversed.items) {
    const auto first = instance.sections - item.last;
    item.last = instance.sections - item.first;
    item.first = first;
  }
  sort_items(instance);
  sort_items(reversed);
  const auto less = [](const Item& a, const Item& b) { return key(a) < key(b); };
  if (std::lexicographical_compare(reversed.items.begin(), reversed.items.end(),
                                   instance.items.begin(), instance.items.end(), less)) {
    instance = std::move(reversed);
  }
}

}  // namespace

std::vector<std::uint64_t> Instance::section_totals() const {
  std::vector<std::uint64_t> begins(sections, 0);
  __extension__ using Wide = unsigned __int128;
  std::vector<Wide> change(sections + 1, 0);  // modulo 2^128, so a decrease can be added
  for (const auto& item : items) {
    change[item.first] += item.size;
    change[item.last] -= item.size;
  }
  Wide live = 0;
  for (std::uint32_t s = 0; s < sections; ++s) {
    live += change[s];
    begins[s] = live > kTooMany ? kTooMany : static_cast<std::uint64_t>(live);
  }
  return begins;
}

Instance make_instance(std::span<const Buffer> buffers) {
  EMM_ASSERT(buffers.size() < (std::size_t{1} << 31));
  Instance instance;
  std::vector<std::tuple<std::uint64_t, bool, std::size_t>> edges;  // time, begins, item
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto& buffer = buffers[i];
    if (buffer.size == 0 || buffer.upper <= buffer.lower) continue;
    edges.emplace_back(buffer.lower, true, instance.items.size());
    edges.emplace_back(buffer.upper, false, instance.items.size());
    instance.items.push_back({.size = buffer.size,
                              .alignment = std::max<std::uint64_t>(buffer.alignment, 1),
                              .first = 0,
                              .last = 0});
    instance.positions.push_back(i);
  }
  std::sort(edges.begin(), edges.end());
  bool open = false;  // has an item begun since the last section closed?
  for (const auto& [time, begins, item] : edges) {
    if (begins) {
      instance.items[item].first = instance.sections;
      open = true;
    } else {
      if (open) ++instance.sections;
      open = false;
      instance.items[item].last = instance.sections;
    }
  }
  make_canonical(instance);
  return instance;
}

std::vector<Instance> split(const Instance& instance) {
  std::vector<Instance> parts;
  std::uint32_t end = 0;
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < instance.items.size(); ++i) {
    auto item = instance.items[i];
    if (parts.empty() || item.first >= end) {
      parts.emplace_back();
      begin = item.first;
    }
    end = std::max(end, item.last);
    item.first -= begin;
    item.last -= begin;
    parts.back().items.push_back(item);
    parts.back().positions.push_back(instance.positions[i]);
    parts.back().sections = end - begin;
  }
  for (auto& part : parts) make_canonical(part);
  return parts;
}

}  // namespace emm::bounds
