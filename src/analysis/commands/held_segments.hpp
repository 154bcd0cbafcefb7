#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "driver/decorate/forwarding_driver.hpp"
#include "emm/manager_entry.hpp"
#include "report/replayed.hpp"

namespace emm::cli {

/// Records which segments the managers of a replay hold, from which event to which, by watching
/// their driver calls. It does not record memory of stream-ordered pools, which the driver manages.
/// Must outlive the managers. Any thread may call its hooks.
class HeldSegments {
 public:
  HeldSegments();
  ~HeldSegments();
  HeldSegments(const HeldSegments&) = delete;
  HeldSegments& operator=(const HeldSegments&) = delete;

  /// Returns a factory for the same managers over watched drivers.
  ManagerFactory watch(ManagerFactory manager);

  /// Writes the segments as text, since the replay may run in a child of the process that wants
  /// them.
  std::string to_text() const;
  static std::vector<report::Replayed::Held> from_text(std::string_view text);

 private:
  class Device;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace emm::cli
