#include "exchange/importers/torch_pickle_rows.hpp"

#include <algorithm>

namespace emm::trace {
namespace {

using format::Pickle;
using format::PickleValue;

constexpr std::array<std::string_view, TorchPickleRows::kFields> kFieldNames{
    "action",        "addr",     "device_free",     "size",    "stream",        "time_us", "frames",
    "user_metadata", "category", "compile_context", "pool_id", "forward_frames"};

}  // namespace

TorchPickleRows::TorchPickleRows(const Pickle& pickle)
    : pickle_(pickle), slots_(pickle.shape_count()) {
  for (std::uint32_t shape = 0; shape < slots_.size(); ++shape) {
    for (std::size_t i = 0; i < kFields; ++i) {
      const auto slot = pickle.slot(shape, kFieldNames[i]);
      slots_[shape][i] = slot ? static_cast<std::int16_t>(*slot) : std::int16_t{-1};
    }
  }
}

PickleValue TorchPickleRows::unshaped(Field field) const noexcept {
  return pickle_.find(row_, kFieldNames[static_cast<std::size_t>(field)]);
}

TorchPickleRows::Found TorchPickleRows::read(PickleValue value, TorchRow& row) {
  row_ = value;
  const auto fields = pickle_.fields(value);
  shape_ = fields.shape;
  values_ = fields.values;
  if (values_ == nullptr && pickle_.type(value) != PickleValue::Type::dict)
    return bad("the row", "a dict");
  if (!action_of(field(Field::action), row.action)) {
    const auto word = pickle_.string(field(Field::action));
    if (!word) return bad("\"action\"", "a string");
    unknown_ = *word;
    return Found::unknown;
  }

  const auto oom = row.action == TorchAction::oom;
  row.address = row.time_us = 0;
  row.has_address = pickle_.get(field(oom ? Field::device_free : Field::addr), row.address);
  const auto is_mark =
      row.action == TorchAction::snapshot || row.action == TorchAction::user_defined;
  if (!row.has_address && !oom && !is_mark) return bad("\"addr\"", "an address");
  row.size = 0;
  if (!pickle_.get(field(Field::size), row.size) && row.action != TorchAction::user_defined) {
    return bad("\"size\"", "a count of bytes");
  }
  const auto said = [&](PickleValue member) {
    return member != PickleValue() && pickle_.type(member) != PickleValue::Type::none;
  };
  row.stream = 0;
  if (const auto stream = field(Field::stream); said(stream) && !pickle_.get(stream, row.stream)) {
    const auto negative = pickle_.i64(stream);
    if (!negative) return bad("\"stream\"", "a stream's handle");
    row.stream = static_cast<std::uint64_t>(*negative);
  }
  const auto time = field(Field::time_us);
  row.has_time = said(time);
  if (row.has_time && !pickle_.get(time, row.time_us) && !whole_part(time, row.time_us)) {
    return bad("\"time_us\"", "microseconds");
  }
  return Found::row;
}

/// Accepts a time that another program turned into a real number.
bool TorchPickleRows::whole_part(PickleValue value, std::uint64_t& out) const noexcept {
  constexpr double kMost = 9e18;  // below 2^63, which a double holds exactly
  const auto real = pickle_.real(value);
  if (!real || !(*real >= 0) || *real > kMost) return false;
  out = static_cast<std::uint64_t>(*real);
  return true;
}

/// Caches the words of actions: each is usually one object in the whole file.
bool TorchPickleRows::action_of(PickleValue word, TorchAction& action) {
  for (std::size_t i = 0; i < actions_known_; ++i) {
    if (actions_[i].first != word) continue;
    action = actions_[i].second;
    return true;
  }
  const auto text = pickle_.string(word);
  if (!text) return false;
  const auto* const found = std::find(kTorchActionNames.begin(), kTorchActionNames.end(), *text);
  if (found == kTorchActionNames.end()) return false;
  action = static_cast<TorchAction>(found - kTorchActionNames.begin());
  if (actions_known_ < actions_.size()) actions_[actions_known_++] = {word, action};
  return true;
}

TorchPickleRows::Found TorchPickleRows::bad(std::string_view member,
                                            std::string_view expected) noexcept {
  wrong_ = {member, expected};
  return Found::bad;
}

}  // namespace emm::trace
