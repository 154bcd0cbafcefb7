#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::message {

/// Bytes that are only known to lie between two values, which both are possible.
struct Range {
  std::uint64_t least = 0, most = 0;
  bool operator==(const Range&) const = default;

  bool is_exact() const noexcept { return least == most; }
  std::uint64_t middle() const noexcept { return least + (most - least) / 2; }
};

Range operator+(Range a, Range b) noexcept;
/// The difference, where nothing is less than 0.
Range operator-(Range a, Range b) noexcept;
Range least_of(Range a, Range b) noexcept;

/// Is `a` at least `b`: for sure, for sure not, or not decided by the ranges (no value).
std::optional<bool> reaches(Range a, Range b) noexcept;

/// How a program cuts a count of bytes before it prints it.
enum class Rounding : std::uint8_t {
  nearest,    ///< printf of the quotient: PyTorch, RMM, CuPy, Paddle.
  truncates,  ///< TensorFlow and XLA first divide integers by 1024 until one unit is left.
};

/// A number of bytes as a message prints it.
struct Figure {
  Range bytes;
  std::string printed;  ///< "1.70 GiB"
};

/// A number with its unit at the beginning of `text`, which has no spaces: "1.70GiB", "1,024bytes",
/// "38.00M". A number without a unit is a count of bytes if `may_lack_unit`.
struct Token {
  std::size_t size = 0;  ///< Characters of `text`.
  std::size_t digits = 0;
  std::string_view unit{};
};
std::optional<Token> number_at(std::string_view text) noexcept;

/// The bytes that are printed so. None if there are more than 64 bits hold, as where a driver knows
/// no figure and its -1 is printed.
std::optional<Figure> figure(std::string_view digits, std::string_view unit, Rounding rounding);

/// A range for people: "1.70 GiB", "0.75 to 0.79 GiB", "up to 3.00 MiB".
std::string words_of(Range range);

}  // namespace emm::message
