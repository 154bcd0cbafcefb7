#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "trace/importers/import_run.hpp"
#include "trace/importers/live_table.hpp"

namespace emm::trace {

/// Rows that give memory out at an address and take it back there, as operations: each row is
/// counted, and a free is that of what was given out last at its address. An operation that is
/// passed in has what the row says beside that (time, thread, stream, device, ...), and is
/// completed and emitted here.
///
/// Memory of 0 bytes is nothing that a manager hands out (cuMemAlloc refuses it): its rows are
/// counted as `other`, its frees too. Memory is bounded by what is live.
class PairedRows {
 public:
  /// What the numbers that pair rows are: `names` are not addresses, and are not kept.
  enum class Addresses { recorded, names };

  explicit PairedRows(ImportRun& run, Addresses addresses = Addresses::recorded) noexcept
      : run_(run), addresses_(addresses) {}

  /// Addresses mean something within one process: rows until the next call are of that one. It
  /// starts as 0.
  void of_process(std::uint64_t process) { book_ = &books_[process]; }

  /// Emits `op`, a memalloc where it is not another that allocates, of `size` bytes.
  Status allocate(Operation& op, std::uint64_t address, std::uint64_t size);
  /// Emits `op` as a request that failed.
  Status allocate_failure(Operation& op, std::uint64_t size, Outcome outcome);
  /// Emits `op` as a free. `size`, where the row has one, is compared with the allocation's.
  Status free(Operation& op, std::uint64_t address,
              std::optional<std::uint64_t> size = std::nullopt);

  /// Adds its notes and ends the trace.
  Result<ImportCounts> finish();

 private:
  Status nothing(std::uint64_t& count);
  Status make(Operation& op, std::uint64_t size);

  ImportRun& run_;
  Addresses addresses_;
  std::map<std::uint64_t, LiveTable> books_;
  LiveTable* book_ = &books_[0];
  std::map<std::uint64_t, std::uint64_t>
      empty_;  // how many allocations of 0 bytes are at an address
  std::uint64_t null_ = 0, no_bytes_ = 0, live_again_ = 0, other_size_ = 0;
};

}  // namespace emm::trace
