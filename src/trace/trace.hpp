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
#include "trace/frame_table.hpp"
#include "trace/id_table.hpp"
#include "trace/operation.hpp"
#include "trace/pool_steps.hpp"

namespace emm::trace {

/// What few events have. Index 0 of the side table is this, empty.
struct Detail {
  Expect expect{};  ///< All of `expect` but same_as, which is below.
  AllocId same_as{};
  bool has_same_as = false;
  std::uint32_t handle = 0;   ///< get_ipc_handle, open_ipc_handle: which handle, counted from 1.
  std::uint32_t process = 0;  ///< 0 is the process that the manager is in; others are peers.
  std::uint32_t buffer = 0;   ///< mempin: which host buffer, counted from 1; 0: one of its own.
  std::uint64_t offset = 0;   ///< mempin: in the buffer; get_ipc_handle: recorded.
  std::uint32_t page_offset = 0;
  std::uint64_t align = 0;
  std::uint64_t count = 0, bytes = 0;  ///< flush.
  std::uint64_t free = 0, total = 0;   ///< get_memory_info, as recorded.
  std::int32_t code = 0;               ///< Recorded result.
  std::string label;                   ///< mark: its text.
  std::vector<AllocId> uses;           ///< use.
  bool write = false;
  std::uint32_t record = 0;  ///< event_record, stream_wait, event_sync: counted from 1.
  bool operator==(const Detail&) const = default;
};

/// A context of the trace, and the device that it is on.
struct ContextInfo {
  std::string name;
  std::uint32_t device = 0;
};

/// A whole trace in memory, as a replay walks it: at most 64 bytes an event while it is being made
/// and when it is done, side tables included. Immutable once finished; any thread may then read.
///
/// Holds every operation but `define`, `end` and "x-" ones, in the order of `seq` where the trace
/// has it.
///
/// A device's ordinal is its name: a recording of one process of several may have device 2 alone.
/// An operation that says neither context nor device, nor has the header a default, is where the
/// memory is that it frees, uses, exports or opens; one about the trace itself (`mark`, `gap`,
/// `thread_begin`, `thread_end`) is on no device.
///
/// As a sink it judges what an engine must be able to rely on, and fails with parse_error at the
/// first operation that breaks it, in finish() where only the whole order can tell: an id is made
/// once and not reused, what is freed or exported was made before and not freed already (a free
/// after a reset is marked late), defer_cleanup is balanced per context, and there are no more
/// contexts, threads or streams than an Event can name.
class Trace final : public OperationSink {
 public:
  Trace();
  ~Trace() override;
  Trace(Trace&&) noexcept;
  Trace& operator=(Trace&&) noexcept;

  /// `source` names the trace in messages: a path, or "<stdin>".
  void set_source(std::string source);
  /// Instead of failing, tells `on_fault` of each fault; the trace is then for looking at, not for
  /// a replay. REQUIRES: before the header.
  void set_fault_handler(std::function<void(std::uint32_t line, const Error& fault)> on_fault);
  /// Of a trace that is longer than memory: reads it twice, keeps no event the first time, and the
  /// second time, after begin_again(), only those that release_before() has not let go, `events` at
  /// least. What it judges it judges at once. AllocIds are then given again once nobody can ask for
  /// the old one. With 0 there is no second time. Where a trace cannot be read so, since its
  /// operations are not in the order of their seq, or a replay looks far back in it, an error ends
  /// the reading, and needs_memory(). REQUIRES: before the header.
  void keep_window(std::size_t events);
  bool is_window() const noexcept { return window_ != nullptr; }
  bool needs_memory() const noexcept;
  std::size_t window_events() const noexcept;
  /// Has it memory, or work on it, on several streams? Only of a window, which cannot be walked.
  bool has_several_streams() const noexcept;
  /// Of a window: the last event that names a record (Detail::record).
  std::uint64_t last_mention(std::uint32_t record) const noexcept;
  /// After finish(): now the same operations come again. What is asked below stays as it is.
  void begin_again();
  /// Is what came since begin_again() more than came before it, so that another file was read?
  bool became_another() const noexcept;
  /// Lets go of the events before `index`. By the thread that the operations come from.
  void release_before(std::size_t index);
  /// The last operation is behind this event.
  std::size_t events_taken() const noexcept { return events_.size(); }
  /// Of a window: where the memory was made that has this id.
  struct Made {
    std::uint64_t event = 0;  ///< Counted from 1.
    std::uint32_t line = 0;
    SiteId site{};
  };
  std::optional<Made> made(AllocId id) const;
  /// Of a window whose events are not kept: the event that the last operation became, until the
  /// next one comes, as is what detail() has of it.
  const Event& last_event() const noexcept;
  /// Where an event is in its file, and when. Of a window only what note_place() was called for.
  struct Place {
    std::uint32_t line = 0;
    std::uint64_t time_ns = 0;
  };
  Place place(std::size_t index) const noexcept;
  /// Of a window: what place() then answers.
  void note_place(std::size_t index, const Place& place);

  Status on_header(const Header& header) override;
  Status on_operation(const Operation& operation) override;
  Status on_operations(compact::OperationRow& row, std::size_t most) override;
  Status finish() override;

  const std::string& source() const noexcept { return source_; }
  const Header& header() const noexcept { return header_; }
  /// Can the event be looked at? All of a whole trace; of a window, while it is read for the second
  /// time, what was not let go: which that is its reader knows.
  bool holds(std::size_t index) const noexcept {
    return window_ == nullptr ? index < events_.size() : in_window(index);
  }
  std::size_t size() const noexcept { return total_ != 0 ? total_ : events_.size(); }
  const Event& operator[](std::size_t index) const noexcept { return events_[index]; }
  /// The operation's own `seq`; that of the one before it where it has none, and the index in a
  /// trace without any.
  std::uint64_t seq(std::size_t index) const noexcept;
  const Detail& detail(const Event& event) const noexcept {
    return event.detail < kPassing ? details_[event.detail] : passing_detail(event.detail);
  }

  std::size_t alloc_count() const noexcept;  ///< AllocIds are below this.
  std::string name(AllocId id) const;        ///< As the file has it.
  const std::vector<ContextInfo>& contexts() const noexcept { return contexts_; }
  const std::vector<std::string>& threads() const noexcept { return threads_; }
  /// The number that logs show for a thread: its name where that is a number, else its ThreadId.
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
  std::uint64_t capacity(std::uint32_t device) const noexcept;  ///< As recorded; 0: not said.
  /// The least recorded capacity of its devices; 0 where none is recorded.
  std::uint64_t least_capacity() const noexcept;
  std::uint64_t extensions_skipped() const noexcept { return extensions_skipped_; }
  std::size_t pool_count() const noexcept { return pools_; }  ///< That have a name.
  /// What the program said of the pools of its allocator, which the operations do not tell: empty
  /// unless somebody who knows that allocator found it out. A replay tells it to managers that have
  /// private pools.
  const PoolSteps& pool_steps() const noexcept { return pool_steps_; }
  void set_pool_steps(PoolSteps steps) { pool_steps_ = std::move(steps); }
  std::uint64_t peak_live_allocs() const noexcept {
    return peak_live_;
  }                                             ///< At any event; sizes a live set.
  std::uint64_t memory_bytes() const noexcept;  ///< What this holds on the heap.

 private:
  struct Window;
  struct Building;  // what only on_operation needs; gone after finish()

  Event& at(std::size_t index) noexcept { return events_[index]; }
  Status fault(std::uint32_t line, Error error) const;

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
  void make_times_relative() noexcept;

  /// Event::detail from here on is of what a window lets go with its events.
  static constexpr std::uint32_t kPassing = std::uint32_t{1} << 31;
  const Detail& passing_detail(std::uint32_t detail) const noexcept;
  bool in_window(std::size_t index) const noexcept;
  AllocId place_id(const Operation& operation);
  AllocId place_use(const Id& id);
  std::string slot_name(std::uint32_t number) const;
  Status needs_all(const Operation& operation, std::string_view why);
  Status look_at_stream(const Operation& operation, const Event& event);
  bool take_plain(const Operation& operation, Event& event);
  bool take_quickly(const Operation& operation);
  Status judge_next(const Operation& operation, Event& event);
  Error made_again(const Event& event, std::string_view name) const;
  Error is_unmade(const Event& event, std::string_view name) const;
  Error has_ended(const Event& event, std::string_view name) const;
  Error is_not_opened(const Event& event, std::string_view name, Op made_by) const;
  Error is_not_deferred(const Event& event) const;

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
  BlockVector<std::uint64_t> seqs_;         ///< Each event's, doubled; empty where counting tells.
  std::optional<std::uint64_t> first_seq_;  ///< The first event's, where the trace has seqs.
  std::uint64_t extensions_skipped_ = 0;
  std::size_t pools_ = 0;
  PoolSteps pool_steps_;
  std::uint64_t peak_live_ = 0;
  std::function<void(std::uint32_t, const Error&)> on_fault_;
  std::unique_ptr<Building> building_;
  std::unique_ptr<Window> window_;  ///< Null where all events are kept.
  std::size_t total_ = 0;           ///< Of a window, once it is known: how many events there are.
};

}  // namespace emm::trace
