#pragma once

#include <string>

#include "driver/driver.hpp"
#include "emm/manager_observer.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// Wraps a Driver, and a Runtime if there is one, in the C table that a plugin's manager receives.
/// The driver must outlive this, and this must outlive the manager. Any thread may call through it.
class DriverTable {
 public:
  DriverTable(Driver& driver, Runtime* runtime);
  DriverTable(const DriverTable&) = delete;
  DriverTable& operator=(const DriverTable&) = delete;

  const emm_driver_v1& table() const noexcept { return table_; }
  Driver& driver() const noexcept { return driver_; }
  Runtime& runtime() const noexcept { return *runtime_; }
  const char* device_name() const noexcept { return device_name_.c_str(); }

 private:
  Driver& driver_;
  Runtime* runtime_;
  std::string device_name_;
  emm_driver_v1 table_;
};

/// Forwards what a plugin's manager asks and tells its host. `clock` and `observer` may be null,
/// and must outlive this.
class HostTable {
 public:
  HostTable(Clock* clock, ManagerObserver* observer) noexcept;
  HostTable(const HostTable&) = delete;
  HostTable& operator=(const HostTable&) = delete;

  const emm_host_v1& table() const noexcept { return table_; }
  Clock& clock() const noexcept { return *clock_; }
  ManagerObserver& observer() const noexcept { return *observer_; }

 private:
  Clock* clock_;
  ManagerObserver* observer_;
  emm_host_v1 table_;
};

}  // namespace emm::plugin
