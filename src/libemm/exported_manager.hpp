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
#include "libemm/table_driver.hpp"
#include "libemm/wrong_frees.hpp"

namespace emm::libemm {

/// A bundled manager behind the C table. It keeps what it hands out, by token. Any thread, as
/// MemoryManager.
class ExportedManager {
 public:
  /// Makes the manager that the option `name` names, with the rest of the options. It stands on the
  /// table's driver, or else on the device that the option `open` names.
  static Result<std::unique_ptr<ExportedManager>> create(const emm_create_v1& create);
  ~ExportedManager();
  ExportedManager(const ExportedManager&) = delete;
  ExportedManager& operator=(const ExportedManager&) = delete;

  MemoryManager& manager() noexcept { return *manager_; }
  /// The driver that the manager stands on. A probe has none.
  Driver& driver() noexcept { return driver_ ? *driver_ : *opened_.driver; }
  /// Whether nothing is handed out and cleanup is not deferred.
  bool is_idle();

  /// Keeps a lifetime and answers the token for free(), 0 for a lifetime that owns nothing.
  emm_token hold(Lifetime lifetime);
  /// Frees what a token names. Does nothing after a reset(), and for 0. A token that was freed
  /// before or never handed out is an Error dead_pointer, and is counted.
  Status free(emm_token token, StreamHandle stream);
  /// Counts the wrong frees of this manager's memory, by token and by address.
  WrongFrees& wrong_frees() noexcept { return wrong_frees_; }
  void defer_cleanup();
  void end_defer_cleanup();

 private:
  struct Held {
    Lifetime lifetime;
    std::uint32_t generation = 0;  ///< Odd while alive.
  };
  ExportedManager() = default;
  Status open(const std::string& device, int ordinal);

  // From bottom to top, so that the manager ends before what it stands on.
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  std::optional<TableDriver> driver_;
  std::optional<TableRuntime> runtime_;
  std::optional<TableClock> clock_;
  std::optional<TableObserver> observer_;
  std::unique_ptr<MemoryManager> manager_;

  std::mutex mutex_;
  std::vector<Held> held_;
  std::vector<std::uint32_t>
      idle_;  ///< Free indexes of held_. Has room for all, so that free() cannot fail.
  std::vector<DeferCleanup> guards_;
  WrongFrees wrong_frees_;
};

}  // namespace emm::libemm
