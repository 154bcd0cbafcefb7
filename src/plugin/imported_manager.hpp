#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "emm/defer_cleanup.hpp"
#include "emm/epoch.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/memory_statistics.hpp"
#include "plugin/driver_table.hpp"
#include "plugin/plugin.hpp"

namespace emm::plugin {

/// "PATH[:options]" or "NAME[:options]" of a plugin (where a path holds a colon, the last starts
/// the options, unless a file of the whole name is there), "torch:LIB,alloc,free" or
/// "cupy:LIB,malloc,free", as managers. Error not_found with all that was tried; usage for what is
/// written wrongly.
Result<ManagerFactory> find_plugin(std::string_view spec);
/// Whether such a plugin calls CUDA itself instead of the table of driver calls that it is given.
/// False where there is no such plugin.
bool calls_cuda(std::string_view spec);
/// Whether such a plugin has the slot trim.
bool has_trim(std::string_view spec);
/// Whether the file of such a plugin holds the name of libcuda or libcudart, as one does that is
/// linked to it or opens it.
bool names_cuda(std::string_view spec);

/// A MemoryManager made of a plugin's manager. It passes answers on as they are, since judging
/// managers is somebody else's task. It refuses only what would harm this side, as an error of the
/// call: an exception, an answer written past its end, success without an address.
///
/// Where a plugin has no reset, this frees the live tokens, oldest first. Where a plugin calls CUDA
/// itself, its slots run with the context of `ManagerContext::driver` current. The observer is told
/// of a free that the plugin refuses, and of what went wrong in a call that has no answer. Any
/// thread, as MemoryManager.
class ImportedManager final : public MemoryManager {
 public:
  static Result<std::unique_ptr<MemoryManager>> create(const Plugin& plugin,
                                                       const std::string& options,
                                                       const ManagerContext& context);
  ~ImportedManager() override;
  ImportedManager(const ImportedManager&) = delete;
  ImportedManager& operator=(const ImportedManager&) = delete;

  Status initialize() override;
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream = {}) override;
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override;
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner = {}) override;
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach) override;
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override;
  Result<MemoryInfo> get_memory_info() override;
  void reset() noexcept override;
  DeferCleanup defer_cleanup() override;
  int interface_version() const noexcept override;
  Status flush() override;
  Status trim(std::uint64_t keep) override;
  ManagerState state() const override;
  std::string report() const override;
  MemoryStatistics statistics() const override;

  /// Whether memallocmanaged has given memory whose host_pointer is not its device_pointer. This
  /// side takes the latter.
  bool has_managed_of_two_addresses() const noexcept { return has_managed_of_two_addresses_; }

 private:
  ImportedManager(const Plugin& plugin, const ManagerContext& context);
  template <class Body>
  Status ask(const char* slot, Body body) const;
  template <class Body>
  bool run(const char* slot, Body body) const;
  template <class Answer, class Body>
  Result<Answer> answer(const char* slot, Answer empty, Body body) const;
  template <class Body>
  Result<emm_memory> memory(const char* slot, Body body);
  Error threw(const char* slot) const;
  Error wrote_outside(const char* slot) const;
  Error without_address(const char* slot, std::uint64_t size) const;
  Error error_of(emm_status status, const char* slot) const;
  Lifetime hold(const emm_memory& memory);
  static void finalize(void* self, std::uint64_t token, StreamHandle stream) noexcept;
  static void end_deferring(void* self) noexcept;
  void free_all() noexcept;
  void free(emm_token token, StreamHandle stream) noexcept;
  void tell(const Error& error) const noexcept;
  void tell_of_call(const Error& error) const noexcept;

  const Plugin plugin_;
  Driver* driver_;  ///< Null in a probe.
  ManagerObserver* observer_;
  HostTable host_;
  std::optional<DriverTable> driver_table_;
  emm_manager* self_ = nullptr;
  Epoch epoch_;
  std::atomic<bool> has_managed_of_two_addresses_{false};

  // The live tokens of a plugin without reset, by the order in which they were made.
  std::mutex mutex_;
  std::map<std::uint64_t, emm_token> alive_;
  std::unordered_map<emm_token, std::uint64_t> numbers_;
  std::uint64_t made_ = 0;
};

}  // namespace emm::plugin
