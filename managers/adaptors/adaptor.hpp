#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_map.hpp"
#include "emm/memory_statistics.hpp"
#include "managers/live_records.hpp"

namespace emm {

/// One request that an adaptor sees.
struct Request {
  MemoryKind kind = MemoryKind::device;
  std::uint64_t size = 0;  ///< Bytes.
  StreamHandle stream{};
};

/// Memory that the upstream handed out for a request.
struct Allocation {
  Request request;
  std::uint64_t address =
      0;  ///< A device address for device and managed memory, else a host address.
  std::uint64_t number = 0;  ///< The allocation is the number-th of this adaptor, counted from 1.
};

/// Wraps another manager, its upstream, and observes each allocation and its end. A derived class
/// overrides the hooks that it needs; all else goes to the upstream. Allocations that own nothing
/// (cudaMalloc(0)) reach only admit(). Any thread may call. The hooks run on the caller's thread
/// with no lock held.
class Adaptor : public MemoryManager {
 public:
  explicit Adaptor(std::unique_ptr<MemoryManager> upstream) : upstream_(std::move(upstream)) {}
  Adaptor(const Adaptor&) = delete;
  Adaptor& operator=(const Adaptor&) = delete;

  Status initialize() override { return upstream_->initialize(); }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {}) override;
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override;
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner = {}) override;
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach) override;
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    return upstream_->get_ipc_handle(memory);
  }
  Result<MemoryInfo> get_memory_info() override { return upstream_->get_memory_info(); }
  void reset() noexcept override;
  DeferCleanup defer_cleanup() override { return upstream_->defer_cleanup(); }
  int interface_version() const noexcept override { return upstream_->interface_version(); }
  Status flush() override { return upstream_->flush(); }
  Status trim(std::uint64_t keep) override { return upstream_->trim(keep); }
  bool use_pool(PrivatePool pool) override { return upstream_->use_pool(pool); }
  void end_pool(PrivatePool pool, bool at_once) override { upstream_->end_pool(pool, at_once); }
  bool delay_free(DevicePtr ptr, std::uint64_t number) override {
    return upstream_->delay_free(ptr, number);
  }
  void complete_free(std::uint64_t number) override { upstream_->complete_free(number); }
  ManagerState state() const override { return upstream_->state(); }
  std::string report() const override { return upstream_->report(); }
  MemoryStatistics statistics() const override { return upstream_->statistics(); }
  bool reset_peaks() override { return upstream_->reset_peaks(); }
  std::optional<MemoryMap> memory_map() const override { return upstream_->memory_map(); }

 protected:
  /// Called before the upstream is asked. An error answers the request, and no other hook is
  /// called.
  virtual Status admit(const Request&) { return {}; }
  virtual void failed(const Request&, const Error&) {}
  virtual void handed_out(const Allocation&) {}
  /// Called before the upstream frees the memory, or after a reset of the upstream has ended it.
  /// `stream` is the stream of the free.
  virtual void ending(const Allocation&, StreamHandle stream) noexcept { (void)stream; }
  /// The live allocations, oldest first.
  std::vector<Allocation> living() const;

 private:
  struct Held {
    Allocation allocation;
    Lifetime upstream;             ///< The upstream's lifetime of the memory.
    std::uint32_t generation = 0;  ///< Odd while alive.
  };
  HostMemory wrap(const Request& request, HostMemory memory, std::shared_ptr<const void> owner);
  Lifetime hold(const Request& request, std::uint64_t address, Lifetime upstream);
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept;

  std::unique_ptr<MemoryManager> upstream_;  ///< Destroyed after held_, which has its memory.
  mutable std::mutex mutex_;
  std::vector<Held> held_;
  std::vector<std::uint32_t> idle_;  ///< Free indexes of held_. Has capacity for all, so that
                                     ///< finalize() allocates nothing.
  std::uint64_t handed_out_ = 0;
  Epoch epoch_;
};

}  // namespace emm
