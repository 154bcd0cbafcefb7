#include "cli/manager_choice.hpp"

#include <algorithm>
#include <cstdlib>

namespace emm::cli {

void ManagerChoice::offer(Arguments& arguments) {
  arguments.text("--manager", manager_, "NAME|FILE[:key=value,...]",
                 "The manager, of `emmctl list managers` or a shared object's; torch:LIB,ALLOC,FREE or "
                 "cupy:LIB,MALLOC,FREE (EMM_MEMORY_MANAGER, else default, where not given)");
  arguments.list("--adaptor", adaptors_, "NAME[:key=value,...]",
                 "An adaptor over it, of `emmctl list adaptors`; repeatable, innermost first");
  arguments.text("--profile", profile_, "numba", "The same as the manager's option profile=numba");
}

bool is_foreign(std::string_view manager) noexcept {
  const auto known = bundled_managers();
  return std::none_of(known.begin(), known.end(),
                      [&](const auto* entry) { return entry->name == manager.substr(0, manager.find(':')); });
}

Result<std::string> ManagerChoice::spec() const {
  if (!profile_.empty() && profile_ != "numba") return fail(Errc::usage, "--profile {}: expected numba", profile_);
  auto manager = manager_;
  if (manager.empty()) {
    const char* named = std::getenv("EMM_MEMORY_MANAGER");
    manager = named != nullptr && *named != '\0' ? named : "default";
  }
  if (!profile_.empty() && !is_foreign(manager)) {
    manager += manager.find(':') == std::string::npos ? ":" : ",";
    manager += "profile=" + profile_;
  }
  return manager;
}

Result<ManagerFactory> ManagerChoice::find() const {
  auto manager = spec();
  if (!manager) return std::move(manager).error();
  return find_manager(*manager, adaptors_);
}

}  // namespace emm::cli
