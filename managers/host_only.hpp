#pragma once

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/observer_relay.hpp"
#include "emm/pending_deallocs.hpp"
#include "managers/live_records.hpp"

namespace emm {

/// NBEP-7's HostOnlyCUDAMemoryManager: page-locked host memory and managed memory. Their frees wait
/// in a PendingDeallocs; unpinning does not wait (PIN-5). This class declines device memory and
/// IPC, which derived classes add.
///
/// A derived class ends its own memory in its destructor and in reset(). Its reset(), initialize()
/// and defer_cleanup() call those of this class (RST-4, INI-5, DFR-4). Any thread may call.
class HostOnlyManager : public MemoryManager {
 public:
  struct Settings {
    Profile profile = Profile::standard;
    PendingDeallocs::Limits limits{};
    std::optional<std::uint64_t>
        capacity{};  ///< The base of limits.ratio; empty means the device's total.
  };
  /// The help text for the options that read_settings() knows.
  static constexpr std::string_view kOptions =
      "profile=standard|numba, count=10, ratio=0.2, capacity=<the device's>";
  /// Reads the settings from `options`; the caller calls finish(). Error usage if a value makes no
  /// sense.
  static Result<Settings> read_settings(const ManagerContext& context, Options& options,
                                        std::string_view owner);

  HostOnlyManager(const ManagerContext& context, const Settings& settings);
  /// Ends the memory that is left (RST-2). Profile::numba abandons it, as numba does at exit
  /// (ERR-3).
  ~HostOnlyManager() override;
  HostOnlyManager(const HostOnlyManager&) = delete;
  HostOnlyManager& operator=(const HostOnlyManager&) = delete;

  /// Sets the capacity of the queue once, to the device's total (INI-3). Profile::numba does
  /// nothing (INI-5).
  Status initialize() override;
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {}) override;
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override;
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner = {}) override;
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach) override;
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override;
  Result<MemoryInfo> get_memory_info() override;  ///< The device's.
  void reset() noexcept override;
  DeferCleanup defer_cleanup() override;
  Status flush() override;
  ManagerState state() const override;

 protected:
  Driver& driver() noexcept { return *driver_; }
  const Driver& driver() const noexcept { return *driver_; }
  Profile profile() const noexcept { return profile_; }
  PendingDeallocs& deallocations() noexcept { return deallocations_; }
  const PendingDeallocs& deallocations() const noexcept { return deallocations_; }
  /// Tells the observer of a failed free that no caller waits for.
  void tell(const Error& error) noexcept { observer_.free_failed(error); }
  /// For managers that tell under a lock.
  const ObserverRelay& observer() const noexcept { return observer_; }

  /// Calls `attempt`. If that runs out of memory, makes the pending frees and calls it once more
  /// (DEV-3).
  template <class Attempt>
  auto attempt_allocation(Attempt&& attempt) -> decltype(attempt()) {
    auto result = attempt();
    if (result || result.error().code != Errc::out_of_memory) return result;
    auto flushed = deallocations_.clear();
    if (!flushed && profile_ == Profile::numba) return std::move(flushed).error();  // DEV-7
    return attempt();
  }

  /// Records memory that the driver gave. The end of the returned lifetime frees it through the
  /// queue. Error driver_error, in numba's words, if the address is already alive (BASE-10).
  Result<Lifetime> hand_out(const LiveRecord& record);

 private:
  bool survives_reset(MemoryKind kind) const noexcept;
  void end(const LiveRecord& record) noexcept;
  static void finalize_recorded(void* self, std::uint64_t cookie, StreamHandle stream) noexcept;
  static void finalize_unrecorded(void* self, std::uint64_t cookie, StreamHandle stream) noexcept;

  Driver* driver_;  ///< Null in a probe.
  ObserverRelay observer_;
  Profile profile_;
  PendingDeallocs deallocations_;
  mutable std::mutex mutex_;
  LiveRecords records_;
  LiveRecords
      unrecorded_;  ///< Memory that numba keeps no record of, and so does not reset (RST-5).
  Epoch epoch_;     ///< Ends the lifetimes of records_.
  Epoch life_;      ///< Ends the lifetimes of unrecorded_.
};

/// "key already in dictionary: 0x7f...", for an address that a driver gave twice.
Error address_is_alive(std::uint64_t address);

}  // namespace emm
