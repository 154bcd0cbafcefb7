#include <atomic>
#include <optional>
#include <unordered_map>
#include <vector>

#include "allocators/pytorch/allocator.hpp"
#include "emm/memory_statistics.hpp"
#include "managers/host_only.hpp"

namespace emm {
namespace {

namespace pytorch = allocators::pytorch;
using pytorch::Block;

constexpr std::string_view kOwner = "manager pytorch";

struct PytorchSettings {
  HostOnlyManager::Settings host;
  pytorch::Settings allocator;
};

/// Segments of the driver's: cuMemAlloc, and ranges of cuMemAddressReserve that are mapped by
/// granule.
class DriverSegments final : public pytorch::SegmentSource {
 public:
  explicit DriverSegments(Driver& driver) : driver_(driver) {}

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
    // cuMemFree waits for the device, cuMemUnmap does not.
    if (size != 0) check(driver_.ctx_synchronize());
    for (std::uint64_t at = address; at < address + size; at += granule) {
      check(driver_.mem_unmap({at}, granule));
      const auto found = handles_.find(at);
      check(driver_.mem_release(found->second));
      handles_.erase(found);
    }
  }
  void synchronize() override {
    if (synchronize_) synchronize_();
  }

  void on_synchronize(std::function<void()> synchronize) { synchronize_ = std::move(synchronize); }
  void on_failed_free(std::function<void(const Error&)> tell) { tell_ = std::move(tell); }
  /// What the driver said to the last allocation; nothing where it was not asked.
  std::optional<Error> take_error() { return std::exchange(error_, std::nullopt); }

 private:
  // The last lack of memory counts, unless something else went wrong before.
  void failed(const Error& error) {
    if (!error_ || error_->code == Errc::out_of_memory) error_ = error;
  }
  void check(const Status& done) {
    if (!done && tell_) tell_(done.error());
  }

  Driver& driver_;
  std::unordered_map<std::uint64_t, PhysicalHandle> handles_;
  std::function<void()> synchronize_;
  std::function<void(const Error&)> tell_;
  std::optional<Error> error_;
};

/// The per-thread stream is another one on each thread, so its blocks are kept apart by thread.
std::uint64_t key_of(StreamHandle stream) noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = ++threads;
  return stream == kPerThreadStream ? ~number : stream.value;
}

/// PyTorch's caching allocator over this driver. A free that names another stream than the request
/// is what record_stream() makes of one: the block waits for an event on that stream.
class PytorchManager final : public HostOnlyManager {
 public:
  PytorchManager(const ManagerContext& context, const PytorchSettings& settings)
      : HostOnlyManager(context, settings.host), settings_(settings.allocator) {}
  ~PytorchManager() override { end_all(); }

  Status initialize() override {
    if (auto done = HostOnlyManager::initialize(); !done) return done;
    const std::lock_guard lock(mutex_);
    return make();
  }

  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (size == 0) return MemoryPointer({}, 0);
    const std::lock_guard lock(mutex_);
    if (auto made = make(); !made) return std::move(made).error();
    make_queued_frees();
    process_events();
    auto* const block = allocator_->allocate(size, key_of(stream));
    auto error = segments_->take_error();
    if (auto flushed = std::exchange(flush_error_, std::nullopt); flushed && block == nullptr)
      return *std::move(flushed);  // DEV-7
    if (block == nullptr)
      return error ? *std::move(error) : Error{.code = Errc::out_of_memory, .native = 2};
    const auto cookie = records_.add(
        {.address = block->address, .size = size, .kind = MemoryKind::device, .stream = stream});
    if (!cookie) return address_is_alive(block->address);
    blocks_[block->address] = block;
    return MemoryPointer(
        {block->address}, size,
        Lifetime({.run = finalize, .self = this, .cookie = *cookie}, epoch_.mark()));
  }

  void reset() noexcept override {
    end_all();
    HostOnlyManager::reset();
  }

  Status trim(std::uint64_t keep) override {
    const std::lock_guard lock(mutex_);
    if (!allocator_) return {};
    make_queued_frees();
    process_events();
    const auto idle = allocator_->heap().reserved() - allocator_->counts().active;
    if (idle > keep) allocator_->empty_cache();
    return {};
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
    if (!allocator_) return made;
    const auto& counts = allocator_->counts();
    made.reserved_bytes.current = allocator_->heap().reserved();
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
  struct Pending {
    Block* block = nullptr;
    EventHandle event{};
  };

  /// Made at the first need, since construction touches no device (SEL-5).
  Status make() {
    if (allocator_) return {};
    if (settings_.fraction && settings_.total == 0) {
      const auto info = driver().mem_get_info();
      if (!info) return info.error();
      settings_.total = info->total;
    }
    segments_.emplace(driver());
    segments_->on_failed_free([this](const Error& error) { tell(error); });
    segments_->on_synchronize([this] {
      wait_for_events();
      // What host memory still holds may be what is missing.
      auto flushed = deallocations().clear();
      if (!flushed && profile() == Profile::numba) flush_error_ = std::move(flushed).error();
    });
    allocator_.emplace(settings_, *segments_);
    return {};
  }

  void process_events() {
    std::erase_if(pending_, [this](const Pending& each) {
      // One that cannot be asked is waited for where memory runs out.
      const auto done = driver().event_query(each.event);
      if (!done || !*done) return false;
      finish(each);
      return true;
    });
  }
  void wait_for_events() {
    for (const auto& each : std::exchange(pending_, {})) {
      if (auto done = driver().event_synchronize(each.event); !done) tell(done.error());
      finish(each);
    }
  }
  void finish(const Pending& each) {
    if (auto done = driver().event_destroy(each.event); !done) tell(done.error());
    allocator_->complete(each.block);
  }

  // A free does not wait for another thread's request, which may be in the driver: that one, or the
  // next, makes it (ERR-6).
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
    auto& manager = *static_cast<PytorchManager*>(self);
    Queued queued{.cookie = cookie, .stream = stream, .event = {}};
    // Only this thread can name its own per-thread stream.
    if (stream == kPerThreadStream) queued.event = manager.record(stream);
    {
      const std::lock_guard lock(manager.queue_mutex_);
      manager.queued_.push_back(queued);
    }
    const std::unique_lock lock(manager.mutex_, std::try_to_lock);
    if (lock.owns_lock()) manager.make_queued_frees();
  }
  void make_queued_frees() noexcept {
    std::vector<Queued> queued;
    {
      const std::lock_guard lock(queue_mutex_);
      queued.swap(queued_);
    }
    for (const auto& each : queued) {
      if (const auto record = records_.take(each.cookie)) {
        free(*record, each.stream, each.event);
      } else if (each.event) {
        if (auto done = driver().event_destroy(*each.event); !done) tell(done.error());
      }
    }
  }

  std::optional<EventHandle> record(StreamHandle stream) noexcept {
    const auto event = driver().event_create();
    if (!event) return std::nullopt;
    if (driver().event_record(*event, stream)) return *event;
    if (auto done = driver().event_destroy(*event); !done) tell(done.error());
    return std::nullopt;
  }

  void free(const LiveRecord& record, StreamHandle stream,
            std::optional<EventHandle> event = {}) noexcept {
    const auto found = blocks_.find(record.address);
    auto* const block = found->second;
    blocks_.erase(found);
    if (stream == record.stream && stream != kPerThreadStream) return allocator_->free(block);
    if (!event && stream != kPerThreadStream) event = this->record(stream);
    if (event) {
      allocator_->free_later(block);
      pending_.push_back({.block = block, .event = *event});
      return;
    }
    if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    allocator_->free(block);
  }

  void end_all() noexcept {
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    if (!allocator_) return;
    make_queued_frees();
    if (records_.size() != 0 || !pending_.empty()) {
      if (auto done = driver().ctx_synchronize(); !done) tell(done.error());
    }
    const auto mark = records_.mark();
    while (const auto record = records_.take_first(mark)) free(*record, record->stream);
    allocator_->empty_cache();
    for (const auto& [address, segment] : allocator_->heap().segments()) {
      // A range of which nothing could be mapped.
      segments_->release(address, segment->size);
    }
    allocator_.reset();
    segments_.reset();
  }

  struct Queued {
    std::uint64_t cookie = 0;
    StreamHandle stream{};
    std::optional<EventHandle> event{};  ///< Recorded on the stream already.
  };

  pytorch::Settings settings_;
  mutable std::mutex mutex_;
  mutable std::mutex queue_mutex_;  ///< Taken last, and never over a driver call.
  std::optional<Error> flush_error_;
  std::vector<Queued> queued_;  ///< Frees that found mutex_ taken.
  std::optional<DriverSegments> segments_;
  std::optional<pytorch::Allocator> allocator_;
  std::vector<Pending> pending_;
  std::unordered_map<std::uint64_t, Block*> blocks_;
  LiveRecords records_;
  Epoch epoch_;
};

Result<std::unique_ptr<MemoryManager>> make_pytorch(const ManagerContext& context,
                                                    Options options) {
  const auto host = HostOnlyManager::read_settings(context, options, kOwner);
  if (!host) return host.error();
  PytorchSettings settings{.host = *host, .allocator = {}};
  if (auto read = read_options(options, settings.allocator); !read) return std::move(read).error();
  if (auto done = options.finish(kOwner); !done) return std::move(done).error();
  return std::make_unique<PytorchManager>(context, settings);
}

}  // namespace

extern constinit const ManagerEntry pytorch_manager{
    .name = "pytorch",
    .summary = "PyTorch's caching allocator, rule by rule: a model of c10's, version 2.11",
    .options =
        "max_split_size_mb, max_non_split_rounding_mb, large_segment_size_mb, "
        "garbage_collection_threshold, roundup_power2_divisions=N|[256:1;512:2;>:8], "
        "expandable_segments=True|False, fraction, total=<the device's>, version=2.11, "
        "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>",
    .promise = Promise::host_only,
    .variants = {"expandable_segments=True"},
    .make = make_pytorch,
};

}  // namespace emm
