#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "exchange/importers/address_table.hpp"
#include "exchange/importers/import_run.hpp"

namespace emm::trace {

/// One buffer of a placement problem. It is live from `lower` until just before `upper`.
struct PlacementRow {
  Id id{};
  bool has_id = false;  ///< False: the id is the number of the row.
  std::uint64_t lower = 0, upper = 0;
  std::uint64_t size = 0;   ///< Bytes.
  std::uint64_t align = 0;  ///< 0: no requirement.
};

/// Turns buffers with lifetimes, given in any order, into allocations and frees in the order of
/// time. Times are ordinals. At one time all frees come before all allocations, and each group is
/// in the order of its rows. Holds all rows, at most 2^32.
class PlacementRows {
 public:
  explicit PlacementRows(ImportRun& run) noexcept : run_(run) {}

  /// Counts the row. Returns false if another row has its id.
  bool add(const PlacementRow& row);
  /// Emits the operations and ends the trace.
  Result<ImportCounts> finish();

 private:
  struct Buffer {
    std::uint64_t size;
    std::uint64_t id;  // a number, or an index into names_
    std::uint32_t line;
    std::uint8_t align;  // log2 of the alignment; 0: no requirement
    bool named;
  };
  struct StoredRow {
    std::uint64_t lower, upper;
    Buffer buffer;
  };
  using Order = std::vector<std::uint32_t>;  // row numbers

  bool take_id(const PlacementRow& row, Buffer& buffer);
  bool take_number(std::uint64_t number);
  Order by_time(std::uint64_t StoredRow::*time) const;
  Order by_short_time(std::uint64_t StoredRow::*time, std::uint64_t all_bits) const;
  Status emit(const Buffer& buffer, bool begins);

  ImportRun& run_;
  std::vector<StoredRow> rows_;
  // The numbers used as ids: one run, since most files count, or else the table numbers_.
  std::uint64_t first_number_ = 0, numbers_in_run_ = 0;
  bool in_table_ = false;
  AddressTable<bool> numbers_;
  std::unordered_map<std::string, std::uint64_t> places_;
  std::vector<const std::string*> names_;
  std::uint64_t no_bytes_ = 0;
  Operation operation_;  // reused, since it is large and only a few members change
};

/// The header of a trace that is made from a placement problem.
Header placement_header();

}  // namespace emm::trace
