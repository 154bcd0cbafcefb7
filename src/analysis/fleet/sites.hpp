#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/call_site.hpp"
#include "trace/trace.hpp"

namespace emm::fleet {

/// What makes two call sites the same.
enum class SameSite : std::uint8_t {
  line,      ///< The telling frames, without folders, which differ by host.
  function,  ///< Without line numbers too, which change with the program.
};

/// Numbers the call sites of several recordings in common; 0 means no call site. Any thread may
/// call.
class Sites {
 public:
  explicit Sites(SameSite same) : same_(same) {}

  std::uint32_t number(const std::string& identity, const std::string& name);
  /// Returns "train.py:13 step, in adam.py:178 step", as the recording has it that first asked.
  std::string name(std::uint32_t site) const;
  SameSite same() const noexcept { return same_; }

 private:
  SameSite same_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_{"(no call site)"};
};

/// Maps one trace's call sites to their numbers. One thread at a time. `trace` and `sites` must
/// outlive it.
class SiteNumbers {
 public:
  SiteNumbers(const trace::Trace& trace, Sites& sites) : trace_(trace), sites_(sites) {}
  std::uint32_t of(SiteId site);

 private:
  const trace::Trace& trace_;
  Sites& sites_;
  trace::CallSites call_sites_;
  std::unordered_map<SiteId, std::uint32_t> known_;
};

}  // namespace emm::fleet
