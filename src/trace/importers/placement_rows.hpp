#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "trace/importers/address_table.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// One buffer of a placement problem: needed from `lower` until before `upper`.
struct PlacementRow {
  Id id{};
  bool has_id = false;  ///< Else the row's own number is its id.
  std::uint64_t lower = 0, upper = 0;
  std::uint64_t size = 0;   ///< Bytes.
  std::uint64_t align = 0;  ///< 0: not said.
};

/// Buffers with lifetimes, in any order, as allocations and frees in the order of time. Times are
/// ordinals: what ends at a time ends before what begins at it, and both stand in the order of
/// their rows. Holds all rows, which may be no more than 2^32.
class PlacementRows {
 public:
  explicit PlacementRows(ImportRun& run) noexcept : run_(run) {}

  /// False where another row has the id. Counts the row.
  bool add(const PlacementRow& row);
  /// Emits the operations, and ends the trace.
  Result<ImportCounts> finish();

 private:
  struct Buffer {
    std::uint64_t size;
    std::uint64_t id;  // a number, or which of names_
    std::uint32_t line;
    std::uint8_t align;  // the power of two; 0: not said
    bool named;
  };
  struct StoredRow {
    std::uint64_t lower, upper;
    Buffer buffer;
  };
  using Order = std::vector<std::uint32_t>;  // rows, by their number

  bool take_id(const PlacementRow& row, Buffer& buffer);
  bool take_number(std::uint64_t number);
  Order by_time(std::uint64_t StoredRow::*time) const;
  Order by_short_time(std::uint64_t StoredRow::*time, std::uint64_t all_bits) const;
  Status emit(const Buffer& buffer, bool begins);

  ImportRun& run_;
  std::vector<StoredRow> rows_;
  // The numbers that are ids: those of a run, as most files count, or else in a table.
  std::uint64_t first_number_ = 0, numbers_in_run_ = 0;
  bool in_table_ = false;
  AddressTable<bool> numbers_;
  std::unordered_map<std::string, std::uint64_t> places_;
  std::vector<const std::string*> names_;
  std::uint64_t no_bytes_ = 0;
  Operation operation_;  // the last: it is large, and but a few of its members change
};

/// The header of a trace made of a placement problem.
Header placement_header();

}  // namespace emm::trace
