#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/thread_address.hpp"
#include "driver/driver.hpp"
#include "emm/epoch.hpp"
#include "emm/memory_map.hpp"
#include "managers/pool/backing.hpp"
#include "managers/pool/block_map.hpp"
#include "managers/pool/deferred_frees.hpp"
#include "managers/pool/device_room.hpp"
#include "managers/pool/fit_check.hpp"
#include "managers/pool/generation.hpp"
#include "managers/pool/growth_policy.hpp"
#include "managers/pool/plan_book.hpp"
#include "managers/pool/plan_follower.hpp"
#include "managers/pool/remote_frees.hpp"
#include "managers/pool/span_ends.hpp"
#include "managers/pool/span_list.hpp"
#include "managers/pool/statistics.hpp"
#include "managers/pool/stitch_cache.hpp"
#include "managers/pool/stitched_blocks.hpp"

namespace emm::pool {

class Arenas;

/// The memory of one stream, guarded by one lock. A block that was freed on the stream can be
/// handed out on it again at once, because the stream does its work in order. A block that was
/// freed on another stream is event-deferred.
///
/// Arenas lend one another what is idle. An arena notes at times, by an event on its stream, which
/// of its spans no work uses from there on; once the event is done another arena may take them, and
/// nobody waits. Nobody tells when a stream ends: an arena that holds nothing, and whose work is
/// known to be done, may be passed on to another stream.
///
/// The arena coordinates its parts: find() tries the ways to find memory, the cheapest first, and
/// tells each part what the others have changed. managers/pool/README.md has the picture.
///
/// Any thread may call. Sizes are bytes.
class Arena {
 public:
  /// `owner` is what owner() returns. With `counts_split` no request takes the fast path: each
  /// walks all free blocks, so that the peaks and totals of Statistics::inactive_split are exact.
  /// With a `book` the arena takes a plan out of it at its first request; not with `counts_split`.
  /// The book must outlive the arena. `others` are the arenas that lend it memory, if any.
  Arena(void* owner, Driver& driver, Backing& backing, StreamHandle stream, unsigned granule_shift,
        bool counts_split, PlanBook* book = nullptr, const Arenas* others = nullptr);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* owner() const noexcept { return owner_; }
  /// Requests of this size and above are refused.
  std::uint64_t largest() const noexcept { return largest_; }
  /// The calling thread's number, which no other thread ever gets.
  static std::uint64_t thread_number() noexcept;

  // Requests and frees

  struct Allocation {
    DevicePtr address;
    std::uint64_t cookie = 0;  ///< Identifies this allocation for free().
    Epoch::Mark mark{};        ///< Current until end_all().
    explicit operator bool() const noexcept { return bool(address); }
  };
  struct Planned {
    Allocation allocation{};
    bool has_elsewhere = false;  ///< For some requests the plan has no place.
    /// Another arena is to serve the request: memory of this size may outlive a place here.
    bool lies_elsewhere = false;
  };
  /// The fast path: allocates `size` > 0 bytes for `stream` from a free block. Empty if a short
  /// search finds none, or if the arena is no longer that stream's.
  [[gnu::always_inline]] Allocation allocate_from_free(std::uint64_t size, StreamHandle stream) {
    if (size >= fast_below_.load(std::memory_order_relaxed)) return {};
    const std::lock_guard lock(lock_);
    if (!note_allocating_thread(stream)) return {};
    // A program whose requests all find free blocks must still get back what other threads freed.
    // It looks only now and then, because those threads write the queue's cache line.
    if (counts_.allocations_ever() % kMakeRemoteFreesEvery == 0) make_remote_frees();
    return use(blocks_.allocate(blocks_.granules(size)), size);
  }
  /// The fast path where a plan is followed: gives the request the place that the plan has for it.
  /// Empty if there is no plan, if it expects another request, or if the request lies elsewhere;
  /// allocate() then leaves the plan until the arena is empty, or holds just what a period begins
  /// with.
  Planned allocate_planned(std::uint64_t size, StreamHandle stream);
  /// Answers whether allocate_planned() gave the allocation. free_planned() then ends it.
  static bool is_planned(const Allocation& allocation) noexcept {
    return PlanFollower::is_cookie(allocation.cookie);
  }
  /// Tries every way to find the memory. Error out_of_memory if the arena has none and the driver
  /// or `max` allows no more; else the driver's error. Empty if the arena is no longer that of
  /// `stream`. With `keeps_idle` the arena releases no idle memory.
  Result<Allocation> allocate(std::uint64_t size, StreamHandle stream, bool keeps_idle);
  /// Ends an allocation. A free that comes late or twice changes nothing: its cookie names no live
  /// allocation. The program freed it on `stream`; 0 means that it did not say.
  ///
  /// The free goes to the remote-free queue if another thread holds the lock (perhaps during a
  /// driver call) or was the last to allocate.
  [[gnu::always_inline]] void free(std::uint64_t cookie, StreamHandle stream) noexcept {
    const bool elsewhere = stream != StreamHandle{} && stream != this->stream();
    // A hint, so relaxed order suffices: the lock guards all data. A wrong hint queues the free, or
    // lets a thread take the lock that did not allocate last.
    const bool here = allocating_thread_.load(std::memory_order_relaxed) == thread_address();
    if (elsewhere || !here || !lock_.try_lock()) return free_slowly(cookie, stream);
    const std::lock_guard lock(lock_, std::adopt_lock);
    // The map never drops a record, so a late cookie still finds its record, with another tag.
    if (!blocks_.names(cookie)) return;
    const auto block = static_cast<std::uint32_t>(cookie);
    const auto payload = blocks_.payload(block);
    // One test for both slow cases: a stitched block, and an arena that counts_split_.
    if (((payload | slow_frees_) & kStitched) != 0) return make_own_free(cookie, stream);
    counts_.free(payload, blocks_.rounded(payload));
    blocks_.free(block);
    if (counts_.allocations() == 0) became_empty(stream);
  }
  /// As free(), for an allocation that is_planned().
  void free_planned(std::uint64_t cookie, StreamHandle stream) noexcept;
  /// Makes the queued remote frees and returns how many allocations have ever ended.
  std::uint64_t make_and_count_frees() noexcept;
  /// Ends all allocations. Later frees of them change nothing.
  void end_all() noexcept;

  // Memory of the device

  /// Reserves memory before anybody asks.
  Status reserve(std::uint64_t size);
  /// Releases idle spans until the pool holds at most `keep` bytes or this arena has no idle span.
  /// Waits for the device, unless `wait` is false and the stream is one of CUDA's own: then it
  /// releases nothing while work is pending there. Returns false, and has released nothing, if
  /// `wait` is false and another thread is in the arena, perhaps in a driver call. The backing
  /// notes what fails.
  bool release_idle(std::uint64_t keep, bool wait);
  /// Frees the arena's address ranges if it has no span. Called before the arena ends.
  void free_addresses();

  // Lending and passing on

  /// Refuses every request as one for another stream.
  void serve_nobody() noexcept { fast_below_.store(0, std::memory_order_relaxed); }

  /// From now on the arena notes what is idle when it becomes empty. Each note costs an event
  /// record.
  void note_ends() noexcept { notes_ends_.store(true, std::memory_order_relaxed); }
  /// Asks the arena to note its frees from its next request on, when its stream exists for sure.
  void ask_to_lend() noexcept;
  /// Whether an arena lends all that is idle, or what it has never needed.
  enum class Lends : std::uint8_t { all, surplus };
  struct Lent {
    std::vector<Span> spans{};
    std::uint64_t bytes = 0;
    std::uint64_t calls = 0;  ///< Calls that unmapped spans for it; each takes the driver 20 us.
  };
  /// Takes idle spans out of the arena that lie one behind the other and have `wanted` bytes
  /// together. Empty if there are none, if work may use them, or if another thread is in the arena.
  /// With `waits`, that stream is made to wait for the work.
  Lent lend(std::uint64_t wanted, Lends lends, std::optional<StreamHandle> waits);
  /// Releases such spans to the driver until they have `bytes` together. Returns their bytes.
  Lent release_lendable(std::uint64_t bytes, Lends lends);
  /// Makes the arena that of `stream`, on the calling thread, with all that it has reserved. False
  /// if it holds an allocation, or if its stream's work is not known to be done. Waits for nothing.
  bool pass_on(StreamHandle stream) noexcept;

  /// For the fit check, which holds the locks of all arenas at once.
  bool try_lock() noexcept { return lock_.try_lock(); }
  void unlock() noexcept { lock_.unlock(); }
  /// Makes all remote frees, then returns what could serve a request. REQUIRES: the lock.
  Supply supply() noexcept;

  // Reports

  Statistics statistics();
  void reset_peaks();
  /// Appends the arena's segments, alias mappings and stitched blocks.
  void add_to(MemoryMap& map);

 private:
  struct Request {
    std::uint64_t size = 0;
    std::uint32_t granules = 0;
    std::uint64_t wanted = 0;  ///< `size` in whole granules.
    bool keeps_idle = false;
  };
  struct FreedBlock {
    std::uint64_t address = 0;
    std::uint64_t end = 0;
  };
  /// What bounds a growth, besides the backing: the policy, what the arena has reserved, or
  /// nothing.
  enum class Limit : std::uint8_t { policy, reserved, none };
  /// How finish_deferred_frees() waits: the stream for the events, or the thread for the context.
  enum class OrderBy : std::uint8_t { events, context };

  /// The payload of a block is the requested size. In the first part of a stitched block it is this
  /// bit and the stitched block's index; in its other parts it is 0.
  static constexpr std::uint64_t kStitched = std::uint64_t{1} << 63;
  static constexpr std::uint32_t kMakeRemoteFreesEvery = 16;  ///< Requests on the fast path.

  [[gnu::always_inline]] Allocation use(std::uint32_t block, std::uint64_t size) {
    if (block == kNone) return {};
    blocks_.set_payload(block, size);
    count(size, blocks_.rounded(size));
    return {.address = {blocks_.address(block)},
            .cookie = blocks_.cookie(block),
            .mark = epoch_.mark()};
  }
  void count(std::uint64_t size, std::uint64_t allocated) noexcept {
    counts_.allocate(size, allocated);
    generation_.note_allocated(counts_.allocated());
  }
  StreamHandle stream() const noexcept { return {stream_.load(std::memory_order_relaxed)}; }
  /// Answers whether the arena is that of `stream`, which the calling thread has named.
  bool is_of(StreamHandle stream) const noexcept;
  /// Notes the thread that allocates. False if the arena is no longer that of `stream`. Only a
  /// thread that has just allocated here can pass this without a look at the stream, since
  /// pass_on() forgets the thread. REQUIRES: the lock.
  [[gnu::always_inline]] bool note_allocating_thread(StreamHandle stream) noexcept {
    if (allocating_thread_.load(std::memory_order_relaxed) == thread_address()) [[likely]]
      return true;
    return note_another_thread(stream);
  }
  // Stored only when it changes: frees on other threads read this cache line, and a store would
  // take it from them.
  [[gnu::noinline]] bool note_another_thread(StreamHandle stream) noexcept;
  bool maps() const noexcept { return backing_.kind() == Backing::Kind::vmm; }
  bool is_own_per_thread_stream() const noexcept {
    return stream() == kPerThreadStream && made_by_ == thread_number();
  }
  growth::Usage usage() const noexcept;

  // Ways to find memory (arena.cpp)
  Result<Allocation> find(const Request& request);
  Allocation from_free_blocks(const Request& request);
  Allocation from_any_free_block(const Request& request);
  Allocation from_deferred_frees(const Request& request);
  Result<Allocation> from_spans(const Request& request);
  Result<Allocation> from_slabs(const Request& request);

  // Frees (arena.cpp)
  void free_slowly(std::uint64_t cookie, StreamHandle stream) noexcept;
  void make_free(const PendingFree& free) noexcept;
  void make_own_free(std::uint64_t cookie, StreamHandle stream) noexcept;  ///< On the own stream.
  void make_remote_frees() noexcept {
    if (!remote_frees_.seems_empty()) make_all_remote_frees();
  }
  void make_all_remote_frees() noexcept;
  Result<bool> finish_deferred_frees(OrderBy by, std::size_t most) noexcept;
  EventHandle record_event(StreamHandle stream) noexcept;
  void destroy_event(EventHandle event) noexcept;
  void begin_generation() noexcept;

  // Lending (arena_lending.cpp)
  bool may_note() const noexcept {
    return others_ != nullptr && !counts_split_ && book_ == nullptr && plan_ == nullptr;
  }
  bool may_lend() const noexcept { return backing_.lends() && may_note() && maps(); }
  std::uint64_t frees_ever() const noexcept {
    return counts_.allocations_ever() - counts_.allocations();
  }
  bool exists(StreamHandle named) const noexcept;
  void freed_here(StreamHandle freed_on) noexcept;
  void became_empty(StreamHandle freed_on) noexcept;
  void start_lending() noexcept;
  void track_free(std::uint32_t block) noexcept;
  bool is_note_due() const noexcept;
  void note_work() noexcept;
  bool noted_work_is_done() noexcept;
  std::vector<bool> lendable() const;
  std::vector<std::uint32_t> shortest_run(std::uint64_t wanted,
                                          const std::vector<bool>& is_lendable) const;
  std::uint64_t most_to_lend(Lends lends) const noexcept;
  bool may_exchange() const noexcept;
  bool is_worth_a_wait(std::uint64_t wanted);
  bool note_holds() const noexcept;
  void exclude_from_note(std::uint64_t address, std::uint64_t end) noexcept;
  bool borrow(std::uint64_t wanted);
  void borrow_by_release(std::uint64_t bytes);

  // Following a plan (arena_plan.cpp)
  /// While it lives, what a followed plan holds is in the block map, as if there were no plan.
  class PlanInBlocks {
   public:
    explicit PlanInBlocks(Arena& arena) : arena_(arena.follows_plan() ? &arena : nullptr) {
      if (arena_ != nullptr) arena_->put_plan_into_blocks();
    }
    PlanInBlocks(const PlanInBlocks&) = delete;
    PlanInBlocks& operator=(const PlanInBlocks&) = delete;
    ~PlanInBlocks() {
      if (arena_ != nullptr && arena_->follows_plan()) arena_->take_plan_out_of_blocks();
    }

   private:
    Arena* arena_;
  };
  bool follows_plan() const noexcept { return plan_ != nullptr && plan_->is_followed(); }
  bool may_follow_plan() const noexcept;
  bool finish_all_deferred_frees() noexcept;
  Allocation take_planned(std::uint64_t size);
  std::uint32_t take_planned_slowly(std::uint64_t size);
  bool enter_plan();
  bool map_plan();
  void leave_plan();
  void open_fast_path() noexcept;
  void put_plan_into_blocks();
  void take_plan_out_of_blocks() noexcept;
  void make_planned_free(const PendingFree& free) noexcept;
  void end_planned(std::uint32_t slot) noexcept;
  void end_generation_if_empty() noexcept;
  void forget_released_plan() noexcept;

  // Growth and release (arena_growth.cpp)
  std::uint64_t free_tail() const noexcept;
  bool activate(std::uint64_t bytes) noexcept;
  Result<bool> make_room_at_tail(std::uint64_t wanted, Limit limit);
  Status add_spans(std::uint64_t bytes, std::uint64_t single_span_limit,
                   std::span<const Span> aliased_behind = {});
  Status add_slab(std::uint64_t bytes);
  void release_small_slabs(std::uint64_t bytes, std::uint64_t wanted);
  Status reserve_addresses_for(std::uint64_t bytes);
  void release_idle_spans(std::uint64_t keep, bool wait);
  std::vector<std::uint32_t> idle_spans(std::uint64_t keep) const;
  Result<bool> wait_until_unused(bool wait) noexcept;
  void take_out_of_blocks(std::vector<std::uint32_t> idle);
  std::uint64_t release_spans(const std::vector<std::uint32_t>& idle);
  std::uint64_t drop_mappings_of(const std::vector<std::uint32_t>& idle);
  void release_unused_addresses(std::uint64_t failures_before);
  void free_ranges(const std::vector<AddressRanges::Range>& ranges);
  std::uint64_t smallest_span() const noexcept;

  // Stitching (arena_stitch.cpp)
  Result<Allocation> stitch(const Request& request, std::uint64_t least_part);
  Result<Allocation> stitch_anew(const Request& request, std::uint64_t least_part);
  Allocation replay_stitch(const Request& request);
  Allocation stitch_in(std::uint32_t mapping, const Request& request, std::uint32_t active_before);
  Allocation use_parts(const StitchRecord& record, std::uint64_t size,
                       std::span<const StitchedPart> parts);
  void activate_next_run(std::uint32_t needed);
  void remember_growth(std::uint64_t wanted, std::uint32_t active_before);

  // Reports (arena_report.cpp)
  void count_split() noexcept;
  std::uint64_t largest_free() const noexcept;
  std::uint64_t metadata_bytes() const noexcept;
  MemoryMap::Block describe(std::uint32_t block) const noexcept;
  void add_stitched_blocks(MemoryMap& map, std::vector<MemoryMap::Block>& blocks) const;
  std::vector<MemoryMap::Block> describe_all(MemoryMap& map) const;

  void* owner_;
  Driver& driver_;
  Backing& backing_;
  std::atomic<std::uint64_t> stream_;  ///< Changed under the lock, by pass_on() alone.
  const bool counts_split_;
  const std::uint64_t largest_;
  /// The fast path serves smaller requests only. 0 with counts_split_, and while a plan is
  /// followed, may be, or looks at strays, so that it serves none. Changed under the lock, read
  /// without it as a hint.
  std::atomic<std::uint64_t> fast_below_;
  /// kStitched with counts_split_ or a plan, and while the arena lends, so that every free takes
  /// the slow path; else 0. Changed under the lock.
  std::uint64_t slow_frees_;
  // Every thread reads these members and few threads write them, so they do not share a cache line
  // with what the allocating thread writes.
  /// thread_address() of the thread that allocated last. Once that thread has ended, a later one
  /// may have the same value.
  std::atomic<std::uintptr_t> allocating_thread_{0};
  /// thread_number() of the thread that made the arena or was passed it. Changed under the lock.
  std::atomic<std::uint64_t> made_by_;
  RemoteFrees remote_frees_;
  alignas(64) SpinLock lock_;  ///< Also held during driver calls.
  Epoch epoch_;
  BlockMap blocks_;
  SpanList spans_;
  Generation generation_;
  UsageCounts counts_;
  DeferredFrees deferred_;
  DeviceRoom device_room_;
  StitchedBlocks stitched_;
  StitchCache stitches_;
  const Arenas* const others_;
  std::atomic<bool> notes_ends_{false};
  std::atomic<bool> asked_{false};  ///< By ask_to_lend(), and not answered yet.
  bool lends_ = false;              ///< Frees are tracked.
  /// An event on the stream, behind all work that used what was free when it was recorded. Since
  /// then the blocks of freed_since_ have become free. The note holds as long as tracked_frees_ is
  /// the number of all frees: frees are tracked only while the arena lends.
  EventHandle noted_{};
  bool is_noted_ = false;
  bool is_done_ = false;  ///< The noted work is known to be done.
  std::uint64_t tracked_frees_ = 0;
  std::vector<FreedBlock> freed_since_;
  std::uint64_t freed_bytes_ = 0;  ///< In blocks that were freed since the last note.
  std::uint64_t noted_at_ = 0;     ///< Requests ever, at the last note, and when asked last.
  std::uint64_t asked_at_ = 0;
  std::uint64_t ends_noted_ = 0;
  bool keeps_idle_ = false;            ///< Set by the request that is being served.
  std::uint64_t calls_to_borrow_ = 0;  ///< Spans that were unmapped so that this arena grows.
  PlanBook* book_;                     ///< Null once the first request has looked for its plan.
  std::unique_ptr<PlanFollower> plan_;
  // Scratch memory for stitching a request. These are members so that they keep their capacity.
  SpanEnds ends_;
  std::vector<StitchedPart> parts_;
};

}  // namespace emm::pool
