#include "trace/importers/torch_pickle_rows.hpp"

#include <algorithm>

namespace emm::trace {
namespace {

using format::Pickle;
using format::PickleValue;

constexpr std::array<std::string_view, TorchPickleRows::kFields> kFieldNames{
    "action", "addr", "device_free", "size", "stream", "time_us", "frames", "user_metadata", "category",
    "compile_context", "pool_id", "forward_frames"};

}  // namespace

TorchPickleRows::TorchPickleRows(const Pickle& pickle) : pickle_(pickle), slots_(pickle.shape_count()) {
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
  if (values_ == nullptr && pickle_.type(value) != PickleValue::Type::dict) return bad("the row", "a dict");
  const auto action = action_of(field(Field::action));
  if (!action) {
    const auto word = pickle_.string(field(Field::action));
    if (!word) return bad("\"action\"", "a string");
    unknown_ = *word;
    return Found::unknown;
  }
  row.action = *action;

  const auto handle = [&](PickleValue number) -> std::optional<std::uint64_t> {
    if (const auto positive = pickle_.u64(number)) return positive;
    if (const auto any = pickle_.i64(number)) return static_cast<std::uint64_t>(*any);
    return std::nullopt;
  };
  const auto oom = row.action == TorchAction::oom;
  const auto address = pickle_.u64(field(oom ? Field::device_free : Field::addr));
  if (!address && !oom && row.action != TorchAction::snapshot) return bad("\"addr\"", "an address");
  row.has_address = address.has_value();
  row.address = address.value_or(0);
  const auto size = pickle_.u64(field(Field::size));
  if (!size) return bad("\"size\"", "a count of bytes");
  row.size = *size;
  const auto stream = handle(field(Field::stream));
  if (!stream) return bad("\"stream\"", "a stream's handle");
  row.stream = *stream;
  const auto time = field(Field::time_us);
  row.has_time = time != PickleValue();
  const auto time_us = pickle_.u64(time);
  if (row.has_time && !time_us) return bad("\"time_us\"", "microseconds");
  row.time_us = time_us.value_or(0);
  return Found::row;
}

/// Its word is one object in the whole file, as a rule.
std::optional<TorchAction> TorchPickleRows::action_of(PickleValue word) {
  for (std::size_t i = 0; i < actions_known_; ++i) {
    if (actions_[i].first == word) return actions_[i].second;
  }
  const auto text = pickle_.string(word);
  if (!text) return std::nullopt;
  const auto* const found = std::find(kTorchActionNames.begin(), kTorchActionNames.end(), *text);
  if (found == kTorchActionNames.end()) return std::nullopt;
  const auto action = static_cast<TorchAction>(found - kTorchActionNames.begin());
  if (actions_known_ < actions_.size()) actions_[actions_known_++] = {word, action};
  return action;
}

TorchPickleRows::Found TorchPickleRows::bad(std::string_view member, std::string_view expected) noexcept {
  wrong_ = {member, expected};
  return Found::bad;
}

}  // namespace emm::trace
