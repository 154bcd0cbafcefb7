#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>

#include "driver/sim/answer.hpp"
#include "driver/sim/device_memory.hpp"
#include "driver/sim/host_space.hpp"

namespace emm::sim {

/// The properties of a simulated device.
struct DeviceSpec {
  int ordinal = 0;
  std::uint64_t total = 0;     ///< Bytes, as cuMemGetInfo shows them.
  std::uint64_t reserved = 0;  ///< The part that is never free: the system's and the context's.
  Addresses addresses = Addresses::first_fit;
  Pattern fresh;  ///< The content of memory that was never written.
};

/// A device, its primary context, and the memory and objects of that context.
///
/// A call names its context; a reset context returns 709. A refused call changes nothing. Any
/// thread may call; a call is atomic. The codes are those of an H200 (driver 580.159.04, CUDA
/// 13.0), which tests/driver checks.
class SimDevice {
 public:
  /// Device addresses are above all addresses of a process with 47 or 48 address bits. Each device
  /// has its own range: 8 TiB for its memory, and 8 TiB for memory of other processes.
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 44;

  SimDevice(const DeviceSpec& spec, HostSpace& host);

  int ordinal() const noexcept { return spec_.ordinal; }
  bool owns(std::uint64_t address) const noexcept { return address - base_ < kAddresses; }

  /// Returns the primary context, and makes it if there is none, like cuDevicePrimaryCtxRetain.
  ContextHandle retain();
  /// The code for every call in a context: 0; 709 after its reset; 700 after work on its streams
  /// used memory that it must not use (documented: the error is sticky). One load decides the
  /// common case: `fit_` holds the context's handle while it has neither ended nor failed.
  std::int32_t state(ContextHandle context) const {
    const bool fit = context.value != 0 && fit_.load(std::memory_order_acquire) == context.value;
    return fit ? kSuccess : state_of_unfit(context);
  }
  void fault(ContextHandle context);
  Answer<Nothing> reset(ContextHandle context);

  Answer<DevicePtr> mem_alloc(ContextHandle context, std::uint64_t size);
  /// The call may come from a context of another device, since all devices share one address space.
  /// The caller has then checked that context, and `context` is 0.
  Answer<Nothing> mem_free(ContextHandle context, DevicePtr ptr);
  /// cuMemFreeAsync of memory from mem_alloc, which an H200 allows. begin_free() marks the memory
  /// at once, so that a second free is refused. end_free() frees it when the stream reaches the
  /// free.
  Answer<Nothing> begin_free(ContextHandle context, DevicePtr ptr);
  void end_free(DevicePtr ptr);
  Answer<MemoryInfo> mem_get_info(ContextHandle context) const;
  Answer<AddressRange> mem_get_address_range(DevicePtr ptr);
  std::uint64_t held_bytes(ContextHandle context) const;
  std::uint64_t largest_free_bytes(ContextHandle context) const;

  /// Takes physical pages for virtual memory. Returns 0, 2 if there are not enough, or the
  /// context's state. The end of a context releases its pages, so release_pages() then does
  /// nothing.
  std::int32_t take_pages(ContextHandle context, std::uint64_t pages);
  void release_pages(ContextHandle context, std::uint64_t pages);

  Answer<IpcMemHandle> ipc_get_mem_handle(DevicePtr ptr);
  Answer<DevicePtr> ipc_open_mem_handle(ContextHandle context, const IpcMemHandle& handle);
  Answer<Nothing> ipc_close_mem_handle(ContextHandle context, DevicePtr ptr);

  Answer<LibraryHandle> library_load(ContextHandle context);
  Answer<Nothing> library_unload(ContextHandle context, LibraryHandle library);

  /// The content at `address` if all `size` bytes lie in one allocation, else null.
  /// REQUIRES: the caller holds mutex(), and owns(address).
  struct ContentAt {
    Content* content = nullptr;
    std::uint64_t offset = 0;
  };
  ContentAt content_at(std::uint64_t address, std::uint64_t size);
  std::mutex& mutex() const noexcept { return mutex_; }

  /// Answers whether work of this device may use the memory of another device: peer access was
  /// enabled.
  bool reaches(int ordinal) const noexcept {
    return ordinal == spec_.ordinal || (peers_.load(std::memory_order_relaxed) >> ordinal & 1) != 0;
  }
  /// Enables or disables peer access. False if it changes nothing.
  bool set_reach(int ordinal, bool reach) noexcept {
    const auto bit = std::uint64_t{1} << ordinal;
    const auto before = reach ? peers_.fetch_or(bit) : peers_.fetch_and(~bit);
    return ((before & bit) != 0) != reach;
  }

 private:
  struct Import {
    IpcMemHandle handle;
    std::uint64_t size = 0;
    std::uint64_t opened = 0;  // how often it is open
    Content content;
  };
  using Imports = std::map<std::uint64_t, Import>;

  std::int32_t state_locked(ContextHandle context) const noexcept {
    return context == context_ ? fault_ : kContextDestroyed;
  }
  std::int32_t state_of_unfit(ContextHandle context) const;
  Imports::iterator import_around(std::uint64_t address);
  Content& content_of(DeviceMemory::DeviceBlock& block);

  const DeviceSpec spec_;
  const std::uint64_t base_;
  HostSpace& host_;

  std::atomic<std::uint64_t> peers_{0};  // a bit for each device that it reaches
  std::atomic<std::uint64_t> fit_{0};    // the context, while it has no fault

  mutable std::mutex mutex_;
  ContextHandle context_;          // 0: none
  std::int32_t fault_ = kSuccess;  // the code that the context returns
  DeviceMemory memory_;
  Imports imports_;  // by address
  std::unordered_set<std::uint64_t>
      buried_;  // addresses of allocations that a reset ended, and that are unused since
  std::unordered_set<std::uint64_t> leaving_;  // between begin_free() and end_free()
  std::uint64_t last_library_ = 0;
  std::set<std::uint64_t> libraries_;
};

}  // namespace emm::sim
