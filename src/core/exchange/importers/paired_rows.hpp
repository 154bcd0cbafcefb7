#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "exchange/importers/import_run.hpp"
#include "exchange/importers/live_table.hpp"

namespace emm::trace {

/// Turns rows that allocate or free memory at an address into operations, and counts the rows. A
/// free ends the last allocation at its address. The caller passes an operation with the row's
/// other members (time, thread, stream, device, ...); this class completes and emits it.
///
/// No manager hands out memory of 0 bytes (cuMemAlloc refuses it), so rows of 0 bytes and their
/// frees are counted as `other`. Memory is bounded by what is live.
class PairedRows {
 public:
  /// The meaning of the numbers that pair rows. `names` are not addresses; the trace does not keep
  /// them.
  enum class Addresses { recorded, names };

  explicit PairedRows(ImportRun& run, Addresses addresses = Addresses::recorded) noexcept
      : run_(run), addresses_(addresses) {}

  /// Sets the process of the rows up to the next call, since an address means something in one
  /// process only. It starts as 0.
  void of_process(std::uint64_t process) { book_ = &books_[process]; }

  /// Emits `op` as an allocation of `size` bytes; a memalloc, unless `op` is another allocating
  /// one.
  Status allocate(Operation& op, std::uint64_t address, std::uint64_t size);
  /// Emits `op` as a failed request.
  Status allocate_failure(Operation& op, std::uint64_t size, Outcome outcome);
  /// Emits `op` as a free. Compares `size`, if the row has one, with that of the allocation.
  Status free(Operation& op, std::uint64_t address,
              std::optional<std::uint64_t> size = std::nullopt);

  /// Adds the notes and ends the trace.
  Result<ImportCounts> finish();

 private:
  Status nothing(std::uint64_t& count);
  Status make(Operation& op, std::uint64_t size);

  ImportRun& run_;
  Addresses addresses_;
  std::map<std::uint64_t, LiveTable> books_;
  LiveTable* book_ = &books_[0];
  std::map<std::uint64_t, std::uint64_t> empty_;  // number of allocations of 0 bytes, by address
  std::uint64_t null_ = 0, no_bytes_ = 0, live_again_ = 0, other_size_ = 0;
};

}  // namespace emm::trace
