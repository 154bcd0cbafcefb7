#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exchange/importers/address_book.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/numba_row.hpp"

namespace emm::trace {

/// Turns the calls to Numba's manager into operations of a trace, in the order of the calls.
///
/// A pending_add is a free. A pointer that died makes it, or reset(), which frees what the manager
/// still holds. A free by reset() becomes no operation, since the replay's own reset does the same.
/// It is recognized by its place: after the reset, in the same thread, and before the flush that
/// ends the reset (contract: RST-2). Inside of defer_cleanup there is no such flush; every
/// pending_add that follows the reset with no other call between counts then (RST-8). Memory that
/// outlives the reset is freed later; that free is an operation, marked late.
///
/// A flush belongs to the operation before it. If nothing before it in its thread explains it, an
/// allocation that found the device full caused it (DEV-3). The row of that allocation comes later,
/// and the flush is placed behind it.
class NumbaSession {
 public:
  NumbaSession(ImportRun& run, std::uint64_t default_thread) noexcept
      : run_(run), default_thread_(default_thread) {}

  Status row(const NumbaRow& row);  ///< Takes the rows in the order of `seq`.
  Result<ImportCounts> finish();

 private:
  Status take(const NumbaRow& row);
  Status flush_held();
  Operation common(const NumbaRow& row, Op op) const;
  Status plain(const NumbaRow& row, Op op);
  Status make(const NumbaRow& row, Op op);
  Status pin(const NumbaRow& row);
  Status unpin(const NumbaRow& row);
  Status ipc_export(const NumbaRow& row);
  Status defer_begin(const NumbaRow& row);
  Status defer_end(const NumbaRow& row);
  Status reset(const NumbaRow& row);
  Status pending_add(const NumbaRow& row);
  Status pending_flush(const NumbaRow& row);
  Status unknown(const NumbaRow& row);

  std::optional<std::uint64_t> ended_by_reset(const NumbaRow& row);
  Status leave_reset();
  void take_as_reset(const NumbaRow& row);
  Status free(const NumbaRow& row, std::uint64_t id);

  ImportRun& run_;
  std::uint64_t default_thread_;
  AddressBook memory_, pins_;
  AddressBook ended_by_reset_, pins_ended_by_reset_;
  std::map<std::uint64_t, std::uint64_t> buffers_;  // every buffer ever pinned, by address
  std::uint64_t handles_ = 0;
  std::uint64_t depth_ = 0;  // nesting of defer_cleanup

  bool in_reset_ = false;
  std::uint64_t reset_thread_ = 0;
  struct Held {
    NumbaRow row;
    std::uint64_t id;
  };
  std::vector<Held> held_;  // frees since the reset or its last flush: its own, or late
  std::uint64_t last_seq_ = 0;

  std::map<std::uint64_t, NumbaCall> last_call_;  // by thread
  std::optional<NumbaRow> held_flush_;            // waits until its operation is known

  // What the recorded queues should hold: that of the manager, and that of the context, with
  // events, streams and modules.
  std::uint64_t queued_ = 0, queued_bytes_ = 0, context_queued_ = 0;
  bool context_added_last_ = false;

  std::uint64_t of_resets_ = 0, late_ = 0, not_memory_ = 0, context_flushes_ = 0,
                other_flushes_ = 0, unexplained_flushes_ = 0;
  std::uint64_t live_again_ = 0, foreign_exports_ = 0, unbalanced_ = 0;
  std::map<std::string, std::uint64_t> unknown_;
};

}  // namespace emm::trace
