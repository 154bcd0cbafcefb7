#include "format/pickle_store.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace emm::format {

PickleStore::PickleStore() {
  values_.claim(1);  // no run begins at place 0, which is "none follows"
}

PickleValue PickleStore::wide(std::uint64_t bits, bool negative) {
  wides_.push({.bits = bits, .negative = negative});
  return word(Tag::wide, wides_.size() - 1);
}

PickleValue PickleStore::unsigned_integer(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return wide(value, false);
  return integer(static_cast<std::int64_t>(value));
}

PickleValue PickleStore::real(double value) {
  reals_.push(value);
  return word(Tag::real, reals_.size() - 1);
}

std::pair<PickleValue, char*> PickleStore::string(std::size_t size) {
  constexpr std::size_t kLength = sizeof(std::uint32_t);
  const auto needed = size + kLength;
  std::size_t block = text_open_, at = text_used_;
  if (needed > kTextBlock / 4) {
    block = text_.size();
    at = 0;
    text_.push_back(std::make_unique_for_overwrite<char[]>(needed));
    text_bytes_ += needed;
  } else {
    if (at + needed > kTextBlock) {
      block = text_open_ = text_.size();
      at = 0;
      text_.push_back(std::make_unique_for_overwrite<char[]>(kTextBlock));
      text_bytes_ += kTextBlock;
    }
    text_used_ = at + needed;
  }
  auto* const place = text_[block].get() + at;
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(place, &length, kLength);
  return {word(Tag::string, (std::uint64_t{block} << kTextShift) | at), place + kLength};
}

std::string_view PickleStore::string(PickleValue value) const noexcept {
  const auto at = payload(value);
  const auto* const place = text_[at >> kTextShift].get() + (at & (kTextBlock - 1));
  std::uint32_t length = 0;
  std::memcpy(&length, place, sizeof length);
  return {place + sizeof length, length};
}

bool PickleStore::fits(std::size_t values) const noexcept {
  constexpr std::size_t kPlaces = std::numeric_limits<std::uint32_t>::max() / 2;
  return values_.size() + 2 * values < 2 * kPlaces - values_.kBlock && containers_.size() < kPlaces;
}

PickleStore::Type PickleStore::type(PickleValue value) const noexcept {
  switch (tag(value)) {
    case Tag::constant: {
      if (value == PickleValue()) return Type::absent;
      return value == none() ? Type::none : Type::boolean;
    }
    case Tag::integer:
    case Tag::wide: return Type::integer;
    case Tag::real: return Type::real;
    case Tag::string: return Type::string;
    case Tag::container: return type_of(containers_[identity(value)]);
  }
  return Type::absent;
}

std::optional<std::uint64_t> PickleStore::u64(PickleValue value) const noexcept {
  if (tag(value) == Tag::integer && value.small() >= 0) return static_cast<std::uint64_t>(value.small());
  if (tag(value) != Tag::wide || wides_[payload(value)].negative) return std::nullopt;
  return wides_[payload(value)].bits;
}

std::optional<std::int64_t> PickleStore::i64(PickleValue value) const noexcept {
  if (tag(value) == Tag::integer) return value.small();
  if (tag(value) != Tag::wide) return std::nullopt;
  const auto& wide = wides_[payload(value)];
  const auto negative = static_cast<std::int64_t>(wide.bits) < 0;
  if (negative != wide.negative) return std::nullopt;
  return static_cast<std::int64_t>(wide.bits);
}

PickleStore::Run PickleStore::run_at(std::uint32_t place) const noexcept {
  return std::bit_cast<Run>(values_[place]);
}

void PickleStore::put_run(std::uint32_t place, Run run) noexcept { values_[place] = std::bit_cast<PickleValue>(run); }

void PickleStore::open_run(Container& container) {
  values_.want(2);  // one for the run, and one at least for its values
  const auto place = static_cast<std::uint32_t>(values_.claim(1));
  put_run(place, {});
  if (container.last != 0) {
    auto before = run_at(container.last);
    before.next = place;
    put_run(container.last, before);
  } else {
    container.first = place;
  }
  container.last = place;
}

void PickleStore::append(PickleValue list, std::span<const PickleValue> values) {
  auto& container = containers_[identity(list)];
  container.size += static_cast<std::uint32_t>(values.size());
  add(container, values);
}

void PickleStore::add(Container& container, std::span<const PickleValue> values) {
  while (!values.empty()) {
    const auto grows = container.last != 0 && values_.room() != 0 &&
                       std::size_t{container.last} + 1 + run_at(container.last).count == values_.size();
    if (!grows) open_run(container);
    auto run = run_at(container.last);
    const auto count = std::min(values.size(), values_.room());
    const auto place = values_.claim(count);
    for (std::size_t i = 0; i < count; ++i) values_[place + i] = values[i];
    run.count += static_cast<std::uint32_t>(count);
    put_run(container.last, run);
    values = values.subspan(count);
  }
}

void PickleStore::set_items(PickleValue dict, std::span<const PickleValue> pairs) {
  auto& container = containers_[identity(dict)];
  const auto count = static_cast<std::uint32_t>(pairs.size() / 2);
  if (container.size == 0) {
    if (const auto shape = shape_for(pairs)) {
      const auto place = values_.claim(count);
      for (std::size_t i = 0; i < count; ++i) values_[place + i] = pairs[2 * i + 1];
      container = {.first = static_cast<std::uint32_t>(place), .size = count,
                   .form = container.form | ((*shape + 1) << kTypeBits)};
      return;
    }
  } else if (container.form >> kTypeBits != 0) {
    drop_shape(container);
  }
  container.size += count;
  add(container, pairs);
}

/// Its keys and values become runs, as those of a dict that never had a shape.
void PickleStore::drop_shape(Container& dict) {
  std::vector<PickleValue> pairs;
  for (std::uint32_t slot = 0; slot < dict.size; ++slot) {
    pairs.push_back(key_at(shape_of(dict), slot));
    pairs.push_back(value_at(dict.first + slot));
  }
  dict = {.size = dict.size, .form = dict.form & kTypeMask};
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
    if (tag(pairs[i]) != Tag::string) return std::nullopt;
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

std::optional<std::uint32_t> PickleStore::slot(std::uint32_t shape, std::string_view key) const noexcept {
  const auto& keys = shapes_[shape].keys;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (string(keys[i]) == key) return i;
  }
  return std::nullopt;
}

std::uint64_t PickleStore::bytes() const noexcept {
  return values_.bytes() + containers_.bytes() + reals_.bytes() + wides_.bytes() + text_bytes_ +
         text_.capacity() * sizeof(text_[0]);
}

}  // namespace emm::format
