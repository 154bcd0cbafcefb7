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

/// Finds the manager that a spec names: "PATH[:options]" or "NAME[:options]" of a plugin,
/// "torch:LIB,alloc,free" or "cupy:LIB,malloc,free". The last colon of a spec starts the options,
/// unless the whole spec names a file. Errors: not_found with all that was tried; usage for a
/// malformed spec.
Result<ManagerFactory> find_plugin(std::string_view spec);
/// Whether the plugin calls CUDA itself and not through the table of driver calls. False if there
/// is no such plugin.
bool calls_cuda(std::string_view spec);
/// Whether the plugin has the slot trim.
bool has_trim(std::string_view spec);
/// Whether the plugin's file contains the name of libcuda or libcudart. A file does if it is linked
/// to the library or opens it.
bool names_cuda(std::string_view spec);

/// A MemoryManager made of a plugin's manager. It passes answers on unchanged, since other code
/// judges managers. It turns only what would harm this side into an error of the call: an
/// exception, an answer written past its end, success without an address.
///
/// If a plugin has no reset, this frees the live tokens, oldest first. If a plugin calls CUDA
/// itself, its slots run with the context of `ManagerContext::driver` current. The observer is told
/// of each free that the plugin refuses, and of failures in calls that return nothing. Any thread,
/// as MemoryManager.
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

  /// Whether memallocmanaged has returned a host_pointer that differs from its device_pointer. This
  /// side uses the device_pointer.
  bool has_managed_of_two_addresses() const noexcept { return has_managed_of_two_addresses_; }
  /// Names the slot that has returned a device_pointer for memory that was not to be mapped. Null:
  /// none has. This side hands out no such pointer.
  const char* slot_that_mapped_unasked() const noexcept { return slot_that_mapped_unasked_; }
  /// Describes the first answer that held what it must not hold, such as a token after a failed
  /// call. Empty if there was none.
  std::string wrong_answer() const;
  /// The token of the last successful allocation.
  emm_token last_token() const noexcept { return last_token_; }
  bool has_last_error() const noexcept { return plugin_.table.last_error != nullptr; }
  /// The plugin's words about the last failed call on this thread. Empty without the slot
  /// last_error.
  std::string last_error() const;
  /// The answer of a class of Python's to a question of python_questions.py. Empty: it is none.
  std::string ask_class(std::string_view question) const;
  /// The lines of a class of Python's that the last call ran, or the traceback of its last failure.
  /// Empty: it is none.
  std::string story_of_class() const;

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
  void note_wrong_answer(std::string words);
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
  std::atomic<const char*> slot_that_mapped_unasked_{nullptr};
  std::atomic<emm_token> last_token_{0};

  mutable std::mutex answers_mutex_;
  std::string wrong_answer_;

  // The live tokens of a plugin without reset, in the order of allocation.
  std::mutex mutex_;
  std::map<std::uint64_t, emm_token> alive_;
  std::unordered_map<emm_token, std::uint64_t> numbers_;
  std::uint64_t made_ = 0;
};

}  // namespace emm::plugin
