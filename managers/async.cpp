#include <atomic>
#include <limits>

#include "managers/host_only.hpp"

namespace emm {
namespace {

struct AsyncSettings {
  HostOnlyManager::Settings host;
  std::uint64_t max = 0;  ///< As in mem_pool_create(): 0 means no limit.
  std::uint64_t release_threshold = std::numeric_limits<std::uint64_t>::max();
};

/// Takes device memory from its own stream-ordered pool of the driver, with cuMemAllocFromPoolAsync
/// and cuMemFreeAsync on the streams of the requests.
class AsyncManager final : public HostOnlyManager {
 public:
  AsyncManager(const ManagerContext& context, const AsyncSettings& settings)
      : HostOnlyManager(context, settings.host), settings_(settings) {}
  ~AsyncManager() override {
    end_all();
    const std::lock_guard lock(mutex_);
    if (!pool_) return;
    if (auto done = driver().mem_pool_destroy(*pool_); !done) tell(done.error());
  }

  Status initialize() override {
    if (auto done = HostOnlyManager::initialize(); !done) return done;
    const auto made = pool();
    if (!made) return made.error();
    return {};
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    const auto from = pool();
    if (!from) return from.error();
    auto ptr = driver().mem_alloc_from_pool_async(size, *from, stream);
    if (!ptr && ptr.error().code == Errc::out_of_memory) ptr = alloc_again(size, *from, stream);
    if (!ptr) return std::move(ptr).error();
    if (!*ptr) return MemoryPointer({}, size);  // a size of 0
    const std::lock_guard lock(mutex_);
    const auto cookie = records_.add({.address = ptr->value,
                                      .size = size,
                                      .kind = MemoryKind::device,
                                      .thread = thread_number(),
                                      .stream = stream});
    if (!cookie) return address_is_alive(ptr->value);
    return MemoryPointer(
        *ptr, size, Lifetime({.run = finalize, .self = this, .cookie = *cookie}, epoch_.mark()));
  }

  void reset() noexcept override {
    end_all();
    HostOnlyManager::reset();
  }

  Status trim(std::uint64_t keep) override {
    const auto from = pool();
    return from ? driver().mem_pool_trim_to(*from, keep) : Status(from.error());
  }

  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const std::lock_guard lock(mutex_);
    *state.live_bytes += records_.device_bytes();
    return state;
  }

 private:
  /// Makes the pool at the first need, since construction must not touch the device (SEL-5).
  Result<PoolHandle> pool() {
    const std::lock_guard lock(mutex_);
    if (pool_) return *pool_;
    const auto made = driver().mem_pool_create(settings_.max);
    if (!made) return made.error();
    const auto set = driver().mem_pool_set_attribute(*made, PoolAttribute::release_threshold,
                                                     settings_.release_threshold);
    if (!set) {
      if (auto undone = driver().mem_pool_destroy(*made); !undone) tell(undone.error());
      return set.error();
    }
    pool_ = *made;
    return *made;
  }

  // Waits and flushes before it asks again: pending work of other streams may free memory, and so
  // may the queued frees of host memory.
  Result<DevicePtr> alloc_again(std::uint64_t size, PoolHandle from, StreamHandle stream) {
    if (auto done = driver().ctx_synchronize(); !done) return std::move(done).error();
    auto flushed = deallocations().clear();
    if (!flushed && profile() == Profile::numba) return std::move(flushed).error();  // DEV-7
    if (auto trimmed = driver().mem_pool_trim_to(from, 0); !trimmed)
      return std::move(trimmed).error();
    return driver().mem_alloc_from_pool_async(size, from, stream);
  }

  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& manager = *static_cast<AsyncManager*>(self);
    std::unique_lock lock(manager.mutex_);
    const auto record = manager.records_.take(cookie);
    lock.unlock();
    if (!record) return;
    // A finalizer without a stream passes 0. free() takes that for the default stream and orders it
    // behind the stream of the allocation.
    manager.free(*record, stream);
  }

  static std::uint32_t thread_number() noexcept {
    static std::atomic<std::uint32_t> last{0};
    thread_local const std::uint32_t number = ++last;
    return number;
  }

  // Orders the free behind the work on the stream of the allocation, so that callers need not do
  // it. Another thread's per-thread stream has no handle on this thread. For that stream, and if
  // ordering fails, this waits for the whole context.
  void free(const LiveRecord& record, StreamHandle stream) noexcept {
    const bool is_nameable = record.stream != kPerThreadStream || record.thread == thread_number();
    if (!is_nameable || (stream != record.stream && !order(record.stream, stream))) {
      if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    }
    if (auto freed = driver().mem_free_async({record.address}, stream); !freed) tell(freed.error());
  }

  // Makes `after` wait for `before`. False if that fails, most likely because a stream has been
  // destroyed.
  bool order(StreamHandle before, StreamHandle after) noexcept {
    const auto event = driver().event_create();
    if (!event) return false;
    const bool ordered = driver().event_record(*event, before).has_value() &&
                         driver().stream_wait_event(after, *event).has_value();
    if (auto done = driver().event_destroy(*event); !done) tell(done.error());
    return ordered;
  }

  // Any stream may be using the memory, so this waits for the whole context.
  void end_all() noexcept {
    std::unique_lock lock(mutex_);
    epoch_.advance();
    if (records_.size() == 0) return;
    lock.unlock();
    if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    lock.lock();
    const auto mark = records_.mark();
    while (const auto record = records_.take_first(mark)) {
      lock.unlock();
      free({.address = record->address}, {});
      lock.lock();
    }
    const auto from = *pool_;
    lock.unlock();
    if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    if (auto done = driver().mem_pool_trim_to(from, 0); !done) tell(done.error());
  }

  const AsyncSettings settings_;
  mutable std::mutex mutex_;
  std::optional<PoolHandle> pool_;
  LiveRecords records_;
  Epoch epoch_;
};

Result<std::unique_ptr<MemoryManager>> make_async(const ManagerContext& context, Options options) {
  constexpr std::string_view kOwner = "manager async";
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  AsyncSettings settings{.host = *host};
  settings.max = options.bytes("max", settings.max);
  settings.release_threshold = options.bytes("release_threshold", settings.release_threshold);
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return std::make_unique<AsyncManager>(context, settings);
}

}  // namespace

extern constinit const ManagerEntry async_manager{
    .name = "async",
    .summary = "cuMemAllocFromPoolAsync: a stream-ordered pool of the driver's, of its own",
    .options =
        "max=<no limit>, release_threshold=<no limit>, profile=standard|numba, count=10, "
        "ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .variants = {"profile=numba"},
    .make = make_async,
};

}  // namespace emm
