#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "emm/manager_entry.hpp"

namespace emm::cli {

/// Does `manager`, a value of --manager, come from a shared object?
bool is_foreign(std::string_view manager) noexcept;

/// Makes a manager from a shared object in a child process, to check its options. Errors are its
/// usage errors. Returns a description of the harm that it did, or empty.
Result<std::string> look_at_foreign(const std::string& spec,
                                    const std::vector<std::string>& adaptors,
                                    std::chrono::milliseconds deadline);

/// Finds the manager `spec` with `adaptors` over it. A manager from a shared object is checked in a
/// child process and is only ever made in one: ManagerFactory::apart. Errors: usage.
Result<ManagerFactory> choose_manager(const std::string& spec,
                                      const std::vector<std::string>& adaptors,
                                      std::chrono::milliseconds deadline);

/// Replaces "all" by every bundled manager that serves device memory. Says which specs were given
/// twice, and leaves out the second.
std::vector<std::string> named_managers(Console& console, const std::vector<std::string>& given);

/// --deadline: the time that a call of a manager from a shared object may take.
class CallDeadline {
 public:
  void offer(Arguments& arguments);
  Result<std::chrono::milliseconds> time() const;  ///< Usage error.

 private:
  std::string seconds_ = "60";
};

/// The help of a --manager that is repeatable and, given once, is that of the other commands.
inline constexpr std::string_view kManagersHelp =
    "A manager, of `emmctl list managers` or a shared object's; torch:LIB,ALLOC,FREE or "
    "cupy:LIB,MALLOC,FREE; all for all bundled ones; repeatable. Without it $EMM_MEMORY_MANAGER, "
    "and without that default";

/// The options that choose the manager: --manager, --adaptor and --profile.
class ManagerChoice {
 public:
  void offer(Arguments& arguments);
  /// Like offer(), but --manager is repeatable; choose() then takes one of `managers` at a time.
  void offer(Arguments& arguments, std::vector<std::string>& managers);
  void choose(const std::string& spec) { manager_ = spec; }
  /// Finds the chosen manager: --manager, else EMM_MEMORY_MANAGER, else `default`. Usage errors.
  /// With a deadline it works like choose_manager(); without one a shared object is loaded into
  /// this process.
  Result<ManagerFactory> find() const;
  Result<ManagerFactory> find(std::chrono::milliseconds deadline) const;
  /// Like find(), for `spec` instead of --manager.
  Result<ManagerFactory> find_as(const std::string& spec, std::chrono::milliseconds deadline) const;
  const std::string& name() const noexcept {
    return manager_;
  }  ///< The value of --manager; empty if not given.
  /// The manager that find() finds, as a value of --manager. A plugin is told of the profile when
  /// it is made, not by an option. Usage errors.
  Result<std::string> spec() const;
  /// Returns a function that finds the chosen manager with more options, in the syntax of a spec.
  /// Null for functions of a library (torch:, cupy:), which take none. It refers to this object.
  std::function<Result<ManagerFactory>(std::string_view)> with_options() const;
  /// The options that choose the same manager again, each with its value.
  std::vector<std::pair<std::string_view, std::string>> words() const;
  Profile profile() const noexcept { return profile_.empty() ? Profile::standard : Profile::numba; }

 private:
  void offer_others(Arguments& arguments);

  std::string manager_, profile_;
  std::vector<std::string> adaptors_;
};

}  // namespace emm::cli
