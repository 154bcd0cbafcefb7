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

/// What of a call site makes two the same.
enum class SameSite : std::uint8_t {
  line,      ///< The telling frames, without folders, which differ from host to host.
  function,  ///< Without line numbers too, which differ after a change of the program.
};

/// The call sites of several recordings under common numbers; 0 is "no call site". Any thread may
/// ask.
class Sites {
 public:
  explicit Sites(SameSite same) : same_(same) {}

  std::uint32_t number(const std::string& identity, const std::string& name);
  /// "train.py:13 step, in adam.py:178 step", as the first recording has it that was asked.
  std::string name(std::uint32_t site) const;
  SameSite same() const noexcept { return same_; }

 private:
  SameSite same_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string> names_{"(no call site)"};
};

/// The numbers of one trace's call sites. One thread at a time; trace and sites outlive it.
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
