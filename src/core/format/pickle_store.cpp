#include "format/pickle_store.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace emm::format {

PickleStore::PickleStore() {
  values_.claim(1);  // no run begins at place 0, which means "no next run"
  wides_.claim(1);
}

PickleValue PickleStore::unsigned_integer(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return integer(static_cast<std::int64_t>(value));
  }
  unsigned_.push(value);
  return other(Other::unsigned_integer, static_cast<std::uint32_t>(unsigned_.size() - 1));
}

PickleValue PickleStore::real(double value) {
  reals_.push(value);
  return other(Other::real, static_cast<std::uint32_t>(reals_.size() - 1));
}

std::pair<PickleValue, char*> PickleStore::string(std::size_t size) {
  // Before the characters; small pickles need no whole block.
  constexpr std::size_t kLength = sizeof(std::uint32_t), kFirstBlock = std::size_t{64} << 10;
  const auto needed = (size + kLength + kTextUnit - 1) / kTextUnit * kTextUnit;
  const auto add_block = [&](std::size_t bytes) {
    text_.emplace_back(bytes);
    text_bytes_ += bytes;
    return text_.size() - 1;
  };
  std::size_t block = text_open_, at = text_used_;
  if (needed > kTextBlock / 4) {
    block = add_block(needed);
    at = 0;
  } else {
    if (at + needed > text_room_) {
      text_room_ = text_.empty() && needed <= kFirstBlock ? kFirstBlock : kTextBlock;
      block = text_open_ = add_block(text_room_);
      at = 0;
    }
    text_used_ = at + needed;
  }
  auto* const place = static_cast<char*>(text_[block].get()) + at;
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(place, &length, kLength);
  const auto unit = static_cast<std::uint32_t>((block << kTextShift) + at / kTextUnit);
  return {PickleValue((unit << kStringShift) | kString), place + kLength};
}

bool PickleStore::fits(std::size_t values) const noexcept {
  // What is made between two questions stays far below it.
  constexpr std::size_t kMargin = std::size_t{1} << 25;
  const auto room = [&](std::size_t used, unsigned bits, std::size_t more) {
    return used + more + kMargin < (std::size_t{1} << bits);
  };
  return room(values_.size(), 32, 2 * values) &&
         room(containers_.size(), 32 - kContainerShift, 0) &&
         room(wides_.size(), 32 - kWideShift, 0) && room(reals_.size(), 32 - kOtherShift, 0) &&
         room(unsigned_.size(), 32 - kOtherShift, 0) &&
         text_.size() + kMargin / kTextBlock < (std::size_t{1} << (32 - kStringShift - kTextShift));
}

std::uint32_t PickleStore::open_run(Container& container) {
  const auto head = container.first == 0 ? kFirstHead : kHead;
  values_.want(head + 1);  // room for the head and at least one value
  const auto place = static_cast<std::uint32_t>(values_.claim(head));
  for (std::uint32_t i = 0; i < head; ++i) put_number(place + i, 0);
  if (container.first == 0) {
    container.first = place;
  } else {
    put_number(number(container.first + kLast) + kNext, place);
  }
  put_number(container.first + kLast, place);
  return place;
}

void PickleStore::append(PickleValue list, std::span<const PickleValue> values) {
  add(containers_[identity(list)], values);
}

void PickleStore::add(Container& container, std::span<const PickleValue> values) {
  if (values.empty()) return;
  auto place = container.first == 0 ? open_run(container) : number(container.first + kLast);
  put_number(container.first + kSize,
             number(container.first + kSize) + static_cast<std::uint32_t>(values.size()));
  for (;;) {
    const auto run = run_at(place, place == container.first);
    if (values_.room() == 0 || std::size_t{run.begin} + run.count != values_.size()) {
      place = open_run(container);
      continue;
    }
    const auto count = std::min(values.size(), values_.room());
    const auto to = values_.claim(count);
    std::copy_n(values.begin(), count, &values_[to]);
    put_number(place, run.count + static_cast<std::uint32_t>(count));
    values = values.subspan(count);
    if (values.empty()) return;
  }
}

void PickleStore::set_items(PickleValue dict, std::span<const PickleValue> pairs) {
  auto& container = containers_[identity(dict)];
  if (pairs.empty()) return;
  if (container.first == 0) {
    if (const auto shape = shape_for(pairs)) {
      const auto count = pairs.size() / 2;
      const auto place = values_.claim(count);
      auto* const values = &values_[place];
      for (std::size_t i = 0; i < count; ++i) values[i] = pairs[2 * i + 1];
      container = {.first = static_cast<std::uint32_t>(place),
                   .form = container.form | ((*shape + 1) << kTypeBits)};
      return;
    }
  } else if (container.form >> kTypeBits != 0) {
    drop_shape(container);
  }
  add(container, pairs);
}

/// Turns a dict with a shape into one without: its keys and values become runs.
void PickleStore::drop_shape(Container& dict) {
  std::vector<PickleValue> pairs;
  for (std::uint32_t slot = 0; slot < size_of(dict); ++slot) {
    pairs.push_back(key_at(shape_of(dict), slot));
    pairs.push_back(value_at(dict.first + slot));
  }
  dict = {.form = dict.form & kTypeMask};
  add(dict, pairs);
}

std::optional<std::uint32_t> PickleStore::shape_for(std::span<const PickleValue> pairs) {
  const auto count = pairs.size() / 2;
  if (count == 0 || count > kShapeKeysMax) return std::nullopt;
  auto& last = last_shape_[count];
  if (last != 0) {
    const auto& keys = shapes_[last - 1].keys;
    std::size_t same = 0;
    while (same < count && keys[same] == pairs[2 * same]) ++same;
    if (same == count) return last - 1;
  }
  const auto shape = shape_by_text(pairs);
  if (shape) last = *shape + 1;
  return shape;
}

std::optional<std::uint32_t> PickleStore::shape_by_text(std::span<const PickleValue> pairs) {
  std::vector<std::uint32_t> numbers;
  std::vector<PickleValue> keys;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!is_string(pairs[i])) return std::nullopt;
    const auto text = string(pairs[i]);
    auto known = key_numbers_.find(text);
    if (known == key_numbers_.end()) {
      if (key_numbers_.size() >= kShapesMax) return std::nullopt;
      known = key_numbers_.emplace(text, static_cast<std::uint32_t>(key_numbers_.size())).first;
    }
    numbers.push_back(known->second);
    keys.push_back(pairs[i]);
  }
  const auto known = shapes_by_keys_.find(numbers);
  if (known != shapes_by_keys_.end()) return known->second;
  auto sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
  if (shapes_.size() >= kShapesMax) return std::nullopt;
  const auto shape = shape_count();
  shapes_by_keys_.emplace(std::move(numbers), shape);
  shapes_.push_back({.keys = std::move(keys)});
  return shape;
}

std::optional<std::uint32_t> PickleStore::slot(std::uint32_t shape,
                                               std::string_view key) const noexcept {
  const auto& keys = shapes_[shape].keys;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (string(keys[i]) == key) return i;
  }
  return std::nullopt;
}

std::uint64_t PickleStore::bytes() const noexcept {
  return values_.bytes() + containers_.bytes() + wides_.bytes() + reals_.bytes() +
         unsigned_.bytes() + text_bytes_ + text_.capacity() * sizeof(text_[0]);
}

}  // namespace emm::format
