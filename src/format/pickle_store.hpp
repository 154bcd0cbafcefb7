#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/pickle.hpp"

namespace emm::format {

/// A growing row of T in blocks that never move, so that growing copies nothing and needs no second room.
template <class T, unsigned Shift>
class BlockRow {
 public:
  static constexpr std::size_t kBlock = std::size_t{1} << Shift;

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t index) noexcept { return blocks_[index >> Shift][index & (kBlock - 1)]; }
  const T& operator[](std::size_t index) const noexcept { return blocks_[index >> Shift][index & (kBlock - 1)]; }
  void push(const T& value) {
    if (room() == 0) add_block();
    (*this)[size_++] = value;
  }
  /// Elements that fit before the next block begins; 0 where a block must begin.
  std::size_t room() const noexcept { return (blocks_.size() << Shift) - size_; }
  /// Leaves the rest of a block that has no room for `count` side by side. REQUIRES: count <= kBlock.
  void want(std::size_t count) {
    if (room() >= count) return;
    size_ = blocks_.size() << Shift;
    add_block();
  }
  /// `count` places side by side, not written yet. REQUIRES: count <= kBlock.
  std::size_t claim(std::size_t count) {
    want(count);
    return std::exchange(size_, size_ + count);
  }
  std::uint64_t bytes() const noexcept {
    return (std::uint64_t{blocks_.size()} << Shift) * sizeof(T) + blocks_.capacity() * sizeof(blocks_[0]);
  }

 private:
  void add_block() { blocks_.push_back(std::make_unique_for_overwrite<T[]>(kBlock)); }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

/// Where the values of a Pickle lie: eight bytes each, strings once each, elements of a container in runs.
class PickleStore {
 public:
  using Type = PickleValue::Type;

  PickleStore();

  // Making values.
  static PickleValue none() noexcept { return word(Tag::constant, kNone); }
  static PickleValue boolean(bool value) noexcept { return word(Tag::constant, value ? kTrue : kFalse); }
  PickleValue integer(std::int64_t value) {
    constexpr std::int64_t kLimit = std::int64_t{1} << (63 - kTagBits);
    if (value >= -kLimit && value < kLimit) return word(Tag::integer, static_cast<std::uint64_t>(value));
    return wide(static_cast<std::uint64_t>(value), value < 0);
  }
  PickleValue unsigned_integer(std::uint64_t value);
  PickleValue real(double value);
  /// Room for a string of `size` bytes, to be written at once.
  std::pair<PickleValue, char*> string(std::size_t size);
  PickleValue container(Type type) {
    containers_.push({.form = static_cast<std::uint32_t>(type)});
    return word(Tag::container, containers_.size() - 1);
  }
  /// REQUIRES: fits().
  void append(PickleValue list, std::span<const PickleValue> values);
  /// Keys and values in turn.
  void set_items(PickleValue dict, std::span<const PickleValue> pairs);
  /// There is a place left for so many more values.
  bool fits(std::size_t values) const noexcept;

  // Reading them; Pickle says what these do.
  Type type(PickleValue value) const noexcept;
  std::optional<std::uint64_t> u64(PickleValue value) const noexcept;
  std::optional<std::int64_t> i64(PickleValue value) const noexcept;
  double real(PickleValue value) const noexcept { return reals_[payload(value)]; }  // REQUIRES: it is one
  bool is_true(PickleValue value) const noexcept { return value == boolean(true); }
  std::string_view string(PickleValue value) const noexcept;                        // REQUIRES: it is one
  bool is_container(PickleValue value) const noexcept { return tag(value) == Tag::container; }
  std::uint32_t identity(PickleValue value) const noexcept { return static_cast<std::uint32_t>(payload(value)); }

  struct Container {
    std::uint32_t first = 0;  ///< Its first run; of a dict with a shape, its first value.
    std::uint32_t last = 0;   ///< Its last run.
    std::uint32_t size = 0;   ///< Elements; of a dict, pairs.
    std::uint32_t form = 0;   ///< The type, and the shape plus one.
  };
  /// Asks the memory for a value that will be read soon: first for what it is, then for what it holds.
  void prefetch_container(PickleValue value) const noexcept {
    if (is_container(value)) __builtin_prefetch(&containers_[identity(value)]);
  }
  void prefetch_values(PickleValue value) const noexcept {
    if (!is_container(value)) return;
    const auto* const first = &values_[containers_[identity(value)].first];
    __builtin_prefetch(first);
    __builtin_prefetch(first + 7);
  }
  /// The word before the elements of a run.
  struct Run {
    std::uint32_t count = 0, next = 0;
  };
  const Container& container_at(std::uint32_t identity) const noexcept { return containers_[identity]; }
  static Type type_of(const Container& c) noexcept { return static_cast<Type>(c.form & kTypeMask); }
  static std::uint32_t shape_of(const Container& c) noexcept { return (c.form >> kTypeBits) - 1; }
  Run run_at(std::uint32_t place) const noexcept;
  /// Of the values of a dict with a shape, which lie side by side.
  const PickleValue* values_from(std::uint32_t place) const noexcept { return &values_[place]; }
  PickleValue value_at(std::uint32_t place) const noexcept { return values_[place]; }
  PickleValue key_at(std::uint32_t shape, std::uint32_t slot) const noexcept { return shapes_[shape].keys[slot]; }
  std::optional<std::uint32_t> slot(std::uint32_t shape, std::string_view key) const noexcept;
  std::uint32_t shape_count() const noexcept { return static_cast<std::uint32_t>(shapes_.size()); }
  std::uint32_t container_count() const noexcept { return static_cast<std::uint32_t>(containers_.size()); }
  std::uint64_t bytes() const noexcept;

 private:
  using Tag = PickleValue::Tag;
  static constexpr std::uint64_t kNone = 1, kFalse = 2, kTrue = 3;  // 0 is absent
  static constexpr unsigned kTagBits = PickleValue::kTagBits, kTypeBits = 4;
  static constexpr std::uint32_t kTypeMask = (1u << kTypeBits) - 1;
  static constexpr std::size_t kShapesMax = 4096, kShapeKeysMax = 64;
  static constexpr unsigned kTextShift = 20;
  static constexpr std::size_t kTextBlock = std::size_t{1} << kTextShift;

  struct Shape {
    std::vector<PickleValue> keys;
  };
  struct Wide {
    std::uint64_t bits;
    bool negative;
  };

  static constexpr PickleValue word(Tag tag, std::uint64_t payload) noexcept {
    return PickleValue((payload << kTagBits) | static_cast<std::uint64_t>(tag));
  }
  static constexpr Tag tag(PickleValue value) noexcept { return value.tag(); }
  static constexpr std::uint64_t payload(PickleValue value) noexcept { return value.bits_ >> kTagBits; }

  PickleValue wide(std::uint64_t bits, bool negative);
  void open_run(Container& container);
  void put_run(std::uint32_t place, Run run) noexcept;
  void add(Container& container, std::span<const PickleValue> values);
  std::optional<std::uint32_t> shape_for(std::span<const PickleValue> pairs);
  std::optional<std::uint32_t> shape_by_text(std::span<const PickleValue> pairs);
  void drop_shape(Container& dict);

  BlockRow<PickleValue, 17> values_;
  BlockRow<Container, 14> containers_;
  BlockRow<double, 10> reals_;
  BlockRow<Wide, 10> wides_;

  std::vector<std::unique_ptr<char[]>> text_;
  std::size_t text_used_ = kTextBlock;  // of the block that short strings go to,
  std::size_t text_open_ = 0;           // which is this one
  std::uint64_t text_bytes_ = 0;

  std::vector<Shape> shapes_;
  std::array<std::uint32_t, kShapeKeysMax + 1> last_shape_{};  // plus one, by the count of keys
  std::unordered_map<std::string_view, std::uint32_t> key_numbers_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> shapes_by_keys_;
};

}  // namespace emm::format
