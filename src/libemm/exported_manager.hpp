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

/// A bundled manager behind the C table: it keeps what it hands out, by token, and the words of
/// each thread's last failure. Any thread, as MemoryManager.
class ExportedManager {
 public:
  /// From the option `name` and the manager's own. Over the table's driver; else over the device of
  /// the option `open`.
  static Result<std::unique_ptr<ExportedManager>> create(const emm_create_v1& create);
  ~ExportedManager();
  ExportedManager(const ExportedManager&) = delete;
  ExportedManager& operator=(const ExportedManager&) = delete;

  MemoryManager& manager() noexcept { return *manager_; }
  /// What the manager stands on. Not where it was made as a probe.
  Driver& driver() noexcept { return driver_ ? *driver_ : *opened_.driver; }
  /// Whether nothing is handed out and cleanup is not deferred.
  bool is_idle();

  /// What is given back by free(); 0 for a lifetime that owns nothing.
  emm_token hold(Lifetime lifetime);
  /// Once for each token; nothing where reset() came first. Error dead_pointer, counted, of a token
  /// that was freed before or never handed out; 0 owns nothing.
  Status free(emm_token token, StreamHandle stream);
  /// Of this manager's memory, by whatever name.
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

  // Bottom to top, so that the manager ends before what it stands on.
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  std::optional<TableDriver> driver_;
  std::optional<TableRuntime> runtime_;
  std::optional<TableClock> clock_;
  std::optional<TableObserver> observer_;
  std::unique_ptr<MemoryManager> manager_;

  std::mutex mutex_;
  std::vector<Held> held_;
  std::vector<std::uint32_t> idle_;  ///< Indexes into held_; has room for all of them.
  std::vector<DeferCleanup> guards_;
  WrongFrees wrong_frees_;
};

}  // namespace emm::libemm
