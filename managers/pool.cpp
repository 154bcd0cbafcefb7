#include <algorithm>
#include <bit>
#include <limits>

#include "base/units.hpp"
#include "managers/host_only.hpp"
#include "managers/pool_blocks.hpp"

namespace emm {
namespace {

constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kPage = 2_MiB;  // what the driver takes for a slab comes in these

std::uint64_t in_pages(std::uint64_t size) noexcept { return (size + kPage - 1) & ~(kPage - 1); }

struct PoolSettings {
  HostOnlyManager::Settings host;
  std::uint64_t initial = 0;
  std::uint64_t max = kUnlimited;
  std::uint64_t release_threshold = kUnlimited;
  std::uint64_t slab = 32_MiB;
  std::uint64_t alignment = 512;
};

/// Device memory cut from slabs of cuMemAlloc. Frees return to the pool at once, and wait there for the streams
/// they were made on where another stream wants the memory.
class PoolManager final : public HostOnlyManager {
 public:
  PoolManager(const ManagerContext& context, const PoolSettings& settings)
      : HostOnlyManager(context, settings.host), settings_(settings), blocks_(settings.alignment) {}
  ~PoolManager() override {
    end_all();
    give_back(0);
  }

  Status initialize() override {
    if (auto done = HostOnlyManager::initialize(); !done) return done;
    const std::lock_guard growing(growing_);
    if (initialized_) return {};
    if (settings_.initial > 0) {
      if (auto grown = grow(0, in_pages(settings_.initial)); !grown) return grown;
    }
    initialized_ = true;
    return {};
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (size == 0) return driver_error(Call::mem_alloc, 1);
    if (size > settings_.max || size > kUnlimited - kPage) return full();
    if (auto memory = take(size, stream)) return *std::move(memory);
    return take_slowly(size, stream);
  }

  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    return ipc_handle_from_address_range(driver(), memory);
  }

  void reset() noexcept override {
    end_all();
    {
      const std::lock_guard lock(mutex_);
      if (deferrals_ > 0) reset_waits_ = true;
    }
    give_back(0);
    HostOnlyManager::reset();
  }

  Status trim(std::uint64_t keep) override {
    give_back(keep);
    return {};
  }

  DeferCleanup defer_cleanup() override {
    const std::lock_guard lock(mutex_);
    if (deferrals_++ == 0) host_deferred_ = HostOnlyManager::defer_cleanup();
    return DeferCleanup([](void* self) noexcept { static_cast<PoolManager*>(self)->end_deferral(); }, this);
  }

  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const std::lock_guard lock(mutex_);
    *state.live_bytes += blocks_.live_bytes();
    state.largest_free_bytes = blocks_.largest_free_bytes();
    return state;
  }

 private:
  static Error full() noexcept { return {.code = Errc::out_of_memory, .native = 2}; }

  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& pool = *static_cast<PoolManager*>(self);
    {
      const std::lock_guard lock(pool.mutex_);
      pool.blocks_.release(cookie, stream);
    }
    if (pool.settings_.release_threshold != kUnlimited) pool.give_back(pool.settings_.release_threshold);
  }

  std::optional<MemoryPointer> take(std::uint64_t size, StreamHandle stream) {
    const std::lock_guard lock(mutex_);
    return take_locked(size, stream);
  }

  std::optional<MemoryPointer> take_locked(std::uint64_t size, StreamHandle stream) {
    const auto taken = blocks_.take(size, stream);
    if (!taken) return std::nullopt;
    return MemoryPointer(taken->ptr, size,
                         Lifetime({.run = finalize, .self = this, .cookie = taken->cookie}, epoch_.mark()));
  }

  // In order of cost: what a wait for another stream makes free, more memory from the device, and what a wait for
  // every stream and the return of idle slabs make free.
  Result<MemoryPointer> take_slowly(std::uint64_t size, StreamHandle stream) {
    const std::lock_guard growing(growing_);
    {
      const std::lock_guard lock(mutex_);
      blocks_.merge_for(stream);
      if (auto memory = take_locked(size, stream)) return *std::move(memory);
    }
    if (auto memory = take_from_another_stream(size, stream)) return *std::move(memory);
    for (;;) {
      auto grown = grow_for(size);
      if (auto memory = take(size, stream)) return *std::move(memory);
      if (!grown && grown.error().code != Errc::out_of_memory) return std::move(grown).error();
      if (grown) continue;  // another thread has been served first

      finish_every_stream();
      if (auto memory = take(size, stream)) return *std::move(memory);
      auto flushed = deallocations().clear();
      if (!flushed && profile() == Profile::numba) return std::move(flushed).error();  // DEV-7
      give_back(0);
      if (grown = grow_for(size); !grown) return std::move(grown).error();
      if (auto memory = take(size, stream)) return *std::move(memory);
    }
  }

  std::optional<MemoryPointer> take_from_another_stream(std::uint64_t size, StreamHandle stream) {
    for (;;) {
      std::optional<PoolBlocks::Parked> parked;
      {
        const std::lock_guard lock(mutex_);
        parked = blocks_.park_best(size);
      }
      if (!parked) return std::nullopt;
      const auto finished = finish(parked->streams);
      const std::lock_guard lock(mutex_);
      blocks_.unpark(*parked, finished);
      if (auto memory = take_locked(size, stream)) return memory;
      if (!finished) return std::nullopt;
    }
  }

  void finish_every_stream() {
    std::vector<PoolBlocks::Parked> parked;
    {
      const std::lock_guard lock(mutex_);
      parked = blocks_.park_all();
    }
    // They come sorted by their streams, so each is waited for once.
    bool finished = false;
    for (std::size_t i = 0; i < parked.size(); ++i) {
      if (i == 0 || parked[i].streams != parked[i - 1].streams) finished = finish(parked[i].streams);
      const std::lock_guard lock(mutex_);
      blocks_.unpark(parked[i], finished);
    }
  }

  // A stream that is gone cannot be waited for; the whole context can.
  bool finish(const Unfinished& streams) {
    auto done = streams.count == 0 || driver().stream_synchronize(streams.first).has_value();
    if (done && streams.count == 2) done = driver().stream_synchronize(streams.second).has_value();
    return done || driver().ctx_synchronize().has_value();
  }

  // A slab for `size` and what may follow; one of its own where it is large, or where there is no room for more.
  Status grow_for(std::uint64_t size) {
    const auto alone = in_pages(size);
    const auto wanted = size > settings_.slab / 2 ? alone : settings_.slab;
    auto grown = grow(blocks_.rounded(size), wanted);
    if (grown || grown.error().code != Errc::out_of_memory || wanted == alone) return grown;
    return grow(blocks_.rounded(size), alone);
  }

  // A slab of `wanted` bytes, or of what `max` leaves, if that is enough for `needed`.
  Status grow(std::uint64_t needed, std::uint64_t wanted) {
    std::uint64_t left = 0;
    {
      const std::lock_guard lock(mutex_);
      left = settings_.max - std::min(settings_.max, blocks_.reserved_bytes());
    }
    const auto size = std::min(wanted, left & ~(settings_.alignment - 1));
    if (size < needed) return full();
    auto base = driver().mem_alloc(size);
    if (!base) return std::move(base).error();
    const std::lock_guard lock(mutex_);
    blocks_.add_slab({.base = *base, .size = size});
    return {};
  }

  // Returns idle slabs to the device while more than `keep` bytes are held, unless cleanup is deferred.
  void give_back(std::uint64_t keep) noexcept {
    for (;;) {
      std::optional<PoolBlocks::Slab> slab;
      {
        const std::lock_guard lock(mutex_);
        if (deferrals_ == 0) slab = blocks_.remove_idle_slab(keep);
      }
      if (!slab) return;
      if (auto freed = driver().mem_free(slab->base); !freed) tell(freed.error());
    }
  }

  void end_all() noexcept {
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    blocks_.release_all();
  }

  void end_deferral() noexcept {
    DeferCleanup host;  // ends after the lock
    bool all = false;
    {
      const std::lock_guard lock(mutex_);
      if (--deferrals_ > 0) return;
      host = std::move(host_deferred_);
      all = std::exchange(reset_waits_, false);
    }
    if (all) {
      give_back(0);
    } else if (settings_.release_threshold != kUnlimited) {
      give_back(settings_.release_threshold);
    }
  }

  const PoolSettings settings_;
  std::mutex growing_;  ///< Held through waits and growth, never in a free; taken before mutex_.
  mutable std::mutex mutex_;
  PoolBlocks blocks_;
  Epoch epoch_;
  std::size_t deferrals_ = 0;
  DeferCleanup host_deferred_;
  bool reset_waits_ = false;
  bool initialized_ = false;
};

Result<std::unique_ptr<MemoryManager>> make_pool(const ManagerContext& context, Options options) {
  constexpr std::string_view kOwner = "manager pool";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  PoolSettings settings{.host = *host};
  settings.initial = options.bytes("initial", settings.initial);
  settings.max = options.bytes("max", settings.max);
  settings.release_threshold = options.bytes("release_threshold", settings.release_threshold);
  settings.slab = in_pages(std::max(options.bytes("slab", settings.slab), kPage));
  settings.alignment = options.bytes("alignment", settings.alignment);
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  if (settings.initial > settings.max) {
    return fail(Errc::usage, "{}: option 'initial' is {}: expected at most max, {}", kOwner, settings.initial,
                settings.max);
  }
  if (!std::has_single_bit(settings.alignment) || settings.alignment > kPage) {
    return fail(Errc::usage, "{}: option 'alignment' is {}: expected a power of two up to {}", kOwner,
                settings.alignment, kPage);
  }
  return std::make_unique<PoolManager>(context, settings);
}

}  // namespace

extern constinit const ManagerEntry pool_manager{
    .name = "pool",
    .summary = "Device memory cut from slabs and kept for reuse",
    .options = "initial=0, max=<no limit>, release_threshold=<no limit>, slab=32MiB, alignment=512, profile=standard|numba, "
               "count=10, ratio=0.2, capacity=<the device's>",
    .make = make_pool,
};

}  // namespace emm
