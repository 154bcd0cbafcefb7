#include "trace/id_table.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/assert.hpp"
#include "base/text_format.hpp"

namespace emm::trace {
namespace {

std::uint64_t hash_of(const Id& id) noexcept {
  // 2^64 over the golden ratio: Fibonacci hashing.
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const auto value = id.is_number() ? id.number : std::hash<std::string_view>()(id.text) ^ kGolden;
  const auto mixed = value * kGolden;
  return mixed ^ (mixed >> 32);
}

}  // namespace

IdTable::Found IdTable::find_or_add(const Id& id) {
  if (id.is_number()) {
    if (id.number >= kText) {  // kText is the flag of a word
      const auto digits = text::format("{}", id.number);
      return find_in_slots(Id{.text = digits});
    }
    if (id.number < dense_.size()) {
      auto& found = dense_[static_cast<std::size_t>(id.number)];
      if (found != 0) return {found - 1, false};
      add(id);
      found = static_cast<std::uint32_t>(words_.size());
      return {found - 1, true};
    }
    const auto counted = id.number - first_number_;
    if (counting_ && counted < words_.size() && words_[counted] == id.number) {
      return {static_cast<std::uint32_t>(counted), false};
    }
    if (!counting_) {
      counting_ = true;
      first_number_ = id.number - words_.size();
    }
  }
  if (last_found_ < words_.size() && same(last_found_, id)) return {last_found_, false};
  const auto found = find_in_slots(id);
  last_found_ = found.index;
  return found;
}

IdTable::Found IdTable::find_in_slots(const Id& id) {
  const bool is_next = id.is_number() && id.number - first_number_ == words_.size();
  const auto index = static_cast<std::uint32_t>(words_.size());
  if (id.is_number() && in_dense(id.number, is_next)) {
    auto& found = dense_[static_cast<std::size_t>(id.number)];
    if (found != 0) return {found - 1, false};
    add(id);
    found = index + 1;
    return {index, true};
  }
  if (slots_.empty()) {
    if (is_next) {
      add(id);
      return {index, true};
    }
    grow();
  }
  auto slot = hash_of(id) & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (same(slots_[slot] - 1, id)) return {slots_[slot] - 1, false};
  }
  add(id);
  if (!is_next) {
    slots_[slot] = index + 1;
    if (++used_slots_ * 4 >= slots_.size() * 3) grow();
  }
  return {index, true};
}

/// Does dense_ have an entry for the number? Grows dense_ if that costs only a few words per id.
bool IdTable::in_dense(std::uint64_t number, bool is_next) {
  if (number < dense_.size()) return true;
  // Numbers below 65,536 are always dense; above, a table costs four words an id at most.
  constexpr std::uint64_t kFew = 16384, kWords = 4;
  const auto limit = kWords * (words_.size() + kFew);
  const auto wanted =
      std::max<std::uint64_t>(number + 1, 2 * dense_.size());  // doubles, since growing rebuilds it
  if (is_next || number >= limit || wanted > limit) return false;
  dense_.assign(static_cast<std::size_t>(wanted), 0);
  for (std::size_t index = 0; index < words_.size(); ++index) {
    if (words_[index] < dense_.size())
      dense_[static_cast<std::size_t>(words_[index])] = static_cast<std::uint32_t>(index + 1);
  }
  return true;
}

bool IdTable::same(std::uint32_t index, const Id& id) const noexcept {
  const auto word = words_[index];
  if ((word & kText) == 0) return id.is_number() && word == id.number;
  const auto at = word & ~kText;
  const auto size = static_cast<unsigned char>(texts_[at]);
  return !id.is_number() && std::string_view(texts_).substr(at + 1, size) == id.text;
}

void IdTable::add(const Id& id) {
  if (id.is_number()) {
    words_.push_back(id.number);
    return;
  }
  EMM_ASSERT(id.text.size() < 256);
  words_.push_back(kText | texts_.size());
  texts_.push_back(static_cast<char>(id.text.size()));
  texts_.append(id.text);
}

void IdTable::grow() {
  constexpr std::size_t kFirst = 16;  // doubles from there
  const auto old = std::move(slots_);
  slots_.assign(old.empty() ? kFirst : old.size() * 2, 0);
  for (const auto entry : old) {
    if (entry == 0) continue;
    const auto word = words_[entry - 1];
    Id id{.number = word};
    if ((word & kText) != 0) {
      const auto at = word & ~kText;
      id = {.text =
                std::string_view(texts_).substr(at + 1, static_cast<unsigned char>(texts_[at]))};
    }
    auto slot = hash_of(id) & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = entry;
  }
}

std::string IdTable::name(std::uint32_t index) const {
  const auto word = words_[index];
  if ((word & kText) == 0) return text::format("{}", word);
  const auto at = word & ~kText;
  return texts_.substr(at + 1, static_cast<unsigned char>(texts_[at]));
}

std::optional<std::uint64_t> IdTable::number(std::uint32_t index) const noexcept {
  const auto word = words_[index];
  if ((word & kText) != 0) return std::nullopt;
  return word;
}

void IdTable::freeze() {
  slots_ = {};
  dense_ = {};
}

std::uint64_t IdTable::memory_bytes() const noexcept {
  return words_.memory_bytes() + texts_.capacity() +
         (slots_.capacity() + dense_.capacity()) * sizeof(slots_[0]);
}

}  // namespace emm::trace
