#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "emm/manager_entry.hpp"

namespace emm::cli {

/// Does `manager`, as --manager takes it, come from a shared object?
bool is_foreign(std::string_view manager) noexcept;

/// Makes a manager in a shared object, for a look at its options, in a child process. Errors are
/// its usage errors; what comes back is the harm that it did, in words, or empty.
Result<std::string> look_at_foreign(const std::string& spec,
                                    const std::vector<std::string>& adaptors,
                                    std::chrono::milliseconds deadline);

/// `spec` with `adaptors` over it. A manager in a shared object is looked at in a child process,
/// and made only in one: ManagerFactory::apart. Usage errors.
Result<ManagerFactory> choose_manager(const std::string& spec,
                                      const std::vector<std::string>& adaptors,
                                      std::chrono::milliseconds deadline);

/// --deadline: how long a call of a manager in a shared object may take.
class CallDeadline {
 public:
  void offer(Arguments& arguments);
  Result<std::chrono::milliseconds> time() const;  ///< Usage error.

 private:
  std::string seconds_ = "60";
};

/// The options that say which manager: --manager, --adaptor and --profile.
class ManagerChoice {
 public:
  void offer(Arguments& arguments);
  /// What was chosen: where --manager was not given, EMM_MEMORY_MANAGER or `default`. Usage errors.
  /// With a deadline as choose_manager() does; without one a shared object is loaded into this
  /// process.
  Result<ManagerFactory> find() const;
  Result<ManagerFactory> find(std::chrono::milliseconds deadline) const;
  /// As find(), of `spec` instead of what was given with --manager.
  Result<ManagerFactory> find_as(const std::string& spec, std::chrono::milliseconds deadline) const;
  const std::string& name() const noexcept {
    return manager_;
  }  ///< As given; empty where it was not.
  /// What find() finds, as --manager takes it. A plugin hears of the profile when it is made, not
  /// by an option. Usage errors.
  Result<std::string> spec() const;
  /// Finds what was chosen with more options, written as a spec has them. Null for the functions of
  /// a library (torch:, cupy:), which have none. Refers to this.
  std::function<Result<ManagerFactory>(std::string_view)> with_options() const;
  Profile profile() const noexcept { return profile_.empty() ? Profile::standard : Profile::numba; }

 private:
  std::string manager_, profile_;
  std::vector<std::string> adaptors_;
};

}  // namespace emm::cli
