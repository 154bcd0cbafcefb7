#pragma once

#include <cstdint>
#include <string>

#include "trace/importers/address_book.hpp"
#include "trace/importers/import_run.hpp"
#include "trace/importers/stream_name.hpp"
#include "trace/importers/torch_row.hpp"

namespace emm::trace {

/// The events of one device's caching allocator, in their order, as operations of a trace.
///
/// free_requested is the caller's free. free_completed is where the allocator could use the address again: said
/// as a free in the backing layer where it did not follow at once (record_stream held it back). Segments are what
/// the allocator held from the device: memory of the backing layer, named s1, s2, ...
class TorchSession {
 public:
  explicit TorchSession(ImportRun& run) noexcept : run_(run) {}

  Status row(const TorchRow& row);
  Result<ImportCounts> finish();

 private:
  Operation common(const TorchRow& row, Op op);
  Status alloc(const TorchRow& row);
  Status free_requested(const TorchRow& row);
  Status free_completed(const TorchRow& row);
  Status segment_begin(const TorchRow& row, Kind kind);
  Status segment_free(const TorchRow& row);
  Status segment_unmap(const TorchRow& row);
  Status oom(const TorchRow& row);
  Status snapshot(const TorchRow& row);

  Status hold(const TorchRow& row, std::uint64_t address, std::uint64_t size, Kind kind);
  Status give_back(const TorchRow& row, std::uint64_t segment);
  Status again();

  ImportRun& run_;
  StreamName stream_;
  AddressBook live_;       // by free_requested
  AddressBook requested_;  // free_requested, and not completed
  AddressBook segments_;
  std::uint64_t last_segment_ = 0;
  bool started_ = false;
  std::uint64_t start_us_ = 0;
  bool just_requested_ = false;  // the last row was free_requested, of this address:
  std::uint64_t just_requested_at_ = 0;
  std::uint64_t live_again_ = 0, other_size_ = 0;
};

}  // namespace emm::trace
