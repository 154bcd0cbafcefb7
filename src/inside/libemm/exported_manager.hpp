#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/device_entry.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/manager_entry.hpp"
#include "emm/memory_pointer.hpp"
#include "libemm/forks.hpp"
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

  /// Keeps a lifetime and returns its token for free(). Returns 0 if the lifetime owns nothing.
  emm_token hold(Lifetime lifetime);
  /// Frees the memory of a token. Does nothing for 0 and after a reset(). A token that was freed
  /// before or never handed out is counted and gives Error dead_pointer.
  Status free(emm_token token, StreamHandle stream);
  /// Counts the wrong frees of this manager's memory, by token and by address.
  WrongFrees& wrong_frees() noexcept { return wrong_frees_; }
  /// Nests. Allocates nothing.
  void defer_cleanup();
  void end_defer_cleanup();

 private:
  struct Held {
    Lifetime lifetime;
    /// Odd while the slot holds memory. It is part of the token, so a stale token does not match.
    std::uint32_t generation = 0;
  };
  ExportedManager() noexcept { begin_to_see_forks(); }
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

  std::mutex mutex_;
  std::vector<Held> held_;
  /// Free indexes of held_. Its capacity covers all of held_, so free() cannot fail.
  std::vector<std::uint32_t> idle_;
  DeferCleanup guard_;        ///< Lives while deferred_ is not 0.
  std::size_t deferred_ = 0;  ///< How often cleanup is deferred.
  WrongFrees wrong_frees_;
};

}  // namespace emm::libemm
