#pragma once

#include <cstdint>

namespace emm::format {

/// A value of a Pickle, in four bytes. It means something only to the Pickle that gave it. Two
/// equal values are the same object.
class PickleValue {
 public:
  enum class Type : std::uint8_t {
    absent,
    none,
    boolean,
    integer,
    real,
    string,
    opaque,
    list,
    tuple,
    dict
  };

  constexpr PickleValue() = default;  ///< absent
  bool operator==(const PickleValue&) const = default;

 private:
  friend class Pickle;
  friend class PickleStore;
  constexpr explicit PickleValue(std::uint32_t bits) noexcept : bits_(bits) {}
  constexpr bool is_small() const noexcept {
    return (bits_ & 1u) != 0;
  }  // the integer is in the bits themselves
  constexpr std::int32_t small() const noexcept { return static_cast<std::int32_t>(bits_) >> 1; }
  constexpr bool is_container() const noexcept { return (bits_ & 3u) == 2; }
  constexpr std::uint32_t container() const noexcept { return bits_ >> 2; }
  std::uint32_t bits_ = 0;  // the low bits tell what the others are, see PickleStore
};

}  // namespace emm::format
