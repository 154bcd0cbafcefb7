#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_sum.hpp"
#include "emm/memory_statistics.hpp"
#include "replay/address_map.hpp"
#include "replay/content.hpp"
#include "replay/engine.hpp"
#include "replay/histogram.hpp"
#include "replay/host_buffers.hpp"
#include "replay/lane.hpp"
#include "replay/live_set.hpp"
#include "replay/pace.hpp"
#include "replay/record_order.hpp"

namespace emm::replay {

/// What a pass pays for, beside carrying out the operations. Each combination is a loop of its own,
/// so that the bare one tests for nothing.
namespace feature {
inline constexpr unsigned checks = 1;
inline constexpr unsigned times = 2;  ///< A time for each operation.
inline constexpr unsigned watched =
    4;  ///< There is a log, or content or stream order is looked at.
}  // namespace feature

inline constexpr std::uint64_t kAlignment = 256;  ///< Of device memory where a trace does not say.

trace::Outcome outcome_of(const Error& error) noexcept;

/// Does it make memory, of the device or of the host?
constexpr bool makes(trace::Op op) noexcept {
  return op == trace::Op::memalloc || op == trace::Op::memallocmanaged ||
         op == trace::Op::memhostalloc || op == trace::Op::mempin;
}

/// Is Event::id the id of an allocation?
constexpr bool names_memory(trace::Op op) noexcept {
  return op >= trace::Op::memalloc && op <= trace::Op::close_ipc_handle;
}

/// At the beginning of ReplayOptions::kept. The summary is there twice, so that one is whole while
/// the other is written.
struct Kept {
  enum class Stage : std::uint32_t { none, running, over };
  std::atomic<Stage> stage{Stage::none};
  std::atomic<std::uint32_t> current{0};
  std::array<std::uint64_t, 2> sizes{};

  static constexpr std::size_t kRunBytes = std::size_t{256} << 10;  ///< After this, for the run.
  static constexpr std::size_t kSummaryBytes = (kKeptBytes - 2 * kRunBytes) / 2;
  static std::size_t summary_at(std::uint32_t which) noexcept {
    return 2 * kRunBytes + which * kSummaryBytes;
  }
};

/// One replay: all of Engine::run(). Its parts are in files by what they do, and dispatch.cpp says
/// which serves what.
class Parallel;

class Run {
  friend class Parallel;

 public:
  Run(const trace::Trace& trace, Stack& stack, const ReplayOptions& options, log::RecordSink* log);
  ~Run();

  Result<log::Summary> run();
  /// Of a run whose process is gone: numbers are taken from it, all else from `summary`.
  void add_numbers(log::Summary& summary) const;
  bool has_threads() const noexcept { return parallel_ != nullptr; }
  log::Failure ended_at(const trace::Trace& trace, const log::Abnormal& how) const;

 private:
  using Event = trace::Event;
  using Op = trace::Op;
  using Outcome = trace::Outcome;

  /// Page-locked memory that is held, and the pageable memory under a pin.
  struct Host {
    HostMemory memory;
    std::uint64_t size = 0;
    std::uint64_t shown = 0;  ///< Its address, as logs show it.
    Op made_by = Op::memhostalloc;
    ContextId context{};
    bool ended = false;   ///< By a reset.
    bool filled = false;  ///< Has its pattern, and nobody else writes there.
  };
  /// A handle as get_ipc_handle gave it, or what it answered instead.
  struct Export {
    std::optional<IpcHandle> handle;
    AllocId of{};
    std::uint64_t start = 0;  ///< Of the exported part, in the allocation.
    ContextId context{};
    Outcome outcome = Outcome::ok;
  };
  struct Import {
    Peer* peer = nullptr;  ///< Null: opened in this process.
    std::uint32_t opening = 0;
    std::uint32_t handle = 0;
    std::uint64_t size = 0;
    std::uint64_t address = 0;
  };
  struct Refused {
    std::uint64_t bytes = 0;  ///< Of device memory.
    Outcome outcome = Outcome::none;
  };
  struct Times {
    std::uint64_t begin_ns = 0, end_ns = 0;
  };

  // engine.cpp
  Status begin_threads();
  void open_all();
  void pass(unsigned number);
  std::size_t preexisting() const;
  void count_leaks();
  void end_leftovers(bool logged);
  void check_balance();
  void finish();
  std::uint64_t now() const noexcept { return clock_.now_ns() - hidden_ns_; }
  std::uint64_t model_ns() const noexcept {
    return model_clock_ == nullptr ? 0 : model_clock_->now_ns();
  }
  void name_run();
  /// Keeps what was found so far where another process sees it.
  void keep(Kept::Stage stage);

  // dispatch.cpp
  /// What a thread leaves to the run: all but device memory.
  void serve_rare(const Event& event);
  std::size_t walk(std::size_t begin,
                   std::size_t end);  ///< Returns where it stopped: after the last event served.
  template <unsigned F>
  std::size_t walk_with(std::size_t begin, std::size_t end);
  template <unsigned F>
  void dispatch(const Event& event);
  template <unsigned F>
  void memalloc(const Event& event);
  template <unsigned F>
  void memallocmanaged(const Event& event);
  static Result<MemoryPointer> managed(const Event& event, Lane& lane);
  template <unsigned F>
  void made(const Event& event, Lane& lane, Result<MemoryPointer>& memory, Times times);
  /// Memory that `event` made, in an entry that nobody sees until LiveSet::show().
  std::uint32_t hold(const Event& event, MemoryPointer&& memory, LiveSet::Cache& cache) {
    const auto slot = live_.add(event.id, cache);
    auto& live = live_[slot];
    live.memory = std::move(memory);
    live.size = event.size;
    live.context = event.context;
    live.stream = event.stream;
    live.made_on = event.thread;
    live.made_by = event.op;
    live.ended = false;
    live.placed = false;
    return slot;
  }
  template <unsigned F>
  void free(const Event& event);

  // contexts.cpp
  /// Null where the context could not be made; that ends the run.
  Lane* lane(ContextId id) {
    auto& found = *lanes_[index(id)];
    return found.open() || open(found) ? &found : nullptr;
  }
  bool open(Lane& lane);
  void initialize(const Event& event);
  void get_memory_info(const Event& event);
  void defer_cleanup(const Event& event);
  void end_defer_cleanup(const Event& event);
  /// Of a trace's only pool, which the manager then is; the trims of one among others are left out.
  void trim(const Event& event);
  void reset(const Event& event);
  void create_context(const Event& event);
  void destroy_context(const Event& event);
  template <class Call>
  void ending_all(const Event& event, Call call);

  // stream_ops.cpp
  void stream_create(const Event& event);
  void stream_destroy(const Event& event);
  void stream_sync(const Event& event);
  void device_sync(const Event& event);
  void event_record(const Event& event);
  void stream_wait(const Event& event);
  void event_sync(const Event& event);
  void use(const Event& event);
  void record_stream(const Event& event);
  void done_in_order(const Event& event, const Status& done);
  void last_mention(const Event& event, std::uint32_t number);
  void drop_records();
  StreamHandle handle_of(const Event& event, Lane& lane);

  // stream_order.cpp
  void order_allocated(const Live& live);
  /// Before the manager hears that it ends on `freed_on`.
  void order_ending(const Live& live, StreamHandle freed_on);
  /// A stream of the trace; "per_thread" is another one on each thread.
  struct Stream {
    StreamId id{};
    ThreadId thread{};  ///< 0 of all others.
    bool operator==(const Stream&) const = default;
  };
  Stream stream_of(StreamId id, ThreadId thread) const noexcept {
    return {id, id == per_thread_ ? thread : ThreadId{}};
  }
  Stream stream_of(const Event& event) const noexcept {
    return stream_of(event.stream, event.thread);
  }
  Stream stream_of(const Live& live) const noexcept { return stream_of(live.stream, live.made_on); }
  /// Can this thread not name it: is it the default stream of another thread that runs?
  bool is_others(const Stream& stream) const noexcept;
  void order_reaches(AllocId id, const Stream& stream);
  void order_after(Lane& lane, StreamHandle stream, StreamHandle other);
  void order_back(const Live& live, StreamHandle stream);
  void order_destroyed(const Event& event);
  void order_all_done();
  void report_hazards();
  std::string whose(const order::Hazard& hazard) const;

  // host_memory.cpp
  void memhostalloc(const Event& event);
  void mempin(const Event& event);
  void made_host(const Event& event, Lane& lane, Result<HostMemory> memory, bool shared,
                 Times times);
  void free_host(const Event& event, std::map<std::uint32_t, Host>::iterator host);
  /// Frees of what is not live device memory.
  void free_ended(const Event& event, std::uint32_t slot);
  void free_other(const Event& event);

  // ipc.cpp
  void get_ipc_handle(const Event& event);
  void open_ipc_handle(const Event& event);
  void close_ipc_handle(const Event& event);
  Status close_import(Import& import);
  Result<Import> open_import(const Event& event, Export& exported);
  Result<Peer*> peer(std::uint32_t process, std::uint32_t device);
  void exchange_content(const Export& exported, const Import& import);
  void compare_exchanged(const Live& exporter, std::string_view who,
                         std::span<const std::byte> found, std::span<const std::byte> expected,
                         std::uint64_t at);

  // recorded.cpp: what the recording says that is not carried out
  void backing(const Event& event);
  void recorded_flush(const Event& event);
  void skip(const Event& event);
  /// An operation of another process that this replay leaves out: all but what IPC needs there.
  bool elsewhere(const Event& event);
  void note_recording();

  // checks.cpp
  static bool has_place(const Live& live) noexcept {
    return live.size > 0 && live.memory.device_pointer().value != 0;
  }
  /// Is there something for check_made() to find?
  static bool stands_out(const Event& event, const Live& live) noexcept {
    const auto address = live.memory.device_pointer().value;
    return (address % kAlignment) != 0 || address == 0 || live.memory.size() != event.size ||
           event.detail != 0;
  }
  void check_made(const Event& event, std::uint32_t slot);
  void check_host(const Event& event, const Host& host);
  void overlap(const Live& live, AllocId other);
  void unplace(Live& live);
  void measure_reserved(Lane& lane) {
    const auto held = lane.driver().held_bytes();
    auto& device = *lane.shared;
    if (held > device.held_most) device.held_most = held;
    reserved_ += held - std::exchange(device.held, held);
    if (reserved_ > pass_.peak_reserved_bytes) pass_.peak_reserved_bytes = reserved_;
  }
  void fill(const Live& live, StreamHandle stream);
  void check_content(const Live& live);
  void check_content(AllocId id, const Host& host);
  void report(AllocId id, std::uint64_t size, std::uint64_t address, const Difference& difference);

  // findings.cpp
  /// Judges how `event` went against what it was to do, and counts it. `error` is null where it
  /// worked.
  void settle(const Event& event, Outcome got, const Error* error);
  bool foretold(const Event& event, Outcome got) const;
  /// The program that was recorded was refused what `event` has made: it never held it, so it is
  /// freed as soon as it is made, by free_of().
  static bool nobody_holds(const Event& event) noexcept;
  static Event free_of(Event event) noexcept;
  /// Was the program that was recorded refused this memory for want of it?
  static bool was_refused(const Event& event) noexcept;
  /// An operation that was to make memory did not.
  void refused(const Event& event, const Error& error, Times times);
  Outcome refused_outcome(AllocId id) const;
  void unmade(const Event& event);
  void violation(log::Violation::Kind kind, const std::string& words);
  bool is_told() const noexcept {
    return seen_.failed.load(std::memory_order_relaxed) != heard_.all;
  }
  /// Judges what managers have told since it was last called.
  void hear(log::Pass& pass);
  void fatal(Error error);
  /// What would be live had all been served; 2^64 - 1 where that does not fit.
  std::uint64_t requested_bytes(std::uint64_t live) const noexcept {
    auto sum = refused_bytes_;
    sum.add(live);
    return sum.value();
  }
  /// Fills in what the trace says of the event `failure.event`; Op::end behind the last one.
  static void name_event(log::Failure& failure, const trace::Trace& trace);
  log::Failure capture(Outcome outcome, std::string error);
  static void note_idle(log::Failure& failure, const MemoryStatistics& of);
  void look_at_managers();
  std::vector<log::Holder> biggest();
  void decline(Op op, const std::string& why);
  std::string described(const Live& live) const;

  // records.cpp
  log::Record record_of(std::uint64_t at, const Event& event, Outcome outcome, Times times,
                        std::uint64_t address, std::uint64_t size, Op freed_kind) const;
  void record(const Event& event, Outcome outcome, Times times, std::uint64_t address,
              std::uint64_t size, Op freed_kind = Op::memalloc, bool late = false);
  void record_at(RecordOrder::Buffer& buffer, std::uint64_t place, std::uint64_t at,
                 const Event& event, Outcome outcome, Times times, std::uint64_t address,
                 std::uint64_t size, Op freed_kind) const;
  void record_ended(Op op, AllocId id, ContextId context, Times times, std::uint64_t address,
                    std::uint64_t size, Op made_by);
  log::Gauges gauges(const Lane& lane) const;
  static HostRange range_of(const HostMemory& memory);

  /// Time that this engine spends on its own account is on no one's.
  class Hidden {
   public:
    explicit Hidden(Run& run) noexcept
        : run_(run), begin_ns_(run.clock_.now_ns()), model_begin_ns_(run.model_ns()) {
      ++run.hidden_depth_;
    }
    Hidden(const Hidden&) = delete;
    Hidden& operator=(const Hidden&) = delete;
    ~Hidden() {
      if (--run_.hidden_depth_ == 0) {
        run_.hidden_ns_ += run_.clock_.now_ns() - begin_ns_;
        run_.model_hidden_ns_ += run_.model_ns() - model_begin_ns_;
      }
    }

   private:
    Run& run_;
    std::uint64_t begin_ns_, model_begin_ns_;
  };

  /// As Hidden; and what is asked of the driver meanwhile orders nothing.
  struct Ours : Hidden, order::Quiet {
    using Hidden::Hidden;
  };

  const trace::Trace& trace_;
  Stack& stack_;
  const ReplayOptions& options_;
  log::RecordSink* log_;
  std::unique_ptr<RecordOrder> record_order_;  ///< Where threads log; log_ then is it.
  Clock& clock_;
  const Clock* const model_clock_;            ///< As Stack::model_clock().
  const std::optional<StreamId> per_thread_;  ///< The stream "per_thread".

  // Where the run is
  std::uint64_t at_ = 0;  ///< Index of the event being served.
  unsigned number_ = 0;   ///< Of the pass.
  bool stop_ = false;
  std::uint64_t model_hidden_ns_ = 0;
  std::uint64_t hidden_ns_ = 0;
  unsigned hidden_depth_ = 0;  ///< Within another, its time is counted already.
  std::optional<Error> fatal_;
  log::Summary summary_;
  log::Pass pass_;

  // Accounts
  std::uint64_t live_bytes_ = 0;  ///< Of device and managed memory.
  ByteSum refused_bytes_;         ///< That would be live had they been served.
  std::uint64_t host_bytes_ = 0;
  std::uint64_t live_count_ = 0;
  std::uint64_t reserved_ = 0;
  Histogram alloc_times_, free_times_, lateness_;
  std::uint64_t waited_ns_ = 0;  ///< For recorded times.

  /// An event_record of the trace, until its last mention.
  struct Recorded {
    EventHandle event;
    Lane* lane = nullptr;
  };
  std::unique_ptr<order::Checker> order_;           ///< Null where all is on one stream.
  std::map<std::uint32_t, Recorded> recorded_;      ///< By record.
  std::vector<std::uint64_t> last_mention_;         ///< Event, by record.
  std::map<AllocId, std::vector<Stream>> reached_;  ///< By `use` and record_stream.
  struct Heard {
    std::uint64_t all = 0, frees = 0, calls = 0;
  };
  Heard heard_;                      ///< Of what managers told.
  std::uint64_t order_refused_ = 0;  ///< Operations that the device has not.

  // What is held. Lanes are first: memory ends before its context.
  Lane::Seen seen_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::map<std::uint32_t, Lane::Device> devices_;
  LiveSet live_;
  HostBuffers host_buffers_;
  std::map<std::uint32_t, Host> hosts_;      ///< By AllocId.
  std::map<std::uint32_t, Export> exports_;  ///< By handle.
  std::map<std::uint32_t, Import> imports_;  ///< By AllocId.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Peer>>
      peers_;                                 ///< By process and device.
  std::map<std::uint32_t, Refused> refused_;  ///< What was asked for and not served, by AllocId.

  // For the summary
  std::vector<log::Flush> recorded_flushes_;
  std::map<std::uint32_t, std::uint64_t> backing_;  ///< Bytes by AllocId, of the recorded manager.
  std::uint64_t backing_bytes_ = 0, backing_peak_ = 0;
  std::map<Op, std::uint64_t> skipped_;
  std::vector<std::uint64_t> reset_at_;  ///< Event after the last, by context.
  std::uint64_t backing_events_ = 0, gaps_ = 0, elsewhere_ = 0;

  std::unique_ptr<Pace> pace_;
  std::unique_ptr<Parallel> parallel_;  ///< Last: its threads use all of this.
};

}  // namespace emm::replay
