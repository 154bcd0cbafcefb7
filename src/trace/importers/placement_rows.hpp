#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.hpp"
#include "trace/importers/import_run.hpp"

namespace emm::trace {

/// One buffer of a placement problem: needed from `lower` until before `upper`.
struct PlacementRow {
  std::string id;           ///< Empty: the row's own number.
  std::uint64_t lower = 0, upper = 0;
  std::uint64_t size = 0;   ///< Bytes.
  std::uint64_t align = 0;  ///< 0: not said.
};

/// Buffers with lifetimes, in any order, as allocations and frees in the order of time. Times are ordinals: what ends
/// at a time ends before what begins at it, and both stand in the order of their rows. Holds all rows.
class PlacementRows {
 public:
  explicit PlacementRows(ImportRun& run) noexcept : run_(run) {}

  /// False where another row has the id. Counts the row.
  bool add(PlacementRow row);
  /// Emits the operations, and ends the trace.
  Result<ImportCounts> finish();

 private:
  struct Buffer {
    PlacementRow row;
    std::uint32_t line;
  };

  Status emit(const Buffer& buffer, bool begins);

  ImportRun& run_;
  std::vector<Buffer> buffers_;
  std::unordered_set<std::string> ids_;
  std::uint64_t no_bytes_ = 0;
};

/// The header of a trace made of a placement problem.
Header placement_header();

}  // namespace emm::trace
