#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.hpp"
#include "driver/driver.hpp"

namespace emm::stream_order {

/// A device that does no work: it numbers handles, answers at once, and gives the address that was
/// freed last to whoever asks next, so that whatever a manager gets wrong is met soon. What is
/// still running is not its business; questions are answered by chance, from a seed.
class OrderDevice final : public Driver {
 public:
  static constexpr std::uint64_t kGranularity = 2 << 20;

  explicit OrderDevice(std::uint64_t seed = 0) : random_(seed) {}

  /// Counts the mappings of memory that was mapped before.
  std::uint64_t aliased() const noexcept { return aliased_; }
  /// Unmaps and releases nothing from here on.
  void refuse() noexcept { refuses_ = true; }
  /// The next allocation begins there, whatever lives there.
  void give_next(DevicePtr ptr) noexcept { wanted_ = ptr; }
  /// Gives physical memory this name from here on, whatever came before.
  void name_all(std::uint64_t handle) noexcept { always_ = handle; }

  Result<DevicePtr> mem_alloc(std::uint64_t size) override { return take(size); }
  /// The next mem_free calls this once, after the free and before it returns.
  std::function<void()> meanwhile;
  Status mem_free(DevicePtr ptr) override {
    auto done = give(ptr);
    if (const auto others = std::exchange(meanwhile, {})) others();
    return done;
  }
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags) override {
    return take(size);
  }
  /// There is one piece of page-locked memory.
  Result<HostPtr> mem_host_alloc(std::uint64_t, HostAllocFlags) override {
    return reinterpret_cast<HostPtr>(std::uintptr_t{0x480000000000});
  }
  Status mem_free_host(HostPtr) override {
    if (const auto others = std::exchange(meanwhile, {})) others();
    return {};
  }
  Status mem_host_unregister(HostPtr) override { return {}; }
  Result<MemoryInfo> mem_get_info() override {
    return MemoryInfo{.free = kTotal - held_, .total = kTotal};
  }
  DeviceIdentity device_identity() const noexcept override { return {}; }
  std::string_view device_name() const noexcept override { return "order"; }
  int device_ordinal() const noexcept override { return 0; }
  bool can_map_host_memory() const noexcept override { return true; }
  Result<bool> can_access_peer(const DeviceIdentity&) override { return false; }
  Status memset_d8(DevicePtr, std::uint8_t, std::uint64_t) override { return {}; }
  Status memset_d32(DevicePtr, std::uint32_t, std::uint64_t) override { return {}; }
  Status memcpy_htod(DevicePtr, std::span<const std::byte>) override { return {}; }
  Status memcpy_dtoh(std::span<std::byte>, DevicePtr) override { return {}; }
  Status memcpy_dtod(DevicePtr, DevicePtr, std::uint64_t) override { return {}; }
  Result<EventHandle> event_create() override { return EventHandle{++handles_}; }
  Status event_destroy(EventHandle) override { return {}; }
  Result<StreamHandle> stream_create(StreamKind) override { return StreamHandle{++handles_}; }
  Status stream_destroy(StreamHandle) override { return {}; }
  Status stream_synchronize(StreamHandle) override { return {}; }
  Status library_unload(LibraryHandle) override { return {}; }
  Status ctx_synchronize() override { return {}; }
  Status ctx_push_current() override { return {}; }
  Result<ContextHandle> ctx_pop_current() override { return context_handle(); }
  ContextHandle context_handle() const noexcept override { return {1}; }
  Status primary_ctx_reset() override { return {}; }
  Result<bool> stream_query(StreamHandle) override { return random_.chance(0.3); }
  Status stream_wait_event(StreamHandle, EventHandle) override { return {}; }
  Status event_record(EventHandle, StreamHandle) override { return {}; }
  Result<bool> event_query(EventHandle) override { return random_.chance(0.3); }
  Status event_synchronize(EventHandle) override { return {}; }
  Status memset_d8_async(DevicePtr, std::uint8_t, std::uint64_t, StreamHandle) override {
    return {};
  }
  Status memcpy_dtod_async(DevicePtr, DevicePtr, std::uint64_t, StreamHandle) override {
    return {};
  }
  Status launch_host_func(StreamHandle, HostFunction function, void* argument) override {
    function(argument);
    return {};
  }
  Result<std::uint64_t> mem_get_allocation_granularity() override { return kGranularity; }
  Result<DevicePtr> mem_address_reserve(std::uint64_t size, std::uint64_t, DevicePtr) override {
    return take(size);
  }
  Status mem_address_free(DevicePtr ptr, std::uint64_t) override { return give(ptr); }
  Result<PhysicalHandle> mem_create(std::uint64_t) override {
    return PhysicalHandle{always_ ? always_ : ++handles_};
  }
  Status mem_release(PhysicalHandle) override {
    return refuses_ ? Status(Error{.code = Errc::invalid_value, .native = 1}) : Status();
  }
  Status mem_map(DevicePtr, std::uint64_t, std::uint64_t, PhysicalHandle handle) override {
    if (!mapped_.insert(handle).second) ++aliased_;
    return {};
  }
  Status mem_unmap(DevicePtr, std::uint64_t) override {
    return refuses_ ? Status(Error{.code = Errc::invalid_value, .native = 1}) : Status();
  }
  Status mem_set_access(DevicePtr, std::uint64_t, AccessFlags) override { return {}; }
  Result<DevicePtr> mem_alloc_async(std::uint64_t size, StreamHandle) override {
    return take(size);
  }
  Status mem_free_async(DevicePtr ptr, StreamHandle) override {
    return refuses_ ? Status(Error{.code = Errc::invalid_value, .native = 1}) : give(ptr);
  }
  std::uint64_t held_bytes() const noexcept override { return held_; }
  std::uint64_t largest_free_bytes() const noexcept override { return kTotal - held_; }
  std::uint64_t log_address(const std::byte*) const noexcept override { return 0; }

 private:
  static constexpr std::uint64_t kTotal = std::uint64_t{1} << 40;
  static std::uint64_t rounded(std::uint64_t size) { return (size + 4095) / 4096 * 4096; }

  Result<DevicePtr> take(std::uint64_t size) {
    auto& idle = idle_[rounded(size)];
    DevicePtr ptr{next_};
    if (const auto wanted = std::exchange(wanted_, {}); wanted.value != 0) {
      ptr = wanted;
    } else if (idle.empty()) {
      next_ += rounded(size);
    } else {
      ptr = idle.back();
      idle.pop_back();
    }
    live_[ptr] = rounded(size);
    held_ += rounded(size);
    return ptr;
  }
  Status give(DevicePtr ptr) {
    const auto found = live_.find(ptr);
    if (found == live_.end()) return Error{.code = Errc::invalid_value, .native = 1};
    idle_[found->second].push_back(ptr);
    held_ -= found->second;
    live_.erase(found);
    return {};
  }

  Prng random_;
  bool refuses_ = false;
  std::set<PhysicalHandle> mapped_;
  std::uint64_t aliased_ = 0;
  std::uint64_t always_ = 0;
  std::uint64_t handles_ = 0x100;
  std::uint64_t next_ = std::uint64_t{1} << 44;
  std::uint64_t held_ = 0;
  DevicePtr wanted_{};
  std::map<DevicePtr, std::uint64_t> live_;
  std::map<std::uint64_t, std::vector<DevicePtr>> idle_;
};

}  // namespace emm::stream_order
