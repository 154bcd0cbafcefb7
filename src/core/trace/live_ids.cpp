#include "trace/live_ids.hpp"

#include "base/assert.hpp"

namespace emm::trace {
namespace {

constexpr std::size_t kFirstEntries = 1024;  // doubles from there

}  // namespace

LiveIds::LiveIds() { clear(); }

void LiveIds::clear() {
  entries_.assign(kFirstEntries, {});
  mask_ = kFirstEntries - 1;
  count_ = 0;
  used_.clear();
  has_row_ = false;
  texts_.clear();
  used_texts_.clear();
}

std::uint32_t LiveIds::find_text(const Id& id) const {
  const auto found = texts_.find(std::string(id.text));
  return found == texts_.end() ? kNone : found->second;
}

bool LiveIds::was_used(const Id& id) const {
  if (!id.is_number()) return used_texts_.contains(std::string(id.text));
  if (has_row_ && id.number >= row_begin_) {
    if (id.number <= row_last_) return true;
    if (used_.empty() || used_.rbegin()->first < row_begin_) return false;
  }
  const auto after = used_.upper_bound(id.number);
  return after != used_.begin() && std::prev(after)->second >= id.number;
}

void LiveIds::note_used(std::uint64_t number) {
  if (has_row_ && number == row_last_ + 1 && number != 0) {
    // If the next row begins right behind, the two are not joined: look-ups do not need it.
    row_last_ = number;
    return;
  }
  if (has_row_) used_[row_begin_] = row_last_;
  has_row_ = true;
  row_begin_ = row_last_ = number;
  // Extends the row that ends just before, and joins the row that begins just behind.
  const auto after = used_.upper_bound(number);
  if (after != used_.end() && after->first == number + 1) {
    row_last_ = after->second;
    used_.erase(after);
  }
  const auto next = used_.upper_bound(number);
  if (next != used_.begin() && std::prev(next)->second + 1 == number) {
    row_begin_ = std::prev(next)->first;
    used_.erase(std::prev(next));
  }
}

void LiveIds::add(const Id& id, std::uint32_t value) {
  if (!id.is_number()) {
    used_texts_.emplace(id.text);
    texts_.emplace(id.text, value);
    return;
  }
  note_used(id.number);
  if (4 * ++count_ > entries_.size()) grow();
  auto at = place(id.number);
  while (entries_[at].value != kNone) at = (at + 1) & mask_;
  entries_[at] = {id.number, value};
}

void LiveIds::remove(const Id& id) {
  if (!id.is_number()) {
    texts_.erase(std::string(id.text));
    return;
  }
  auto at = place(id.number);
  while (entries_[at].number != id.number || entries_[at].value == kNone) {
    EMM_ASSERT(entries_[at].value != kNone);
    at = (at + 1) & mask_;
  }
  remove_at(at);
}

void LiveIds::grow() {
  auto old = std::move(entries_);
  entries_.assign(old.size() * 2, {});
  mask_ = entries_.size() - 1;
  for (const auto& entry : old) {
    if (entry.value == kNone) continue;
    auto at = place(entry.number);
    while (entries_[at].value != kNone) at = (at + 1) & mask_;
    entries_[at] = entry;
  }
}

}  // namespace emm::trace
