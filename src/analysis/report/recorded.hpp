#pragma once

#include <map>
#include <string>
#include <vector>

#include "inspect/recording.hpp"

namespace emm::report {

/// A recording with the names of the pools of its memory, which only the page shows.
class Recorded final : public trace::OperationSink {
 public:
  void set_source(std::string source) { recording_.set_source(std::move(source)); }
  Status on_header(const trace::Header& header) override { return recording_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override { return recording_.finish(); }

  const inspect::Recording& recording() const noexcept { return recording_; }
  void set_pool_steps(trace::PoolSteps steps) { recording_.set_pool_steps(std::move(steps)); }
  const std::vector<std::string>& pools() const noexcept { return pools_; }  ///< [0] is "".
  std::uint32_t pool(AllocId id) const noexcept {
    return index(id) < pool_of_.size() ? pool_of_[index(id)] : 0;
  }

 private:
  inspect::Recording recording_;
  std::vector<std::string> pools_{""};
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<std::uint32_t> pool_of_;  // by AllocId, up to the last that has a pool
};

}  // namespace emm::report
