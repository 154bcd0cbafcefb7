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

/// What one simulated device is like.
struct DeviceSpec {
  int ordinal = 0;
  std::uint64_t total = 0;     ///< Bytes, as cuMemGetInfo shows them.
  std::uint64_t reserved = 0;  ///< The part that is never free: the system's and the context's.
  Pattern fresh;               ///< What memory that nobody wrote to reads as.
};

/// One device, its primary context, and the memory and objects in that.
///
/// A call names the context that it is made in; one that has been reset answers 709. Whatever a
/// call refuses changes nothing. Any thread may call; a call is atomic. The codes are those that an
/// H200 gave (driver 580.159.04, CUDA 13.0), as tests/driver pins them.
class SimDevice {
 public:
  /// Device addresses are above any that a process of 47 or 48 bits of address space can have, and
  /// apart from those of every other device: 8 TiB of its own memory, 8 TiB of that of other
  /// processes.
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kAddresses = std::uint64_t{1} << 44;

  SimDevice(const DeviceSpec& spec, HostSpace& host);

  int ordinal() const noexcept { return spec_.ordinal; }
  bool owns(std::uint64_t address) const noexcept { return address - base_ < kAddresses; }

  /// Answers the primary context, and makes it where there is none, as cuDevicePrimaryCtxRetain
  /// does.
  ContextHandle retain();
  /// What every call in a context is answered: 0; 709 after its reset; 700 after work on its
  /// streams touched memory that it may not (documented: the error is sticky). One load decides the
  /// common case: `fit_` holds the context's handle while it has neither ended nor failed.
  std::int32_t state(ContextHandle context) const {
    const bool fit = context.value != 0 && fit_.load(std::memory_order_acquire) == context.value;
    return fit ? kSuccess : state_of_unfit(context);
  }
  void fault(ContextHandle context);
  Answer<Nothing> reset(ContextHandle context);

  Answer<DevicePtr> mem_alloc(ContextHandle context, std::uint64_t size);
  /// May come from a context of another device, since addresses are one space. The caller has then
  /// checked that context, and `context` is 0.
  Answer<Nothing> mem_free(ContextHandle context, DevicePtr ptr);
  /// cuMemFreeAsync of memory of mem_alloc, which an H200 allows. begin_free() marks it at once, so
  /// that a second free is refused; end_free() frees it when the stream comes to it.
  Answer<Nothing> begin_free(ContextHandle context, DevicePtr ptr);
  void end_free(DevicePtr ptr);
  Answer<MemoryInfo> mem_get_info(ContextHandle context) const;
  Answer<AddressRange> mem_get_address_range(DevicePtr ptr);
  std::uint64_t held_bytes(ContextHandle context) const;
  std::uint64_t largest_free_bytes(ContextHandle context) const;

  /// Takes physical pages for virtual memory: 0, 2 where there are not that many, or the context's
  /// state. The end of a context released its pages, so that release_pages() then does nothing.
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

  /// Whether work of this device may touch the memory of another one: access that was enabled.
  bool reaches(int ordinal) const noexcept {
    return ordinal == spec_.ordinal || (peers_.load(std::memory_order_relaxed) >> ordinal & 1) != 0;
  }
  /// Enables or disables that. False where it changes nothing.
  bool set_reach(int ordinal, bool reach) noexcept {
    const auto bit = std::uint64_t{1} << ordinal;
    const auto before = reach ? peers_.fetch_or(bit) : peers_.fetch_and(~bit);
    return ((before & bit) != 0) != reach;
  }

 private:
  struct Import {
    IpcMemHandle handle;
    std::uint64_t size = 0;
    std::uint64_t opened = 0;  // times
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

  std::atomic<std::uint64_t> peers_{0};  // one bit for each device that it reaches
  std::atomic<std::uint64_t> fit_{0};    // the context, while it has no fault

  mutable std::mutex mutex_;
  ContextHandle context_;          // 0: none
  std::int32_t fault_ = kSuccess;  // what the context answers
  DeviceMemory memory_;
  Imports imports_;  // by address
  std::unordered_set<std::uint64_t>
      buried_;  // allocations that a reset ended, whose address is not in use since
  std::unordered_set<std::uint64_t> leaving_;  // between begin_free() and end_free()
  std::uint64_t last_library_ = 0;
  std::set<std::uint64_t> libraries_;
};

}  // namespace emm::sim
