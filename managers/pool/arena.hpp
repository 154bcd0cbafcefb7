#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "driver/driver.hpp"
#include "emm/epoch.hpp"
#include "emm/memory_map.hpp"
#include "managers/pool/backing.hpp"
#include "managers/pool/blocks.hpp"
#include "managers/pool/fit_check.hpp"
#include "managers/pool/growth_policy.hpp"
#include "managers/pool/spin_lock.hpp"

namespace emm::pool {

/// What arenas count. Bytes unless said. The names are PyTorch's (memory_stats) and RMM's
/// (statistics adaptor).
struct Statistics {
  struct Count {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t total = 0;  ///< Ever.
    void add(std::uint64_t n) noexcept {
      current += n;
      total += n;
      if (current > peak) peak = current;
    }
    void subtract(std::uint64_t n) noexcept { current -= n; }
    void become(std::uint64_t n) noexcept {
      if (n > current) add(n - current);
      current = n;
    }
    /// Of a sum the peak is that of its parts, each at its own time: no less than the true one.
    Count& operator+=(const Count& other) noexcept;
  };
  Count requested;              ///< As asked for.
  Count allocated;              ///< The blocks handed out.
  Count allocation;             ///< How many.
  Count active;                 ///< Allocated, or freed and waiting for a stream.
  Count active_allocation;      ///< How many.
  std::uint64_t reserved = 0;   ///< Held from the device.
  Count inactive_split;         ///< Free, in spans that are in use,
  Count inactive_split_blocks;  ///< and how many free blocks reach into such spans: their peaks
                                ///< and totals only where they are counted.
  Count segments;               ///< Runs of addresses that spans make.
  std::uint64_t largest_free = 0;
  std::uint64_t spans = 0;     ///< How many pieces the driver gave.
  std::uint64_t mappings = 0;  ///< How many times spans are mapped besides.
  std::uint64_t metadata = 0;  ///< Of the host's memory: what grows with the blocks and spans,
  std::uint64_t metadata_fixed = 0;  ///< and what does not.
  Statistics& operator+=(const Statistics& other) noexcept;
};

/// The memory of one stream, behind one lock: requests on that stream are cut from spans of the
/// backing, and what is freed may be handed out on it at once, because its work comes after. Memory
/// that another stream freed waits here until this stream has been made to wait for that one.
///
/// Where no hole fits, the arena grows, as long as that keeps it near its peak (growth::slack()); else it
/// puts holes of several spans together by mapping them once more, one behind the other
/// (managers/pool/README.md). Such a mapping is kept, and holds again when its parts are free
/// again.
///
/// Any thread may call. Sizes are bytes.
class Arena {
 public:
  /// `owner` is for owner() alone; where it `counts_split`, every request takes the slow way, and a
  /// look at all that is free, for the peaks and totals of Statistics::inactive_split.
  Arena(void* owner, Driver& driver, Backing& backing, StreamHandle stream, unsigned granule_shift,
        bool counts_split);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* owner() const noexcept { return owner_; }
  /// No memory of as many bytes is ever handed out.
  std::uint64_t largest() const noexcept { return largest_; }
  /// The calling thread's number, which no other ever has.
  static std::uint64_t thread_number() noexcept;

  struct Taken {
    DevicePtr address;
    std::uint64_t cookie = 0;  ///< For release(); names this allocation for ever.
    Epoch::Mark mark{};        ///< Current until release_all().
    explicit operator bool() const noexcept { return bool(address); }
  };
  /// `size` > 0 bytes out of a hole that is there; nothing where none fits.
  [[gnu::always_inline]] Taken allocate_at_once(std::uint64_t size) {
    if (size >= largest_at_once_) return {};
    const std::lock_guard lock(lock_);
    if (allocates_.load(std::memory_order_relaxed) != this_thread()) {
      allocates_.store(this_thread(), std::memory_order_relaxed);
    }
    if (statistics_.allocation.total % kLookEvery == 0) end_what_is_left();
    return take(size, blocks_.granules(size));
  }
  /// The same, or by all that it takes. Error out_of_memory where neither holes nor the driver nor
  /// `max` have it; else the driver's. Where it `keeps`, no idle memory goes back to the driver.
  Result<Taken> allocate_slowly(std::uint64_t size, bool keeps);
  /// Nothing where the cookie names nothing that is alive: a free that comes late, or again.
  /// `stream` is where it was freed, 0 where nobody said.
  /// Does not wait for who is in the driver meanwhile: then, and where another thread than this one
  /// allocates here, it is left for the arena to make.
  [[gnu::always_inline]] void release(std::uint64_t cookie, StreamHandle stream) noexcept {
    const bool elsewhere = stream != StreamHandle{} && stream != stream_;
    const bool here = allocates_.load(std::memory_order_relaxed) == this_thread();
    if (elsewhere || !here || !lock_.try_lock()) return release_slowly(cookie, stream);
    const std::lock_guard lock(lock_, std::adopt_lock);
    if (!blocks_.names(cookie)) return;
    const auto block = static_cast<std::uint32_t>(cookie);
    const auto note = blocks_.note(block);
    if (((note | ends_slowly_) & kComposite) != 0) return end(cookie);
    statistics_.requested.subtract(note);
    statistics_.allocated.subtract(blocks_.rounded(note));
    statistics_.allocation.subtract(1);
    blocks_.release(block);
    if (statistics_.allocation.current == 0 && playing_ > 1) start_over();
  }

  /// For the fit check, which holds the locks of all arenas at once. Never waits.
  bool try_lock() noexcept { return lock_.try_lock(); }
  void unlock() noexcept { lock_.unlock(); }
  /// Makes all frees that other threads have queued, and tells what could serve a request then.
  /// REQUIRES: try_lock() has succeeded.
  Supply supply() noexcept;

  /// Memory for `size` bytes more, before anybody asks.
  Status grow(std::uint64_t size);
  /// Ends all memory that is handed out: what is freed late is refused.
  void release_all() noexcept;
  /// Gives idle spans back until the pool holds no more than `keep` bytes, or this none that are
  /// idle. Waits for the device; where `wait` is false and the stream is one of CUDA's own, it
  /// gives nothing while work is pending there. What fails is noted by the backing.
  void give_back(std::uint64_t keep, bool wait);
  /// Before its end, when it holds nothing: the addresses too.
  void give_addresses_back() noexcept;

  Statistics statistics();
  /// Appends what it holds.
  void add_to(MemoryMap& map);

 private:
  struct Composite {
    DevicePtr address;
    std::uint64_t requested = 0;
    std::vector<std::uint32_t> parts;  ///< Its blocks; the first names it.
  };
  /// Spans mapped a second time, one behind the other.
  struct Mapping {
    DevicePtr base;
    std::vector<std::uint32_t> spans;  ///< Their indexes.
    std::uint64_t life = 0;            ///< When it was used last.
    std::uint64_t size = 0;            ///< Bytes of them all,
    std::uint64_t middle = 0;          ///< and of those between the first and the last.
    std::uint64_t home = 0;            ///< and of those that are at home there: the first
    std::uint32_t at_home = 0;         ///< so many of them.
    std::uint32_t grown = 0;           ///< How many of them the arena grew by for it.
    std::span<const std::uint32_t> again() const noexcept {
      return std::span(spans).subspan(at_home);
    }
    DevicePtr address_again() const noexcept { return base + home; }
  };
  /// How a composite was made: who asks for the same again in the same state finds it without a
  /// look at what else there is.
  struct Use {
    std::uint64_t wanted = 0;
    std::uint32_t mapping = kNone;  ///< kNone: nothing held it, and the arena grew.
    std::uint32_t playing = 0;      ///< Of the spans, before,
    std::uint32_t must_play = 0;    ///< and then.
    std::uint32_t parts_end = 0;    ///< Of Uses::parts, behind its last one.
    DevicePtr address{};
  };
  struct Part {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint32_t hole = kNone;  ///< What it was cut from.
  };
  struct Uses {
    std::vector<Use> uses;
    std::vector<Part> parts;
  };
  struct Range {
    std::uint64_t base = 0;
    std::uint64_t size = 0;
    std::vector<std::uint32_t> spans;  ///< Of each page the span that it is in.
    bool left = false;                 ///< Something may be mapped there that is in no span.
  };
  /// What is free at the ends of a span.
  struct Ends {
    std::uint64_t low = 0;   ///< Bytes from its start.
    std::uint64_t high = 0;  ///< Bytes up to its end.
    std::uint32_t low_block = kNone;
    std::uint32_t high_block = kNone;
  };
  /// A free block that reaches an end of a span, and the spans that it begins and ends in.
  struct Hole {
    std::uint32_t block = kNone;
    std::uint32_t low = kNone;
    std::uint32_t high = kNone;
  };
  /// What was freed on another stream: `event` was recorded there then, since a program may end its
  /// streams at any time; 0 where that failed.
  struct Free {
    std::uint64_t cookie = 0;
    bool elsewhere = false;
    EventHandle event{};
  };
  struct Parked {
    std::uint32_t block = kNone;
    EventHandle event{};  ///< Of the first part of what was freed; 0 of the others.
    bool recorded = true;
    bool first = true;
  };
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  static constexpr std::uint64_t kComposite = std::uint64_t{1} << 63;

  Taken take(std::uint64_t size, std::uint32_t granules) {
    return use(blocks_.take(granules), size);
  }
  /// Finds a hole wherever one is as large.
  Taken take_any(std::uint64_t size, std::uint32_t granules) {
    if (const auto taken = take(size, granules)) return taken;
    return use(blocks_.take_any(granules), size);
  }
  [[gnu::always_inline]] Taken use(std::uint32_t block, std::uint64_t size) {
    if (block == kNone) return {};
    blocks_.set_note(block, size);
    count(size, blocks_.rounded(size));
    return {.address = {blocks_.address(block)},
            .cookie = blocks_.cookie(block),
            .mark = epoch_.mark()};
  }
  bool is_mapped() const noexcept { return !ranges_.empty(); }
  std::uint64_t smallest_span() const noexcept;
  void add_hole(Supply& supply, std::uint64_t start, std::uint64_t end) const noexcept;

  Result<Taken> take_at_last(std::uint64_t size, bool keeps);
  Result<Taken> take_slowly(std::uint64_t size, std::uint32_t granules, bool keeps);
  void release_slowly(std::uint64_t cookie, StreamHandle stream) noexcept;
  void end(const Free& free) noexcept;
  void end(std::uint64_t cookie) noexcept;  ///< What was freed on this stream.
  void leave(const Free& free) noexcept;
  EventHandle record(StreamHandle stream) noexcept;
  void forget(EventHandle event) noexcept;
  void end_what_is_left() noexcept {
    if (inbox_.filled.load(std::memory_order_relaxed)) empty_inbox();
  }
  void empty_inbox() noexcept;
  static std::uintptr_t this_thread() noexcept {
    static thread_local char here;
    return reinterpret_cast<std::uintptr_t>(&here);
  }
  /// Of an arena of CU_STREAM_PER_THREAD.
  bool is_its_thread() const noexcept { return made_by_ == thread_number(); }
  void count(std::uint64_t size, std::uint64_t allocated) noexcept {
    statistics_.requested.add(size);
    statistics_.allocated.add(allocated);
    statistics_.allocation.add(1);
    if (policy_peak_ < statistics_.allocated.current) policy_peak_ = statistics_.allocated.current;
  }

  // Growth
  growth::Usage usage() const noexcept;
  std::uint64_t tail() const noexcept;
  std::uint64_t next_in_play(std::uint64_t needed) const noexcept;
  bool play(std::uint64_t bytes) noexcept;
  void start_over() noexcept;
  Status add_spans(std::uint64_t bytes, std::uint64_t in_one, std::span<const Span> behind = {});
  Status add_slab(std::uint64_t bytes);
  void put_in_order(std::uint32_t span);
  void count_segments() noexcept;
  void count_split() noexcept;
  Status has_free(std::uint64_t bytes, std::size_t pieces);
  bool ask_what_is_free() noexcept;
  Status answered(std::uint64_t bytes, Status by_driver) noexcept;
  std::uint64_t addresses_left() const noexcept;
  Status use_range_for(std::uint64_t bytes);
  Result<bool> enlarge(std::uint64_t wanted, bool within_means);
  Result<Taken> take_from_slabs(std::uint64_t size, std::uint32_t granules, bool keeps);
  void make_place_for(std::uint64_t bytes, std::uint64_t wanted);

  // Memory in pieces
  std::ptrdiff_t place_from(std::uint64_t address) const noexcept;
  std::uint32_t span_at(std::uint64_t address) const noexcept;
  std::uint32_t span_with(std::uint64_t address) const noexcept;
  void name_pages(std::uint32_t span);
  std::uint64_t end_of(std::uint32_t block) const noexcept {
    return blocks_.address(block) + blocks_.bytes(blocks_.size(block));
  }
  std::optional<Hole> look_at(std::uint32_t block);
  void look_at_ends(std::uint64_t least);
  /// Which spans a mapping may bring back into play: those that the arena grew by for it, as they
  /// came when the same requests came before, or any.
  enum class Return : std::uint8_t { as_grown, any };
  bool has(const Mapping& mapping, std::uint64_t wanted, Return of) const noexcept;
  Taken take_mapped(std::uint64_t size, std::uint64_t wanted, Return of);
  Result<Taken> stitch(std::uint64_t size, std::uint64_t wanted, std::uint64_t least);
  Result<Taken> take_in_pieces(std::uint64_t size, std::uint64_t wanted, std::uint64_t least);
  Taken take_through(std::size_t mapping, std::uint64_t size, std::uint64_t wanted,
                     std::uint32_t playing);
  Taken take_as_before(std::uint64_t size, std::uint64_t wanted);
  bool has_grown_before(std::uint64_t wanted) const noexcept;
  void remember_growth(std::uint64_t wanted, std::uint32_t playing);
  Taken take_parts(std::uint64_t size, Use use, std::size_t first_part);
  void play_next(std::uint32_t must_play);

  // Order
  enum class By : std::uint8_t { events, context };
  Result<bool> settle(By by, std::size_t most) noexcept;
  bool waits() const noexcept { return settled_ < parked_.size(); }

  // What it says of itself (arena_map.cpp)
  void before_parked_changes() noexcept;
  void after_parked_changed() noexcept;
  std::uint64_t largest_free() const noexcept;
  std::uint64_t metadata_bytes() const noexcept;
  bool follows(const Span& span, std::uint64_t end) const noexcept;
  void add_composites(MemoryMap& map, std::vector<MemoryMap::Block>& blocks) const;
  MemoryMap::Block described(std::uint32_t block) const noexcept;
  Result<bool> finish(bool wait) noexcept;

  void give_idle_back(std::uint64_t keep, bool wait);
  std::vector<std::uint32_t> idle_spans(std::uint64_t keep) const;
  void take_out_of_play(std::vector<std::uint32_t> idle);
  void forget(const std::vector<std::uint32_t>& idle);
  void leave_range() noexcept;
  void leave_empty_ranges() noexcept;
  void leave_ranges() noexcept;

  void* owner_;
  Driver& driver_;
  Backing& backing_;
  const StreamHandle stream_;
  const bool counts_split_;
  const std::uint64_t largest_ = 0;  ///< Bytes; what one block cannot hold.
  // Where the split is counted, the fast paths serve nothing:
  const std::uint64_t largest_at_once_;  ///< allocate_at_once() serves less than this.
  const std::uint64_t ends_slowly_;      ///< kComposite where release() makes no free by itself.
  // Read by all and hardly ever written: apart from what the allocating thread writes.
  std::atomic<std::uintptr_t> allocates_{0};  ///< The thread that did last, or one after its end.
  const std::uint64_t made_by_;               ///< A thread's number.
  /// Frees that others than the allocating thread have left, in one cache line that they alone
  /// write.
  struct alignas(64) Inbox {
    SpinLock lock;
    std::atomic<bool> filled{false};
    std::uint8_t count = 0;
    bool overflowed = false;
    std::array<std::uint64_t, 7> cookies{};
  };
  static_assert(sizeof(Inbox) == 64);
  static constexpr std::uint32_t kLookEvery = 16;  ///< Allocations, and whenever no hole fits.

  Inbox inbox_;
  std::vector<Free>
      overflow_;  ///< Of the inbox: what it has no room for, and frees on other streams.
  alignas(64) SpinLock lock_;  ///< Held also in the driver.
  std::vector<Free> ending_;   ///< What end_what_is_left() makes.
  Epoch epoch_;
  Blocks blocks_;
  std::uint64_t policy_peak_ = 0;  ///< Of allocated, since the arena was last empty.
  std::uint64_t in_play_ = 0;      ///< Bytes of the first `playing_` spans.
  std::uint32_t playing_ = 0;
  Statistics statistics_;  ///< Its counts; the peaks of allocated since parked_ last changed.
  Statistics peaks_;       ///< Up to then.
  std::uint64_t driver_refuses_ = kNothing;  ///< As much, for the request that is served.
  std::uint64_t room_ = 0;  ///< That the device had when it was asked, less what it gave since.
  std::uint64_t parked_bytes_ = 0;
  std::uint64_t parked_count_ = 0;  ///< Of what was freed, not of its parts.
  std::vector<Parked> parked_;
  std::size_t settled_ = 0;        ///< Of parked_ the first; soon taken out.
  std::vector<Span> spans_;        ///< As they came. The first `playing_` are in blocks_.
  std::vector<Mapping> mappings_;  ///< In the order in which they were made.
  // A life of the arena is from where it is empty to where it is so again.
  std::uint64_t life_ = 1;
  std::uint64_t made_ = 0;          ///< Spans that have been mapped once more in this life,
  std::uint64_t used_ = 0;          ///< and those of the mappings that it has used.
  std::uint64_t in_vain_ = 0;       ///< Made in lives that needed no more than one before them.
  std::uint64_t highest_peak_ = 0;  ///< Of policy_peak_, of lives that are over.
  std::uint64_t born_ = 0;          ///< How many allocations there had been then.
  Uses before_;                     ///< Of composites, in the life before this one,
  Uses uses_;                       ///< and in this one.
  std::vector<Composite> composites_;
  std::vector<std::uint32_t> idle_composites_;
  std::vector<std::uint32_t> by_address_;  ///< The indexes of spans_.
  std::vector<Ends> ends_;                 ///< Of spans_, as look_at_ends() saw them,
  std::vector<Hole> holes_;                ///< what it saw there,
  std::vector<std::uint32_t> touched_;     ///< and which of spans_ that touches.
  std::vector<Range> ranges_;              ///< vmm: reserved; the last one is being filled.
  std::uint64_t next_address_ = 0;         ///< In the last of ranges_.
};

}  // namespace emm::pool
