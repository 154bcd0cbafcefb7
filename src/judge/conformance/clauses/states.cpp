#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/combinations.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"
#include "plugin/imported_manager.hpp"
#include "trace/operation.hpp"

// Beyond the catalogue: every operation in every state that another rule names, and in every two of
// them. The tables below are crossed; no case is written by itself.

namespace emm {
namespace states {
namespace {

using namespace emm::conformance;
using std::chrono::milliseconds;

// Every call by which a manager gets memory of any kind, so that all of them can be refused.
constexpr std::array kAllocations{Call::mem_alloc,
                                  Call::runtime_malloc,
                                  Call::mem_create,
                                  Call::mem_alloc_async,
                                  Call::mem_alloc_from_pool_async,
                                  Call::mem_host_alloc,
                                  Call::mem_alloc_managed,
                                  Call::mem_host_register};

enum class Kind : std::uint8_t { device, managed, mapped, pinned, region };
constexpr std::array kKinds{Kind::device, Kind::managed, Kind::mapped, Kind::pinned, Kind::region};
constexpr std::size_t at(Kind kind) { return static_cast<std::size_t>(kind); }
constexpr std::array<std::string_view, 5> kNames{"device memory", "managed memory", "mapped memory",
                                                 "pinned memory", "a region"};

CallLedger::Kind ledger_kind(Kind kind) {
  return kind == Kind::device    ? CallLedger::Kind::device
         : kind == Kind::managed ? CallLedger::Kind::managed
         : kind == Kind::region  ? CallLedger::Kind::registered
                                 : CallLedger::Kind::host;
}

bool is_request_of_memory(Call call) {
  constexpr std::array kRequests{Call::mem_alloc,         Call::runtime_malloc,
                                 Call::mem_create,        Call::mem_alloc_async,
                                 Call::mem_alloc_managed, Call::mem_alloc_from_pool_async};
  return std::find(kRequests.begin(), kRequests.end(), call) != kRequests.end();
}

/// How a request is made.
struct RequestShape {
  std::uint64_t size = 4_KiB;
  StreamHandle stream{};
  bool portable = false, wc = false, mapped = false;
  AttachFlags attach = AttachFlags::global;
  bool is_filled = true;
};

/// A thread that is paused inside a call of the manager, in its first driver call there.
class Guest {
 public:
  Guest() = default;
  ~Guest() { leave(); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  /// False if the call has ended without its `nth` driver call.
  /// Pauses in requests of memory alone if `in_requests`.
  bool enter(std::function<void()> call, int nth = 1, bool in_requests = false) {
    to_come_ = nth;
    in_requests_ = in_requests;
    has_ended_ = is_paused_ = may_leave_ = false;
    thread_ = start_thread([this, call = std::move(call)] {
      is_guest = true;
      call();
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_paused_ || has_ended_; });
    return is_paused_;
  }
  void leave() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      may_leave_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  bool is_inside() const { return thread_.joinable(); }

  /// The watch calls it in each driver call.
  void attend(milliseconds most, Call call) {
    if (!is_guest || (in_requests_ && !is_request_of_memory(call))) return;
    std::unique_lock lock(mutex_);
    if (is_paused_ || --to_come_ != 0) return;
    is_paused_ = true;
    changed_.notify_all();
    // A request may wait for another one: only frees may not.
    changed_.wait_for(lock, most, [&] { return may_leave_; });
  }

  static inline thread_local bool is_guest = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  int to_come_ = 1;
  bool in_requests_ = false;
  bool has_ended_ = false, is_paused_ = false, may_leave_ = false;
};

/// A second thread, which does what it is given, one thing at a time. Making a thread for each
/// would take half of the system's time of a verdict.
class Helper {
 public:
  Helper() = default;
  ~Helper() {
    if (!thread_.joinable()) return;
    give(nullptr, true);
    thread_.join();
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  /// Returns once `act` was done on the other thread.
  void run(const std::function<void()>& act) {
    if (!thread_.joinable()) thread_ = start_thread([this] { serve(); });
    give(&act, false);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return act_ == nullptr; });
  }

  static inline thread_local bool is_one = false;

 private:
  void give(const std::function<void()>* act, bool ends) {
    const std::lock_guard lock(mutex_);
    act_ = act;
    ends_ = ends;
    changed_.notify_all();
  }
  void serve() {
    is_one = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return act_ != nullptr || ends_; });
      if (ends_) return;
      lock.unlock();
      (*act_)();
      lock.lock();
      act_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* act_ = nullptr;
  bool ends_ = false;
  std::thread thread_;
};

/// Whether this process is a child that fork_and_go_on() made.
bool is_child = false;

/// A manager that is brought into states, asked for operations there, and looked at after each.
class Scene {
 public:
  explicit Scene(Bench& bench) : b(bench), home_(std::this_thread::get_id()) {
    b.untraceable();
    b.expect(true, {}, {}, {});
    b.watch().during = [this](const CallEvent& event) {
      if (is_child) return;
      guest_.attend(milliseconds(guest_patience_), event.call);
      if (!Guest::is_guest && std::this_thread::get_id() != home_ && !Helper::is_one)
        elsewhere_ = true;
    };
    for (auto& range : ranges_) range = b.buffer();
  }
  ~Scene() {
    leave();
    live_.clear();
    stale_.clear();
    b.watch().during = nullptr;
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  Bench& b;
  std::list<Deferral> deferrals;
  std::vector<BenchMemory> fillers;  ///< They leave no room.
  std::string when;                  ///< The states that it is in.
  bool may_refuse = false;           ///< Memory is out.
  bool is_skipped = false;           ///< A state could not be reached.

  StreamHandle other_stream() {
    if (other_.value == 0) other_ = b.stream();
    return other_;
  }

  /// Has one live block of each kind that the manager offers, with content, and a second region.
  void furnish() {
    b.manager();
    if (!is_asked_) {
      defers_ = b.manager().defer_cleanup().is_active();
      // Where the device cannot write managed memory, its content there tells nothing.
      offers_[at(Kind::managed)] = b.device_can_write_managed();
    }
    is_asked_ = true;
    const auto lacks = [&](Kind kind) {
      return offers_[at(kind)] && count(kind) < (kind == Kind::region ? 2u : 1u) && !b.decided();
    };
    constexpr std::array kOfHelper{Kind::managed, Kind::mapped, Kind::pinned};
    if (lacks(Kind::device)) ask(Kind::device, {});
    if (std::any_of(kOfHelper.begin(), kOfHelper.end(), lacks))
      elsewhere([&] {
        for (const auto kind : kOfHelper)
          if (lacks(kind)) ask(kind, {});
      });
    while (lacks(Kind::region)) {
      const auto had = count(Kind::region);
      const RequestShape asked{.portable = had == 0, .mapped = had == 1};
      // A device may map no region.
      if (!ask(Kind::region, asked) && !ask(Kind::region, {})) break;
    }
    if (is_known_) return;
    is_known_ = true;
    // What it answers here, it answers in every state.
    counts_reserved_ = reserved_as();
    note_statistics();
    handle();
    info();
    note_what_waits();
    flush();
    static_cast<void>(b.manager().trim(0).has_value());
    tells_as_state_ = is_as_told() && has_told_;
  }
  bool offers(Kind kind) const { return offers_[at(kind)]; }

  /// Asks for memory, and judges the answer. The memory then lives until the scene is cleared.
  bool ask(Kind kind, RequestShape asked) {
    if (!offers_[at(kind)] || b.decided()) return false;
    auto range = HostRange{};
    if (kind == Kind::region) {
      range = free_range();
      if (range.size == 0) return false;
      asked.size = range.size;
    }
    auto made = make(kind, asked, range);
    const auto done = said(text::format("{} of {} bytes asked for", kNames[at(kind)], asked.size));
    if (!made) {
      judge_refusal(kind, asked, made.error(), done);
      return false;
    }
    given_.insert(variant(kind, asked));
    Live one{kind, *std::move(made), ++value_};
    forget_held_back(one.block);
    if (!one.block.alive() || one.block.size() != asked.size)
      b.expect(false, done,
               text::format("{} bytes, {}", one.block.size(), one.block.alive() ? "alive" : "dead"),
               "memory of that size");
    const bool is_mapped = kind == Kind::mapped || (kind == Kind::region && asked.mapped);
    if (kind != Kind::device && kind != Kind::managed)
      b.expect_rule(kind == Kind::region ? "PIN-3" : "HST-2", one.block.is_mapped() == is_mapped,
                    done, is_mapped ? "it is not mapped" : "it is mapped", "as it was asked for");
    if (kind == Kind::region)
      b.expect_rule("PIN-3", one.block.host() == range.pointer, done, "another address",
                    "the region's");
    judge_flags(one, asked, done);
    if (!asked.is_filled) {
      live_.push_back(std::move(one));
      return true;
    }
    b.expect_ok(done, b.try_fill(one.block, one.value));
    if (kind == Kind::mapped || kind == Kind::managed) {
      std::byte first{};
      const auto copied = b.device().memcpy_dtoh({&first, 1}, one.block.device());
      b.expect(copied && first == std::byte{one.value}, done,
               "its device address shows other content", "what was written to it");
    }
    live_.push_back(std::move(one));
    return true;
  }

  /// A request that is to fail.
  void fail(Kind kind, std::uint64_t size) {
    if (!offers_[at(kind)]) return;
    const auto made = make(kind, {.size = size}, kind == Kind::region ? ranges_[0] : HostRange{});
    b.watch().forgive();
  }

  /// Requests, of each of which the driver refuses another call.
  void fail_each_call(Kind kind, std::uint64_t size) {
    constexpr std::uint64_t kMost = 5;  // driver calls of a request
    for (std::uint64_t n = 1; n <= kMost && offers_[at(kind)]; ++n) {
      b.watch().fail_nth(n, kIllegalAddress, false);
      fail(kind, size);
      const bool is_reached = b.watch().failed_nth();
      b.watch().fail_nth(0, 0, false);
      if (!is_reached) return;
    }
  }

  /// Requests for memory that the driver then cannot map.
  void fail_to_map() {
    b.watch().fail_always(Call::mem_host_get_device_pointer, kIllegalAddress);
    for (const auto kind : {Kind::mapped, Kind::region}) {
      const auto range = kind == Kind::region ? free_range() : HostRange{};
      if (!offers_[at(kind)] || (kind == Kind::region && range.size == 0)) continue;
      if (!make(kind, {.mapped = true}, range) && kind == Kind::region)
        expect_unpinned(reinterpret_cast<std::uint64_t>(range.pointer),
                        said("a region that cannot be mapped"));
    }
    b.watch().fail_always(Call::mem_host_get_device_pointer, 0);
    b.watch().forgive();
  }
  /// Requests of every kind where the driver has none.
  void ask_without_memory() {
    const bool was_refusing = is_refusing_;
    refuse(kOutOfMemory);
    for (const auto kind : kKinds) fail(kind, 6_MiB);
    if (!was_refusing) refuse(0);
  }

  /// Requests that the driver refuses at first, so that a manager asks for less than it likes, and
  /// then larger ones, for which what is left of the first may be too small.
  void ask_for_less() {
    constexpr std::array kOfKinds{std::pair{Kind::managed, Call::mem_alloc_managed},
                                  std::pair{Kind::mapped, Call::mem_host_alloc},
                                  std::pair{Kind::pinned, Call::mem_host_alloc}};
    for (const auto& [kind, call] : kOfKinds) {
      for (int times = 1; times <= 3 && !b.decided(); ++times) {
        const bool might_refuse = may_refuse;
        const auto size = std::uint64_t{5'000} << times;  // nothing idle has it
        may_refuse = true;
        static_cast<void>(b.manager().trim(0).has_value());
        if (!is_refusing_ && times == 1) b.watch().fail(call, {kOutOfMemory});
        if (!is_refusing_ && times == 2) b.watch().fail(call, {kOutOfMemory, kOutOfMemory});
        if (!is_refusing_ && times == 3)
          b.watch().fail(call, {kOutOfMemory, kOutOfMemory, kOutOfMemory});
        leave_pending(kind, size);
        if (!is_refusing_) b.watch().fail(call, {});
        leave_pending(kind, size / 5 * 8);
        may_refuse = might_refuse;
      }
    }
    b.watch().forgive();
  }

  /// Leaves memory of each kind idle, and asks for it with other flags where the driver has none.
  void ask_otherwise() {
    const bool was_refusing = is_refusing_, might_refuse = may_refuse;
    for (const auto kind : kKinds) leave_pending(kind);
    refuse(kOutOfMemory);
    may_refuse = true;
    ask(Kind::managed, {.attach = AttachFlags::host});
    ask(Kind::mapped, {.wc = true});
    ask(Kind::pinned, {.portable = true});
    may_refuse = might_refuse;
    if (!was_refusing) refuse(0);
  }

  /// Frees the oldest live block of a kind.
  void end(Kind kind, StreamHandle stream = {}, bool is_dropped = true) {
    const auto found =
        std::find_if(live_.begin(), live_.end(), [&](const Live& one) { return one.kind == kind; });
    if (found == live_.end()) return;
    auto one = std::move(*found);
    live_.erase(found);
    finish(std::move(one), stream, is_dropped);
  }
  /// Frees the oldest live block of every kind on a thread of its own.
  void end_elsewhere() {
    elsewhere([this] {
      for (const auto kind : kKinds) end(kind);
    });
  }
  /// Frees all on a thread of its own, and asks the manager nothing.
  void drop_elsewhere() {
    elsewhere([this] { live_.clear(); });
  }
  void elsewhere(const std::function<void()>& act) { helper_.run(act); }

  /// Asks for a block and frees it at once, whose free may then wait.
  void leave_pending(Kind kind, std::uint64_t size = 4_KiB, StreamHandle stream = {}) {
    if (!offers_[at(kind)] || kind == Kind::region) return;
    const auto before = live_.size();
    if (!ask(kind, {.size = size, .is_filled = size <= 1_MiB}) || live_.size() == before) return;
    auto one = std::move(live_.back());
    live_.pop_back();
    finish(std::move(one), stream, stream.value == 0);
  }

  void reset() {
    std::vector<std::uint64_t> regions;
    std::map<std::uint64_t, Kind> to_wait;
    std::uint64_t waits = 0;
    for (auto& one : live_) {
      if (one.kind == Kind::region) regions.push_back(one.block.address());
      if (one.kind == Kind::device && tells_pending_[at(Kind::device)][0].count) ++waits;
      if (const auto thing = waiting_thing(one); thing && is_deferring_)
        to_wait[thing->base] = one.kind;
    }
    waits += to_wait.size();
    for (auto& filler : fillers) stale_.push_back(std::move(filler));
    fillers.clear();
    judge_held_back();
    peaks_ = {};  // statistics may begin again
    const auto before = b.manager().state().pending_count;
    const auto was = b.manager().statistics();
    b.reset();
    judge_held_back();
    judge_totals_since(was);
    const auto after = b.manager().state().pending_count;
    const bool do_all_wait = !before || !after || *after >= *before + waits;
    for (const auto& [base, kind] : to_wait) {
      if (!do_all_wait && !tells_pending_[at(kind)][0].count) continue;  // it may be kept
      const auto still = b.watch().ledger().find(ledger_kind(kind), base);
      if (still && still->base == base) held_back_[base] = kind;
    }
    for (auto& one : live_) {
      b.expect_rule("reset/ends_all", !one.block.alive(), said("reset()"),
                    text::format("{} is alive", kNames[at(one.kind)]), "it is dead");
      stale_.push_back(std::move(one.block));
    }
    live_.clear();
    for (const auto region : regions) expect_unpinned(region, said("reset()"));
  }
  /// Ends what resets have ended.
  void end_late() {
    const auto failures = b.observer().failures();
    stale_.clear();
    const auto more = b.observer().failures() - failures;
    if (more != 0 && !late_ends_fail)
      b.expect_rule("reset/late_ends", false, said("free() after reset()"),
                    text::format("{} of the frees fail", more),
                    "they do nothing, and succeed as they do where nothing is deferred");
  }
  /// A manager may answer late frees with an error, in every state.
  static void note_late_ends(Bench& on) {
    std::vector<BenchMemory> blocks;
    if (auto made = on.try_memalloc(4_KiB)) blocks.push_back(*std::move(made));
    if (auto made = on.try_managed(4_KiB)) blocks.push_back(*std::move(made));
    if (auto made = on.try_hosted(4_KiB, {})) blocks.push_back(*std::move(made));
    on.reset();
    const auto failures = on.observer().failures();
    blocks.clear();
    late_ends_fail = on.observer().failures() != failures;
  }

  void info() {
    const auto info = b.manager().get_memory_info();
    const auto done = said("get_memory_info()");
    if (!info) {
      b.expect_rule("INF-5", info.error().code == Errc::not_supported && !tells_info_, done,
                    describe(info.error()), "free and total");
      return;
    }
    tells_info_ = true;
    b.expect_rule("INF-1", info->free <= info->total, done,
                  text::format("{} of {} bytes are free", info->free, info->total),
                  "no more than there is");
  }
  void handle() {
    const auto found = std::find_if(live_.begin(), live_.end(),
                                    [](const Live& one) { return one.kind == Kind::device; });
    if (found == live_.end()) return;
    const MemoryView view{found->block.device() + 16, found->block.size() - 16};
    const auto made = b.manager().get_ipc_handle(view);
    handle_beyond();
    const auto range = b.device().mem_get_address_range(view.device_pointer);
    const auto done = said("get_ipc_handle()");
    if (!made && gives_handles_) b.expect_ok(done, made);
    if (!made || !range) return;
    gives_handles_ = true;
    if (!handle_source_) handle_source_ = made->fields().source_info;
    b.expect_rule("IPC-2", made->fields().source_info == *handle_source_, done,
                  "a handle of another device than at first", "the same device");
    b.expect_rule("IPC-2", made->fields().size == view.size, done,
                  text::format("a size of {}", made->fields().size), "the size of the view");
    b.expect_rule("IPC-2", made->fields().offset == view.device_pointer.value - range->base.value,
                  done, text::format("an offset of {}", made->fields().offset),
                  text::format("{}", view.device_pointer.value - range->base.value));
  }
  /// A handle to more than a block has, where the manager refused that at first.
  void handle_beyond() {
    constexpr std::uint64_t kSize = 5'000;  // beside it lies what rounding added
    // A manager that goes by what lies there gives one where larger memory serves again.
    if (!refuses_beyond_) static_cast<void>(b.try_memalloc(2 * kSize).has_value());
    const auto block = b.try_memalloc(kSize);
    if (!block) return;
    const bool is_made = b.manager().get_ipc_handle({block->device(), kSize + 1}).has_value();
    if (!refuses_beyond_) refuses_beyond_ = !is_made;
    if (*refuses_beyond_)
      b.expect_rule("IPC-2", !is_made, said("get_ipc_handle() of one byte more than a block has"),
                    "a handle", "a refusal, as at first");
  }
  void flush() { b.expect_ok(said("flush()"), b.manager().flush()); }
  void trim(std::uint64_t keep) {
    const auto trimmed = b.manager().trim(keep);
    b.expect(trimmed || trimmed.error().code == Errc::not_supported, said("trim()"),
             trimmed ? "" : describe(trimmed.error()), "success");
  }
  void ask_for_numbers() {
    static_cast<void>(b.manager().statistics());
    static_cast<void>(b.manager().report());
    static_cast<void>(b.manager().state());
  }

  // States.

  void begin_deferral() {
    deferrals.push_back(b.defer());
    is_deferring_ = defers_;
  }
  /// Notes of which kinds a free in a deferral is told as pending.
  void note_what_waits() {
    const auto deferred = b.defer();
    for (const auto kind : kKinds) {
      for (const auto size : {4_KiB, kLarge}) {
        if (kind == Kind::region || !offers(kind) || b.decided()) continue;
        if (kind == Kind::device && size == kLarge) continue;  // what is kept of it would serve
        auto made = make(kind, {.size = size}, {});
        if (!made) continue;
        const auto before = b.manager().state();
        made->drop();
        const auto after = b.manager().state();
        tells_pending_[at(kind)][size == kLarge] = {
            adds(before.pending_count, 1, after.pending_count),
            adds(before.pending_bytes, size, after.pending_bytes)};
      }
    }
  }
  /// Frees a block of each kind inside the deferral, and notes which frees are held back.
  void free_each_kind() {
    for (const auto kind : kKinds) leave_pending(kind);
    leave_pending(Kind::device, 64_KiB, other_stream());
  }
  void refuse(std::int32_t native) {
    for (const auto call : kAllocations) b.watch().fail_always(call, native);
    is_refusing_ = native != 0;
  }
  /// Frees a block of each kind while the driver refuses frees. What it refused may be lost.
  void refuse_frees() {
    constexpr std::array kFrees{Call::mem_free, Call::mem_free_async, Call::runtime_free,
                                Call::mem_free_host, Call::mem_unmap};
    for (const auto call : kFrees) b.watch().fail_always(call, kIllegalAddress);
    is_refusing_frees_ = has_lost_ = true;
    for (const auto kind : kKinds) leave_pending(kind);
    static_cast<void>(b.manager().flush().has_value());
    is_refusing_frees_ = false;
    for (const auto call : kFrees) b.watch().fail_always(call, 0);
    b.watch().forgive();
  }
  void keep_busy() {
    is_busy_ = true;
    for (const auto call : {Call::event_query, Call::stream_query})
      b.watch().fail_always(call, kNotReady);
    if (!offers(Kind::device) || !ask(Kind::device, {.size = 64_KiB, .stream = other_stream()}))
      return;
    auto one = std::move(live_.back());
    live_.pop_back();
    if (b.device().memset_d8_async(one.block.device(), 1, 4_KiB, other_stream()))
      finish(std::move(one), other_stream(), false);
  }
  void fill() {
    may_refuse = true;
    constexpr std::size_t kMost = 48;  // blocks that fill what a state leaves
    while (fillers.size() < kMost) {
      auto block = b.try_memalloc(fillers.size() < 24 ? 4_MiB : 256_KiB);
      if (!block) break;
      forget_held_back(*block);
      fillers.push_back(*std::move(block));
    }
  }
  /// Pauses another thread in a request of a kind that needs the driver.
  void invite_guest() {
    had_guest_ = true;
    const auto number = guests_++;
    guest_patience_ = 2;  // some managers spin that long
    const bool is_paused = guest_.enter([this, number] {
      auto& manager = b.manager();
      if (number % 3 == 0 && offers(Kind::region)) {
        const auto made = manager.mempin(ranges_.back(), {});
      } else if (number % 3 == 1 && offers(Kind::managed)) {
        const auto made = manager.memallocmanaged(20_KiB, AttachFlags::global);
      } else {
        const auto made = manager.memalloc(5_MiB + number % 7 * 64_KiB);
      }
    });
    if (!is_paused) is_skipped = true;
  }
  Guest& guest() noexcept { return guest_; }
  void set_guest_patience(int patience_ms) { guest_patience_ = patience_ms; }

  /// Leaves the states in which no manager can end. Its deferrals go on, and are never ended.
  void abandon() {
    guest_.leave();
    for (auto& deferral : deferrals) deferral.abandon();
    deferrals.clear();
    refuse(0);
    if (!std::exchange(is_busy_, false)) return;
    for (const auto call : {Call::event_query, Call::stream_query}) b.watch().fail_always(call, 0);
  }

  /// Ends all states.
  void leave() {
    guest_.leave();
    had_guest_ = false;
    fillers.clear();
    if (is_refusing_) refuse(0);
    may_refuse = false;
    // The first to end is not always the last that began.
    while (!deferrals.empty()) {
      if (deferrals.size() > 1 && ++leaves_ % 2 == 0) {
        deferrals.erase(deferrals.begin());
      } else {
        deferrals.pop_back();
      }
      if (deferrals.empty()) break;
      flush();  // which makes none of the frees that the others hold back
      judge_held_back();
    }
    is_deferring_ = false;
    held_back_.clear();
    if (!std::exchange(is_busy_, false)) return;
    for (const auto call : {Call::event_query, Call::stream_query}) b.watch().fail_always(call, 0);
    if (!b.device().ctx_synchronize()) return;
  }

  // What holds after each operation.

  /// Expects statistics() to count as it did at first.
  void judge_statistics() {
    if (b.decided() || had_guest_ || elsewhere_ || has_lost_) return;
    const auto said = b.manager().statistics();
    if (!counted_kinds_.empty()) {
      const auto blocks = said.allocation.current;
      const bool are_all = blocks && std::any_of(counted_kinds_.begin(), counted_kinds_.end(),
                                                 [&](unsigned of) { return *blocks == alive(of); });
      if (!are_all)
        b.expect_rule("accounts/peaks", false, when,
                      text::format("{} allocation.all.current of statistics()", blocks.value_or(0)),
                      text::format("{}, counted as at first", alive(counted_kinds_.front())));
    }
    const auto state = b.manager().state();
    const auto agree = [&](bool agreed, std::string_view name, std::optional<std::uint64_t> one,
                           std::optional<std::uint64_t> other) {
      if (agreed && one && other && one != other)
        b.expect_rule("accounts/peaks", false, when,
                      text::format("{} {}.all.current of statistics()", *one, name),
                      text::format("{}, as state() says, and as both said at first", *other));
    };
    agree(counts_live_as_state_, "allocated_bytes", said.allocated_bytes.current, state.live_bytes);
    // One of them may count the driver's pages, and the other what was asked of it.
    agree(counts_reserved_as_state_ && said.reserved_bytes.current.value_or(0) % 2_MiB == 0,
          "reserved_bytes", said.reserved_bytes.current, state.reserved_bytes);
    const auto counts = totalled(said);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const auto& [name, count] = counts[i];
      if (!is_total_at_first_[i] || !add_up(*count).has_value()) continue;
      if (*add_up(*count)) continue;
      b.expect_rule("accounts/peaks", false, when,
                    text::format("{} {}.all.allocated of statistics(), {} .freed and {} .current",
                                 *count->allocated, name, *count->freed, *count->current),
                    "what is there is what came less what went, as at first");
    }
    const std::array<Named, 4> peaks{{{"allocation", &said.allocation},
                                      {"allocated_bytes", &said.allocated_bytes},
                                      {"requested_bytes", &said.requested_bytes},
                                      {"reserved_bytes", &said.reserved_bytes}}};
    for (std::size_t i = 0; i < peaks.size(); ++i) {
      const auto& [name, count] = peaks[i];
      const auto peak = count->peak;
      const auto before = std::exchange(peaks_[i], peak);
      if (before && peak && *peak < *before)
        b.expect_rule(
            "accounts/peaks", false, when,
            text::format("{} {}.all.peak of statistics()", *peak, name),
            text::format("{} or more, as before: a peak falls in a reset alone", *before));
      if (peak && count->current && *peak < *count->current)
        b.expect_rule("accounts/peaks", false, when,
                      text::format("{} {}.all.peak of statistics()", *peak, name),
                      text::format("{} or more, which is {}.all.current", *count->current, name));
    }
  }

  void look() {
    if (b.decided()) return;
    for (const auto& one : live_) {
      // A full H200 cannot bring managed memory to where it is read; it is read when there is room.
      const bool is_far = one.kind == Kind::managed && !fillers.empty();
      const auto whole = one.block.alive() && (is_far || b.holds(one.block, one.value));
      if (whole) continue;
      b.expect_rule(one.block.alive() ? "live/overlap_content" : "BASE-7", false, when,
                    text::format("{} is {}", kNames[at(one.kind)],
                                 one.block.alive() ? "overwritten" : "dead"),
                    "live memory is as it was");
      return;
    }
    judge_held_back();
    if (guest_.is_inside()) return;
    for (const auto& one : live_) {
      if (one.kind == Kind::region && ledger_sees())
        b.expect_rule(
            "BASE-7",
            b.watch().ledger().find(CallLedger::Kind::registered, one.block.address()).has_value(),
            when, "a live region is no longer registered", "it is");
    }
    judge_live_bytes();
    judge_reserved();
    judge_told();
    judge_pending_bytes();
  }

  /// Ends all states and what the operation left, and expects nothing to wait after a flush.
  void settle() {
    leave();
    stale_.clear();
    std::array<std::size_t, 5> seen{};
    for (std::size_t i = 0; i < live_.size();) {
      const auto kind = live_[i].kind;
      if (++seen[at(kind)] <= (kind == Kind::region ? 2u : 1u)) {
        ++i;
        continue;
      }
      auto one = std::move(live_[i]);
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(std::move(one), {}, true);
    }
    flush();
    const auto pending = b.manager().state().pending_count;
    if (pending && !elsewhere_)
      b.expect_rule("accounts/pending", *pending == 0,
                    text::format("{}; then its end, and flush()", when),
                    text::format("{} frees are pending", *pending), "0");
    look();
    b.watch().forget();
  }

  /// What the manager holds of the driver beside what lives.
  struct Held {
    std::array<std::uint64_t, 3> bytes{};
    bool is_more_than(const Held& other) const {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] > other.bytes[i]) return true;
      }
      return false;
    }
  };
  Held held() {
    if (b.subject().has_trim) static_cast<void>(b.manager().trim(0).has_value());
    const auto& ledger = b.watch().ledger();
    Held held;
    held.bytes = {ledger.live(CallLedger::Kind::host).bytes,
                  ledger.live(CallLedger::Kind::managed).bytes,
                  ledger.live(CallLedger::Kind::registered).count};
    return held;
  }
  static std::string describe_held(const Held& held) {
    return text::format("{} bytes of page-locked and {} of managed memory and {} regions",
                        held.bytes[0], held.bytes[1], held.bytes[2]);
  }

  static inline std::atomic<bool> has_waited{false};     ///< For a thread of the manager, in vain.
  static inline std::atomic<bool> late_ends_fail{true};  ///< Until note_late_ends() says otherwise.
  /// More than a manager may like to keep idle.
  static constexpr std::uint64_t kLarge = 24_MiB;

 private:
  struct Live {
    Kind kind;
    BenchMemory block;
    std::uint8_t value;
  };

  std::string said(std::string_view done) const { return text::format("{}: {}", when, done); }
  std::size_t count(Kind kind) const {
    return static_cast<std::size_t>(std::count_if(
        live_.begin(), live_.end(), [&](const Live& one) { return one.kind == kind; }));
  }
  /// A kind with its flags: a manager may offer one and decline another.
  static unsigned variant(Kind kind, const RequestShape& asked) {
    return static_cast<unsigned>(at(kind)) | unsigned{asked.mapped} << 4 |
           unsigned{asked.portable} << 5 | unsigned{asked.wc} << 6 |
           unsigned{asked.attach == AttachFlags::host} << 7;
  }
  bool ledger_sees() const { return b.watch().total() != 0; }

  Result<BenchMemory> make(Kind kind, const RequestShape& asked, HostRange range) {
    switch (kind) {
      case Kind::device:
        return b.try_memalloc(asked.size, asked.stream);
      case Kind::managed:
        return b.try_managed(asked.size, asked.attach);
      case Kind::mapped:
        return b.try_hosted(asked.size,
                            {.mapped = true, .portable = asked.portable, .wc = asked.wc});
      case Kind::pinned:
        return b.try_hosted(asked.size, {.portable = asked.portable, .wc = asked.wc});
      case Kind::region:
        break;
    }
    return b.try_pin(range, {.mapped = asked.mapped, .portable = asked.portable});
  }

  void judge_refusal(Kind kind, const RequestShape& asked, const Error& error,
                     const std::string& done) {
    // A device may lack a kind, too, and then the driver's own words come back.
    constexpr std::int32_t kNotSupported = 801;
    const bool is_unknown = error.code == Errc::not_supported || error.native == kNotSupported;
    if (is_unknown && given_.count(variant(kind, asked)) == 0) {
      if (variant(kind, asked) == variant(kind, {})) offers_[at(kind)] = false;
      return;
    }
    const bool is_out = error.code == Errc::out_of_memory;
    if (is_out && (may_refuse || has_lost_ || b.refuses_early())) return;
    if (kind == Kind::device && Bench::may_answer_to_large(error.code) &&
        (b.is_too_large(asked.size) || (is_out && b.limit())))
      return;
    b.expect_rule("suite/serves", !is_out, done, describe(error), "memory");
    if (!is_out) b.expect(false, done, describe(error), "memory");
  }
  /// What the driver is to free once the block has ended, where a deferral may hold that back.
  std::optional<CallLedger::Thing> waiting_thing(const Live& one) const {
    if (one.kind == Kind::device || one.kind == Kind::region) return std::nullopt;
    return b.watch().ledger().find(ledger_kind(one.kind), one.block.address());
  }
  HostRange free_range() const {
    const auto free = std::find_if(ranges_.begin(), ranges_.end(), [&](const HostRange& one) {
      return std::none_of(live_.begin(), live_.end(), [&](const Live& live) {
        return live.kind == Kind::region && live.block.host() == one.pointer;
      });
    });
    return free == ranges_.end() ? HostRange{} : *free;
  }
  /// How many blocks of these kinds live, a bit each.
  std::uint64_t alive(unsigned kinds) const {
    std::uint64_t blocks = fillers.size();
    for (const auto& one : live_) blocks += kinds >> at(one.kind) & 1;
    return blocks;
  }
  using Named = std::pair<std::string_view, const MemoryStatistics::Count*>;
  static std::array<Named, 4> totalled(const MemoryStatistics& said) {
    return {{{"allocation", &said.allocation},
             {"allocated_bytes", &said.allocated_bytes},
             {"requested_bytes", &said.requested_bytes},
             {"reserved_bytes", &said.reserved_bytes}}};
  }
  static std::optional<bool> add_up(const MemoryStatistics::Count& count) {
    if (!count.current || !count.allocated || !count.freed) return std::nullopt;
    return *count.allocated == *count.freed + *count.current;
  }
  /// What has come and gone does not get less in a reset, but where counting begins again.
  void judge_totals_since(const MemoryStatistics& was) {
    if (had_guest_ || elsewhere_) return;
    const auto is = b.manager().statistics();
    const auto before = totalled(was), after = totalled(is);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const auto &old = *before[i].second, &now = *after[i].second;
      if (!is_total_at_first_[i] || !old.allocated || !now.allocated || !now.freed) continue;
      if (*now.allocated >= *old.allocated || *now.freed == 0) continue;
      b.expect_rule("accounts/peaks", false, said("reset()"),
                    text::format("{} {}.all.allocated of statistics(), and {} .freed",
                                 *now.allocated, after[i].first, *now.freed),
                    text::format("{} or more allocated, as before", *old.allocated));
    }
  }
  void note_statistics() {
    const auto said = b.manager().statistics();
    const auto counts = totalled(said);
    for (std::size_t i = 0; i < counts.size(); ++i)
      is_total_at_first_[i] = add_up(*counts[i].second).value_or(false);
    const auto state = b.manager().state();
    // Bits of the kinds that a manager may count.
    constexpr unsigned kDevice = 1, kManaged = 2, kHost = 4 | 8, kRegions = 16;
    counted_kinds_.clear();
    for (const auto kinds : {kDevice, kDevice | kManaged, kDevice | kManaged | kHost,
                             kDevice | kManaged | kHost | kRegions})
      if (said.allocation.current && *said.allocation.current == alive(kinds))
        counted_kinds_.push_back(kinds);
    counts_live_as_state_ =
        said.allocated_bytes.current && said.allocated_bytes.current == state.live_bytes;
    counts_reserved_as_state_ =
        said.reserved_bytes.current && said.reserved_bytes.current == state.reserved_bytes;
  }
  /// What the driver has given, as a manager counts that says what is reserved: with managed memory
  /// or without it. Nothing where it counts otherwise.
  enum class Reserved : std::uint8_t { otherwise, device, device_and_managed };
  std::uint64_t given(Reserved counted) const {
    const auto& ledger = b.watch().ledger();
    return ledger.live(CallLedger::Kind::device).bytes + ledger.physical_bytes() +
           (counted == Reserved::device ? 0 : ledger.live(CallLedger::Kind::managed).bytes);
  }
  Reserved reserved_as() const {
    const auto said = b.manager().state().reserved_bytes;
    if (!said || *said == 0 || !ledger_sees()) return Reserved::otherwise;
    for (const auto counted : {Reserved::device, Reserved::device_and_managed})
      if (*said == given(counted)) return counted;
    return Reserved::otherwise;
  }
  void judge_reserved() {
    if (counts_reserved_ == Reserved::otherwise || had_guest_ || elsewhere_ || has_lost_) return;
    // A pool of the driver holds more than what was asked of it, and keeps what is freed.
    const auto& ledger = b.watch().ledger();
    if (ledger.calls(Call::mem_alloc_async).made +
            ledger.calls(Call::mem_alloc_from_pool_async).made !=
        0)
      return;
    const auto said = b.manager().state().reserved_bytes;
    const auto is = given(counts_reserved_);
    // The driver gives whole pages, and a manager may count these.
    constexpr auto kPage = 2_MiB;
    const auto most =
        is % kPage == 0 ? is : is + ledger.live(CallLedger::Kind::device).count * kPage;
    if (said && (*said < is || *said > most) && !elsewhere_)
      b.expect_rule("accounts/reserved", false, when, text::format("{} reserved bytes", *said),
                    text::format("{}, which the driver has given", is));
  }

  /// The driver's memory has the flags that were asked for.
  void judge_flags(const Live& one, const RequestShape& asked, const std::string& done) {
    if (one.kind == Kind::device || !ledger_sees()) return;
    const bool is_managed = one.kind == Kind::managed;
    const auto& ledger = b.watch().ledger();
    auto thing = ledger.find(is_managed ? CallLedger::Kind::managed : CallLedger::Kind::host,
                             one.block.address());
    const bool is_region = !is_managed && !thing;
    if (is_region) thing = ledger.find(CallLedger::Kind::registered, one.block.address());
    if (!thing) return;
    const bool is_mapped = one.kind == Kind::mapped || asked.mapped;
    // A registration cannot be write-combined.
    const auto flags = is_managed ? static_cast<unsigned>(asked.attach)
                                  : unsigned{asked.portable} | unsigned{is_mapped} << 1 |
                                        unsigned{asked.wc && !is_region} << 2;
    if (thing->flags == flags) return;
    b.expect_rule(is_managed                 ? "flags/memallocmanaged"
                  : one.kind == Kind::region ? "flags/mempin"
                                             : "flags/memhostalloc",
                  false, done, text::format("the driver's memory has flags {}", thing->flags),
                  text::format("flags {}", flags));
  }

  /// Whether the frees that state() says to be pending are those that the host was told of.
  bool is_as_told() {
    for (const auto& [call, size] : b.observer().added()) {
      has_told_ = true;
      ++told_.count;
      told_.bytes += size.value_or(0);
    }
    for (const auto& flush : b.observer().flushes()) {
      told_.count -= flush.count;
      told_.bytes -= flush.bytes;
    }
    b.observer().forget();
    const auto state = b.manager().state();
    return state.pending_count == told_.count && state.pending_bytes == told_.bytes;
  }
  void judge_pending_bytes() {
    if (had_guest_) return;
    for (int i = 0; i < 20; ++i) {
      const auto state = b.manager().state();
      if (state.pending_count != 0 || state.pending_bytes.value_or(0) == 0 || elsewhere_) return;
      if (has_waited) break;
      std::this_thread::sleep_for(milliseconds(1));
    }
    has_waited = true;
    b.expect_rule("accounts/pending", false, when, "bytes are pending, and no frees", "0 bytes");
  }
  void judge_told() {
    if (!tells_as_state_ || had_guest_ || elsewhere_ || has_lost_) return;
    auto as_told = is_as_told();
    // A thread of the manager may have taken a free, and not yet have made its first call.
    for (int i = 0; i < 50 && !as_told && !elsewhere_ && !has_waited; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
      as_told = is_as_told();
    }
    if (!as_told) has_waited = true;
    if (as_told || elsewhere_) return;
    const auto state = b.manager().state();
    b.expect_rule(
        "accounts/pending", false, when,
        text::format("{} frees of {} bytes are pending", state.pending_count.value_or(0),
                     state.pending_bytes.value_or(0)),
        text::format("{} of {}, as pending_added() and flushed() told", told_.count, told_.bytes));
  }

  void finish(Live one, StreamHandle stream, bool is_dropped) {
    const auto address = one.block.address();
    const auto kind = one.kind;
    const auto thing = waiting_thing(one);
    const auto done = said(text::format("{} freed", kNames[at(kind)]));
    const auto before = is_deferring_ ? b.manager().state() : ManagerState{};
    const auto size = one.block.size();
    if (is_dropped) {
      one.block.drop();
    } else {
      const auto freed = one.block.free(stream);
      if (!is_refusing_frees_) b.expect_ok(done, freed);
    }
    if (kind == Kind::region) return expect_unpinned(address, done);
    const auto is_alone =
        !is_refusing_frees_ && !guest_.is_inside() && !elsewhere_ && !Helper::is_one;
    const auto after = is_deferring_ ? b.manager().state() : ManagerState{};
    const auto [tells_count, tells_bytes] = tells_pending_[at(kind)][size == kLarge];
    const bool is_told = (!tells_count || adds(before.pending_count, 1, after.pending_count)) &&
                         (!tells_bytes || adds(before.pending_bytes, size, after.pending_bytes));
    if (is_deferring_ && !is_told && is_alone && (size == 4_KiB || size == kLarge)) {
      b.expect_rule(
          "accounts/pending", false, done,
          text::format("{} frees of {} bytes are pending, and {} of {} were before",
                       after.pending_count.value_or(0), after.pending_bytes.value_or(0),
                       before.pending_count.value_or(0), before.pending_bytes.value_or(0)),
          text::format("one more, of {} bytes: it waits for the deferral's end", size));
    }
    judge_held_back();  // of the frees before this one
    if (is_deferring_ && !is_kept(before.pending_count, after.pending_count) && thing &&
        b.watch().ledger().find(ledger_kind(kind), thing->base) == thing)
      held_back_[thing->base] = kind;
  }

  void expect_unpinned(std::uint64_t address, const std::string& done) {
    if (!ledger_sees() || b.decided()) return;
    const auto is_registered = [&] {
      return b.watch().ledger().find(CallLedger::Kind::registered, address).has_value();
    };
    // A manager may have a thread of its own for what a reset ends.
    for (int i = 0; i < 50 && is_registered() && elsewhere_; ++i)
      std::this_thread::sleep_for(milliseconds(1));
    b.expect_rule("PIN-5", !is_registered(), done, "the region stays registered",
                  "it is unpinned at once, also inside a deferral");
  }

  /// What serves again is no longer held back.
  void forget_held_back(const BenchMemory& block) {
    std::erase_if(held_back_, [&](const auto& held) {
      const auto thing = b.watch().ledger().find(ledger_kind(held.second), block.address());
      return thing && thing->base == held.first;
    });
  }
  void judge_held_back() {
    const auto events = b.watch().events();
    b.watch().forget();
    if (!is_deferring_) return;
    for (const auto& event : events) {
      const bool frees = event.call == Call::mem_free_host || event.call == Call::mem_free;
      if (!frees || event.native != 0 || held_back_.erase(event.pointer) == 0 || elsewhere_)
        continue;
      b.expect_rule(
          "deferral/lasts", false, when,
          text::format("the driver frees what the deferral had held back: {}", to_text(event)),
          "its free is made once the deferral has ended");
    }
  }
  static bool adds(std::optional<std::uint64_t> before, std::uint64_t more,
                   std::optional<std::uint64_t> after) {
    return before && after && *after == *before + more;
  }
  void judge_live_bytes() {
    if (had_guest_) return;  // a free may be counted once the other thread has left
    const auto told = b.manager().state().live_bytes;
    if (!told) return;
    std::uint64_t device = 0, host = 0;
    for (const auto& one : live_)
      (one.kind == Kind::device || one.kind == Kind::managed ? device : host) += one.block.size();
    for (const auto& filler : fillers) device += filler.size();
    std::uint64_t without_regions = device;
    for (const auto& one : live_)
      if (one.kind == Kind::mapped || one.kind == Kind::pinned) without_regions += one.block.size();
    if (*told == device || *told == device + host || *told == without_regions) return;
    b.expect_rule("accounts/live_bytes", false, when, text::format("{} live bytes", *told),
                  text::format("{}", device));
  }

  Guest guest_;
  Helper helper_;
  const std::thread::id home_;
  std::atomic<bool> elsewhere_{false};
  std::atomic<int> guest_patience_{2};
  std::array<HostRange, 8> ranges_{};
  std::vector<Live> live_;
  std::vector<BenchMemory> stale_;
  std::map<std::uint64_t, Kind> held_back_;
  std::array<bool, 5> offers_{true, true, true, true, true};
  std::set<unsigned> given_;  ///< Each variant() that it has given once.
  StreamHandle other_{};
  Reserved counts_reserved_ = Reserved::otherwise;
  std::vector<unsigned> counted_kinds_;  ///< What allocation.all.current may count, a bit a kind.
  std::array<std::optional<std::uint64_t>, 4> peaks_{};
  bool counts_live_as_state_ = false, counts_reserved_as_state_ = false;
  std::array<bool, 4> is_total_at_first_{};  ///< Whether totalled()'s totals explain what there is.
  RecordingObserver::Flush told_{};          ///< What is pending, by what the manager told.
  bool has_told_ = false, tells_as_state_ = false;
  bool tells_info_ = false, gives_handles_ = false;
  std::optional<bool> refuses_beyond_;
  std::optional<std::optional<DeviceIdentity>> handle_source_;  ///< What the first handle says.
  struct TellsPending {
    bool count = false, bytes = false;
  };
  std::array<std::array<TellsPending, 2>, 5>
      tells_pending_{};  ///< By kind: of 4 KiB, then of kLarge.
  bool is_known_ = false;
  bool is_asked_ = false, defers_ = false;  ///< Whether it has deferrals.
  bool is_refusing_frees_ = false;
  bool has_lost_ = false;  ///< The driver keeps what it refused to free.
  bool is_deferring_ = false, is_refusing_ = false, is_busy_ = false;
  bool had_guest_ = false;  ///< Another thread was inside since the last leave().
  std::uint8_t value_ = 0;
  std::uint64_t guests_ = 0, leaves_ = 0;
};

// The tables.

struct State {
  std::string_view words;
  void (*enter)(Scene& scene);
  bool is_full = false;   ///< It needs a device with little left.
  bool may_lose = false;  ///< It calls refuse_frees().
  bool is_empty = false;  ///< Only a deferral, crossed with it, gives another state.
};
constexpr State kStates[] = {
    {"a deferral",
     [](Scene& s) {
       s.begin_deferral();
       s.free_each_kind();
     }},
    {"nested deferrals",
     [](Scene& s) {
       for (int i = 0; i < 3; ++i) s.begin_deferral();
       s.deferrals.erase(s.deferrals.begin());
       s.free_each_kind();
       s.deferrals.pop_back();
     }},
    {"three deferrals",
     [](Scene& s) {
       for (int i = 0; i < 3; ++i) s.begin_deferral();
       s.free_each_kind();
     }},
    {"refused frees", [](Scene& s) { s.refuse_frees(); }, false, true},
    {"pending frees",
     [](Scene& s) {
       for (const auto kind : kKinds) s.leave_pending(kind);
     }},
    {"frees on another stream",
     [](Scene& s) {
       for (const auto kind : kKinds) s.leave_pending(kind, 8_KiB, s.other_stream());
     }},
    {"frees by another thread", [](Scene& s) { s.end_elsewhere(), s.furnish(); }},
    {"many regions",
     [](Scene& s) {
       for (int i = 0; i < 3; ++i) s.ask(Kind::region, {.mapped = i == 1});
     }},
    {"after a reset", [](Scene& s) { s.reset(), s.furnish(); }},
    {"nothing alive or idle, after a reset",
     [](Scene& s) {
       s.reset();
       s.end_late();
       s.flush();
       s.trim(0);
     },
     false, false, true},
    {"memory out", [](Scene& s) { s.fill(); }, true},
    {"another thread inside", [](Scene& s) { s.invite_guest(); }},
    {"after failed calls",
     [](Scene& s) {
       for (const auto kind : kKinds) s.fail_each_call(kind, 6_MiB);
       s.fail_each_call(Kind::device, 20_KiB);  // a piece that is cut may need calls of its own
       for (const auto kind : {Kind::device, Kind::managed, Kind::pinned})
         s.fail(kind, std::uint64_t{1} << 61);
     }},
    {"a driver without memory",
     [](Scene& s) {
       s.refuse(kOutOfMemory);
       s.may_refuse = true;
       for (const auto kind : kKinds) s.fail(kind, 6_MiB);
     }},
    {"another stream busy", [](Scene& s) { s.keep_busy(); }},
};

struct Operation {
  std::string_view words;
  void (*run)(Scene& scene);
};
constexpr Operation kOperations[] = {
    {"memalloc", [](Scene& s) { s.ask(Kind::device, {}); }},
    {"memalloc, 3 MiB", [](Scene& s) { s.ask(Kind::device, {.size = 3_MiB}); }},
    {"memalloc on a stream",
     [](Scene& s) { s.ask(Kind::device, {.size = 64_KiB, .stream = s.other_stream()}); }},
    {"memhostalloc", [](Scene& s) { s.ask(Kind::pinned, {}); }},
    {"memhostalloc, mapped", [](Scene& s) { s.ask(Kind::mapped, {}); }},
    {"memhostalloc, portable, wc",
     [](Scene& s) {
       s.ask(Kind::pinned, {.portable = true});
       s.ask(Kind::mapped, {.wc = true});
     }},
    {"memallocmanaged", [](Scene& s) { s.ask(Kind::managed, {}); }},
    {"memallocmanaged, host",
     [](Scene& s) {
       for (const auto size : {4_KiB, 70_KiB})
         s.ask(Kind::managed, {.size = size, .attach = AttachFlags::host});
     }},
    {"mempin", [](Scene& s) { s.ask(Kind::region, {}); }},
    {"mempin, portable", [](Scene& s) { s.ask(Kind::region, {.portable = true}); }},
    {"mempin, mapped", [](Scene& s) { s.ask(Kind::region, {.mapped = true}); }},
    {"free of device memory", [](Scene& s) { s.end(Kind::device, {}, false); }},
    {"free on another stream", [](Scene& s) { s.end(Kind::device, s.other_stream(), false); }},
    {"free of managed memory", [](Scene& s) { s.end(Kind::managed); }},
    {"free of mapped memory", [](Scene& s) { s.end(Kind::mapped); }},
    {"free of pinned memory", [](Scene& s) { s.end(Kind::pinned); }},
    {"free of a region", [](Scene& s) { s.end(Kind::region); }},
    {"free by another thread", [](Scene& s) { s.end_elsewhere(); }},
    {"get_ipc_handle", [](Scene& s) { s.handle(); }},
    {"get_ipc_handle by another thread", [](Scene& s) { s.elsewhere([&s] { s.handle(); }); }},
    {"get_memory_info", [](Scene& s) { s.info(); }},
    {"flush", [](Scene& s) { s.flush(); }},
    {"trim", [](Scene& s) { s.trim(0); }},
    {"state, statistics, report", [](Scene& s) { s.ask_for_numbers(); }},
    {"initialize",
     [](Scene& s) { s.b.expect_ok(s.when + ": initialize()", s.b.manager().initialize()); }},
    {"defer_cleanup and its end",
     [](Scene& s) {
       const auto deferred = s.b.defer();
       const auto again = s.b.defer();
     }},
    {"a request for too much",
     [](Scene& s) {
       for (const auto kind : {Kind::device, Kind::managed, Kind::mapped})
         s.fail(kind, std::uint64_t{1} << 60);
     }},
    {"reset", [](Scene& s) { s.reset(); }},
    {"reset, and frees of each kind", [](Scene& s) { s.reset(), s.free_each_kind(); }},
    {"many frees of page-locked memory",
     [](Scene& s) {
       for (int i = 0; i < 26; ++i) s.leave_pending(Kind::pinned, 64);
     }},
    {"large frees",
     [](Scene& s) {
       for (const auto kind : {Kind::managed, Kind::pinned}) s.leave_pending(kind, Scene::kLarge);
       s.leave_pending(Kind::device, 3_MiB + 4'321);  // which nothing rounds to itself
       s.ask(Kind::device, {});                       // which may find what is over
     }},
    {"memory that cannot be mapped", [](Scene& s) { s.fail_to_map(); }},
    {"requests without memory", [](Scene& s) { s.ask_without_memory(); }},
    {"requests with other flags, without memory", [](Scene& s) { s.ask_otherwise(); }},
    {"requests that the driver refuses at first", [](Scene& s) { s.ask_for_less(); }},
    {"reset, and requests without memory", [](Scene& s) { s.reset(), s.ask_without_memory(); }},
    {"late ends after reset", [](Scene& s) { s.reset(), s.furnish(), s.end_late(); }},
};

/// Asks for one operation in one or two states, and looks at what is left.
void ask_in(Scene& scene, const Operation& operation, std::span<const State* const> in) {
  auto& b = scene.b;
  scene.when = "at first";
  scene.furnish();
  scene.when.clear();
  scene.is_skipped = false;
  for (const auto* state : in) {
    scene.when += text::format("{}{}", scene.when.empty() ? "" : " and ", state->words);
    state->enter(scene);
  }
  scene.look();
  scene.when = text::format("{}: {}", scene.when, operation.words);
  if (!scene.is_skipped && !b.decided()) {
    b.set_doing(scene.when);
    operation.run(scene);
    b.set_doing({});
    scene.look();
    scene.judge_statistics();
  }
  scene.settle();
}

/// Asks for all of the operations in the states, `rounds` times, and answers whether the manager
/// holds more after the last time than after the one before.
bool ask_all_in(Bench& b, std::span<const Operation* const> operations,
                std::span<const State* const> in, int rounds, std::string& more) {
  if (std::any_of(in.begin(), in.end(), [](const State* one) { return one->is_full; }))
    b.leave_on_device(64_MiB);
  Scene scene(b);
  Scene::Held before, held;
  bool was_skipped = false;
  for (int round = 1; round <= rounds && !b.decided(); ++round) {
    before = held;
    for (const auto* operation : operations) {
      if (b.decided()) return false;
      ask_in(scene, *operation, in);
      was_skipped = was_skipped || scene.is_skipped;
    }
    held = scene.held();
  }
  // A time in which an operation was left out ended less than the others did.
  if (rounds < 3 || was_skipped || b.decided()) return false;
  // A manager may free on a thread of its own, on a machine that is busy.
  for (int i = 0; i < 200 && held.is_more_than(before); ++i) {
    std::this_thread::sleep_for(milliseconds(i < 20 ? 1 : 10));
    if (b.manager().flush()) held = scene.held();
  }
  more = text::format("{} are held, and {} before the last time", Scene::describe_held(held),
                      Scene::describe_held(before));
  return held.is_more_than(before);
}

/// Ends the manager in the states, with a block of each kind alive, or freed by another thread. It
/// then holds nothing.
void end_in(Bench& b, std::span<const State* const> in, bool are_freed) {
  if (dynamic_cast<const plugin::ImportedManager*>(&b.manager()) == nullptr) return;
  if (std::any_of(in.begin(), in.end(), [](const State* one) { return one->may_lose; })) return;
  if (std::any_of(in.begin(), in.end(), [](const State* one) { return one->is_full; }))
    b.leave_on_device(64_MiB);
  Scene scene(b);
  scene.when = "at first";
  scene.furnish();
  std::string words;
  for (const auto* state : in) {
    state->enter(scene);
    words += text::format("{}{}", words.empty() ? "" : " and ", state->words);
  }
  if (are_freed) scene.drop_elsewhere();
  scene.abandon();
  if (!scene.is_skipped && !b.decided())
    b.expect_balance(text::format("{}{}: the manager's end", words,
                                  are_freed ? " and frees by another thread" : ""));
}

std::vector<const Operation*> shuffled_operations(Prng& random) {
  std::vector<const Operation*> all;
  for (const auto& operation : kOperations) all.push_back(&operation);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  return all;
}

/// Growth is told of all operations in a state together. The one to blame is looked for alone.
void ask_in_states(Bench& b, std::span<const State* const> in, int rounds) {
  const auto operations = shuffled_operations(b.random());
  std::string more;
  bool grows = false;
  const bool may_lose =
      std::any_of(in.begin(), in.end(), [](const State* one) { return one->may_lose; });
  std::string words;
  for (const auto* state : in)
    words += text::format("{}{}", words.empty() ? "" : " and ", state->words);
  b.apart([&](Bench& on) {
    grows = ask_all_in(on, operations, in, rounds, more);
    // The driver refused requests, and no frees.
    if (!grows && !may_lose && !on.decided() && on.watch().total() != 0)
      on.expect_balance(text::format("{}: all operations, and the manager's end", words));
  });
  for (const bool are_freed : {false, true}) {
    if (!b.decided() && (in.size() == 1 || !are_freed))
      b.apart([&](Bench& on) { end_in(on, in, are_freed); });
  }
  if (!grows || b.decided()) return;
  const auto blame = [&](Bench& on, std::string_view done) {
    on.expect_rule(
        "accounts/balance", false,
        text::format("{}: {}, {} times, each followed by flush() and trim(0)", words, done, rounds),
        more, "no more than before the last time");
  };
  for (const auto* operation : operations) {
    b.apart([&](Bench& on) {
      const std::array<const Operation*, 1> one{operation};
      std::string of_one;
      if (!ask_all_in(on, one, in, rounds, of_one)) return;
      more = of_one;
      blame(on, operation->words);
    });
    if (b.decided()) return;
  }
  b.apart([&](Bench& on) { blame(on, "all operations"); });
}

bool has_deferral(const State& state) { return state.words.find("deferral") != state.words.npos; }

/// The pairs of states, in both orders.
void for_each_pair(const std::function<void(const State&, const State&, bool is_first)>& pair) {
  for (std::size_t i = 0; i < std::size(kStates); ++i) {
    for (std::size_t k = 0; k < std::size(kStates); ++k) {
      const auto &first = kStates[i], &second = kStates[k];
      const bool is_alone =
          (first.is_empty && !has_deferral(second)) || (second.is_empty && !has_deferral(first));
      if (i != k && !is_alone) pair(first, second, i < k);
    }
  }
}

void check_states(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  if (b.is_numba()) return b.not_applicable("as Numba, pinned memory survives a reset: RST-5");
  Scene::has_waited = false;
  b.apart([](Bench& on) { Scene::note_late_ends(on); });
  constexpr int kRounds = 3;  // in each state, since a manager may go on from another point
  for (const auto& state : kStates) {
    const std::array<const State*, 1> in{&state};
    if (!b.decided()) ask_in_states(b, in, state.may_lose ? 1 : kRounds);
  }
  for_each_pair([&](const State& first, const State& second, bool is_first) {
    const std::array in{&first, &second};
    // What a pair leaks, a deferral and one other state show most often.
    if (!b.decided())
      ask_in_states(b, in, is_first && &first == kStates && !second.may_lose ? kRounds : 1);
  });
}

// Before initialize().

struct Early {
  std::string_view words;
  void (*run)(Bench& bench);
};
constexpr Early kEarly[] = {
    {"flush", [](Bench& b) { static_cast<void>(b.uninitialized().flush().has_value()); }},
    {"trim", [](Bench& b) { static_cast<void>(b.uninitialized().trim(0).has_value()); }},
    {"get_memory_info",
     [](Bench& b) { static_cast<void>(b.uninitialized().get_memory_info().has_value()); }},
    {"state, statistics, report",
     [](Bench& b) {
       static_cast<void>(b.uninitialized().state());
       static_cast<void>(b.uninitialized().statistics());
       static_cast<void>(b.uninitialized().report());
     }},
    {"defer_cleanup and its end",
     [](Bench& b) { const auto deferred = b.uninitialized().defer_cleanup(); }},
    {"reset", [](Bench& b) { b.reset(), b.reset(); }},
};

/// Asks for what needs no memory before initialize(), also inside a deferral that lasts beyond it.
void check_before_initialize(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  if (b.is_numba()) return b.not_applicable("as Numba, pinned memory survives a reset: RST-5");
  for (const auto& early : kEarly) {
    for (const bool is_deferred : {false, true}) {
      if (b.decided()) return;
      b.apart([&](Bench& on) {
        auto deferred =
            is_deferred ? std::optional(on.uninitialized().defer_cleanup()) : std::nullopt;
        early.run(on);
        on.watch().forgive();
        Scene scene(on);
        scene.when = text::format("before initialize(){}: {}; then initialize()",
                                  is_deferred ? ", in a deferral that lasts" : "", early.words);
        on.expect_ok(scene.when, on.uninitialized().initialize());
        scene.furnish();
        if (is_deferred) scene.begin_deferral();
        scene.free_each_kind();
        if (is_deferred) scene.deferrals.clear();  // the other one still holds them back
        scene.furnish();
        scene.flush();
        scene.look();
        deferred.reset();
        scene.settle();
      });
    }
  }
}

// What a forked child does.

/// A step of the child. The parent reads its number, and so knows how far the child is.
struct ChildStep {
  std::string_view words;
  void (*run)(Bench& bench, std::vector<BenchMemory>& blocks, HostRange region);
  /// It may wait for what other threads do, as a reset for a flush that is under way.
  bool waits_for_others = false;
  bool is_end = false;  ///< It ends memory, as the garbage collector may.
};
constexpr ChildStep kChildSteps[] = {
    {"free()",
     [](Bench&, std::vector<BenchMemory>& blocks, HostRange) {
       while (blocks.size() > 1) blocks.pop_back();
     },
     false, true},
    {"flush()",
     [](Bench& b, auto&, HostRange) { static_cast<void>(b.manager().flush().has_value()); }},
    {"memalloc()",
     [](Bench& b, auto&, HostRange) {
       std::vector<Result<MemoryPointer>> made;
       for (const auto size : {4_KiB, 3_MiB, 40_MiB}) made.push_back(b.manager().memalloc(size));
       do {
         made.push_back(b.manager().memalloc(700_KiB));
       } while (made.back() && made.size() < 100);
     }},
    {"memallocmanaged()",
     [](Bench& b, auto&, HostRange) {
       const auto made = b.manager().memallocmanaged(4_KiB, AttachFlags::global);
     }},
    {"memhostalloc()",
     [](Bench& b, auto&, HostRange) {
       const auto made = b.manager().memhostalloc(4_KiB, {});
       const auto mapped = b.manager().memhostalloc(4_KiB, {.mapped = true});
     }},
    {"mempin()",
     [](Bench& b, auto&, HostRange region) { const auto made = b.manager().mempin(region, {}); }},
    {"state(), statistics() and report()",
     [](Bench& b, auto&, HostRange) {
       static_cast<void>(b.manager().state());
       static_cast<void>(b.manager().statistics());
       static_cast<void>(b.manager().report());
     }},
    {"get_memory_info()",
     [](Bench& b, auto&, HostRange) {
       static_cast<void>(b.manager().get_memory_info().has_value());
     }},
    {"get_ipc_handle()",
     [](Bench& b, std::vector<BenchMemory>& blocks, HostRange) {
       if (!blocks.empty())
         static_cast<void>(b.manager().get_ipc_handle(blocks.front().view()).has_value());
     }},
    {"defer_cleanup() and its end",
     [](Bench& b, auto&, HostRange) { const auto deferred = b.manager().defer_cleanup(); }},
    {"trim()",
     [](Bench& b, auto&, HostRange) { static_cast<void>(b.manager().trim(0).has_value()); }},
    {"initialize()",
     [](Bench& b, auto&, HostRange) { static_cast<void>(b.manager().initialize().has_value()); }},
    {"reset()", [](Bench& b, auto&, HostRange) { b.manager().reset(); }},
    {"free() after reset()",
     [](Bench&, std::vector<BenchMemory>& blocks, HostRange) { blocks.clear(); }, true},
};

constexpr auto kNoStep = std::size(kChildSteps);

/// A number that the child and the parent share.
class SharedStep {
 public:
  SharedStep() {
    void* const page = mmap(nullptr, sizeof(std::atomic<std::size_t>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) at_ = new (page) std::atomic<std::size_t>(0);
  }
  ~SharedStep() {
    if (at_ != nullptr) munmap(at_, sizeof *at_);
  }
  SharedStep(const SharedStep&) = delete;
  SharedStep& operator=(const SharedStep&) = delete;
  explicit operator bool() const noexcept { return at_ != nullptr; }
  std::atomic<std::size_t>& operator*() noexcept { return *at_; }

 private:
  std::atomic<std::size_t>* at_ = nullptr;
};

/// Answers whether a process has work, possibly without a processor yet on a busy machine.
bool has_work(pid_t process) {
  std::ifstream file(text::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const auto state = line.rfind(") ");
  return state != std::string::npos && state + 2 < line.size() && line[state + 2] == 'R';
}

/// Asks for memory of the heap and gives it back.
void use_heap() {
  constexpr std::array<std::size_t, 3> kSizes{40, 2'000, 100'000};
  for (const auto size : kSizes) {
    void* const at = ::operator new(size);
    *static_cast<volatile char*>(at) = 1;
    ::operator delete(at);
  }
}

/// Forks, and answers the child's process id in the parent, 0 in the child. A thread of the manager
/// may be in the heap at that moment, and glibc's heap checks then leave its lock to the child for
/// ever. That is no fault of the manager, and the process is forked again.
pid_t fork_with_heap(Bench& b, SharedStep& step) {
  constexpr int kMost = 20;  // forks until none meets the lock
  for (int i = 0; i < kMost; ++i) {
    *step = kNoStep;
    const auto child = b.fork_process();
    if (child == 0) {
      use_heap();
      *step = 0;
    }
    if (child <= 0) return child;
    for (int naps = 0; *step == kNoStep && (naps < 1'000 || has_work(child)); ++naps) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          info.si_pid == child)
        return child;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (*step != kNoStep) return child;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return -1;
}

/// Goes on with the manager in a forked child, beginning with one of its steps. What needs memory
/// of the parent comes in its place.
[[noreturn]] void go_on_in_child(Bench& b, std::vector<BenchMemory>& blocks, HostRange region,
                                 std::size_t first, bool is_alone, SharedStep& step) {
  is_child = true;
  alarm(20);  // seconds; more than the parent waits
  b.watch().fail_all(kNotInitialized);
  for (std::size_t i = 0; i < std::size(kChildSteps); ++i) {
    const auto number = (first + i) % std::size(kChildSteps);
    // NBEP 7 lets a class's methods hold a lock, as Numba's own calls do. An end of memory, which
    // the garbage collector may make in a child that asks nothing of CUDA, waits for none.
    if (!is_alone && (kChildSteps[number].waits_for_others ||
                      (b.subject().is_class && !kChildSteps[number].is_end)))
      continue;
    *step = number;
    kChildSteps[number].run(b, blocks, region);
  }
  _exit(0);
}

/// Waits for a child's end. Returns its status; none if it hangs, and it is killed then. One that
/// has work gets four times as long.
std::optional<int> status_of_child(Bench& b, pid_t child, milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  auto until = Clock::now() + patience;
  int status = 0, turns = 0;
  std::chrono::microseconds nap{100};
  for (;;) {
    const auto ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) {
      b.inconclusive("the child cannot be waited for");
      return 0;
    }
    if (Clock::now() < until) {
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::microseconds>(nap + nap / 2, milliseconds{5});
    } else if (++turns < 4 && has_work(child)) {
      until = Clock::now() + patience;
    } else {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      return std::nullopt;
    }
  }
}

/// Forks, and expects the child to go on with the manager, beginning with one of its steps. A
/// thread of the manager's own may hold a lock for a moment, which the child then finds taken for
/// ever. Only a lock that is still held when the process forks again is a fault.
void fork_and_go_on(Bench& b, std::vector<BenchMemory>& blocks, std::size_t first,
                    const std::string& when, bool is_alone) {
  constexpr int kForks = 3;
  constexpr milliseconds kMost{3'000};  // a child's step takes milliseconds
  SharedStep step;
  const auto region = b.buffer();
  if (!step) return b.inconclusive("this process cannot share memory");
  std::optional<int> status;
  for (int forks = 0; forks < kForks && !status; ++forks) {
    const auto most = forks == 0 ? kMost : kMost / 6;
    const auto child = fork_with_heap(b, step);
    if (child < 0) return b.inconclusive("this process cannot fork");
    if (child == 0) go_on_in_child(b, blocks, region, first, is_alone, step);
    status = status_of_child(b, child, std::min(b.subject().patience, most));
  }
  const auto& last = kChildSteps[*step].words;
  const auto done = text::format("fork(), with {}", when);
  if (!status) {
    b.expect(false, done, text::format("{} hangs in the child", last), "it goes on");
    return;
  }
  b.expect(WIFEXITED(*status) && WEXITSTATUS(*status) == 0, done,
           WIFSIGNALED(*status)
               ? text::format("{} ends the child with signal {}", last, WTERMSIG(*status))
               : text::format("{} ends the child with exit code {}", last, WEXITSTATUS(*status)),
           "it goes on");
}

std::vector<BenchMemory> blocks_of_each_kind(Bench& b) {
  std::vector<BenchMemory> blocks;
  const auto keep = [&](Result<BenchMemory> made) {
    if (made) blocks.push_back(*std::move(made));
  };
  keep(b.try_memalloc(64_KiB));
  keep(b.try_memalloc(3_MiB));
  keep(b.try_managed(4_KiB));
  keep(b.try_hosted(4_KiB, {.mapped = true}));
  keep(b.try_hosted(4_KiB, {}));
  keep(b.try_pin(b.buffer()));
  return blocks;
}

/// The call that another thread is in when the process forks.
struct GuestCall {
  std::string_view words;
  void (*run)(MemoryManager& manager, HostRange region);
  bool in_requests = false;  ///< It is paused in a request of memory, not in any driver call.
};
constexpr GuestCall kGuestCalls[] = {
    {"memalloc(), again and again",
     [](MemoryManager& m, HostRange) {
       std::vector<Result<MemoryPointer>> made;
       while (made.size() < 80) made.push_back(m.memalloc(700_KiB));
     }},
    {"memalloc(), small, again and again",
     [](MemoryManager& m, HostRange) {
       // A slab may hold some thousand of the smallest blocks.
       std::vector<Result<MemoryPointer>> made;
       while (made.size() < 2'500) made.push_back(m.memalloc(made.size() % 8 == 0 ? 20_KiB : 900));
     },
     true},
    {"memalloc()", [](MemoryManager& m, HostRange) { const auto made = m.memalloc(5_MiB + 512); }},
    {"memalloc(), large",
     [](MemoryManager& m, HostRange) { const auto made = m.memalloc(80_MiB); }},
    {"memallocmanaged()",
     [](MemoryManager& m, HostRange) {
       const auto made = m.memallocmanaged(20_KiB, AttachFlags::global);
     }},
    {"memhostalloc()",
     [](MemoryManager& m, HostRange) { const auto made = m.memhostalloc(20_KiB, {}); }},
    {"memhostalloc(), mapped",
     [](MemoryManager& m, HostRange) {
       const auto made = m.memhostalloc(20_KiB, {.mapped = true});
     }},
    {"mempin()",
     [](MemoryManager& m, HostRange region) { const auto made = m.mempin(region, {}); }},
    {"flush()", [](MemoryManager& m, HostRange) { static_cast<void>(m.flush().has_value()); }},
    {"trim()", [](MemoryManager& m, HostRange) { static_cast<void>(m.trim(0).has_value()); }},
    {"get_memory_info()",
     [](MemoryManager& m, HostRange) { static_cast<void>(m.get_memory_info().has_value()); }},
    {"reset()", [](MemoryManager& m, HostRange) { m.reset(); }},
};

/// Forks in each state, and while another thread is in a driver call of the manager. What locks
/// that thread holds nobody releases in the child. A bundled manager that the suite itself makes
/// has no process beside the suite's, so this is asked of shared objects alone, libemm.so included.
void check_forks(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  std::size_t first = b.seed() % std::size(kChildSteps);
  const auto next_first = [&] { return first++ % std::size(kChildSteps); };
  for (const auto& state : kStates) {
    if (b.decided()) return;
    if (b.is_numba() && state.words.find("reset") != std::string_view::npos) continue;
    b.apart([&](Bench& on) {
      if (state.is_full) on.leave_on_device(64_MiB);
      Scene scene(on);
      scene.set_guest_patience(60'000);
      scene.when = state.words;
      scene.furnish();
      auto blocks = blocks_of_each_kind(on);
      if (!b.subject().foreign && state.words == "another thread inside") return;
      state.enter(scene);
      if (!on.decided())
        fork_and_go_on(on, blocks, next_first(), std::string(state.words),
                       !scene.guest().is_inside());
      blocks.clear();
    });
  }
  if (!b.subject().foreign) return;
  for (const auto& call : kGuestCalls) {
    // A fork of Python takes a hundred times as long, and its locks are about whole requests.
    const bool is_class = b.subject().is_class;
    enum class Past : std::uint8_t { none, deferrals, reset };
    for (const auto past : {Past::none, Past::deferrals, Past::reset}) {
      if (is_class && past != Past::none) break;
      const int most_calls = is_class ? 1 : 3;
      bool is_reached = true;
      for (int nth = 1; nth <= most_calls && is_reached && !b.decided(); ++nth) {
        b.apart([&](Bench& on) {
          Scene scene(on);
          scene.set_guest_patience(60'000);
          scene.when = "before a fork";
          scene.furnish();
          auto blocks = blocks_of_each_kind(on);
          {
            const auto deferred = on.defer();
            blocks_of_each_kind(on).clear();
          }
          for (int i = 0; i < 2 && past == Past::deferrals; ++i) scene.begin_deferral();
          if (past == Past::reset) {
            scene.ask_without_memory();
            on.watch().forgive();
            scene.reset();
            scene.furnish();
            scene.trim(0);
            blocks = blocks_of_each_kind(on);
          }
          const auto region = on.buffer();
          auto& manager = on.manager();
          is_reached =
              scene.guest().enter([&] { call.run(manager, region); }, nth, call.in_requests);
          if (is_reached && !on.decided())
            fork_and_go_on(
                on, blocks, next_first(),
                text::format("another thread in {}, its driver call {}{}", call.words, nth,
                             past == Past::none        ? ""
                             : past == Past::deferrals ? ", in nested deferrals"
                                                       : ", after a reset"),
                false);
          scene.guest().leave();
          blocks.clear();
        });
      }
    }
  }
}

constexpr Clause kStatesClauses[] = {
    {.id = "states/operations",
     .rule = "Every operation does what it does elsewhere inside deferrals, after a reset, after "
             "failed calls, where memory is out, while another stream or another thread is busy "
             "and while frees wait, and in any two of these.",
     .source = "emm_plugin.h; the rules that name these states",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check = check_states},

    {.id = "states/before_initialize",
     .rule = "What needs no memory may be asked for before initialize(), and changes nothing: a "
             "deferral that began before lasts beyond it.",
     .source = "emm_plugin.h: initialize is called before the first allocation; RST-3",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check = check_before_initialize},

    {.id = "states/forks",
     .rule = "In a forked child no slot hangs or crashes, whatever state the manager was in, also "
             "where another thread was in the driver when the process forked: no slot of a shared "
             "object waits for a lock that such a thread holds.",
     .source = "emm_plugin.h: in a forked child slots must neither crash nor hang; ERR-7",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .check = check_forks},
};

}  // namespace
}  // namespace states

extern constinit const conformance::ClauseGroup states_clauses{
    "Beyond the catalogue: operations in states", states::kStatesClauses};

namespace conformance {

void for_each_state_cell(const CombinationCell& cell) {
  for (const auto& operation : states::kOperations) {
    for (const auto& state : states::kStates)
      cell("states/operations", operation.words, state.words);
  }
  for (const auto& state : states::kStates)
    if (!state.may_lose)
      cell("states/operations", "the manager's end, behind emm_plugin.h", state.words);
  states::for_each_pair([&](const states::State& first, const states::State& second, bool) {
    cell("states/operations, all of them", first.words, second.words);
  });
  for (const auto& early : states::kEarly)
    cell("states/before_initialize", early.words, "before initialize()");
  for (const auto& step : states::kChildSteps) {
    for (const auto& state : states::kStates) cell("states/forks", step.words, state.words);
    for (const auto& call : states::kGuestCalls)
      if (!step.waits_for_others)
        cell("states/forks", step.words, text::format("another thread in {}", call.words));
  }
}

}  // namespace conformance
}  // namespace emm
