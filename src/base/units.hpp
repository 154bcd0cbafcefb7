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

/// "512", "4KiB", "1.5GiB" (also "4K", "4KB": both are 1024), case ignored, to bytes. A fraction
/// must come out as whole bytes.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// "250ns", "10us", "1.5ms", "2s", and a bare count of nanoseconds, to nanoseconds.
Result<std::uint64_t> parse_ns(std::string_view text);
/// 1610612736 to "1.50 GiB"; below 1 KiB, "512 B". For people: not exact.
std::string bytes(std::uint64_t value);
/// As bytes(), but 4194304 to "4 MiB": for the marks of an axis.
std::string round_bytes(std::uint64_t value);
/// 1500 to "1.50 us". For people: not exact.
std::string ns(double value);

}  // namespace units
}  // namespace emm
