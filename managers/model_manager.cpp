#include "managers/model_manager.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emm/memory_statistics.hpp"

namespace emm {
namespace {

using allocators::PoolModel;

/// Returns a number for a stream. The per-thread stream is another stream on each thread, so each
/// thread gives it a different number.
std::uint64_t key_of(StreamHandle stream) noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return stream == kPerThreadStream ? ~number : stream.value;
}

/// Gets memory from the driver: with cuMemAlloc, or as granules mapped into ranges from
/// cuMemAddressReserve.
class DriverMemory final : public allocators::DeviceMemory {
 public:
  explicit DriverMemory(Driver& driver) : driver_(driver) {}
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;
  ~DriverMemory() override {
    for (const auto& [stream, event] : events_) {
      if (event) check(driver_.event_destroy(*event));
    }
  }

  std::optional<std::uint64_t> allocate(std::uint64_t size) override {
    auto made = driver_.mem_alloc(size);
    if (made) return made->value;
    failed(made.error());
    return std::nullopt;
  }
  void free(std::uint64_t address, std::uint64_t) override { check(driver_.mem_free({address})); }
  std::optional<std::uint64_t> reserve(std::uint64_t size) override {
    auto made = driver_.mem_address_reserve(size);
    if (made) return made->value;
    failed(made.error());
    return std::nullopt;
  }
  void release(std::uint64_t address, std::uint64_t size) override {
    check(driver_.mem_address_free({address}, size));
  }
  bool map(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    std::uint64_t done = 0;
    for (; done < size; done += granule) {
      if (kept_.erase(address + done) != 0) continue;  // it is mapped there
      const auto handle = driver_.mem_create(granule);
      if (!handle) {
        failed(handle.error());
        break;
      }
      if (auto mapped = driver_.mem_map({address + done}, granule, 0, *handle); !mapped) {
        failed(mapped.error());
        check(driver_.mem_release(*handle));
        break;
      }
      handles_[address + done] = *handle;
    }
    if (done == size) {
      auto access = driver_.mem_set_access({address}, size, AccessFlags::read_write);
      if (access) return true;
      failed(access.error());
    }
    unmap(address, done, granule);
    return false;
  }
  void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t granule) override {
    // cuMemFree waits for the device, cuMemUnmap does not. What cannot be waited for, asked
    // twice, stays mapped.
    const bool is_done = size == 0 || wait_for_all() || wait_for_all();
    for (std::uint64_t at = address; at < address + size; at += granule) {
      if (is_done) {
        unmap_now(at, granule);
      } else {
        kept_[at] = granule;
      }
    }
  }
  void synchronize() override {
    if (synchronize_) synchronize_();
  }
  void synchronize_device() override { wait_for_all(); }
  void synchronize_stream(std::uint64_t stream) override {
    const auto handle = handle_of(stream);
    if (!handle || !driver_.stream_synchronize(*handle)) wait_for_all();
  }
  void freed(std::uint64_t stream, std::uint64_t asked_on) override {
    if (all_done_) return;
    auto& event = events_[stream];
    if (stream != asked_on && !waits_for(stream, asked_on)) wait_for_all();
    if (given_) {  // recorded on its own thread
      if (event) check(driver_.event_destroy(*event));
      event = std::exchange(given_, std::nullopt);
      return;
    }
    if (!event) {
      if (const auto made = driver_.event_create()) event = *made;
    }
    const auto handle = handle_of(stream);
    if (event && handle && driver_.event_record(*event, *handle)) return;
    if (event) check(driver_.event_destroy(*event));
    event.reset();
  }
  void order(std::uint64_t stream, std::uint64_t freed_on) override {
    const auto found = events_.find(freed_on);
    const auto handle = handle_of(stream);
    if (found == events_.end()) return;
    if (found->second && handle && driver_.stream_wait_event(*handle, *found->second)) return;
    wait_for_all();
  }
  /// Waits for all work of the context. If the wait fails, no memory may be handed out before a
  /// later wait succeeds.
  bool wait_for_all() {
    auto done = driver_.ctx_synchronize();
    in_doubt_ = done ? std::nullopt : std::optional(done.error());
    check(done);
    if (!in_doubt_) {
      for (const auto& [at, granule] : std::exchange(kept_, {})) unmap_now(at, granule);
    }
    return !in_doubt_;
  }
  /// Unmaps what could not be waited for, if it can be now.
  void unmap_kept() {
    if (!kept_.empty()) wait_for_all();
  }
  /// The reason why no memory may be handed out; empty if it may.
  const std::optional<Error>& in_doubt() const noexcept { return in_doubt_; }

  /// Notes that no stream has pending work, and that no request will follow.
  void note_all_done() noexcept { all_done_ = true; }
  /// Passes an event that is already recorded; the next freed() uses it.
  void give(std::optional<EventHandle> event) { given_ = event; }
  /// Takes back the event if freed() did not use it.
  std::optional<EventHandle> take_given() { return std::exchange(given_, std::nullopt); }

  void on_synchronize(std::function<void()> synchronize) { synchronize_ = std::move(synchronize); }
  void on_failed_free(std::function<void(const Error&)> tell) { tell_ = std::move(tell); }
  /// Returns the driver's error for the last allocation; empty if there was none.
  std::optional<Error> take_error() { return std::exchange(error_, std::nullopt); }

 private:
  void unmap_now(std::uint64_t at, std::uint64_t granule) {
    check(driver_.mem_unmap({at}, granule));
    const auto found = handles_.find(at);
    check(driver_.mem_release(found->second));
    handles_.erase(found);
  }

  /// Empty for the per-thread stream of another thread, which has no handle on this thread.
  static std::optional<StreamHandle> handle_of(std::uint64_t stream) noexcept {
    if (stream == key_of(kPerThreadStream)) return kPerThreadStream;
    constexpr auto kThreads = ~std::uint64_t{0} << 32;  // key_of() counts them from above
    if (stream >= kThreads) return std::nullopt;
    return StreamHandle{stream};
  }
  /// Makes later work on `stream` wait for the work that `other` has now. False if that is
  /// impossible.
  bool waits_for(std::uint64_t stream, std::uint64_t other) {
    const auto to = handle_of(stream), from = handle_of(other);
    if (!to || !from || given_) return false;
    const auto event = driver_.event_create();
    if (!event) return false;
    const bool done = driver_.event_record(*event, *from) && driver_.stream_wait_event(*to, *event);
    check(driver_.event_destroy(*event));
    return done;
  }
  // Keeps the error to report: the first that is not out_of_memory, else the last.
  void failed(const Error& error) {
    if (!error_ || error_->code == Errc::out_of_memory) error_ = error;
  }
  void check(const Status& done) {
    if (!done && tell_) tell_(done.error());
  }

  Driver& driver_;
  std::unordered_map<std::uint64_t, PhysicalHandle> handles_;
  std::map<std::uint64_t, std::uint64_t> kept_;  // address, granule: to unmap after the next wait
  /// For each stream the event of its last free; empty if no event could be recorded.
  std::unordered_map<std::uint64_t, std::optional<EventHandle>> events_;
  std::optional<EventHandle> given_;
  std::optional<Error> in_doubt_;
  bool all_done_ = false;
  std::function<void()> synchronize_;
  std::function<void(const Error&)> tell_;
  std::optional<Error> error_;
};

class ModelManager final : public HostOnlyManager {
 public:
  ModelManager(const ManagerContext& context, const Settings& host, MakeModel make,
               const std::optional<HostCache::Settings>& cache)
      : HostOnlyManager(context, host), make_model_(std::move(make)) {
    // Profile::numba has no such cache: Numba specifies a queue of frees, not memory that is kept.
    if (cache && profile() == Profile::standard)
      host_cache_.emplace(context.driver, deallocations(), *cache);
  }
  ~ModelManager() override { end_all(); }

  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    if (!host_cache_ || size == 0 || flags.wc) return HostOnlyManager::memhostalloc(size, flags);
    return host_cache_->allocate(size, flags);
  }
  std::string report() const override { return host_cache_ ? host_cache_->report() : ""; }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (size == 0) return MemoryPointer({}, 0);
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    if (auto made = make(); !made) return std::move(made).error();
    make_queued_frees();
    // CUDA forbids to query events during a capture.
    if (pool_ == PrivatePool{}) process_events();
    if (memory_->in_doubt() && !memory_->wait_for_all()) return *memory_->in_doubt();
    auto block = model_->allocate(size, key_of(stream));
    auto error = memory_->take_error();
    if (const auto& doubt = memory_->in_doubt(); doubt && block) {
      error = *doubt;
      model_->free(*block, size, key_of(stream));
      block.reset();
    }
    if (auto flushed = std::exchange(flush_error_, std::nullopt); flushed && !block)
      return *std::move(flushed);  // DEV-7
    if (!block) return error ? *std::move(error) : Error{.code = Errc::out_of_memory, .native = 2};
    const auto cookie = records_.add(
        {.address = block->address, .size = size, .kind = MemoryKind::device, .stream = stream});
    if (!cookie) return address_is_alive(block->address);
    blocks_[block->address] = *block;
    return MemoryPointer(
        {block->address}, size,
        Lifetime({.run = finalize, .self = this, .cookie = *cookie}, epoch_.mark()));
  }

  void reset() noexcept override {
    end_all();
    HostOnlyManager::reset();
  }

  Status flush() override {
    try_queued_frees();
    return HostOnlyManager::flush();
  }

  Status trim(std::uint64_t keep) override {
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    if (!model_) return {};
    memory_->unmap_kept();
    make_queued_frees();
    process_events();
    const auto counts = model_->counts();
    // Pending blocks count as active. To release everything, the model waits for them.
    if (counts.reserved - counts.active > keep || (keep == 0 && !pending_.empty()))
      model_->release_idle();
    return {};
  }

  bool use_pool(PrivatePool pool) override {
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    if (!make() || !model_->use_pool(pool)) return false;
    pool_ = pool;
    return true;
  }
  void end_pool(PrivatePool pool, bool at_once) override {
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    if (!model_) return;
    make_queued_frees();
    process_events();
    model_->end_pool(pool, at_once);
  }

  bool delay_free(DevicePtr ptr, std::uint64_t number) override {
    const std::lock_guard lock(mutex_);
    if (!model_ || !model_->can_free_later() || blocks_.count(ptr.value) == 0) return false;
    delays_[ptr.value] = number;
    return true;
  }
  void complete_free(std::uint64_t number) override {
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    make_queued_frees();
    const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& each) {
      return !each.event && each.number == number;
    });
    if (found == pending_.end()) return;
    const auto completed = *found;
    pending_.erase(found);
    finish(completed);
  }

  ManagerState state() const override {
    auto state = HostOnlyManager::state();
    const std::lock_guard lock(mutex_);
    *state.live_bytes += records_.device_bytes();
    return state;
  }

  MemoryStatistics statistics() const override {
    const std::lock_guard lock(mutex_);
    MemoryStatistics made;
    if (!model_) return made;
    const auto counts = model_->counts();
    made.reserved_bytes.current = counts.reserved;
    made.reserved_bytes.peak = counts.peak_reserved;
    made.active_bytes.current = counts.active;
    made.active_bytes.peak = counts.peak_active;
    made.requested_bytes.current = records_.device_bytes();
    made.num_alloc_retries = counts.retries;
    made.num_ooms = counts.ooms;
    made.num_device_alloc = counts.device_allocs;
    made.num_device_free = counts.device_frees;
    return made;
  }

 private:
  struct Queued {
    std::uint64_t cookie = 0;
    StreamHandle stream{};
    std::uint64_t key = 0;               ///< key_of() the stream on the freeing thread.
    std::optional<EventHandle> event{};  ///< Already recorded on the stream.
  };
  struct Pending {
    PoolModel::Block block{};
    std::optional<EventHandle> event{};
    std::uint64_t number = 0;  ///< The number from delay_free(), if there is no event.
  };

  /// Makes the model at the first request, since construction must not touch the device (SEL-5).
  Status make() {
    if (model_) return {};
    memory_.emplace(driver());
    memory_->on_failed_free([this](const Error& error) { tell(error); });
    memory_->on_synchronize([this] {
      wait_for_events();
      // Pending frees of host memory may hold the missing memory.
      auto flushed = deallocations().clear();
      if (!flushed && profile() == Profile::numba) flush_error_ = std::move(flushed).error();
    });
    model_ = make_model_(*memory_);
    std::optional<Error> error;
    const auto room = [&]() -> PoolModel::Room {
      const auto info = driver().mem_get_info();
      if (info) return {.free = info->free, .total = info->total};
      error = info.error();
      return {};
    };
    if (model_->begin(room) && !error) {
      model_->use_pool(pool_);
      return {};
    }
    if (!error) error = memory_->take_error();
    give_up();
    return error ? *std::move(error) : Error{.code = Errc::out_of_memory, .native = 2};
  }

  void process_events() {
    std::erase_if(pending_, [this](const Pending& each) {
      if (!each.event) return false;
      // An event that cannot be queried stays pending until memory runs out. Then wait_for_events()
      // waits for it.
      const auto done = driver().event_query(*each.event);
      if (!done || !*done) return false;
      finish(each);
      return true;
    });
  }
  void wait_for_events() {
    const auto pending = std::exchange(pending_, {});
    const bool has_delayed = std::any_of(pending.begin(), pending.end(),
                                         [](const Pending& each) { return !each.event; });
    if (has_delayed) memory_->wait_for_all();
    for (const auto& each : pending) {
      if (each.event) {
        if (auto done = driver().event_synchronize(*each.event); !done) tell(done.error());
      }
      finish(each);
    }
  }
  void finish(const Pending& each) {
    if (each.event) destroy(*each.event);
    model_->complete(each.block);
  }

  // Only queues the free if another thread holds the lock, perhaps during a driver call. The next
  // request or flush then makes the free (ERR-6).
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& manager = *static_cast<ModelManager*>(self);
    Queued queued{.cookie = cookie, .stream = stream, .key = key_of(stream), .event = {}};
    // Only this thread has a handle of its per-thread stream.
    if (stream == kPerThreadStream) queued.event = manager.record(stream);
    {
      const std::lock_guard lock(manager.queue_mutex_);
      manager.queued_.push_back(queued);
    }
    manager.try_queued_frees();
  }
  void try_queued_frees() noexcept {
    const ObserverRelay::Hold hold(observer());
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) make_queued_frees();
  }
  void make_queued_frees() noexcept {
    std::vector<Queued> queued;
    {
      const std::lock_guard lock(queue_mutex_);
      queued.swap(queued_);
    }
    for (const auto& each : queued) {
      if (const auto record = records_.take(each.cookie)) {
        free(*record, each);
      } else if (each.event) {
        destroy(*each.event);
      }
    }
  }

  std::optional<EventHandle> record(StreamHandle stream) noexcept {
    const auto event = driver().event_create();
    if (!event) return std::nullopt;
    if (driver().event_record(*event, stream)) return *event;
    destroy(*event);
    return std::nullopt;
  }
  void destroy(EventHandle event) noexcept {
    if (auto done = driver().event_destroy(event); !done) tell(done.error());
  }

  /// Makes a free. The freeing thread has recorded `freed.event`, if there is one, on the stream.
  void free(const LiveRecord& record, const Queued& freed) noexcept {
    const auto found = blocks_.find(record.address);
    const auto block = found->second;
    blocks_.erase(found);
    const auto delay = delays_.extract(record.address);
    auto event = freed.event;
    if (!model_->waits(block, freed.key)) {
      if (delay) {
        if (event) destroy(*event);
        model_->free_later(block);
        pending_.push_back({.block = block, .number = delay.mapped()});
        return;
      }
      memory_->give(event);
      model_->free(block, record.size, freed.key);
      if (const auto left = memory_->take_given()) destroy(*left);
      return;
    }
    if (!event && freed.stream != kPerThreadStream) event = this->record(freed.stream);
    if (event) {
      model_->free_later(block);
      pending_.push_back({.block = block, .event = *event});
      return;
    }
    memory_->wait_for_all();
    model_->free(block, record.size, freed.key);
  }

  void end_all() noexcept {
    if (host_cache_) host_cache_->end_all();
    const ObserverRelay::Hold hold(observer());
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    if (!model_) return;
    make_queued_frees();
    if (records_.size() != 0 || !pending_.empty()) {
      if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    }
    const auto mark = records_.mark();
    memory_->note_all_done();
    delays_.clear();
    while (const auto record = records_.take_first(mark))
      free(*record, {.stream = record->stream, .key = key_of(record->stream), .event = {}});
    for (const auto& each : std::exchange(pending_, {})) finish(each);  // the device is idle
    give_up();
  }
  void give_up() noexcept {
    model_->end();
    model_.reset();
    memory_.reset();
  }

  MakeModel make_model_;
  std::optional<HostCache> host_cache_;
  mutable std::mutex mutex_;        ///< Taken inside a Hold where driver calls are made.
  mutable std::mutex queue_mutex_;  ///< Taken last, and not held during driver calls.
  std::optional<Error> flush_error_;
  std::vector<Queued> queued_;  ///< Frees that found mutex_ taken.
  std::optional<DriverMemory> memory_;
  std::unique_ptr<PoolModel> model_;
  PrivatePool pool_{};  ///< The pool that serves the current requests.
  std::vector<Pending> pending_;
  std::unordered_map<std::uint64_t, std::uint64_t>
      delays_;  ///< The numbers from delay_free(), by address.
  std::unordered_map<std::uint64_t, PoolModel::Block> blocks_;
  LiveRecords records_;
  Epoch epoch_;
};

}  // namespace

std::unique_ptr<MemoryManager> make_model_manager(const ManagerContext& context,
                                                  const HostOnlyManager::Settings& host,
                                                  MakeModel make,
                                                  std::optional<HostCache::Settings> cache) {
  return std::make_unique<ModelManager>(context, host, std::move(make), cache);
}

}  // namespace emm
