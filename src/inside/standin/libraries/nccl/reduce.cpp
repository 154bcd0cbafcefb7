#include "standin/libraries/nccl/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace emm::standin::nccl {
namespace {

/// A number of floating point of 8 or 16 bits.
struct Format {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  ///< Else the largest exponent is as the others, and only all ones is no
                      ///< number.
  bool saturates;     ///< What is too large becomes the largest number.
};
// IEEE 754 has the first, Google's bfloat16 is the second, and OCP defines those of 8 bits.
constexpr Format kHalf{5, 10, true, false}, kBrain{8, 7, true, false}, kE4M3{4, 3, false, true},
    kE5M2{5, 2, true, true};

double decode(unsigned bits, const Format& format) {
  const int mantissa_bits = format.mantissa_bits, most = (1 << format.exponent_bits) - 1;
  const int bias = most / 2;
  const auto mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
  const auto exponent = static_cast<int>(bits >> mantissa_bits) & most;
  const bool negative = (bits >> (mantissa_bits + format.exponent_bits) & 1u) != 0;
  double value = 0;
  if (exponent == most && format.has_infinity) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == most && mantissa == (1 << mantissa_bits) - 1) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return negative ? -value : value;
}

/// Rounds to the nearest number of the format, of two to the even one.
unsigned encode(double value, const Format& format) {
  const int mantissa_bits = format.mantissa_bits, most = (1 << format.exponent_bits) - 1;
  const int bias = most / 2;
  const auto sign = (std::signbit(value) ? 1u : 0u) << (mantissa_bits + format.exponent_bits);
  const auto ones = (1u << mantissa_bits) - 1;
  const auto infinite = static_cast<unsigned>(most) << mantissa_bits;
  if (std::isnan(value)) return sign | infinite | ones;
  const auto largest = format.has_infinity ? infinite - 1 : (infinite | ones) - 1;
  const auto too_large = format.saturates ? largest : infinite;
  if (std::isinf(value)) return sign | too_large;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // The mantissa's carry goes to the exponent by itself.
  const auto steps =
      static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const auto bits = (static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits) + steps;
  return sign | (bits > largest ? too_large : static_cast<unsigned>(bits));
}

const Format* small_format(int type) {
  switch (type) {
    case float16:
      return &kHalf;
    case bfloat16:
      return &kBrain;
    case float8e4m3:
      return &kE4M3;
    case float8e5m2:
      return &kE5M2;
    default:
      return nullptr;
  }
}

bool is_integer(int type) { return type <= uint64; }
bool is_signed(int type) { return type == int8 || type == int32 || type == int64; }

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double load_float(int type, const std::byte* at) {
  if (type == float32) return static_cast<double>(load<float>(at));
  if (type == float64) return load<double>(at);
  const unsigned bits = size_of(type) == 1 ? load<std::uint8_t>(at) : load<std::uint16_t>(at);
  return decode(bits, *small_format(type));
}
void store_float(int type, std::byte* at, double value) {
  if (type == float64) {
    std::memcpy(at, &value, sizeof value);
  } else if (type == float32) {
    const auto rounded = static_cast<float>(value);
    std::memcpy(at, &rounded, sizeof rounded);
  } else {
    const auto bits = encode(value, *small_format(type));
    std::memcpy(at, &bits, size_of(type));  // little-endian
  }
}
/// Signed ones with their sign.
std::uint64_t load_integer(int type, const std::byte* at) {
  switch (type) {
    case int8:
      return static_cast<std::uint64_t>(std::int64_t{load<std::int8_t>(at)});
    case uint8:
      return load<std::uint8_t>(at);
    case int32:
      return static_cast<std::uint64_t>(std::int64_t{load<std::int32_t>(at)});
    case uint32:
      return load<std::uint32_t>(at);
    default:
      return load<std::uint64_t>(at);
  }
}
/// As a value of the type: what is above it is lost.
std::uint64_t wrapped(int type, std::uint64_t value) {
  std::byte bytes[8];
  std::memcpy(bytes, &value, sizeof value);
  return load_integer(type, bytes);
}

}  // namespace

std::size_t size_of(int type) noexcept {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < type_count ? kSizes[type] : 0;
}

const char* name_of_type(int type) noexcept {
  constexpr const char* kNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                    "int64",   "uint64",   "float16",    "float32",
                                    "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return type >= 0 && type < type_count ? kNames[type] : "elements of no type";
}

void scale(int type, std::span<std::byte> values, std::span<const std::byte> factor) {
  const auto size = size_of(type);
  for (std::size_t at = 0; at + size <= values.size(); at += size) {
    auto* const here = values.data() + at;
    if (is_integer(type)) {
      const auto product = load_integer(type, here) * load_integer(type, factor.data());
      std::memcpy(here, &product, size);
    } else {
      store_float(type, here, load_float(type, here) * load_float(type, factor.data()));
    }
  }
}

Reduction::Reduction(int type, int operation, std::size_t count)
    : type_(type), operation_(operation), count_(count) {}

void Reduction::add(std::span<const std::byte> values) {
  const auto size = size_of(type_);
  const bool first = ranks_++ == 0;
  if (is_integer(type_)) {
    if (first) integers_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const auto value = load_integer(type_, values.data() + i * size);
      auto& all = integers_[i];
      const bool less = is_signed(type_)
                            ? static_cast<std::int64_t>(value) < static_cast<std::int64_t>(all)
                            : value < all;
      if (first) {
        all = value;
      } else if (operation_ == sum || operation_ == avg) {
        all = wrapped(type_, all + value);
      } else if (operation_ == prod) {
        all = wrapped(type_, all * value);
      } else if (less == (operation_ == min)) {
        all = value;
      }
    }
    return;
  }
  if (first) floats_.resize(count_);
  for (std::size_t i = 0; i < count_; ++i) {
    const auto value = load_float(type_, values.data() + i * size);
    auto& all = floats_[i];
    if (first) {
      all = value;
    } else if (operation_ == sum || operation_ == avg) {
      all += value;
    } else if (operation_ == prod) {
      all *= value;
    } else if (std::isnan(value) || (operation_ == min ? value < all : value > all)) {
      all = value;
    }
  }
}

void Reduction::write(std::span<std::byte> to) {
  const auto size = size_of(type_);
  const auto divisor = operation_ == avg ? std::max(ranks_, 1) : 1;
  for (std::size_t i = 0; i < count_; ++i) {
    auto* const here = to.data() + i * size;
    if (!is_integer(type_)) {
      store_float(type_, here, floats_[i] / divisor);
    } else if (is_signed(type_)) {
      const auto value = static_cast<std::int64_t>(integers_[i]) / divisor;
      std::memcpy(here, &value, size);
    } else {
      const auto value = integers_[i] / static_cast<std::uint64_t>(divisor);
      std::memcpy(here, &value, size);
    }
  }
}

}  // namespace emm::standin::nccl
