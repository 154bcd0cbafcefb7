#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.hpp"
#include "exchange/exporter.hpp"
#include "exchange/importers/address_book.hpp"
#include "format/byte_sink.hpp"
#include "format/json_value.hpp"
#include "format/pickle_writer.hpp"
#include "trace/frame_table.hpp"
#include "trace/id_table.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

/// Call stacks to invent for allocations without a site; 0 stacks: none.
struct TorchFrames {
  std::uint64_t stacks = 0;  ///< Number of distinct stacks.
  std::uint64_t depth = 16;  ///< Frames per stack.
  std::uint64_t frames = 1;  ///< Number of distinct frames that stacks share. 0: stacks share none.
  bool own = false;          ///< Each allocation writes its stack anew; with 0 `stacks` all differ.
  std::uint64_t seed = 1;
};

/// Writes device and managed memory as PyTorch's _dump_snapshot() does: the rows of each device,
/// the segments and blocks at the end, the allocator's settings, and annotations. A snapshot that
/// the torch-pickle importer read becomes that snapshot again, as far as a trace can hold it.
///
/// Segments are those of the backing layer. An allocation outside of all segments gets a segment of
/// exactly its size for as long as it lives: the trace does not say what the manager held for it,
/// so the file has no more reserved than live. Addresses are the recorded ones. An allocation
/// without an address, or with one that is taken, gets an invented one, in a segment with room if
/// there is one. Other operations are left out and counted.
///
/// A snapshot begins with its final state and has its rows by device. Therefore finish() writes
/// everything, and until then about 70 bytes are held per operation. `out` must outlive the
/// writer. Errors: io_error.
class TorchPickleWriter final : public ExportSink {
 public:
  explicit TorchPickleWriter(format::ByteSink& out, const TorchFrames& frames = {});

  Status on_header(const Header& header) override;
  Status on_operation(const Operation& operation) override;
  Status finish() override;

  std::uint64_t rows() const noexcept { return rows_written_; }  ///< After finish().
  std::uint64_t left_out() const noexcept { return left_out_; }

 private:
  enum class Action : std::uint8_t {
    alloc,
    free_requested,
    free_completed,
    segment_alloc,
    segment_free,
    segment_map,
    segment_unmap,
    oom,
    snapshot,
    user_defined,
  };
  struct TraceRow {
    std::uint64_t address = 0, size = 0,
                  time_us = 0;  // address: for oom, the free bytes of the device
    std::uint32_t stream = 0, site = 0,
                  more = 0;  // index + 1 into streams_ and sites_, index into more_
    Action action = Action::alloc;
    std::uint8_t device = 0;
    bool has_time = false, has_address = true;
    bool completes = false;  // free_requested: its free_completed is the next row
    bool alone = false;      // the allocation has a segment of its own
  };
  struct Memory {
    enum class State : std::uint8_t { none, live, pending, ended };
    std::uint64_t address = 0, size = 0, granted = 0;
    std::uint32_t stream = 0, site = 0, more = 0;
    std::uint32_t row = 0;  // number + 1 of its free_requested row
    State state = State::none;
    std::uint8_t device = 0;
    bool backing = false, mapped = false, alone = false;
  };
  struct Context {
    std::uint32_t device = 0;
    std::vector<std::uint32_t> born;  // indices into memory_
  };
  /// Fields that few rows have.
  struct RareFields {
    std::string label, compile_context;
    bool has_pool = false;
    std::uint64_t pool[2] = {0, 0};
  };
  struct ExtensionFields {  // from the "x-" members of an operation
    RareFields more;
    bool no_row = false;
    std::string action;      // mark: the action of the row that it was
    std::uint64_t size = 0;  // mark: the size of that row
    bool has_device_free = false;
    std::uint64_t device_free = 0;
  };
  struct Annotation {
    std::uint64_t time_us = 0;
    std::uint32_t device = 0;
    std::string_view stage;
    std::string name;
  };
  struct Segment {
    Memory memory;
    bool small = false;
  };

  Error no_address(const Operation& operation) const;
  Status make(const Operation& operation, const ExtensionFields& said);
  Status hold(const Operation& operation, const ExtensionFields& said);
  void end(const Operation& operation, const ExtensionFields& said);
  void request_end(const Operation& operation, std::uint32_t which, bool has_row,
                   std::uint32_t more);
  void complete(const Operation& operation, Memory& memory, std::uint32_t more);
  void release(const Operation& operation, Memory& memory, const ExtensionFields& said);
  void end_context(const Operation& operation);
  void mark(const Operation& operation, const ExtensionFields& said);
  void refused(const Operation& operation, const ExtensionFields& said);
  void define(const Operation& operation);

  ExtensionFields said_by(const Operation& operation) const;
  std::uint32_t keep(const RareFields& more);
  std::uint32_t context_of(const Operation& operation);
  std::uint8_t device_of(const Operation& operation);
  std::uint32_t stream_of(const Operation& operation);
  std::uint32_t site_of(const Operation& operation);
  std::optional<std::uint64_t> place(const Operation& operation, std::uint8_t device);
  std::optional<std::uint64_t> hole_in_segments(std::uint8_t device, std::uint64_t size) const;
  bool lies_in_segments(std::uint8_t device, std::uint64_t address, std::uint64_t size) const;
  TraceRow row_of(const Operation& operation, Action action, std::uint8_t device);
  void add(const TraceRow& row);

  Status put_rows(std::uint8_t device);
  Status put_row(const TraceRow& row, Action action, std::uint64_t order);
  void put_stack(std::uint32_t site);
  void put_made_up_stack();
  void put_frame(std::string_view file, std::uint64_t line, std::string_view name);
  void put_made_up_frame(std::uint64_t number);
  Status put_segments();
  Status put_segment(const Segment& segment, std::vector<Memory>::const_iterator& block,
                     std::vector<Memory>::const_iterator last);
  void put_block(std::uint64_t address, std::uint64_t size, std::uint64_t requested,
                 std::string_view state, std::uint32_t site);
  void put_pool(const RareFields& more);
  void put_settings();
  void put_json(const format::JsonValue& value);
  Status put_annotations();
  Status batch();

  format::PickleWriter pickle_;
  TorchFrames frames_;
  Prng random_;

  BlockVector<TraceRow> rows_;
  BlockVector<Memory> memory_;  // indexed as ids_
  IdTable ids_, stream_names_, site_names_;
  std::vector<std::uint64_t> streams_;
  std::vector<Context> contexts_;
  std::map<std::string, std::uint32_t, std::less<>> context_places_;
  std::vector<FrameTable::Stack> sites_;
  FrameTable site_frames_;
  std::vector<RareFields> more_{{}};
  std::map<std::string, std::uint32_t, std::less<>> more_places_;
  std::vector<Annotation> annotations_;
  std::map<std::uint8_t, AddressBook> live_, held_;   // by device: requests; segments
  std::map<std::uint8_t, std::uint64_t> last_unmap_;  // row number + 1
  std::string source_options_, default_context_, default_process_;
  std::uint64_t start_us_ = 0, next_address_ = 0;
  std::uint32_t default_device_ = 0, devices_ = 0, marks_device_ = 0;
  Level level_ = Level::unknown;
  Outcome default_expect_ = Outcome::none;
  bool overflowed_ = false, timed_ = false;

  std::vector<format::PickleWriter::Memo> stacks_;  // by site; memo + 1
  std::vector<format::PickleWriter::Memo> made_up_stacks_,
      made_up_frames_;                        // memo + 1; 0: not written yet
  format::PickleWriter::Memo no_frames_ = 0;  // memo + 1
  std::uint64_t rows_written_ = 0, left_out_ = 0, batch_ = 0, stacks_made_ = 0;
  std::uint64_t managed_ = 0, no_bytes_ = 0, made_up_ = 0, alone_ = 0, by_reset_ = 0,
                untimed_marks_ = 0;
};

}  // namespace emm::trace
