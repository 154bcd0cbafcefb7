#include "driver/sim/device_memory.hpp"

#include <algorithm>
#include <bit>

namespace emm::sim {
namespace {

// What a context, and then the kernels of libraries, take of the addresses, besides memory that is
// counted elsewhere. Read off the addresses of 20 PyTorch programs on an H200 (driver 580, CUDA
// 13.0), each of which has a region of 32 MiB with 8 taken, and one of 416 with 2 left, of which
// the first product of matrices leaves a hole behind 128 MiB.
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kOfContext[] = {8 * kMiB, 64 * kMiB, 414 * kMiB};
constexpr std::uint64_t kOfKernels[] = {64 * kMiB, 64 * kMiB};

// A device has eight times as many addresses as memory, so that the lowest fit runs out of memory
// before addresses, except in contrived cases.
std::uint32_t address_pages(std::uint32_t pages) {
  constexpr std::uint32_t kMost = DeviceMemory::kAddresses / kPageBytes;
  return std::min(std::bit_ceil(pages) * 8, kMost);
}

std::uint32_t units_of(std::uint64_t size) {
  return static_cast<std::uint32_t>((size + Chunk::kUnitBytes - 1) / Chunk::kUnitBytes);
}

std::uint64_t pages_of(std::uint64_t size) {
  return size / kPageBytes + (size % kPageBytes != 0 ? 1 : 0);
}

}  // namespace

DeviceMemory::DeviceMemory(std::uint64_t base, std::uint32_t pages, Addresses addresses)
    : base_(base),
      pages_(pages),
      addresses_(addresses),
      tree_(addresses == Addresses::first_fit ? address_pages(pages) : 1),
      longest_free_(pages) {
  if (addresses == Addresses::first_fit) return;
  for (const auto size : kOfContext) for_kernels_ = layout_.take(size);
}

std::uint64_t DeviceMemory::allocate(std::uint64_t size) {
  std::uint64_t address = 0;
  if (size > kLargestShared) {
    if (size > free_bytes()) return 0;
    address = take_pages(static_cast<std::uint32_t>(pages_of(size)));
  } else {
    const auto units = units_of(size);
    auto number = longest_free_.find(static_cast<std::uint16_t>(units));
    if (!number) number = share_page();
    if (!number) return 0;
    auto& shared = shared_[*number];
    address = shared.address + shared.chunk->take(units) * Chunk::kUnitBytes;
    longest_free_.set(*number, shared.chunk->longest());
  }
  if (address != 0) blocks_.try_emplace(address, DeviceBlock{.size = size, .content = nullptr});
  return address;
}

std::uint64_t DeviceMemory::free(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return 0;
  const auto size = found->second.size;
  blocks_.erase(found);
  if (size > kLargestShared) {
    release_pages(address, static_cast<std::uint32_t>(pages_of(size)));
    return size;
  }
  const auto entry = number_of_.find(page_of(address));
  const auto number = entry->second;
  auto& shared = shared_[number];
  shared.chunk->release(static_cast<std::uint32_t>((address - shared.address) / Chunk::kUnitBytes),
                        units_of(size));
  const bool is_empty = shared.chunk->empty();
  longest_free_.set(number, is_empty ? std::uint16_t{0} : shared.chunk->longest());
  if (is_empty) {
    release_pages(shared.address, 1);
    shared = {};
    number_of_.erase(entry);
    unused_.push(number);
  }
  return size;
}

std::optional<std::uint32_t> DeviceMemory::share_page() {
  const auto address = take_pages(1);
  if (address == 0) return std::nullopt;
  auto number = static_cast<std::uint32_t>(shared_.size());
  if (unused_.empty()) {
    shared_.emplace_back();
  } else {
    number = unused_.top();
    unused_.pop();
  }
  shared_[number] = {.address = address, .chunk = std::make_unique<Chunk>()};
  number_of_[page_of(address)] = number;
  return number;
}

void DeviceMemory::load_kernels() {
  if (for_kernels_ == kAddresses) return;
  layout_.release(for_kernels_, std::end(kOfContext)[-1]);
  for_kernels_ = kAddresses;
  for (const auto size : kOfKernels) layout_.take(size);
}

bool DeviceMemory::take_unplaced(std::uint64_t pages) noexcept {
  if (pages > pages_ - taken_) return false;
  taken_ += static_cast<std::uint32_t>(pages);
  return true;
}

DeviceMemory::Found DeviceMemory::find(std::uint64_t address) noexcept {
  if (address < base_) return {};
  const auto page = (address - base_) / kPageBytes;
  auto word = std::min<std::uint64_t>(page / 64, begins_.size());
  auto bits = word == begins_.size() ? 0 : begins_[word] & (~std::uint64_t{0} >> (63 - page % 64));
  while (bits == 0) {
    if (word == 0) return {};
    bits = begins_[--word];
  }
  const auto first = static_cast<std::uint32_t>(
      word * 64 + static_cast<std::uint64_t>(63 - std::countl_zero(bits)));
  auto base = address_of(first);
  if (const auto number = number_of_.find(first); number != number_of_.end()) {
    if (first != page) return {};
    const auto unit = static_cast<std::uint32_t>((address - base) / Chunk::kUnitBytes);
    const auto begin = shared_[number->second].chunk->begin_at_or_below(unit);
    if (begin == Chunk::kUnits) return {};
    base += begin * Chunk::kUnitBytes;
  }
  auto& block = blocks_.find(base)->second;
  if (address - base >= block.size) return {};
  return {.base = base, .block = &block};
}

void DeviceMemory::clear() { *this = DeviceMemory(base_, pages_, addresses_); }

std::uint64_t DeviceMemory::largest_free_bytes() const noexcept {
  const auto run = addresses_ == Addresses::first_fit ? tree_.longest() : pages_;
  if (const auto most = std::min(pages_ - taken_, run); most != 0) return most * kPageBytes;
  return std::min(longest_free_.max() * Chunk::kUnitBytes, kLargestShared);
}

std::uint64_t DeviceMemory::take_pages(std::uint32_t count) {
  if (count > pages_ - taken_) return 0;
  const auto size = count * kPageBytes;
  auto offset = kAddresses;
  if (addresses_ == Addresses::driver) {
    offset = layout_.take(size);
    if (offset >= kAddresses) layout_.release(offset, size);  // memory lies in very many pieces
  } else if (const auto first = tree_.find(count)) {
    tree_.take(*first, count);
    offset = *first * kPageBytes;
  }
  if (offset >= kAddresses) return 0;
  taken_ += count;
  const auto address = base_ + offset;
  mark(page_of(address), true);
  return address;
}

void DeviceMemory::release_pages(std::uint64_t address, std::uint32_t count) {
  if (addresses_ == Addresses::driver)
    layout_.release(address - base_, count * kPageBytes);
  else
    tree_.release(page_of(address), count);
  taken_ -= count;
  mark(page_of(address), false);
}

void DeviceMemory::mark(std::uint32_t page, bool begins) {
  if (begins_.size() <= page / 64)
    begins_.resize(std::max<std::size_t>(page / 64 + 1, begins_.size() * 2));
  const auto bit = std::uint64_t{1} << (page % 64);
  begins_[page / 64] = begins ? begins_[page / 64] | bit : begins_[page / 64] & ~bit;
}

}  // namespace emm::sim
