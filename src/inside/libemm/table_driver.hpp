#pragma once

#include <optional>
#include <string>

#include "driver/call.hpp"
#include "driver/driver.hpp"
#include "emm/manager_observer.hpp"
#include "plugin/emm_plugin.h"

namespace emm::libemm {

/// A Driver that calls a host's table. A call whose slot is missing answers not_supported. It
/// copies the table; what `user` points to must outlive it.
class TableDriver final : public Driver {
 public:
  explicit TableDriver(const emm_driver_v1& table) noexcept;

#define EMM_CALL EMM_OVERRIDE_CALL
#include "driver/calls.def"

  DeviceIdentity device_identity() const noexcept override;
  std::string_view device_name() const noexcept override;
  int device_ordinal() const noexcept override;
  bool can_map_host_memory() const noexcept override;
  ContextHandle context_handle() const noexcept override;
  std::uint64_t held_bytes() const noexcept override;
  std::uint64_t largest_free_bytes() const noexcept override;
  std::uint64_t log_address(const std::byte* ptr) const noexcept override;

 private:
  const emm_driver_v1 table_;
};

/// A Runtime that calls the cudart slots of a host's table.
class TableRuntime final : public Runtime {
 public:
  explicit TableRuntime(const emm_driver_v1& table) noexcept;
  bool is_there() const noexcept { return table_.runtime_malloc != nullptr; }
  Result<DevicePtr> malloc(std::uint64_t size) override;
  Status free(DevicePtr ptr) override;
  Result<MemoryInfo> mem_get_info() override;

 private:
  const emm_driver_v1 table_;
};

/// A Clock that reads the host's time.
class TableClock final : public Clock {
 public:
  explicit TableClock(const emm_host_v1& table) noexcept : table_(table) {}
  std::uint64_t now_ns() const noexcept override;
  std::string_view kind() const noexcept override { return "host"; }

 private:
  const emm_host_v1 table_;
};

/// Forwards a manager's reports to the host.
class TableObserver final : public ManagerObserver {
 public:
  explicit TableObserver(const emm_host_v1& table) noexcept : table_(table) {}
  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;

 private:
  const emm_host_v1 table_;
};

}  // namespace emm::libemm
