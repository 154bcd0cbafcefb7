#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/call.hpp"
#include "driver/driver.hpp"

namespace emm::test {

/// A driver that does what a test tells it: it hands out addresses in order, keeps account of what
/// is alive, writes down every call, and answers as scripted. Any thread may call.
class ScriptedDriver : public Driver {
 public:
  struct Entry {
    Call call;
    std::uint64_t argument = 0;  ///< The size of an allocation, else the address or handle.
    bool operator==(const Entry&) const = default;
  };

  // The script.

  /// The next calls of this kind answer so, 0 being success; then all succeed.
  void answer(Call call, std::initializer_list<int> natives) {
    const std::lock_guard lock(mutex_);
    answers_[call].insert(answers_[call].end(), natives.begin(), natives.end());
  }
  /// The n-th call from here on, of any kind that can fail, counted from 1, fails with `native`.
  void fail_call(std::size_t n, int native) {
    const std::lock_guard lock(mutex_);
    fail_at_ = n;
    fail_with_ = native;
    seen_ = 0;
  }
  bool failed_as_told() const {
    const std::lock_guard lock(mutex_);
    return fail_at_ == 0;
  }
  void stop_failing() {
    const std::lock_guard lock(mutex_);
    fail_at_ = 0;
  }
  /// Device memory that is left to give.
  std::uint64_t capacity = std::uint64_t{1} << 40;
  std::uint64_t total = 1000;  ///< As mem_get_info says.
  bool maps_host_memory = true;
  bool reaches_peers = false;
  std::uint64_t host_to_device = 0x1000;  ///< Between the two addresses of mapped memory.
  DeviceIdentity identity{.pci_domain_id = 0, .pci_bus_id = 1, .pci_device_id = 0};
  std::optional<DevicePtr> always_gives;     ///< mem_alloc gives this address every time.
  std::function<void(const Entry&)> during;  ///< Called inside each call, without the lock.

  // What happened.

  std::vector<Entry> calls() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::vector<Entry> calls(Call call) const {
    std::vector<Entry> found;
    for (const auto& entry : calls()) {
      if (entry.call == call) found.push_back(entry);
    }
    return found;
  }
  std::size_t count(Call call) const { return calls(call).size(); }
  void forget_calls() {
    const std::lock_guard lock(mutex_);
    log_.clear();
  }
  /// Everything alive: device, managed, host memory, registrations, mappings.
  std::size_t alive() const {
    const std::lock_guard lock(mutex_);
    return device_.size() + host_.size() + registered_.size() + mapped_.size();
  }
  std::size_t bad_frees() const {
    const std::lock_guard lock(mutex_);
    return bad_frees_;
  }
  /// The address that the n-th successful mem_alloc gave, from 0.
  DevicePtr allocation(std::size_t n) const {
    const std::lock_guard lock(mutex_);
    return given_.at(n);
  }

  // Driver

  Result<DevicePtr> mem_alloc(std::uint64_t size) override {
    return allocate(Call::mem_alloc, size);
  }
  Result<DevicePtr> mem_alloc_managed(std::uint64_t size, AttachFlags attach) override {
    last_attach = attach;
    return allocate(Call::mem_alloc_managed, size);
  }
  Status mem_free(DevicePtr ptr) override {
    if (auto failed = enter(Call::mem_free, ptr.value)) return *failed;
    const std::lock_guard lock(mutex_);
    const auto found = device_.find(ptr.value);
    if (found == device_.end()) return bad_free(Call::mem_free);
    used_ -= found->second;
    device_.erase(found);
    return {};
  }
  Result<HostPtr> mem_host_alloc(std::uint64_t size, HostAllocFlags flags) override {
    last_host_flags = flags.bits();
    if (auto failed = enter(Call::mem_host_alloc, size)) return *failed;
    const std::lock_guard lock(mutex_);
    next_host_ += 0x10000;
    host_[next_host_] = size;
    return reinterpret_cast<HostPtr>(next_host_);
  }
  Status mem_free_host(HostPtr ptr) override {
    const auto address = reinterpret_cast<std::uint64_t>(ptr);
    if (auto failed = enter(Call::mem_free_host, address)) return *failed;
    const std::lock_guard lock(mutex_);
    return host_.erase(address) == 1 ? Status{} : bad_free(Call::mem_free_host);
  }
  Status mem_host_register(HostRange range, HostRegisterFlags flags) override {
    last_register_flags = flags.bits();
    const auto address = reinterpret_cast<std::uint64_t>(range.pointer);
    if (auto failed = enter(Call::mem_host_register, address)) return *failed;
    const std::lock_guard lock(mutex_);
    if (!registered_.emplace(address, range.size).second)
      return driver_error(Call::mem_host_register, 712);
    return {};
  }
  Status mem_host_unregister(HostPtr ptr) override {
    const auto address = reinterpret_cast<std::uint64_t>(ptr);
    if (auto failed = enter(Call::mem_host_unregister, address)) return *failed;
    const std::lock_guard lock(mutex_);
    return registered_.erase(address) == 1 ? Status{} : bad_free(Call::mem_host_unregister);
  }
  Result<DevicePtr> mem_host_get_device_pointer(HostPtr ptr) override {
    const auto address = reinterpret_cast<std::uint64_t>(ptr);
    if (auto failed = enter(Call::mem_host_get_device_pointer, address)) return *failed;
    return DevicePtr{address + host_to_device};
  }
  Result<MemoryInfo> mem_get_info() override {
    if (auto failed = enter(Call::mem_get_info, 0)) return *failed;
    const std::lock_guard lock(mutex_);
    return MemoryInfo{.free = total, .total = total};
  }
  Result<AddressRange> mem_get_address_range(DevicePtr ptr) override {
    if (auto failed = enter(Call::mem_get_address_range, ptr.value)) return *failed;
    const std::lock_guard lock(mutex_);
    const auto above = device_.upper_bound(ptr.value);
    if (above == device_.begin()) return driver_error(Call::mem_get_address_range, 500);
    const auto& [base, size] = *std::prev(above);
    if (ptr.value >= base + size) return driver_error(Call::mem_get_address_range, 500);
    return AddressRange{.base = {base}, .size = size};
  }
  DeviceIdentity device_identity() const noexcept override { return identity; }
  std::string_view device_name() const noexcept override { return "Scripted device"; }
  int device_ordinal() const noexcept override { return 0; }
  bool can_map_host_memory() const noexcept override { return maps_host_memory; }
  Result<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr) override {
    if (auto failed = enter(Call::ipc_get_mem_handle, ptr.value)) return *failed;
    IpcMemHandle handle;
    for (std::size_t i = 0; i < 8; ++i)
      handle.bytes[i] = static_cast<std::byte>(ptr.value >> (8 * i));
    return handle;
  }
  Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle& handle) override {
    std::uint64_t address = 0;
    for (std::size_t i = 0; i < 8; ++i)
      address |= std::to_integer<std::uint64_t>(handle.bytes[i]) << (8 * i);
    address += kMappedAt;
    if (auto failed = enter(Call::ipc_open_mem_handle, address)) return *failed;
    const std::lock_guard lock(mutex_);
    mapped_[address] = 1;
    return DevicePtr{address};
  }
  Status ipc_close_mem_handle(DevicePtr ptr) override {
    if (auto failed = enter(Call::ipc_close_mem_handle, ptr.value)) return *failed;
    const std::lock_guard lock(mutex_);
    return mapped_.erase(ptr.value) == 1 ? Status{} : bad_free(Call::ipc_close_mem_handle);
  }
  Result<bool> can_access_peer(const DeviceIdentity&) override {
    if (auto failed = enter(Call::can_access_peer, 0)) return *failed;
    return reaches_peers;
  }
  Status memset_d8(DevicePtr ptr, std::uint8_t, std::uint64_t) override {
    return told(Call::memset_d8, ptr.value);
  }
  Status memset_d32(DevicePtr ptr, std::uint32_t, std::uint64_t) override {
    return told(Call::memset_d32, ptr.value);
  }
  Status memcpy_htod(DevicePtr to, std::span<const std::byte>) override {
    return told(Call::memcpy_htod, to.value);
  }
  Status memcpy_dtoh(std::span<std::byte>, DevicePtr from) override {
    return told(Call::memcpy_dtoh, from.value);
  }
  Status memcpy_dtod(DevicePtr to, DevicePtr from, std::uint64_t) override {
    last_copied_from = from;
    return told(Call::memcpy_dtod, to.value);
  }
  Result<EventHandle> event_create() override {
    if (auto failed = enter(Call::event_create, 0)) return *failed;
    return EventHandle{next_object()};
  }
  Status event_destroy(EventHandle event) override {
    return told(Call::event_destroy, event.value);
  }
  Result<StreamHandle> stream_create(StreamKind = StreamKind::blocking) override {
    if (auto failed = enter(Call::stream_create, 0)) return *failed;
    return StreamHandle{next_object()};
  }
  Status stream_destroy(StreamHandle stream) override {
    return told(Call::stream_destroy, stream.value);
  }
  Status stream_synchronize(StreamHandle stream) override {
    return told(Call::stream_synchronize, stream.value);
  }
  Result<LibraryHandle> library_load(std::span<const std::byte>) override {
    if (auto failed = enter(Call::library_load, 0)) return *failed;
    return LibraryHandle{next_object()};
  }
  Status library_unload(LibraryHandle library) override {
    return told(Call::library_unload, library.value);
  }
  Result<PoolHandle> mem_pool_create(std::uint64_t) override { return PoolHandle{next_object()}; }
  Status mem_pool_destroy(PoolHandle) override { return {}; }
  Status mem_pool_set_attribute(PoolHandle, PoolAttribute, std::uint64_t) override { return {}; }
  Status mem_pool_trim_to(PoolHandle, std::uint64_t) override { return {}; }
  Status ctx_synchronize() override { return told(Call::ctx_synchronize, 0); }
  Status ctx_push_current() override { return told(Call::ctx_push_current, 0); }
  Result<ContextHandle> ctx_pop_current() override {
    if (auto failed = enter(Call::ctx_pop_current, 0)) return *failed;
    return popped;
  }
  ContextHandle context_handle() const noexcept override { return {1}; }
  Status primary_ctx_reset() override { return told(Call::primary_ctx_reset, 0); }
  std::uint64_t held_bytes() const noexcept override {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  std::uint64_t largest_free_bytes() const noexcept override {
    const std::lock_guard lock(mutex_);
    return capacity - used_;
  }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override {
    return reinterpret_cast<std::uint64_t>(ptr);
  }

  std::atomic<unsigned> last_host_flags{0};
  std::atomic<unsigned> last_register_flags{0};
  std::atomic<AttachFlags> last_attach{AttachFlags::global};
  DevicePtr last_copied_from;
  ContextHandle popped{1};  ///< What ctx_pop_current answers.

 protected:
  static constexpr std::uint64_t kMappedAt = std::uint64_t{1} << 40;

  Result<DevicePtr> allocate(Call call, std::uint64_t size) {
    if (auto failed = enter(call, size)) return *failed;
    if (size == 0) return driver_error(call, 1);
    const std::lock_guard lock(mutex_);
    if (size > capacity - used_) return driver_error(call, 2);
    if (always_gives) return *always_gives;
    const DevicePtr ptr{next_device_};
    next_device_ += (size + 511) / 512 * 512;
    device_[ptr.value] = size;
    used_ += size;
    given_.push_back(ptr);
    return ptr;
  }

  std::optional<Error> enter(Call call, std::uint64_t argument) {
    const Entry entry{.call = call, .argument = argument};
    int native = 0;
    {
      const std::lock_guard lock(mutex_);
      log_.push_back(entry);
      if (auto& scripted = answers_[call]; !scripted.empty()) {
        native = scripted.front();
        scripted.pop_front();
      }
      if (fail_at_ != 0 && ++seen_ == fail_at_) {
        native = fail_with_;
        fail_at_ = 0;
      }
    }
    if (during) during(entry);
    if (native == 0) return std::nullopt;
    return driver_error(call, native);
  }

  Status told(Call call, std::uint64_t argument) {
    if (auto failed = enter(call, argument)) return *failed;
    return {};
  }

  // With the lock held.
  Status bad_free(Call call) {
    ++bad_frees_;
    return driver_error(call, 1);
  }
  std::uint64_t next_object() {
    const std::lock_guard lock(mutex_);
    return ++next_object_;
  }

  mutable std::mutex mutex_;
  std::vector<Entry> log_;
  std::map<Call, std::deque<int>> answers_;
  std::size_t fail_at_ = 0;
  int fail_with_ = 0;
  std::size_t seen_ = 0;
  std::map<std::uint64_t, std::uint64_t> device_;
  std::map<std::uint64_t, std::uint64_t> host_;
  std::map<std::uint64_t, std::uint64_t> registered_;
  std::map<std::uint64_t, std::uint64_t> mapped_;
  std::vector<DevicePtr> given_;
  std::uint64_t next_device_ = 0x10000000;
  std::uint64_t next_host_ = 0x20000000;
  std::uint64_t next_object_ = 100;
  std::uint64_t used_ = 0;
  std::size_t bad_frees_ = 0;
};

/// cudart's door to a ScriptedDriver.
class ScriptedRuntime final : public Runtime {
 public:
  explicit ScriptedRuntime(ScriptedDriver& driver) : driver_(driver) {}
  Result<DevicePtr> malloc(std::uint64_t size) override {
    if (size == 0) return DevicePtr{};
    return driver_.mem_alloc(size);
  }
  Status free(DevicePtr ptr) override { return driver_.mem_free(ptr); }
  Result<MemoryInfo> mem_get_info() override { return driver_.mem_get_info(); }

 private:
  ScriptedDriver& driver_;
};

/// Writes down what a manager tells.
class RecordingObserver final : public ManagerObserver {
 public:
  struct Flush {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    bool operator==(const Flush&) const = default;
  };
  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override {
    const std::lock_guard lock(mutex);
    added.emplace_back(dtor, size);
  }
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override {
    const std::lock_guard lock(mutex);
    flushes.push_back({count, bytes});
  }
  void free_failed(const Error& error) noexcept override {
    const std::lock_guard lock(mutex);
    failures.push_back(error.native);
    if (error.call != nullptr && error.call == std::string_view("cuCtxSynchronize")) ++waits;
  }

  std::mutex mutex;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added;
  std::vector<Flush> flushes;
  std::vector<int> failures;
  /// The failures where the device could not be waited for, so that nothing was freed yet.
  std::size_t waits = 0;
};

}  // namespace emm::test
