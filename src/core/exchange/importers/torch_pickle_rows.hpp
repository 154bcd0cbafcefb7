#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "exchange/importers/torch_row.hpp"
#include "format/pickle.hpp"

namespace emm::trace {

/// Reads the rows of a snapshot's device_traces. Looks up the places of the members once for each
/// shape of dict.
class TorchPickleRows {
 public:
  enum class Field : std::uint8_t {
    action,
    addr,
    device_free,
    size,
    stream,
    time_us,
    frames,
    user_metadata,
    category,
    compile_context,
    pool_id,
    forward_frames,
  };
  static constexpr std::size_t kFields = 12;  // as many as Field has

  enum class Found : std::uint8_t {
    row,
    unknown,  ///< The action is not a TorchAction; see unknown_action().
    bad,      ///< A member is wrong; see wrong().
  };

  explicit TorchPickleRows(const format::Pickle& pickle);

  /// Reads the row, without its site, label and extension.
  Found read(format::PickleValue value, TorchRow& row);
  /// A field of the row that was read last; absent if the row lacks it.
  format::PickleValue field(Field field) const noexcept {
    if (values_ == nullptr) return unshaped(field);
    const auto slot = slots_[shape_][static_cast<std::size_t>(field)];
    return slot < 0 ? format::PickleValue() : values_[slot];
  }
  std::string_view unknown_action() const noexcept { return unknown_; }
  /// The member that is wrong and what was expected, for `"size" is not a count of bytes`.
  std::pair<std::string_view, std::string_view> wrong() const noexcept { return wrong_; }

 private:
  using Slots = std::array<std::int16_t, kFields>;  // -1: absent

  format::PickleValue unshaped(Field field) const noexcept;
  bool whole_part(format::PickleValue value, std::uint64_t& out) const noexcept;
  bool action_of(format::PickleValue word, TorchAction& action);
  Found bad(std::string_view member, std::string_view expected) noexcept;

  const format::Pickle& pickle_;
  std::vector<Slots> slots_;
  format::PickleValue row_;
  std::uint32_t shape_ = 0;
  const format::PickleValue* values_ = nullptr;
  std::array<std::pair<format::PickleValue, TorchAction>, 16> actions_{};
  std::size_t actions_known_ = 0;
  std::string_view unknown_;
  std::pair<std::string_view, std::string_view> wrong_;
};

}  // namespace emm::trace
