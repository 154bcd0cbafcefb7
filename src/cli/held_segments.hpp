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

/// Which segments the managers of a replay hold, and from which event to which: seen by the calls
/// that they make of the driver. Memory of a stream-ordered pool is the driver's business and none
/// of them. Outlives the managers. Any thread may call its hooks.
class HeldSegments {
 public:
  HeldSegments();
  ~HeldSegments();
  HeldSegments(const HeldSegments&) = delete;
  HeldSegments& operator=(const HeldSegments&) = delete;

  /// Makes the same managers, over drivers that tell this.
  ManagerFactory watch(ManagerFactory manager);

  /// For the process that asked for the replay, which may be another.
  std::string to_text() const;
  static std::vector<report::Replayed::Held> from_text(std::string_view text);

 private:
  class Device;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace emm::cli
