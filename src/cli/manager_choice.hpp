#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "emm/manager_entry.hpp"

namespace emm::cli {

/// Does `manager`, as --manager takes it, come from a shared object?
bool is_foreign(std::string_view manager) noexcept;

/// The options that say which manager: --manager, --adaptor and --profile.
class ManagerChoice {
 public:
  void offer(Arguments& arguments);
  /// What was chosen: where --manager was not given, EMM_MEMORY_MANAGER or `default`. Usage errors.
  Result<ManagerFactory> find() const;
  const std::string& name() const noexcept { return manager_; }  ///< As given; empty where it was not.
  /// What find() finds, as --manager takes it. A plugin hears of the profile when it is made, not by an option. Usage
  /// errors.
  Result<std::string> spec() const;
  Profile profile() const noexcept { return profile_.empty() ? Profile::standard : Profile::numba; }

 private:
  std::string manager_, profile_;
  std::vector<std::string> adaptors_;
};

}  // namespace emm::cli
