#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "driver/call.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"
#include "managers/host_only.hpp"
#include "managers/pool/arenas.hpp"

namespace emm {
namespace {

using pool::Arena;
using pool::Arenas;
using pool::Backing;
using pool::PlanBook;

constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();  // bytes

struct PoolSettings {
  HostOnlyManager::Settings host;
  std::optional<Backing::Kind> backing{};
  std::uint64_t initial = 0;
  std::uint64_t max = kUnlimited;
  std::uint64_t release_threshold = kUnlimited;
  std::uint64_t alignment = 512;
  bool counts_split = false, lends = false;
  std::shared_ptr<const allocators::PoolPlan> plan{};
};

/// Device memory from one pool::Arena for each stream. If an arena cannot serve a request, the
/// manager climbs the reclaim_ladder() to make room.
class PoolManager final : public HostOnlyManager {
 public:
  PoolManager(const ManagerContext& context, const PoolSettings& settings)
      : HostOnlyManager(context, settings.host),
        settings_(settings),
        backing_(context.driver, settings.backing, settings.max, settings.lends),
        book_(settings.plan != nullptr
                  ? std::make_unique<PlanBook>(settings.plan, device_of(context))
                  : nullptr),
        arenas_(this, context.driver, backing_,
                static_cast<unsigned>(std::countr_zero(settings.alignment)), settings.counts_split,
                book_.get()) {}
  ~PoolManager() override {
    // In this order, because an address range can be freed only when nothing is mapped in it.
    end_all();
    release_idle(0);
    arenas_.for_each([](Arena& arena) { arena.free_addresses(); });
    tell_failures();
  }

  Status initialize() override {
    if (auto done = HostOnlyManager::initialize(); !done) return done;
    const std::lock_guard making_room(making_room_);
    if (initialized_) return {};
    if (settings_.initial > 0) {
      if (auto grown = arenas_.of({}).reserve(settings_.initial); !grown) return grown;
    }
    initialized_ = true;
    return {};
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (size == 0) return no_size();
    auto& arena = arenas_.of(stream);
    if (const auto taken = arena.allocate_from_free(size, stream))
      return handed_out(arena, taken, size);
    return memalloc_slowly(stream, size);
  }

  /// Works only for memory from cuMemAlloc: CUDA has no 64-byte handles for mapped memory.
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    if (backing_.kind() == Backing::Kind::vmm) return HostOnlyManager::get_ipc_handle(memory);
    return ipc_handle_from_address_range(driver(), memory);
  }

  void reset() noexcept override {
    end_all();
    // reset() stores this before it reads deferrals_, and end_deferral() lowers deferrals_ before
    // it reads this. So at least one of the two sees the other's change, and the exchange lets only
    // one release.
    reset_waits_.store(true);
    if (!keeps_idle() && reset_waits_.exchange(false)) release_idle(0);
    HostOnlyManager::reset();
  }

  Status trim(std::uint64_t keep) override {
    if (keeps_idle()) return {};
    const auto failed = release_idle(keep);
    if (failed.empty()) return {};
    return failed.front();
  }

  DeferCleanup defer_cleanup() override {
    const std::lock_guard lock(deferring_);
    if (deferrals_++ == 0) host_deferred_ = HostOnlyManager::defer_cleanup();
    return DeferCleanup(
        [](void* self) noexcept { static_cast<PoolManager*>(self)->end_deferral(); }, this);
  }

  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const auto counted = this->counted();
    *state.live_bytes += counted.requested_bytes.current;
    state.largest_free_bytes = counted.largest_free_bytes;
    return state;
  }

  std::string report() const override {
    const auto of = counted();
    const auto shown = [](std::uint64_t bytes) { return units::bytes(bytes); };
    const auto streams = of.arenas_with_a_peak;
    // Streams peak at different times: the sum of their peaks is no peak, and may exceed what was
    // reserved.
    const bool one = streams < 2;
    const auto peak = [&](const std::string& words) {
      return one ? text::format("peak {}, ", words) : std::string();
    };
    auto lines = text::format(
        "pool: live {} ({}ever {}), allocated {} ({}ever {}), in {} ({}ever {}) blocks\n",
        shown(of.requested_bytes.current), peak(shown(of.requested_bytes.peak)),
        shown(of.requested_bytes.total), shown(of.allocated_bytes.current),
        peak(shown(of.allocated_bytes.peak)), shown(of.allocated_bytes.total),
        of.allocation.current, peak(text::format("{}", of.allocation.peak)), of.allocation.total);
    if (!one) {
      lines += text::format(
          "pool: the peaks of its {} {}, each at a time of its own, add up to live {}, "
          "allocated {}, in {} blocks\n",
          streams, book_ == nullptr ? "streams" : "arenas", shown(of.requested_bytes.peak),
          shown(of.allocated_bytes.peak), of.allocation.peak);
    }
    if (book_ != nullptr) {
      lines += text::format("pool: {} requests served as planned; the plan was left {} times\n",
                            of.planned, of.plan_left);
    }
    return lines + text::format(
                       "pool: reserved {} (peak {}), active {}, inactive split {}; {} spans, "
                       "aliased {} times; {} bytes of metadata a block, and {} KiB\n",
                       shown(backing_.reserved_bytes()), shown(backing_.peak_reserved_bytes()),
                       shown(of.active_bytes.current), shown(of.inactive_split_bytes.current),
                       of.spans, of.times_aliased, metadata_per_block(of),
                       (of.metadata_fixed_bytes + 1_KiB - 1) / 1_KiB);
  }

  bool reset_peaks() override {
    arenas_.for_each([](Arena& arena) { arena.reset_peaks(); });
    backing_.reset_peak();
    return true;
  }

  MemoryStatistics statistics() const override {
    const auto of = counted();
    // Each arena knows its own peak. The peak of several together is not known.
    const bool one = of.arenas_with_a_peak < 2;
    const auto count = [&](const pool::Statistics::Count& given) {
      return MemoryStatistics::Count{given.current, one ? std::optional(given.peak) : std::nullopt,
                                     given.total, given.total - given.current};
    };
    // Peaks and totals are known only if each change was counted.
    const auto split = [&](const pool::Statistics::Count& given) {
      return settings_.counts_split ? count(given)
                                    : MemoryStatistics::Count{.current = given.current};
    };
    const auto reserved = backing_.total_reserved_bytes();
    return {.allocation = count(of.allocation),
            .segment = count(of.segment),
            .active = count(of.active),
            .inactive_split = split(of.inactive_split),
            .allocated_bytes = count(of.allocated_bytes),
            .reserved_bytes = {.current = of.reserved_bytes,
                               .peak = backing_.peak_reserved_bytes(),
                               .allocated = reserved,
                               .freed = reserved - of.reserved_bytes},
            .active_bytes = count(of.active_bytes),
            .inactive_split_bytes = split(of.inactive_split_bytes),
            .requested_bytes = count(of.requested_bytes),
            .num_alloc_retries = retries_.load(),
            .num_ooms = refused_.load(),
            .num_device_alloc = backing_.spans_made(),
            .num_device_free = backing_.spans_released(),
            .largest_free_bytes = of.largest_free_bytes,
            .times_aliased = of.times_aliased,
            .stream_waits = backing_.stream_waits(),
            .metadata_bytes = of.metadata_bytes + of.metadata_fixed_bytes,
            .metadata_bytes_per_block = metadata_per_block(of)};
  }

  std::optional<MemoryMap> memory_map() const override {
    MemoryMap map;
    arenas_.for_each([&](Arena& arena) { arena.add_to(map); });
    return map;
  }

 private:
  // Rare paths are not inlined, so that memalloc() and finalize() need no registers for them.
  [[gnu::noinline]] static Result<MemoryPointer> no_size() {
    return driver_error(Call::mem_alloc, 1);
  }
  static std::uint32_t device_of(const ManagerContext& context) noexcept {
    return static_cast<std::uint32_t>(context.shown_ordinal);
  }
  template <class T>
  static bool is_full(const Result<T>& made) {
    return !made && pool::is_out_of_memory(made.error());
  }
  [[gnu::noinline]] Result<MemoryPointer> memalloc_slowly(StreamHandle stream, std::uint64_t size) {
    // The arena may be passed on to another stream before it is asked.
    for (auto* arena = &arenas_.of(stream);; arena = &arenas_.again_of(stream)) {
      auto made = memalloc_slowly(*arena, stream, size);
      if (is_full(made)) ++refused_;
      if (!made || made->is_managed()) return made;
    }
  }
  /// Owns nothing if the arena is no longer that of `stream`.
  Result<MemoryPointer> memalloc_slowly(Arena& arena, StreamHandle stream, std::uint64_t size) {
    if (book_ == nullptr) return memalloc_unplanned(arena, nullptr, stream, size);
    const auto planned = arena.allocate_planned(size, stream);
    if (planned.allocation) return handed_out_slowly(arena, planned.allocation, size);
    if (!planned.has_elsewhere) return memalloc_unplanned(arena, nullptr, stream, size);
    auto& beside = arenas_.beside(stream);
    if (!planned.lies_elsewhere) return memalloc_unplanned(arena, &beside, stream, size);
    if (const auto taken = beside.allocate_from_free(size, stream))
      return handed_out(beside, taken, size);
    return memalloc_unplanned(beside, &arena, stream, size);
  }
  /// `other`, if any, is asked where `arena` has no memory.
  Result<MemoryPointer> memalloc_unplanned(Arena& arena, Arena* other, StreamHandle stream,
                                           std::uint64_t size) {
    const auto cannot = [&](const Arena* one) {
      return one == nullptr || arenas_.cannot_serve(*one, size);
    };
    if (cannot(&arena) && cannot(other)) return pool::full();
    // Read before the arena is asked: a later release may make room that the arena does not see.
    const auto releases = releases_.load();
    auto* from = &arena;
    auto made = arena.allocate(size, stream, keeps_idle());
    // Nobody waits for the device while the other has memory.
    for (const bool climbs : {false, true}) {
      if (climbs && is_full(made))
        made = climb_reclaim_ladder(arena, stream, size, std::move(made), releases);
      if (other == nullptr || !is_full(made)) continue;
      if (auto found = other->allocate(size, stream, keeps_idle()); !is_full(found)) {
        made = std::move(found);
        from = other;
      }
    }
    release_what_was_missed();
    tell_failures();
    if (!made) return std::move(made).error();
    if (!*made) return MemoryPointer();
    return handed_out_slowly(*from, *made, size);
  }

  // The reclaim ladder: the ways to make room for a request that neither its arena nor the driver
  // can serve, the one that costs others least first. After a rung that made room, the manager asks
  // the arena again. After one that made none it does not, because the driver may take long to
  // refuse.
  struct Climb {
    const Arena& arena;      ///< The arena that refused the request.
    std::uint64_t releases;  ///< The value of releases_ before the arena was asked.
    std::unique_lock<std::mutex> making_room;
    bool has_retried = false;
  };
  struct Rung {
    Result<bool> (PoolManager::*make_room)(
        Climb&);  ///< Returns false if it found nothing to release.
    int tries = 1;
  };
  static constexpr std::array<Rung, 3> reclaim_ladder() {
    return {{{&PoolManager::let_another_thread_make_room},
             {&PoolManager::flush_host_frees_and_release_other_arenas},
             // Another thread may take the released memory and free as much later, so this is tried
             // again. The limit ends the loop if the driver never maps anything.
             {&PoolManager::release_all_arenas, 9}}};
  }
  Result<Arena::Allocation> climb_reclaim_ladder(Arena& arena, StreamHandle stream,
                                                 std::uint64_t size,
                                                 Result<Arena::Allocation> refused,
                                                 std::uint64_t releases_before) {
    if (size > backing_.device()) return refused;
    Climb climb{.arena = arena,
                .releases = releases_before,
                .making_room = std::unique_lock(making_room_, std::defer_lock)};
    auto made = std::move(refused);
    for (const auto& rung : reclaim_ladder()) {
      for (int tries = 0; tries < rung.tries; ++tries) {
        auto made_room = (this->*rung.make_room)(climb);
        if (!made_room) return std::move(made_room).error();
        if (!*made_room) break;
        made = arena.allocate(size, stream, keeps_idle());
        if (!is_full(made)) return made;
      }
    }
    return made;
  }
  // One thread climbs at a time: of two, each would release what the other has just got.
  Result<bool> let_another_thread_make_room(Climb& climb) {
    if (!climb.making_room.try_lock()) {
      climb.making_room.lock();
      // The other thread has ended its climb, so there may be room. This climb keeps the lock.
      return true;
    }
    return releases_.load() != climb.releases;
  }
  Result<bool> flush_host_frees_and_release_other_arenas(Climb& climb) {
    const bool had_pending = deallocations().size() > 0;
    auto flushed = deallocations().clear();
    if (!flushed && profile() == Profile::numba) return std::move(flushed).error();  // DEV-7
    return release_idle_for(climb, &climb.arena) || had_pending;
  }
  // This visits one arena after another, and so misses a free in an arena that it has already
  // visited. A free in the meantime therefore counts as room, and the caller tries again.
  Result<bool> release_all_arenas(Climb& climb) {
    const auto frees = arenas_.make_and_count_frees();
    return release_idle_for(climb, nullptr) || arenas_.make_and_count_frees() != frees;
  }
  bool release_idle_for(Climb& climb, const Arena* but) {
    const auto spans = backing_.spans_released();
    const auto ranges = backing_.ranges_freed();
    if (!keeps_idle()) release_idle(0, but);
    const bool released_spans = backing_.spans_released() != spans;
    if (released_spans && !std::exchange(climb.has_retried, true)) ++retries_;
    return released_spans || backing_.ranges_freed() != ranges;
  }
  /// While a deferral lives, no idle memory is released.
  bool keeps_idle() const noexcept { return deferrals_.load() > 0; }

  static std::uint64_t metadata_per_block(const pool::Statistics& of) noexcept {
    return of.metadata_bytes / std::max<std::uint64_t>(of.allocation.peak, 1);
  }
  static MemoryPointer handed_out(Arena& arena, const Arena::Allocation& taken,
                                  std::uint64_t size) {
    return MemoryPointer(
        taken.address, size,
        Lifetime({.run = finalize, .self = &arena, .cookie = taken.cookie}, taken.mark));
  }
  // Two finalizers, so that the one of memory without a plan need not ask.
  static MemoryPointer handed_out_slowly(Arena& arena, const Arena::Allocation& taken,
                                         std::uint64_t size) {
    const auto run = Arena::is_planned(taken) ? finalize_planned : finalize;
    return MemoryPointer(
        taken.address, size,
        Lifetime({.run = run, .self = &arena, .cookie = taken.cookie}, taken.mark));
  }
  static void finalize_planned(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& arena = *static_cast<Arena*>(self);
    arena.free_planned(cookie, stream);
    static_cast<PoolManager*>(arena.owner())->keep_to_threshold();
  }
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& arena = *static_cast<Arena*>(self);
    auto& pool = *static_cast<PoolManager*>(arena.owner());
    arena.free(cookie, stream);
    pool.keep_to_threshold();
  }
  void keep_to_threshold() noexcept {
    const auto threshold = settings_.release_threshold;
    if (threshold != kUnlimited && backing_.reserved_bytes() > threshold && !keeps_idle())
      release_beyond(threshold);
  }
  // A free waits for no thread that calls the driver. That thread does what is missed here.
  [[gnu::noinline]] void release_beyond(std::uint64_t threshold) noexcept {
    bool is_busy = false;
    do {
      misses_release_ = false;
      arenas_.for_each([&](Arena& arena) {
        if (!arena.release_idle(threshold, false)) is_busy = misses_release_ = true;
      });
      ++releases_;
    } while (!is_busy && misses_release_);
    tell_failures();
  }
  void release_what_was_missed() noexcept {
    if (misses_release_.load(std::memory_order_relaxed)) keep_to_threshold();
  }

  /// Releases idle memory of the arenas until the pool holds at most `keep` bytes. Returns the
  /// failures, after telling the observer.
  std::vector<Error> release_idle(std::uint64_t keep, const Arena* but = nullptr) noexcept {
    arenas_.for_each([&](Arena& arena) {
      if (&arena != but) arena.release_idle(keep, true);
    });
    ++releases_;
    return tell_failures();
  }
  std::vector<Error> tell_failures() noexcept {
    auto failed = backing_.take_failures();
    for (const auto& error : failed) tell(error);
    return failed;
  }

  void end_all() noexcept {
    arenas_.for_each([](Arena& arena) { arena.end_all(); });
  }

  void end_deferral() noexcept {
    DeferCleanup host;  // destroyed after the lock, since its end may make frees
    {
      const std::lock_guard lock(deferring_);
      if (--deferrals_ > 0) return;
      host = std::move(host_deferred_);
    }
    if (reset_waits_.exchange(false)) {
      release_idle(0);
    } else if (settings_.release_threshold != kUnlimited) {
      release_beyond(settings_.release_threshold);
    }
  }

  pool::Statistics counted() const {
    pool::Statistics sum;
    sum.metadata_fixed_bytes = sizeof *this;
    arenas_.for_each([&](Arena& arena) { sum += arena.statistics(); });
    return sum;
  }

  const PoolSettings settings_;
  Backing backing_;
  const std::unique_ptr<PlanBook> book_;  ///< Null without a plan.
  Arenas arenas_;
  std::mutex making_room_;  ///< Held by the thread that climbs the reclaim ladder; never in a free.
  std::mutex deferring_;
  std::atomic<std::size_t> deferrals_{0};
  std::atomic<bool> reset_waits_{false};
  std::atomic<bool> misses_release_{false};  ///< A free left idle memory beyond the threshold.
  std::atomic<std::uint64_t> releases_{
      0};  ///< How often the pool has tried to release idle memory.
  std::atomic<std::uint64_t> retries_{0};
  std::atomic<std::uint64_t> refused_{0};
  DeferCleanup host_deferred_;
  bool initialized_ = false;
};

Result<std::unique_ptr<MemoryManager>> make_pool(const ManagerContext& context, Options options) {
  constexpr std::string_view kOwner = "manager pool";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  PoolSettings settings{.host = *host};
  const auto backing = options.choice("backing", "vmm", {"vmm", "cumem"});
  if (options.has("backing"))
    settings.backing = backing == "vmm" ? Backing::Kind::vmm : Backing::Kind::cumem;
  settings.initial = options.bytes("initial", settings.initial);
  settings.max = options.bytes("max", settings.max);
  settings.release_threshold = options.bytes("release_threshold", settings.release_threshold);
  settings.alignment = options.bytes("alignment", settings.alignment);
  settings.counts_split =
      options.choice("inactive_split", "current", {"current", "peak"}) == "peak";
  settings.lends = options.flag("lend", settings.lends);
  const auto plan = options.text("plan", "");
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (!plan.empty()) {
    if (settings.counts_split) {
      return fail(Errc::usage, "{}: options 'plan' and 'inactive_split=peak': expected one of them",
                  kOwner);
    }
    auto read = allocators::read_pool_plan(plan);
    if (!read) return std::move(read).error();
    if (read->alignment % settings.alignment != 0) {
      return fail(Errc::usage,
                  "{}: option 'alignment' is {}, and {} was made for {}: expected `emmctl plan "
                  "--alignment {}`",
                  kOwner, settings.alignment, plan, read->alignment, settings.alignment);
    }
    settings.plan = std::make_shared<const allocators::PoolPlan>(*std::move(read));
  }
  if (settings.initial > settings.max) {
    return fail(Errc::usage, "{}: option 'initial' is {}: expected at most max, {}", kOwner,
                settings.initial, settings.max);
  }
  if (settings.max < Backing::kPage && settings.backing == Backing::Kind::vmm) {
    return fail(Errc::usage, "{}: option 'max' is {}: expected {} or more with backing=vmm", kOwner,
                settings.max, Backing::kPage);
  }
  if (!std::has_single_bit(settings.alignment) || settings.alignment < 256 ||
      settings.alignment > Backing::kPage) {
    return fail(Errc::usage, "{}: option 'alignment' is {}: expected a power of two from 256 to {}",
                kOwner, settings.alignment, Backing::kPage);
  }
  return std::make_unique<PoolManager>(context, settings);
}

}  // namespace

extern constinit const ManagerEntry pool_manager{
    .name = "pool",
    .summary =
        "Device memory in one arena a stream, kept for reuse; stitches free memory where no block "
        "fits",
    .options =
        "backing=vmm|cumem, initial=0, max=<no limit>, release_threshold=<no limit>, "
        "alignment=512, inactive_split=current|peak, lend=false, plan=<none>, "
        "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .variants = {"backing=cumem", "profile=numba"},
    .make = make_pool,
};

}  // namespace emm
