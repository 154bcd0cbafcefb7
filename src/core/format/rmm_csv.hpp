#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// The rows of RMM's two CSV logs, exactly; writers and readers share these definitions. Lines end
/// with LF, nothing is quoted, sizes are in bytes.
namespace emm::format::rmm {

// The log of logging_resource_adaptor, since 21.06:
inline constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";

enum class Action : std::uint8_t { allocate, allocate_failure, free };
inline constexpr std::array<std::string_view, 3> kActionNames{"allocate", "allocate failure",
                                                              "free"};
constexpr std::string_view name(Action action) noexcept {
  return kActionNames[static_cast<std::size_t>(action)];
}

/// "23150,01:54:00.576568,allocate,0x700000000000,10302908,0"
struct Row {
  std::uint64_t thread = 0;  ///< The operating system's thread number, decimal.
  /// Local time of day, below 24 h; it wraps at midnight. RMM writes it in microseconds.
  std::uint64_t time_ns = 0;
  Action action = Action::allocate;
  std::uint64_t pointer = 0;  ///< As glibc's %p prints it: 0 is "(nil)".
  std::uint64_t size = 0;     ///< As requested.
  std::uint64_t stream = 0;   ///< As an ostream prints a pointer: 0 is "0", others are "0x..".
  bool operator==(const Row&) const = default;
};
inline constexpr std::uint64_t kDayNs = 86'400'000'000'000;

// The log of rmm.csv_log(), up to 0.14:
inline constexpr std::string_view kLegacyHeader =
    "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
    "Start,End,Elapsed,Location";

enum class LegacyEvent : std::uint8_t { alloc, realloc, free };
inline constexpr std::array<std::string_view, 3> kLegacyEventNames{"Alloc", "Realloc", "Free"};
constexpr std::string_view name(LegacyEvent event) noexcept {
  return kLegacyEventNames[static_cast<std::size_t>(event)];
}

/// "Alloc,0,0x7f4b99a00000,0,10,1048064,1048576,1,13.8011,13.8011,3.711e-06,notebook.py:3331"
struct LegacyRow {
  LegacyEvent event = LegacyEvent::alloc;
  std::uint32_t device = 0;
  std::uint64_t address = 0;  ///< Printed as an ostream prints a pointer, like `stream`.
  std::uint64_t stream = 0;
  std::uint64_t size = 0;
  std::uint64_t free = 0;  ///< Free bytes of the device; 0 if unknown, like `total`.
  std::uint64_t total = 0;
  std::uint64_t current_allocs = 0;  ///< Live pointers after the event.
  double start_s = 0;  ///< From the start of the log; six significant digits, like the other times.
  double end_s = 0;
  double elapsed_s = 0;
  std::string_view location{};  ///< "file:line"; may be empty.
};

/// Appends the row with its line end.
void append(std::string& out, const Row& row);

}  // namespace emm::format::rmm
