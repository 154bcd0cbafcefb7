#include "driver/sim/content.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace emm::sim {
namespace {

constexpr std::size_t kSmall = 4096;      // adjacent writes up to this size extend one run
constexpr std::size_t kBounce = 262'144;  // bytes at a time when content must be written out

/// Writes the pattern with its phase at `offset`.
void put(std::span<std::byte> bytes, std::uint64_t offset, Pattern pattern) noexcept {
  repeat(bytes, std::rotr(pattern.value, static_cast<int>(offset % 4 * 8)));
}

/// Answers whether the bytes repeat a pattern, since a run of a pattern costs nothing. Short runs
/// are not worth the test.
bool repeats(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= 64 && std::memcmp(bytes.data(), bytes.data() + 4, bytes.size() - 4) == 0;
}

/// Writes `from` XOR the pattern. Converts to the form in shared memory, and back.
void mask(std::span<std::byte> to, std::span<const std::byte> from, std::uint64_t offset,
          Pattern pattern) noexcept {
  std::byte pad[4];
  put(pad, offset, pattern);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] ^ pad[i % 4];
}

}  // namespace

namespace {
std::atomic<std::int64_t> kept{0};
}

std::uint64_t kept_bytes() noexcept {
  return static_cast<std::uint64_t>(kept.load(std::memory_order_relaxed));
}
void add_kept_bytes(std::int64_t bytes) noexcept {
  kept.fetch_add(bytes, std::memory_order_relaxed);
}

Pattern pattern_at(std::uint64_t offset, std::uint32_t value) noexcept {
  return {std::rotl(value, static_cast<int>(offset % 4 * 8))};
}

void repeat(std::span<std::byte> bytes, std::uint32_t value) noexcept {
  if (bytes.empty()) return;
  const auto first = std::min(sizeof value, bytes.size());
  std::memcpy(bytes.data(), &value, first);
  // The copied part doubles until it reaches the size of a cache, and is then copied repeatedly.
  for (auto done = first; done < bytes.size();) {
    const auto more = std::min({done, bytes.size() - done, kBounce});
    std::memcpy(bytes.data() + done, bytes.data(), more);
    done += more;
  }
}

void Content::fill(std::uint64_t offset, std::uint64_t size, Pattern pattern) {
  if (size == 0) return;
  if (shared_) {
    std::vector<std::byte> bytes(std::min<std::uint64_t>(size, kBounce));
    put(bytes, offset, pattern);  // kBounce is a multiple of four: every piece has the same phase
    for (std::uint64_t done = 0; done < size; done += bytes.size()) {
      bytes.resize(std::min<std::uint64_t>(size - done, bytes.size()));
      write(offset + done, bytes);
    }
    return;
  }
  if (auto around = bytes_around(offset, size);
      around != runs_.end() && size < around->second.size) {
    put(std::span<std::byte>(around->second.bytes).subspan(offset - around->first, size), offset,
        pattern);
    return;
  }
  clear(offset, size);
  auto next = runs_.lower_bound(offset);
  if (next != runs_.end() && next->first == offset + size && next->second.bytes.empty() &&
      next->second.pattern == pattern) {
    size += next->second.size;
    next = runs_.erase(next);
  }
  if (next != runs_.begin()) {
    auto& [begin, previous] = *std::prev(next);
    if (begin + previous.size == offset && previous.bytes.empty() && previous.pattern == pattern) {
      previous.size += size;
      return;
    }
  }
  runs_.emplace_hint(next, offset, Run{.size = size, .pattern = pattern, .bytes = {}});
}

void Content::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (shared_) {
    mask(shared_->bytes().subspan(offset, bytes.size()), bytes, offset, fresh_);
    return;
  }
  if (auto around = bytes_around(offset, bytes.size()); around != runs_.end()) {
    std::memcpy(around->second.bytes.data() + (offset - around->first), bytes.data(), bytes.size());
    return;
  }
  if (repeats(bytes)) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    fill(offset, bytes.size(), pattern_at(offset, value));
    return;
  }
  clear(offset, bytes.size());
  auto next = runs_.lower_bound(offset);
  if (next != runs_.begin() && bytes.size() <= kSmall) {
    auto& [begin, previous] = *std::prev(next);
    if (begin + previous.size == offset && !previous.bytes.empty()) {
      previous.bytes.append(bytes);
      previous.size += bytes.size();
      return;
    }
  }
  runs_.emplace_hint(next, offset,
                     Run{.size = bytes.size(), .pattern = {}, .bytes = RunBytes(bytes)});
}

void Content::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (shared_) {
    mask(bytes, shared_->bytes().subspan(offset, bytes.size()), offset, fresh_);
    return;
  }
  const auto end = offset + bytes.size();
  auto run = runs_.upper_bound(offset);
  if (run != runs_.begin() && std::prev(run)->first + std::prev(run)->second.size > offset) --run;
  while (offset < end) {
    const auto gap_end = run == runs_.end() ? end : std::min(end, std::max(run->first, offset));
    put(bytes.first(gap_end - offset), offset, fresh_);
    bytes = bytes.subspan(gap_end - offset);
    offset = gap_end;
    if (offset == end) return;
    const auto& [begin, data] = *run;
    const auto part = std::min(end, begin + data.size) - offset;
    if (data.bytes.empty()) {
      put(bytes.first(part), offset, data.pattern);
    } else {
      std::memcpy(bytes.data(), data.bytes.data() + (offset - begin), part);
    }
    bytes = bytes.subspan(part);
    offset += part;
    ++run;
  }
}

const SharedMemory* Content::share(std::uint64_t size) {
  if (shared_) return &*shared_;
  auto memory = SharedMemory::create(size);
  if (!memory) return nullptr;
  const auto runs = std::exchange(runs_, {});
  shared_.emplace(std::move(*memory));
  for (const auto& [offset, run] : runs) {
    if (!run.bytes.empty()) {
      write(offset, run.bytes);
    } else if (run.pattern != fresh_) {
      fill(offset, run.size, run.pattern);
    }
  }
  return &*shared_;
}

void Content::copy(Position to, Position from, std::uint64_t size) {
  if (to.content.shared_ || from.content.shared_) {
    // A copy to higher addresses starts at the end, so that it reads an overlap before it writes
    // it.
    const bool backwards = &to.content == &from.content && to.offset > from.offset;
    std::vector<std::byte> bounce(std::min<std::uint64_t>(size, kBounce));
    for (std::uint64_t done = 0; done < size;) {
      const auto part = std::min<std::uint64_t>(bounce.size(), size - done);
      const auto at = backwards ? size - done - part : done;
      from.content.read(from.offset + at, std::span(bounce).first(part));
      to.content.write(to.offset + at, std::span(bounce).first(part));
      done += part;
    }
    return;
  }
  // Runs are copied whole, so the source is cut at both ends first. They are taken by value,
  // because the fill below changes the runs if target and source are the same content.
  from.content.cut(from.offset);
  from.content.cut(from.offset + size);
  const auto& source = from.content.runs_;
  const std::vector<Runs::value_type> runs(source.lower_bound(from.offset),
                                           source.lower_bound(from.offset + size));
  const auto turn = [&](Pattern pattern) {
    return pattern_at(to.offset - from.offset, pattern.value);
  };
  to.content.fill(to.offset, size, turn(from.content.fresh_));
  for (const auto& [begin, run] : runs) {
    const auto target = to.offset + (begin - from.offset);
    if (run.bytes.empty()) {
      to.content.fill(target, run.size, turn(run.pattern));
    } else {
      to.content.write(target, run.bytes);
    }
  }
}

Content::Runs::iterator Content::bytes_around(std::uint64_t offset, std::uint64_t size) {
  auto run = runs_.upper_bound(offset);
  if (run == runs_.begin()) return runs_.end();
  --run;
  const bool inside = !run->second.bytes.empty() && offset + size <= run->first + run->second.size;
  return inside ? run : runs_.end();
}

void Content::cut(std::uint64_t at) {
  auto run = runs_.lower_bound(at);
  if (run == runs_.begin()) return;
  --run;
  auto& [begin, whole] = *run;
  if (begin + whole.size <= at) return;
  Run tail{.size = begin + whole.size - at, .pattern = whole.pattern, .bytes = {}};
  whole.size = at - begin;
  if (!whole.bytes.empty()) {
    tail.bytes = whole.bytes.cut(whole.size);
  }
  runs_.emplace_hint(std::next(run), at, std::move(tail));
}

void Content::clear(std::uint64_t offset, std::uint64_t size) {
  cut(offset);
  cut(offset + size);
  runs_.erase(runs_.lower_bound(offset), runs_.lower_bound(offset + size));
}

}  // namespace emm::sim
