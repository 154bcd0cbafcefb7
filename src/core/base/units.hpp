#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace emm {

constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }
constexpr std::uint64_t operator""_TiB(unsigned long long n) { return n << 40; }

namespace units {

/// Reads a size: "512", "4KiB", "1.5GiB", case ignored. "4K" is 4KiB, and "4KB" is 4000 bytes.
/// Drops a fraction of a byte; but a plain count of bytes must be whole.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// Reads the capacity of a device. A number without a unit that is less than a mebibyte lacks one.
Result<std::uint64_t> parse_capacity(std::string_view text);
/// Reads a time in nanoseconds: "250ns", "10us", "1.5ms", "2s", or a plain count of nanoseconds.
Result<std::uint64_t> parse_ns(std::string_view text);
/// Formats 1610612736 as "1.50 GiB", and below 1 KiB as "512 B". For people: not exact.
std::string bytes(std::uint64_t value);
/// Formats three digits: "1.50 GiB", "15.0 GiB", "150 GiB". For the first answer of a command.
std::string short_bytes(std::uint64_t value);
/// Like short_bytes(), with the last digit rounded up: memory of that size is enough.
std::string enough_bytes(std::uint64_t value);
/// From here on bytes(), short_bytes() and enough_bytes() write "1,610,612,736 B": what --bytes
/// asks for.
void write_exact_bytes();
/// Answers whether they do.
bool writes_exact_bytes();
/// Like bytes(), but 4194304 as "4 MiB". For the marks of an axis.
std::string round_bytes(std::uint64_t value);
/// Formats 1500 as "1.50 us". For people: not exact.
std::string ns(double value);

}  // namespace units
}  // namespace emm
