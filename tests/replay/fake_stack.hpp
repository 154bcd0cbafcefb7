#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "emm/context.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "fake_device.hpp"
#include "replay/engine.hpp"

namespace emm::replay {

/// Says what a manager under test is to do wrong, and when.
struct Script {
  /// Returns the address of the n-th memalloc (from 0), where it is not the next free one.
  std::function<std::optional<std::uint64_t>(std::uint64_t n, std::uint64_t next)> address{};
  /// Returns the error of the n-th memalloc.
  std::function<std::optional<Error>(std::uint64_t n, std::uint64_t size)> refuse{};
  std::uint64_t size_added = 0;  ///< To what pointers say of themselves.
  bool declines_ipc = false;
  std::uint64_t ipc_offset_added = 0;
  std::uint64_t state_live_added = 0;  ///< To the live bytes that state() says.
  bool has_private_pools = false;
  bool late_frees_release = false;  ///< A finalizer that runs after a reset gives memory back.
  std::size_t flush_after = 0;      ///< Pending frees that cause a flush; 0: no queue.
};

/// What a manager under test was told.
struct Seen {
  std::vector<StreamHandle> streams;  ///< One for each memalloc.
  std::vector<HostRange> pinned;
  std::vector<std::uint64_t> trims;  ///< What was to be kept.
  std::vector<PrivatePool> pools;    ///< One for each memalloc.
  std::vector<std::pair<PrivatePool, bool>> ended_pools;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> delays;  ///< Address and number.
  std::vector<std::uint64_t> completed;
};

/// Hands out the toy device from its beginning, never twice, 256-byte aligned, and does wrong what
/// its script says.
class ScriptedManager final : public MemoryManager {
 public:
  ScriptedManager(const ManagerContext& context, FakeDriver& driver, const Script& script,
                  Seen& seen, ManualClock& clock)
      : driver_(driver), observer_(context.observer), script_(script), seen_(seen), clock_(clock) {}

  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    seen_.streams.push_back(stream);
    seen_.pools.push_back(pool_);
    const auto n = count_++;
    clock_.advance(100);
    if (script_.refuse) {
      if (auto error = script_.refuse(n, size)) return *std::move(error);
    }
    auto address = next_;
    next_ += (size + 255) / 256 * 256;
    if (script_.address) address = script_.address(n, address).value_or(address);
    live_ += size;
    driver_.held += size;
    return MemoryPointer(
        {address}, size + script_.size_added,
        Lifetime({.run = &ScriptedManager::finalize, .self = this, .cookie = size}, mark()));
  }
  bool use_pool(PrivatePool pool) override {
    if (script_.has_private_pools) pool_ = pool;
    return script_.has_private_pools;
  }
  bool delay_free(DevicePtr ptr, std::uint64_t number) override {
    seen_.delays.emplace_back(ptr.value, number);
    return script_.has_private_pools;
  }
  void complete_free(std::uint64_t number) override { seen_.completed.push_back(number); }
  void end_pool(PrivatePool pool, bool at_once) override {
    seen_.ended_pools.emplace_back(pool, at_once);
  }
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    host_.push_back(std::make_unique<std::byte[]>(size + 1));
    return host(host_.back().get(), size, flags.mapped, {});
  }
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner) override {
    seen_.pinned.push_back(range);
    return host(range.pointer, range.size, flags.mapped, std::move(owner));
  }
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags) override {
    auto memory = memalloc(size, {});
    if (!memory) return std::move(memory).error();
    return ManagedMemory(std::move(*memory));
  }
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    if (script_.declines_ipc) return fail(Errc::not_supported, "no handles here");
    IpcHandle::Fields fields;
    // Exports as a pool would: the base is 512 bytes below.
    const DevicePtr base{memory.device_pointer.value - 512};
    std::memcpy(fields.handle.bytes.data(), &base, sizeof base);
    fields.size = memory.size;
    fields.offset = 512 + script_.ipc_offset_added;
    return IpcHandle::exported(fields);
  }
  Result<MemoryInfo> get_memory_info() override { return driver_.mem_get_info(); }
  void reset() noexcept override {
    empty();
    if (!script_.late_frees_release) epoch_.advance();
    live_ = 0;
    driver_.held = script_.late_frees_release ? 1 << 20 : 0;
  }
  DeferCleanup defer_cleanup() override {
    ++deferred;
    return {[](void* self) noexcept { --static_cast<ScriptedManager*>(self)->deferred; }, this};
  }
  Status flush() override {
    empty();
    return {};
  }
  Status trim(std::uint64_t keep) override {
    seen_.trims.push_back(keep);
    return {};
  }
  ManagerState state() const override {
    return {.live_bytes = live_ + script_.state_live_added,
            .reserved_bytes = {},
            .largest_free_bytes = {},
            .pending_count = {},
            .pending_bytes = {}};
  }

  int deferred = 0;

 private:
  static void finalize(void* self, std::uint64_t size, StreamHandle) noexcept {
    static_cast<ScriptedManager*>(self)->freed(size);
  }
  void freed(std::uint64_t size) noexcept {
    clock_.advance(50);
    live_ -= size;
    driver_.held -= size;
    if (script_.flush_after == 0) return;
    ++pending_.first;
    pending_.second += size;
    if (pending_.first > script_.flush_after && deferred == 0) empty();
  }
  void empty() noexcept {
    if (pending_.first != 0 && observer_ != nullptr)
      observer_->flushed(pending_.first, pending_.second);
    pending_ = {};
  }
  HostMemory host(HostPtr pointer, std::uint64_t size, bool mapped,
                  std::shared_ptr<const void> owner) {
    if (mapped)
      return MappedMemory({pointer, size}, {FakeDriver::kBase}, Lifetime({}, mark()),
                          std::move(owner));
    return PinnedMemory({pointer, size}, Lifetime({}, mark()), std::move(owner));
  }
  Epoch::Mark mark() const { return epoch_.mark(); }

  FakeDriver& driver_;
  ManagerObserver* observer_;
  const Script& script_;
  Seen& seen_;
  ManualClock& clock_;
  Epoch epoch_;
  PrivatePool pool_{};
  std::uint64_t next_ = FakeDriver::kBase + 4096;
  std::uint64_t count_ = 0;
  std::uint64_t live_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> host_;
  std::pair<std::size_t, std::uint64_t> pending_{};
};

/// The other process of an IPC section, in this one: it sees the memory of the device that
/// exported.
class FakePeer final : public Peer {
 public:
  explicit FakePeer(FakeDriver& driver, bool dies = false) : driver_(driver), dies_(dies) {}

  Result<std::uint32_t> open(const IpcHandle::Fields& fields) override {
    if (dies_) return fail(Errc::io_error, "it was ended");
    auto base = driver_.ipc_open_mem_handle(fields.handle);
    if (!base) return std::move(base).error();
    views_.push_back({*base + fields.offset, fields.size});
    return static_cast<std::uint32_t>(views_.size() - 1);
  }
  Result<std::uint64_t> address(std::uint32_t opening) override {
    return views_[opening].device_pointer.value;
  }
  Result<std::vector<std::byte>> read(std::uint32_t opening, std::uint64_t offset,
                                      std::uint64_t size) override {
    std::vector<std::byte> bytes(size);
    if (auto copied = driver_.memcpy_dtoh(bytes, views_[opening].device_pointer + offset); !copied)
      return std::move(copied).error();
    return bytes;
  }
  Status write(std::uint32_t opening, std::uint64_t offset,
               const std::vector<std::byte>& bytes) override {
    return driver_.memcpy_htod(views_[opening].device_pointer + offset, bytes);
  }
  Status close(std::uint32_t) override { return {}; }

 private:
  FakeDriver& driver_;
  const bool dies_;
  std::vector<MemoryView> views_;
};

/// Contexts on toy devices with scripted managers, on a clock that moves 100 ns an allocation and
/// 50 a free.
class FakeStack final : public Stack {
 public:
  explicit FakeStack(Script wrong = {}) : script(std::move(wrong)) {}

  Result<std::unique_ptr<Context>> make_context(std::uint32_t device, ManagerObserver* observer,
                                                stream_order::Checker* order) override {
    if (refuses_contexts) return fail(Errc::no_device, "no device {}", device);
    auto opened = std::make_unique<OpenedDevice>();
    opened->driver = std::make_unique<FakeDriver>(static_cast<int>(device));
    drivers.push_back(static_cast<FakeDriver*>(opened->driver.get()));
    if (order != nullptr) *opened = order->watch(std::move(*opened), device);
    const ManagerFactory factory{
        .name = "scripted",
        .make = [&](const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
          ++managers_made;
          return std::make_unique<ScriptedManager>(context, *drivers.back(), script, seen, manual);
        }};
    opened_.push_back(std::move(opened));
    return Context::create(*opened_.back(), manual, factory, observer);
  }
  Clock& clock() override { return manual; }
  Result<std::unique_ptr<Peer>> start_peer(std::uint32_t) override {
    ++peers_started;
    return std::make_unique<FakePeer>(*drivers.front(), peer_dies);
  }
  std::string describe_manager() const override { return "scripted"; }
  std::string describe_device() const override { return "toy"; }

  Script script;
  ManualClock manual;
  std::vector<FakeDriver*> drivers;
  Seen seen;
  int managers_made = 0;
  int peers_started = 0;
  bool refuses_contexts = false;
  bool peer_dies = false;

 private:
  std::vector<std::unique_ptr<OpenedDevice>> opened_;
};

}  // namespace emm::replay
