#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "format/pickle_value.hpp"
#include "trace/importers/address_book.hpp"
#include "trace/importers/import_run.hpp"
#include "trace/importers/live_table.hpp"
#include "trace/importers/stream_name.hpp"
#include "trace/importers/torch_row.hpp"

namespace emm::trace {

/// What the devices of one file count together.
struct TorchNumbers {
  std::optional<std::uint64_t> start_us;  ///< The time of the first row.
  std::uint64_t segments = 0;             ///< Named so far.
  std::optional<std::uint64_t> last_ns;   ///< The latest time that was asked for.

  /// Since the first row that was asked for; 0 of an earlier time.
  std::uint64_t since_start_ns(std::uint64_t time_us) {
    if (!start_us) start_us = time_us;
    const auto ns = time_us < *start_us ? 0 : (time_us - *start_us) * 1000;
    last_ns = std::max(last_ns.value_or(0), ns);
    return ns;
  }
};

/// The id of a private pool, as PyTorch writes it; of the default pool both are 0.
struct TorchPool {
  std::uint64_t owner = 0, number = 0;
  bool is_default() const noexcept { return owner == 0 && number == 0; }
  std::string member() const { return text::format("\"x-pool_id\":[{},{}]", owner, number); }
};

/// Memory that was there before the first row.
struct TorchMemory {
  std::uint64_t address = 0;
  std::uint64_t size = 0;     ///< Bytes; of what a caller holds, those it asked for.
  std::uint64_t granted = 0;  ///< Bytes of its block; 0: not known.
  std::uint64_t stream = 0;   ///< A handle.
  bool mapped = false;        ///< For a segment: it is a part of an expandable one.
  /// For what a caller held: it was freed already, and its free had not completed.
  bool pending = false;
  TorchPool pool{};  ///< For a segment.
  format::PickleValue
      frames{};            ///< The call stack of its allocation; absent where that is not known.
  std::uint64_t site = 0;  ///< Names the trace's `define`, by the frames; 0: none.
};

/// The events of one device's caching allocator, in their order, as operations of a trace.
///
/// free_requested is the caller's free. free_completed is where the allocator could use the address
/// again: said as a free in the backing layer where it did not follow at once (record_stream held
/// it back). Segments are what the allocator held from the device: memory of the backing layer,
/// named s1, s2, ... Where skipped rows leave no free_requested, the free_completed is the caller's
/// free. A free that no row completes has a backing free at the end that failed, since the device
/// was not ready; unless completions were not recorded at all.
///
/// A row may become several operations, and the state before the first row becomes operations
/// without rows: those beside the one that stands for the row say "x-no_row".
class TorchSession {
 public:
  /// Operations name `device`, where it is given. `numbers` outlives the session.
  TorchSession(ImportRun& run, TorchNumbers& numbers,
               std::optional<std::uint32_t> device = std::nullopt) noexcept
      : run_(run), numbers_(numbers), device_(device) {}

  /// Before the first row: a segment, or an allocation.
  Status held_before(const TorchMemory& segment);
  Status live_before(const TorchMemory& allocation);
  Status row(const TorchRow& row);
  /// The recording says of some free that it completed, or that it did not.
  void completions_are_recorded() noexcept { completions_ = true; }
  /// After the last row: the frees that did not complete, and what there is to say.
  /// ImportRun::finish() is the caller's to call.
  Status finish();

  std::uint64_t live_count() const noexcept { return live_.count(); }
  const ByteSum& live_bytes() const noexcept { return live_.bytes(); }
  std::uint64_t segment_count() const noexcept { return segments_.count(); }
  const ByteSum& reserved_bytes() const noexcept { return segments_.bytes(); }

 private:
  // Operations are large: they are made in one place, and completed there.
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
  void has_no_row(Operation& made);
  static void add_site(Operation& made, std::uint64_t site);
  Status again();

  ImportRun& run_;
  TorchNumbers& numbers_;
  std::optional<std::uint32_t> device_;
  StreamName stream_;
  LiveTable live_;       // by free_requested
  LiveTable requested_;  // free_requested, and not completed by the next row
  AddressBook segments_;
  struct Requested {
    std::uint64_t address = 0;
    LiveAllocation entry;
  };
  std::optional<Requested> just_requested_;          // by the last row
  std::map<std::uint64_t, std::string> extensions_;  // of segments that have some, by number
  std::string extension_;
  bool completions_ = false;
  std::uint64_t live_again_ = 0, other_size_ = 0, delayed_ = 0;
  std::uint64_t refused_with_room_ = 0, least_room_ = 0;
};

}  // namespace emm::trace
