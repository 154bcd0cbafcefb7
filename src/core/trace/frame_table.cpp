#include "trace/frame_table.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace emm::trace {
namespace {

/// Hashes eight bytes at a time, as a trace of PyTorch's may look up a hundred million frames.
std::size_t hash_of(std::string_view text) noexcept {
  // 2^64 over the golden ratio: Fibonacci hashing.
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = text.size() * kOdd;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  };
  std::uint64_t word = 0;
  for (; text.size() >= sizeof word; text.remove_prefix(sizeof word)) {
    std::memcpy(&word, text.data(), sizeof word);
    mix(word);
  }
  word = 0;
  std::memcpy(&word, text.data(), text.size());
  mix(word);
  return static_cast<std::size_t>(hash);
}

// The length of a text that has its true length in the next 32 bits.
constexpr std::uint16_t kLong = 0xffff;

}  // namespace

void FrameTable::add(Stack& stack, std::string_view frame) {
  if (stack.count == 0) stack.begin = numbers_.size();
  EMM_ASSERT(stack.begin + stack.count == numbers_.size());
  numbers_.push(number(frame));
  ++stack.count;
}

std::uint32_t FrameTable::number(std::string_view frame) {
  if (used_ * 2 >= slots_.size()) {
    if (slots_.size() == kSlotsMax) return keep(frame);
    grow();
  }
  for (auto at = hash_of(frame);; ++at) {
    auto& slot = slots_[at & (slots_.size() - 1)];
    if (slot == 0) {
      ++used_;
      const auto kept = keep(frame);
      slot = kept + 1;
      return kept;
    }
    if (text(slot - 1) == frame) return slot - 1;
  }
}

std::uint32_t FrameTable::keep(std::string_view frame) {
  // A length takes two bytes. If these are all ones, four more bytes hold it.
  const auto length = static_cast<std::uint32_t>(frame.size());
  const auto is_short = length < kLong;
  const auto needed = (frame.size() + (is_short ? 2 : 6) + kUnit - 1) / kUnit * kUnit;
  if (used_bytes_ + needed > kTextBlock) {
    const auto bytes = std::max(needed, kTextBlock);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    block_bytes_ += bytes;
    used_bytes_ = 0;
  }
  auto* place = blocks_.back().get() + used_bytes_;
  const auto number = ((blocks_.size() - 1) << kBlockShift) + used_bytes_ / kUnit;
  EMM_ASSERT(number >> 32 == 0);  // at most 16 GiB of different frames
  const auto shown = is_short ? static_cast<std::uint16_t>(length) : kLong;
  std::memcpy(place, &shown, sizeof shown);
  place += sizeof shown;
  if (!is_short) {
    std::memcpy(place, &length, sizeof length);
    place += sizeof length;
  }
  std::memcpy(place, frame.data(), frame.size());
  used_bytes_ += needed;
  texts_.push(static_cast<std::uint32_t>(number));
  return static_cast<std::uint32_t>(texts_.size() - 1);
}

std::string_view FrameTable::text(std::uint32_t number) const noexcept {
  const auto unit = texts_[number];
  constexpr std::uint32_t kInBlock = (std::uint32_t{1} << kBlockShift) - 1;
  const auto* place = blocks_[unit >> kBlockShift].get() + std::size_t{unit & kInBlock} * kUnit;
  std::uint16_t shown = 0;
  std::memcpy(&shown, place, sizeof shown);
  place += sizeof shown;
  std::uint32_t length = shown;
  if (shown == kLong) {
    std::memcpy(&length, place, sizeof length);
    place += sizeof length;
  }
  return {place, length};
}

void FrameTable::grow() {
  slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), 0);
  for (std::uint32_t number = 0; number < texts_.size(); ++number) {
    auto at = hash_of(text(number));
    while (slots_[at & (slots_.size() - 1)] != 0) ++at;
    slots_[at & (slots_.size() - 1)] = number + 1;
  }
}

std::vector<std::string> FrameTable::frames(const Stack& stack) const {
  std::vector<std::string> frames;
  for (std::uint32_t at = 0; at < stack.count; ++at) frames.emplace_back(frame(stack, at));
  return frames;
}

void FrameTable::freeze() { slots_ = {}; }

std::uint64_t FrameTable::memory_bytes() const noexcept {
  return numbers_.bytes() + texts_.bytes() + block_bytes_ +
         blocks_.capacity() * sizeof(blocks_[0]) + slots_.capacity() * sizeof(slots_[0]);
}

}  // namespace emm::trace
