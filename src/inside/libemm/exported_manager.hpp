#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "driver/device_entry.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_pointer.hpp"
#include "libemm/forks.hpp"
#include "libemm/held_memory.hpp"
#include "libemm/table_driver.hpp"
#include "libemm/wrong_frees.hpp"

namespace emm::libemm {

/// A bundled manager behind the C table. It keeps the memory that it handed out by token. Any
/// thread, as MemoryManager.
class ExportedManager {
 public:
  /// Makes the manager that the option `name` names, with the remaining options. It uses the
  /// table's driver or, without one, the device that the option `open` names.
  static Result<std::unique_ptr<ExportedManager>> create(const emm_create_v1& create);
  ~ExportedManager();
  ExportedManager(const ExportedManager&) = delete;
  ExportedManager& operator=(const ExportedManager&) = delete;

  MemoryManager& manager() noexcept { return *manager_; }
  /// The manager's driver. A probe has none.
  Driver& driver() noexcept { return driver_ ? *driver_ : *opened_.driver; }
  /// Whether this process is a child of fork() and the manager its parent's. Then nothing else of
  /// the manager may be called: a lock may be held by a thread that the child does not have.
  bool is_of_parent() const noexcept { return forks() != made_after_; }
  /// Whether no memory is handed out and cleanup is not deferred.
  bool is_idle();

  /// Keeps a lifetime and returns its token for free(). Returns 0 if the lifetime owns nothing. If
  /// the host has no memory for it, this throws std::bad_alloc and leaves the lifetime as it was.
  emm_token hold(Lifetime&& lifetime) {
    return lifetime.managed() ? held_.hold(std::move(lifetime)) : 0;
  }
  /// Frees the memory of a token. Does nothing for 0 and after a reset(). A token that was freed
  /// before or never handed out is counted and gives Error dead_pointer.
  Status free(emm_token token, StreamHandle stream) {
    if (token == 0 || held_.free(token, stream)) [[likely]]
      return {};
    return not_alive(token);
  }
  /// Counts the wrong frees of this manager's memory, by token and by address.
  WrongFrees& wrong_frees() noexcept { return wrong_frees_; }
  /// Nests. Allocates nothing.
  void defer_cleanup();
  void end_defer_cleanup();

 private:
  ExportedManager() noexcept { begin_to_see_forks(); }
  Status not_alive(emm_token token);
  Status open(const std::string& device, int ordinal);

  const std::uint32_t made_after_ = forks();
  // In the order of construction, so that the manager is destroyed before what it uses.
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  std::optional<TableDriver> driver_;
  std::optional<TableRuntime> runtime_;
  std::optional<TableClock> clock_;
  std::optional<TableObserver> observer_;
  std::unique_ptr<MemoryManager> manager_;

  HeldMemory held_;
  std::mutex mutex_;          ///< Guards the next two.
  DeferCleanup guard_;        ///< Lives while deferred_ is not 0.
  std::size_t deferred_ = 0;  ///< How often cleanup is deferred.
  WrongFrees wrong_frees_;
};

}  // namespace emm::libemm
