#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/text_format.hpp"
#include "exchange/importers/address_book.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/live_table.hpp"
#include "exchange/importers/stream_name.hpp"
#include "exchange/importers/torch_row.hpp"
#include "format/pickle_value.hpp"

namespace emm::trace {

/// Counters that the devices of one file share.
struct TorchNumbers {
  std::optional<std::uint64_t> start_us;  ///< The time of the first row.
  std::uint64_t segments = 0;             ///< The number of segments named so far.
  std::optional<std::uint64_t> last_ns;   ///< The latest time that since_start_ns() returned.

  /// Nanoseconds since the first row asked about; 0 for an earlier time.
  std::uint64_t since_start_ns(std::uint64_t time_us) {
    if (!start_us) start_us = time_us;
    const auto ns = time_us < *start_us ? 0 : (time_us - *start_us) * 1000;
    last_ns = std::max(last_ns.value_or(0), ns);
    return ns;
  }
};

/// The id of a private pool, as PyTorch writes it. Both numbers of the default pool are 0.
struct TorchPool {
  std::uint64_t owner = 0, number = 0;
  bool is_default() const noexcept { return owner == 0 && number == 0; }
  std::string member() const { return text::format("\"x-pool_id\":[{},{}]", owner, number); }
};

/// Memory that existed before the first row.
struct TorchMemory {
  std::uint64_t address = 0;
  std::uint64_t size = 0;     ///< Bytes; for an allocation the requested ones.
  std::uint64_t granted = 0;  ///< Bytes of the block; 0: unknown.
  std::uint64_t stream = 0;   ///< A handle.
  bool mapped = false;        ///< For a segment: part of an expandable segment.
  bool small = false;         ///< For a segment: the state says that it is of a small pool.
  /// For an allocation: freed already, but the free had not completed.
  bool pending = false;
  TorchPool pool{};              ///< For a segment.
  format::PickleValue frames{};  ///< The call stack of the allocation; absent if unknown.
  std::uint64_t site = 0;        ///< The site that a `define` describes with the frames; 0: none.
};

/// Turns the events of one device's caching allocator into operations of a trace, in their order.
///
/// free_requested is the caller's free. free_completed is the moment when the allocator could reuse
/// the address; if it did not follow at once, because record_stream held it back, it becomes a free
/// in the backing layer. Segments are what the allocator held from the device; they become memory
/// of the backing layer, named s1, s2, ... If skipped rows leave no free_requested, the
/// free_completed is the caller's free. A free that no row completes gets a backing free at the end
/// that failed, since the device was not ready, unless completions were not recorded at all.
///
/// One row may become several operations, and the state before the first row becomes operations
/// without rows. Every operation except the one that stands for its row has the member "x-no_row".
class TorchSession {
 public:
  /// Operations name `device`, if it is given. `numbers` must outlive the session.
  TorchSession(ImportRun& run, TorchNumbers& numbers,
               std::optional<std::uint32_t> device = std::nullopt) noexcept
      : run_(run), numbers_(numbers), device_(device) {}

  /// Call these before the first row, for each segment and each allocation.
  Status held_before(const TorchMemory& segment);
  Status live_before(const TorchMemory& allocation);
  Status row(const TorchRow& row);
  /// The recording shows of at least one free whether it completed.
  void completions_are_recorded() noexcept { completions_ = true; }
  /// After the last row: emits the frees that did not complete and adds the notes. The caller then
  /// calls ImportRun::finish().
  Status finish();

  std::uint64_t live_count() const noexcept { return live_.count(); }
  const ByteSum& live_bytes() const noexcept { return live_.bytes(); }
  std::uint64_t segment_count() const noexcept { return segments_.count(); }
  const ByteSum& reserved_bytes() const noexcept { return segments_.bytes(); }

 private:
  // Operations are large, so each is built in place and not copied.
  Operation common(Op op) const;
  Operation common(const TorchRow& row, Op op);
  void make_allocation(Operation& made, std::uint64_t address, std::uint64_t size,
                       std::uint64_t stream);
  void make_segment(Operation& made, std::string_view name, const TorchMemory& memory, Kind kind);
  Status alloc(const TorchRow& row);
  Status free_requested(const TorchRow& row);
  Status free_completed(const TorchRow& row);
  Status segment_begin(const TorchRow& row, Kind kind);
  Status segment_free(const TorchRow& row);
  Status segment_unmap(const TorchRow& row);
  Status oom(const TorchRow& row);
  Status mark(const TorchRow& row);

  Status end_of(const TorchRow& row, const LiveAllocation& ended);
  Status hold(const TorchRow& row, std::uint64_t address, std::uint64_t size, Kind kind);
  Status keep_part(const TorchRow& row, std::uint64_t segment, std::uint64_t address,
                   std::uint64_t size);
  Status hold(Operation made, std::uint64_t address, std::uint64_t size, std::uint64_t stream,
              Kind kind);
  Status release(const TorchRow& row, std::uint64_t segment, bool has_row = true);
  void mark_rowless(Operation& made);
  static void add_site(Operation& made, std::uint64_t site);
  Status again();

  ImportRun& run_;
  TorchNumbers& numbers_;
  std::optional<std::uint32_t> device_;
  StreamName stream_;
  LiveTable live_;       // until their free_requested
  LiveTable requested_;  // freed, but not completed by the very next row
  AddressBook segments_;
  struct Requested {
    std::uint64_t address = 0;
    LiveAllocation entry;
  };
  std::optional<Requested> just_requested_;          // by the previous row
  std::map<std::uint64_t, std::string> extensions_;  // by segment number
  std::string extension_;
  bool completions_ = false;
  std::uint64_t live_again_ = 0, other_size_ = 0, delayed_ = 0;
  std::uint64_t refused_with_room_ = 0, least_room_ = 0;
};

}  // namespace emm::trace
