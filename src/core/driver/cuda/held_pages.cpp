#include "driver/cuda/held_pages.hpp"

namespace emm {
namespace {

constexpr std::uint64_t kPageBytes = 2u << 20;  // bytes: an H200's pages
// Bytes: larger memory has pages of its own, as on an H200.
constexpr std::uint64_t kLargestShared = 1u << 20;

std::uint64_t pages_of(std::uint64_t size) { return (size + kPageBytes - 1) / kPageBytes; }

}  // namespace

void HeldPages::add(std::uint64_t address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (!sizes_.emplace(address, size).second) return;
  if (size > kLargestShared) {
    pages_ += pages_of(size);
  } else if (++sharers_[address / kPageBytes] == 1) {
    ++pages_;
  }
}

std::uint64_t HeldPages::remove(std::uint64_t address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(address);
  if (found == sizes_.end()) return 0;
  const auto size = found->second;
  sizes_.erase(found);
  if (size > kLargestShared) {
    pages_ -= pages_of(size);
    return size;
  }
  const auto page = sharers_.find(address / kPageBytes);
  if (--page->second != 0) return size;
  sharers_.erase(page);
  --pages_;
  return size;
}

void HeldPages::clear() noexcept {
  const std::lock_guard lock(mutex_);
  sizes_.clear();
  sharers_.clear();
  pages_ = 0;
}

std::uint64_t HeldPages::bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return pages_ * kPageBytes;
}

}  // namespace emm
