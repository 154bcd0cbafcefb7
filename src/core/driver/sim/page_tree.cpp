#include "driver/sim/page_tree.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/assert.hpp"
#include "base/host_memory.hpp"

namespace emm::sim {
namespace {

// Pages of the system cost nothing until they are written to. Those of calloc() cost what a device
// of that size would, where glibc's heap checks write them all.
template <class T>
std::unique_ptr<T[], Unmapped> zeroed(std::size_t count) {
  const auto bytes = count * sizeof(T);
  auto* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) out_of_host_memory();
  return {static_cast<T*>(memory), Unmapped{.bytes = bytes}};
}

/// The index of a node's lower half. The upper half follows it.
constexpr std::size_t children_of(std::uint32_t node) { return std::size_t{2} * node; }

}  // namespace

void Unmapped::operator()(void* table) const noexcept { munmap(table, bytes); }

PageTree::PageTree(std::uint32_t pages)
    : pages_(std::bit_ceil(pages)), nodes_(zeroed<Node>(std::size_t{pages_} * 2)) {}

std::optional<std::uint32_t> PageTree::find(std::uint32_t count) const noexcept {
  if (longest() < count) return std::nullopt;
  std::uint32_t node = 1, begin = 0, length = pages_;
  while (nodes_[node].longest != 0) {
    const auto half = length / 2;
    const auto& left = nodes_[children_of(node)];
    const auto& right = nodes_[children_of(node) + 1];
    if (half - left.longest >= count) {
      node = node * 2;
    } else if ((half - left.suffix) + (half - right.prefix) >= count) {
      return begin + left.suffix;
    } else {
      node = node * 2 + 1;
      begin += half;
    }
    length = half;
  }
  return begin;
}

void PageTree::assign(std::uint32_t node, std::uint32_t begin, std::uint32_t length,
                      const Change& change) noexcept {
  const auto end = begin + length;
  if (change.first >= end || change.first + change.count <= begin) return;
  if (change.first <= begin && end <= change.first + change.count) {
    const auto lacks = change.free ? 0 : length;
    nodes_[node] = {lacks, lacks, lacks};
    return;
  }
  const auto half = length / 2;
  if (nodes_[node].longest == 0) {
    nodes_[children_of(node)] = nodes_[children_of(node) + 1] = {0, 0, 0};
  } else if (nodes_[node].longest == length) {
    nodes_[children_of(node)] = nodes_[children_of(node) + 1] = {half, half, half};
  }
  assign(node * 2, begin, half, change);
  assign(node * 2 + 1, begin + half, half, change);
  merge(node, length);
}

void PageTree::merge(std::uint32_t node, std::uint32_t length) noexcept {
  const auto half = length / 2;
  const auto& left = nodes_[children_of(node)];
  const auto& right = nodes_[children_of(node) + 1];
  const auto across = (half - left.suffix) + (half - right.prefix);
  nodes_[node] = {
      .prefix = left.prefix == 0 ? right.prefix : half + left.prefix,
      .suffix = right.suffix == 0 ? left.suffix : half + right.suffix,
      .longest = length - std::max({half - left.longest, half - right.longest, across}),
  };
}

MaxTree::MaxTree(std::uint32_t pages)
    : pages_(std::bit_ceil(pages)), values_(zeroed<std::uint16_t>(std::size_t{pages_} * 2)) {}

std::optional<std::uint32_t> MaxTree::find(std::uint16_t at_least) const noexcept {
  if (values_[1] < at_least) return std::nullopt;
  std::uint32_t node = 1;
  while (node < pages_) {
    node *= 2;
    if (values_[node] < at_least) ++node;
  }
  return node - pages_;
}

void MaxTree::set(std::uint32_t page, std::uint16_t value) noexcept {
  auto node = pages_ + page;
  values_[node] = value;
  while (node > 1) {
    node /= 2;
    const auto larger = std::max(values_[children_of(node)], values_[children_of(node) + 1]);
    if (values_[node] == larger) return;
    values_[node] = larger;
  }
}

}  // namespace emm::sim
