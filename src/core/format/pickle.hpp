#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "format/byte_source.hpp"
#include "format/pickle_store.hpp"
#include "format/pickle_value.hpp"

namespace emm::format {

/// A pickle of plain data (dicts, lists, tuples, sets, strings, bytes, numbers, True, False and
/// None) in memory. An object that the file shares is stored once and never expanded, so a list may
/// even contain itself. Dicts with the same keys in the same order share the keys as a shape.
/// Immutable; any thread may read. Views live as long as the Pickle.
class Pickle {
 public:
  static constexpr std::uint32_t kNoShape = PickleStore::kNoShape;

  Pickle(Pickle&&) noexcept;
  Pickle& operator=(Pickle&&) noexcept;
  ~Pickle();

  PickleValue root() const noexcept { return root_; }
  PickleValue::Type type(PickleValue value) const noexcept;

  /// These return nothing if the value has another type or does not fit.
  std::optional<std::uint64_t> u64(PickleValue value) const noexcept {
    if (!value.is_small()) return wide_u64(value);
    if (value.small() < 0) return std::nullopt;
    return static_cast<std::uint64_t>(value.small());
  }
  /// A faster u64(): returns false where u64() returns nothing.
  bool get(PickleValue value, std::uint64_t& out) const noexcept {
    if (value.is_small() && value.small() >= 0) {
      out = static_cast<std::uint64_t>(value.small());
      return true;
    }
    const auto wide = wide_u64(value);
    if (wide) out = *wide;
    return wide.has_value();
  }
  std::optional<std::int64_t> i64(PickleValue value) const noexcept;
  std::optional<double> real(PickleValue value) const noexcept;  ///< Takes any number.
  std::optional<bool> boolean(PickleValue value) const noexcept;
  std::optional<std::string_view> string(PickleValue value) const noexcept;

  /// A list, tuple or dict.
  static bool is_container(PickleValue value) noexcept { return value.is_container(); }
  /// The number of elements of a list or tuple, or of pairs in a dict; 0 for other values.
  std::uint32_t size(PickleValue value) const noexcept;
  /// The value of `key` in a dict, the last one if the key occurs twice. Absent if there is none or
  /// if `dict` is not a dict.
  PickleValue find(PickleValue dict, std::string_view key) const noexcept;
  /// The shape of a dict, below shape_count(). kNoShape if it has very many keys, or a key twice.
  std::uint32_t shape(PickleValue dict) const noexcept;
  std::uint32_t shape_count() const noexcept;
  /// The slot of `key` in dicts of that shape, for at(); nothing if they lack the key.
  std::optional<std::uint32_t> slot(std::uint32_t shape, std::string_view key) const noexcept;
  PickleValue at(PickleValue dict, std::uint32_t slot) const noexcept {
    return fields(dict).values[slot];
  }
  /// The shape of a dict and its values by slot. `values` is null if the dict has no shape or the
  /// value is not a dict.
  struct Fields {
    std::uint32_t shape = kNoShape;
    const PickleValue* values = nullptr;
  };
  Fields fields(PickleValue dict) const noexcept;

  /// The identity of a list, tuple or dict: a number below container_count().
  static std::uint32_t identity(PickleValue container) noexcept { return container.container(); }
  std::uint32_t container_count() const noexcept;

  /// Walks the elements of a list or tuple, or a dict's keys and values in turn.
  class Elements {
   public:
    bool next(PickleValue& value) noexcept;

   private:
    friend class Pickle;
    const PickleStore* store_ = nullptr;
    std::uint32_t container_ = 0;
    std::uint32_t at_ = 0;     // place of the next element
    std::uint32_t left_ = 0;   // elements left in this run
    std::uint32_t after_ = 0;  // place of the next run
    std::uint32_t slot_ = 0;   // for a dict with a shape: the slot
    bool shaped_ = false;
    bool of_value_ = false;  // the value comes next, not the key
  };
  Elements elements(PickleValue container) const noexcept;

  bool torn() const noexcept { return torn_; }  ///< Only with ReadPickleOptions::partial.
  std::uint64_t bytes_read() const noexcept { return bytes_read_; }
  std::uint64_t bytes_after() const noexcept {
    return bytes_after_;
  }  ///< Bytes that follow the pickle's end.
  /// The number of values of Type::opaque: bytes and integers beyond 64 bits, which are not kept.
  std::uint64_t opaque_count() const noexcept { return opaque_count_; }
  std::uint64_t memory_bytes() const noexcept;  ///< Heap bytes that the Pickle holds.

 private:
  friend class PickleReader;
  Pickle();
  std::optional<std::uint64_t> wide_u64(PickleValue value) const noexcept;
  std::unique_ptr<PickleStore> store_;
  PickleValue root_;
  std::uint64_t bytes_read_ = 0, bytes_after_ = 0;
  std::uint64_t opaque_count_ = 0;
  bool torn_ = false;
};

inline PickleValue::Type Pickle::type(PickleValue value) const noexcept {
  return store_->type(value);
}
inline std::optional<std::uint64_t> Pickle::wide_u64(PickleValue value) const noexcept {
  return store_->u64(value);
}
inline std::optional<std::int64_t> Pickle::i64(PickleValue value) const noexcept {
  return store_->i64(value);
}

inline std::optional<std::string_view> Pickle::string(PickleValue value) const noexcept {
  if (!PickleStore::is_string(value)) return std::nullopt;
  return store_->string(value);
}

inline std::uint32_t Pickle::size(PickleValue value) const noexcept {
  return store_->is_container(value)
             ? store_->size_of(store_->container_at(store_->identity(value)))
             : 0;
}

inline std::uint32_t Pickle::shape(PickleValue dict) const noexcept {
  return store_->is_container(dict)
             ? PickleStore::shape_of(store_->container_at(store_->identity(dict)))
             : kNoShape;
}
inline Pickle::Fields Pickle::fields(PickleValue dict) const noexcept {
  if (!store_->is_container(dict)) return {};
  const auto& of = store_->container_at(store_->identity(dict));
  if (PickleStore::shape_of(of) == kNoShape) return {};
  return {.shape = PickleStore::shape_of(of), .values = store_->values_from(of.first)};
}

inline Pickle::Elements Pickle::elements(PickleValue container) const noexcept {
  Elements elements;
  if (!store_->is_container(container)) return elements;
  elements.store_ = store_.get();
  elements.container_ = store_->identity(container);
  const auto& of = store_->container_at(elements.container_);
  elements.shaped_ = PickleStore::shape_of(of) != kNoShape;
  elements.after_ = elements.shaped_ ? 0 : of.first;
  return elements;
}

inline bool Pickle::Elements::next(PickleValue& value) noexcept {
  if (shaped_) {
    const auto& of = store_->container_at(container_);
    if (slot_ == store_->size_of(of)) return false;
    value = of_value_ ? store_->value_at(of.first + slot_)
                      : store_->key_at(PickleStore::shape_of(of), slot_);
    slot_ += of_value_ ? 1 : 0;
    of_value_ = !of_value_;
    return true;
  }
  if (left_ == 0) {
    if (after_ == 0) return false;
    const auto run = store_->run_at(after_, after_ == store_->container_at(container_).first);
    at_ = run.begin;
    left_ = run.count;
    after_ = run.next;
  }
  constexpr std::uint32_t
      kFar = 16,
      kNear = 8;  // distances for the rows of a snapshot, which take about 100 ns each
  if (left_ > kFar) {
    store_->prefetch_container(store_->value_at(at_ + kFar));
    store_->prefetch_values(store_->value_at(at_ + kNear));
  }
  --left_;
  value = store_->value_at(at_++);
  return true;
}

struct ReadPickleOptions {
  bool partial = false;  ///< A file that ends inside of the pickle gives what was read by then.
};

/// Reads a pickle of protocol 0 to 5 and then the rest of the source. Memory is about four thirds
/// of the file's size, and never more than 32 MiB and six times the size. Sets become lists.
/// Nothing is run: an opcode that would make Python call a function or an object (GLOBAL, REDUCE,
/// BUILD, ...) is refused. The calls by which Python writes bytes in protocol 2 are accepted and
/// not made. Errors: the source's, and parse_error, worded "run.pickle: byte 1841: the file ends
/// inside the pickle: expected STOP".
Result<Pickle> read_pickle(ByteSource& source, const ReadPickleOptions& options = {});

}  // namespace emm::format
