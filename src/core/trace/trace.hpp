#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "format/block_row.hpp"
#include "trace/event.hpp"
#include "trace/expect.hpp"
#include "trace/frame_table.hpp"
#include "trace/header.hpp"
#include "trace/id.hpp"
#include "trace/id_table.hpp"
#include "trace/op.hpp"
#include "trace/operation_sink.hpp"
#include "trace/pool_steps.hpp"

namespace emm::trace {

/// The fields of an event that only few events have. Index 0 of the side table is an empty one.
struct Detail {
  Expect expect{};  ///< All of `expect` except same_as, which is the field below.
  AllocId same_as{};
  bool has_same_as = false;
  std::uint32_t handle = 0;   ///< get_ipc_handle, open_ipc_handle: from 1.
  std::uint32_t process = 0;  ///< 0 is the manager's own process; others are peers.
  std::uint32_t buffer = 0;   ///< mempin: number of the host buffer, from 1; 0: its own.
  std::uint64_t offset = 0;   ///< mempin: in the buffer; get_ipc_handle: as recorded.
  std::uint32_t page_offset = 0;
  std::uint64_t align = 0;
  std::uint64_t count = 0, bytes = 0;  ///< flush.
  std::uint64_t free = 0, total = 0;   ///< get_memory_info, as recorded.
  std::int32_t code = 0;               ///< The recorded result.
  std::string label;                   ///< mark: its text. Other operations: their label.
  std::vector<AllocId> uses;           ///< use: the memory that it touches.
  bool write = false;
  std::uint32_t record = 0;  ///< event_record, stream_wait, event_sync: from 1.
  bool operator==(const Detail&) const = default;
};

/// A context of the trace and its device.
struct ContextInfo {
  std::string name;
  std::uint32_t device = 0;
};

/// A whole trace in memory, in the form that a replay walks. An event takes at most 64 bytes, side
/// tables included, both while the trace is made and afterwards. After finish() the trace is
/// immutable and any thread may read it.
///
/// It holds every operation except `define`, `end` and "x-" ones. Where the trace has `seq`, they
/// are in the order of `seq`.
///
/// A device is named by its ordinal, so a recording of one process may name device 2 alone. An
/// operation that names neither context nor device, in a trace whose header has no default, belongs
/// to the context of the memory that it frees, uses, exports or opens. An operation about the trace
/// itself (`mark`, `gap`, `thread_begin`, `thread_end`) is on no device.
///
/// As a sink it checks what an engine relies on. It fails with parse_error at the first operation
/// that breaks a rule, or in finish() where a rule needs the whole order. The rules: each id is
/// made once and not reused; what is freed or exported was made before and is not freed yet (a free
/// after a reset is marked late); defer_cleanup is balanced per context; an Event can number all
/// contexts, threads and streams.
class Trace final : public OperationSink {
 public:
  Trace();
  ~Trace() override;
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;

  /// `source` names the trace in messages: a path, or "<stdin>".
  void set_source(std::string source);
  /// `id` was made twice, was not made, or had ended before. Empty if the fault is another one.
  using FaultHandler =
      std::function<void(std::uint32_t line, const Error& fault, std::string_view id)>;
  /// Reports each fault to `on_fault` instead of failing. The trace may then be inspected but not
  /// replayed. REQUIRES: before the header.
  void set_fault_handler(FaultHandler on_fault);
  /// Reads a trace that is longer than memory, in two passes. The first pass keeps no event. The
  /// second pass, which begin_again() starts, keeps the events that release_before() has not
  /// released, and at least the last `events`. Each operation is judged as it comes. An AllocId is
  /// reused once nobody can ask for its old id. With 0 there is no second pass. The reading fails,
  /// and needs_memory() is true, where the operations are not in the order of their seq or a replay
  /// has to look far back. REQUIRES: before the header.
  void keep_window(std::size_t events);
  bool is_window() const noexcept { return window_ != nullptr; }
  bool needs_memory() const noexcept;
  std::size_t window_events() const noexcept;
  /// Is memory or work on several streams? Answers only for a window, since its events cannot be
  /// walked.
  bool has_several_streams() const noexcept;
  /// The last event of a window that names the record (Detail::record).
  std::uint64_t last_mention(std::uint32_t record) const noexcept;
  /// Starts the second pass, after finish(). The answers of the functions below stay as they are.
  void begin_again();
  /// Has the second pass brought more than the first, so that the file must have changed?
  bool became_another() const noexcept;
  /// Releases the events before `index`. Call it on the thread that delivers the operations.
  void release_before(std::size_t index);
  /// The number of events that the operations so far became.
  std::size_t events_taken() const noexcept { return events_.size(); }
  /// Where the memory with this id was made. Only a window knows.
  struct Made {
    std::uint64_t event = 0;  ///< Counted from 1.
    std::uint32_t line = 0;
    SiteId site{};
  };
  std::optional<Made> made(AllocId id) const;
  /// The event that the last operation became, in a window that keeps no events. It and its
  /// detail() are valid until the next operation.
  const Event& last_event() const noexcept;
  /// The line and the time of an event. A window knows only those given to note_place().
  struct Place {
    std::uint32_t line = 0;
    std::uint64_t time_ns = 0;
  };
  Place place(std::size_t index) const noexcept;
  /// Stores what place() answers for this event of a window.
  void note_place(std::size_t index, const Place& place);

  Status on_header(const Header& header) override;
  Status on_operation(const Operation& operation) override;
  Status on_operations(compact::OperationRow& row, std::size_t most) override;
  Status finish() override;

  const std::string& source() const noexcept { return source_; }
  const Header& header() const noexcept { return header_; }
  /// May the event be read? In a whole trace all may. In a window, those of the second pass that
  /// are not released; the reader keeps track of which these are.
  bool holds(std::size_t index) const noexcept {
    return window_ == nullptr ? index < events_.size() : in_window(index);
  }
  std::size_t size() const noexcept { return total_ != 0 ? total_ : events_.size(); }
  const Event& operator[](std::size_t index) const noexcept { return events_[index]; }
  /// The number of leading events that lay out what existed before the recording: memory that is
  /// `preexisting`, and frees of it that were asked for before the first row. All of that exists at
  /// one moment, however many events say it. A free among them has event_flag::preexisting.
  std::size_t beginning() const noexcept { return beginning_; }
  /// The event after which memory is as the recording found it. What is said of an earlier event
  /// would be said of half of what existed.
  std::size_t first_moment() const noexcept { return beginning_ == 0 ? 0 : beginning_ - 1; }
  /// Are there still only events of the beginning? Asked while the operations come.
  bool is_in_beginning() const noexcept { return in_beginning_; }
  /// Is this a state without history: memory that existed before, and fewer than two requests of
  /// the program? One request reuses nothing, so nothing can be said of the program that made it.
  bool is_state() const noexcept { return beginning_ != 0 && requests_ < kRequestsMin; }
  /// The operation's own `seq`. Without one: the `seq` of the operation before it, or the index if
  /// the trace has no `seq` at all.
  std::uint64_t seq(std::size_t index) const noexcept;
  const Detail& detail(const Event& event) const noexcept {
    return event.detail < kPassing ? details_[event.detail] : passing_detail(event.detail);
  }

  std::size_t alloc_count() const noexcept;  ///< All AllocIds are below this.
  std::string name(AllocId id) const;        ///< As the file spells it.
  const std::vector<ContextInfo>& contexts() const noexcept { return contexts_; }
  const std::vector<std::string>& threads() const noexcept { return threads_; }
  /// The number that logs show for a thread: its name if that is a number, else its ThreadId.
  std::uint64_t thread_number(ThreadId thread) const noexcept {
    return thread_numbers_[index(thread)];
  }
  const std::vector<std::string>& streams() const noexcept {
    return streams_;
  }  ///< [0] is the default stream.
  std::uint64_t stream_number(StreamId stream) const noexcept {
    return stream_numbers_[index(stream)];
  }
  const std::vector<std::string>& processes() const noexcept {
    return processes_;
  }                                                         ///< [0] is the manager's.
  std::vector<std::string> site_frames(SiteId site) const;  ///< Innermost first; may be empty.
  /// The ordinals of the devices that contexts are on, ascending; at least one.
  const std::vector<std::uint32_t>& devices() const noexcept { return devices_; }
  std::size_t device_count() const noexcept { return devices_.size(); }
  std::uint64_t capacity(std::uint32_t device) const noexcept;  ///< As recorded; 0: unknown.
  /// The least recorded capacity of the trace's devices; 0 if none is recorded.
  std::uint64_t least_capacity() const noexcept;
  std::uint64_t extensions_skipped() const noexcept { return extensions_skipped_; }
  std::size_t pool_count() const noexcept { return pools_; }  ///< The number of named pools.
  /// What the program told its allocator about pools, which the operations do not show. Empty
  /// unless an analysis that knows that allocator has set it. A replay passes it to managers that
  /// have private pools.
  const PoolSteps& pool_steps() const noexcept { return pool_steps_; }
  void set_pool_steps(PoolSteps steps) { pool_steps_ = std::move(steps); }
  std::uint64_t peak_live_allocs() const noexcept {
    return peak_live_;
  }                                             ///< At any event; sizes the table of live memory.
  std::uint64_t memory_bytes() const noexcept;  ///< Heap bytes that the trace holds.

 private:
  struct Window;
  struct Building;    // State that only on_operation() needs; destroyed by finish().
  class Judge;        // The state of judge().
  class WindowJudge;  // That of judge_next(), beside what Window keeps.

  Event& at(std::size_t index) noexcept { return events_[index]; }
  Status fault(std::uint32_t line, Error error, std::string_view id = {}) const;

  Error too_many(const Operation& operation, std::string_view what) const;

  Status place(const Operation& operation, Event& event);
  Status number_id(const Operation& operation, Event& event);
  Status place_context(const Operation& operation, Event& event);
  std::uint32_t default_device() const noexcept;
  void place_detail(const Operation& operation, Event& event);
  void define_site(const Operation& operation);
  void note_seq(const Operation& operation, bool kept);
  Status sort_by_seq();
  Status judge();
  Status add_up(const Event& event, std::uint64_t bytes, std::uint64_t& asked) const;
  void make_times_relative() noexcept;

  /// A detail index from here on names a detail in the ring of a window.
  static constexpr std::uint32_t kPassing = std::uint32_t{1} << 31;
  const Detail& passing_detail(std::uint32_t detail) const noexcept;
  bool in_window(std::size_t index) const noexcept;
  AllocId place_id(const Operation& operation);
  AllocId place_use(const Id& id);
  std::string slot_name(std::uint32_t number) const;
  Status require_whole_trace(const Operation& operation, std::string_view why);
  Status look_at_stream(const Operation& operation, const Event& event);
  bool take_plain(const Operation& operation, Event& event);
  bool take_quickly(const Operation& operation);
  Status judge_next(const Operation& operation, Event& event);
  Error duplicate_id_error(const Event& event, std::string_view name) const;
  Error unmade_id_error(const Event& event, std::string_view name) const;
  Error ended_id_error(const Event& event, std::string_view name) const;
  Error not_opened_error(const Event& event, std::string_view name, Op made_by) const;
  Error not_deferred_error(const Event& event) const;
  void note_beginning(const Operation& operation, Event& event);
  /// Do more events have to be looked at, to know the beginning and whether this is a state?
  bool is_beginning() const noexcept { return in_beginning_ || is_state(); }
  void find_beginning() noexcept;

  std::string source_ = "<trace>";
  Header header_;
  format::BlockRow<Event, 11, std::size_t{16} << 20> events_;
  std::vector<Detail> details_{1};
  IdTable ids_;
  std::vector<ContextInfo> contexts_;
  std::vector<std::uint32_t> devices_;
  std::vector<std::string> threads_, streams_, processes_;
  std::vector<std::uint64_t> thread_numbers_, stream_numbers_;
  std::vector<FrameTable::Stack> sites_{1};
  FrameTable frames_;
  BlockVector<std::uint64_t> seqs_;  ///< Each event's seq * 2, see Building::seqs; empty while
                                     ///< first_seq_ + index is the seq.
  std::optional<std::uint64_t> first_seq_;  ///< The seq of the first event, if the trace has seqs.
  std::uint64_t extensions_skipped_ = 0;
  std::size_t pools_ = 0;
  PoolSteps pool_steps_;
  std::uint64_t peak_live_ = 0;
  // Fewer are a state, not a recording of a program.
  static constexpr std::uint32_t kRequestsMin = 2;
  std::size_t beginning_ = 0;
  std::uint32_t requests_ = 0;  ///< The program's, counted up to kRequestsMin.
  bool in_beginning_ = true;
  FaultHandler on_fault_;
  std::unique_ptr<Building> building_;
  std::unique_ptr<Window> window_;  ///< Null if all events are kept.
  std::size_t total_ = 0;  ///< The number of events of a window, known after the first pass.
};

}  // namespace emm::trace
