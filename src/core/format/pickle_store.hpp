#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/block_row.hpp"
#include "format/pickle_value.hpp"

namespace emm::format {

/// Stores the values of a Pickle in four bytes each. Integers beyond 31 bits lie elsewhere, each
/// string once, and the elements of a container in runs. The store is the memory use of a snapshot
/// of gigabytes, and memory is most of the cost of reading one on many machines, so it is kept
/// small.
class PickleStore {
 public:
  using Type = PickleValue::Type;
  // A dictionary whose keys no other has.
  static constexpr std::uint32_t kNoShape = ~std::uint32_t{0};

  PickleStore();

  // Making values:
  static PickleValue none() noexcept { return other(Other::constant, kNone); }
  static PickleValue boolean(bool value) noexcept {
    return other(Other::constant, value ? kTrue : kFalse);
  }
  /// Represents a value that is not kept: bytes, or an integer beyond 64 bits.
  static PickleValue opaque() noexcept { return other(Other::constant, kOpaque); }
  /// Represents, during reading, the name of a Python function that only turns plain data into
  /// plain data.
  static PickleValue plain_maker() noexcept { return other(Other::constant, kPlainMaker); }
  PickleValue integer(std::int64_t value) {
    // A value of 32 bits has 31 for an integer.
    constexpr std::int64_t kLimit = std::int64_t{1} << 30;
    if (value >= -kLimit && value < kLimit)
      return PickleValue((static_cast<std::uint32_t>(value) << 1) | 1u);
    wides_.push(value);
    return PickleValue(static_cast<std::uint32_t>(wides_.size() - 1) << kWideShift);
  }
  PickleValue unsigned_integer(std::uint64_t value);
  PickleValue real(double value);
  /// Allocates a string of `size` bytes, which the caller must write at once.
  std::pair<PickleValue, char*> string(std::size_t size);
  PickleValue container(Type type) {
    containers_.push({.form = static_cast<std::uint32_t>(type)});
    return PickleValue((static_cast<std::uint32_t>(containers_.size() - 1) << kContainerShift) |
                       kContainer);
  }
  /// REQUIRES: fits().
  void append(PickleValue list, std::span<const PickleValue> values);
  /// Adds `pairs`, which alternate keys and values, to the dict.
  void set_items(PickleValue dict, std::span<const PickleValue> pairs);
  /// Is there room for `values` more values of any kind, and after them for all that 16 MiB of a
  /// pickle can make?
  bool fits(std::size_t values) const noexcept;

  // Reading values, as Pickle documents it:
  Type type(PickleValue value) const noexcept;
  std::optional<std::uint64_t> u64(PickleValue value) const noexcept;
  std::optional<std::int64_t> i64(PickleValue value) const noexcept;
  double real(PickleValue value) const noexcept {
    return reals_[value.bits_ >> kOtherShift];
  }  // REQUIRES: the value is a real
  bool is_true(PickleValue value) const noexcept { return value == boolean(true); }
  std::string_view string(PickleValue value) const noexcept;  // REQUIRES: the value is a string
  static bool is_container(PickleValue value) noexcept { return value.is_container(); }
  static bool is_string(PickleValue value) noexcept {
    return (value.bits_ & kStringMask) == kString;
  }
  static std::uint32_t identity(PickleValue value) noexcept { return value.container(); }

  struct Container {
    std::uint32_t first = 0;  ///< First run; first value of a dict with a shape; 0: empty.
    std::uint32_t form = 0;   ///< The type and the shape + 1.
  };
  /// Prefetch a value that will be read soon: first its container, then, once that is in the cache,
  /// its elements.
  void prefetch_container(PickleValue value) const noexcept {
    if (is_container(value)) __builtin_prefetch(&containers_[identity(value)]);
  }
  void prefetch_values(PickleValue value) const noexcept {
    if (is_container(value)) __builtin_prefetch(&values_[containers_[identity(value)].first]);
  }
  /// Adjacent elements. The head of a run is its count and the place of the next run. The head of
  /// the first run also has the place of the last run and the count of all elements.
  struct Run {
    std::uint32_t begin = 0, count = 0, next = 0;
  };
  const Container& container_at(std::uint32_t identity) const noexcept {
    return containers_[identity];
  }
  static Type type_of(const Container& c) noexcept { return static_cast<Type>(c.form & kTypeMask); }
  static std::uint32_t shape_of(const Container& c) noexcept { return (c.form >> kTypeBits) - 1; }
  /// The number of elements, or of pairs in a dict.
  std::uint32_t size_of(const Container& c) const noexcept;
  Run run_at(std::uint32_t place, bool first) const noexcept {
    return {.begin = place + (first ? kFirstHead : kHead),
            .count = number(place),
            .next = number(place + kNext)};
  }
  /// The first value of a dict with a shape. Its other values follow.
  const PickleValue* values_from(std::uint32_t place) const noexcept { return &values_[place]; }
  PickleValue value_at(std::uint32_t place) const noexcept { return values_[place]; }
  PickleValue key_at(std::uint32_t shape, std::uint32_t slot) const noexcept {
    return shapes_[shape].keys[slot];
  }
  std::optional<std::uint32_t> slot(std::uint32_t shape, std::string_view key) const noexcept;
  std::uint32_t shape_count() const noexcept { return static_cast<std::uint32_t>(shapes_.size()); }
  std::uint32_t container_count() const noexcept {
    return static_cast<std::uint32_t>(containers_.size());
  }
  std::uint64_t bytes() const noexcept;

 private:
  // The low bits of a value: ...1 an integer of 31 bits, ..10 a container, .100 a string, 0000 a
  // wide integer (never the first one, since 0 is absent), 1000 one of the rare kinds.
  static constexpr std::uint32_t kContainer = 2, kString = 4, kStringMask = 7;
  static constexpr std::uint32_t kOther = 8, kOtherMask = 15;
  static constexpr unsigned kContainerShift = 2, kStringShift = 3, kWideShift = 4, kOtherShift = 6;
  enum class Other : std::uint32_t { constant, real, unsigned_integer };
  // The constants, by number.
  static constexpr std::uint32_t kNone = 1, kFalse = 2, kTrue = 3, kOpaque = 4, kPlainMaker = 5;

  static constexpr unsigned kTypeBits = 4;  // the low bits of a value tell its type
  static constexpr std::uint32_t kTypeMask = (1u << kTypeBits) - 1;
  // Dictionaries of other keys, or of more, are kept without a shape.
  static constexpr std::size_t kShapesMax = 4096, kShapeKeysMax = 64;
  // Places in the head of a block of a container, and the sizes of such heads.
  static constexpr std::uint32_t kNext = 1, kLast = 2, kSize = 3, kHead = 2, kFirstHead = 4;
  static constexpr std::size_t kTextUnit =
      4;  // alignment of strings, so that a value can address them
  static constexpr unsigned kTextShift = 19;  // log2 of the units in a block
  static constexpr std::size_t kTextBlock = kTextUnit << kTextShift;

  struct Shape {
    std::vector<PickleValue> keys;
  };

  static PickleValue other(Other kind, std::uint32_t payload) noexcept {
    return PickleValue((payload << kOtherShift) | (static_cast<std::uint32_t>(kind) << 4) | kOther);
  }
  static bool is_wide(PickleValue value) noexcept {
    return (value.bits_ & kOtherMask) == 0 && value.bits_ != 0;
  }
  static bool is_other(PickleValue value, Other kind) noexcept {
    return (value.bits_ & 63u) == ((static_cast<std::uint32_t>(kind) << 4) | kOther);
  }
  std::uint32_t number(std::uint32_t place) const noexcept { return values_[place].bits_; }
  void put_number(std::uint32_t place, std::uint32_t number) noexcept {
    values_[place] = PickleValue(number);
  }
  /// Appends the values to those of the container.
  void add(Container& container, std::span<const PickleValue> values);
  /// Appends a run to the container where there is room. Returns the place of its head.
  std::uint32_t open_run(Container& container);
  std::optional<std::uint32_t> shape_for(std::span<const PickleValue> pairs);
  std::optional<std::uint32_t> shape_by_text(std::span<const PickleValue> pairs);
  void drop_shape(Container& dict);

  BlockRow<PickleValue, 18> values_;
  BlockRow<Container, 15> containers_;
  BlockRow<std::int64_t, 17> wides_;
  BlockRow<double, 10> reals_;
  BlockRow<std::uint64_t, 10> unsigned_;

  std::vector<Pages> text_;
  std::size_t text_used_ = 0, text_room_ = 0;  // in the block for short strings
  std::size_t text_open_ = 0;                  // the index of that block
  std::uint64_t text_bytes_ = 0;

  std::vector<Shape> shapes_;
  std::array<std::uint32_t, kShapeKeysMax + 1> last_shape_{};  // shape + 1, by the number of keys
  std::unordered_map<std::string_view, std::uint32_t> key_numbers_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> shapes_by_keys_;
};

inline PickleStore::Type PickleStore::type(PickleValue value) const noexcept {
  if (is_container(value)) return type_of(containers_[identity(value)]);
  if (is_string(value)) return Type::string;
  if (value.is_small() || is_wide(value) || is_other(value, Other::unsigned_integer))
    return Type::integer;
  if (is_other(value, Other::real)) return Type::real;
  if (value == PickleValue()) return Type::absent;
  if (value == none()) return Type::none;
  return value == opaque() || value == plain_maker() ? Type::opaque : Type::boolean;
}

inline std::optional<std::uint64_t> PickleStore::u64(PickleValue value) const noexcept {
  const auto integer = i64(value);
  if (integer && *integer >= 0) return static_cast<std::uint64_t>(*integer);
  if (is_other(value, Other::unsigned_integer)) return unsigned_[value.bits_ >> kOtherShift];
  return std::nullopt;
}

inline std::optional<std::int64_t> PickleStore::i64(PickleValue value) const noexcept {
  if (value.is_small()) return value.small();
  if (is_wide(value)) return wides_[value.bits_ >> kWideShift];
  return std::nullopt;
}

inline std::uint32_t PickleStore::size_of(const Container& c) const noexcept {
  if (shape_of(c) != kNoShape) return static_cast<std::uint32_t>(shapes_[shape_of(c)].keys.size());
  if (c.first == 0) return 0;
  return number(c.first + kSize) / (type_of(c) == Type::dict ? 2 : 1);
}

inline std::string_view PickleStore::string(PickleValue value) const noexcept {
  const auto unit = value.bits_ >> kStringShift;
  const auto* const block = static_cast<const char*>(text_[unit >> kTextShift].get());
  const auto* const place = block + std::size_t{unit & ((1u << kTextShift) - 1)} * kTextUnit;
  std::uint32_t length = 0;
  std::memcpy(&length, place, sizeof length);
  return {place + sizeof length, length};
}

}  // namespace emm::format
