#include "cli/manager_choice.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.hpp"
#include "cli/all_wings.hpp"
#include "managers/unprobed_manager.hpp"
#include "plugin/child.hpp"
#include "plugin/python_class.hpp"

namespace emm::cli {

void ManagerChoice::offer(Arguments& arguments) {
  arguments.under(OptionHeading::manager)
      .text("--manager", manager_, "NAME|FILE[:key=value,...]",
            "The manager, of `emmctl list managers` or a shared object's; torch:LIB,ALLOC,FREE or "
            "cupy:LIB,MALLOC,FREE. Without it $EMM_MEMORY_MANAGER, and without that default");
  offer_others(arguments);
}

void ManagerChoice::offer(Arguments& arguments, std::vector<std::string>& managers) {
  arguments.under(OptionHeading::manager)
      .list("--manager", managers, "NAME|FILE[:key=value,...]", kManagersHelp);
  offer_others(arguments);
}

void ManagerChoice::offer_others(Arguments& arguments) {
  arguments.under(OptionHeading::manager)
      .list("--adaptor", adaptors_, "NAME[:key=value,...]",
            "An adaptor over it, of `emmctl list adaptors`; repeatable, innermost first");
  arguments.under(OptionHeading::manager)
      .text("--profile", profile_, "numba", "Short for the manager's option profile=numba");
}

bool is_foreign(std::string_view manager) noexcept { return find_entry(manager) == nullptr; }

Result<std::string> ManagerChoice::spec() const {
  if (!profile_.empty() && profile_ != "numba")
    return fail(Errc::usage, "--profile {}: expected numba", profile_);
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

std::vector<std::string> named_managers(Console& console, const std::vector<std::string>& given) {
  std::vector<std::string> all;
  const auto has = [&](const std::string& spec) {
    return std::find(all.begin(), all.end(), spec) != all.end();
  };
  for (const auto& spec : given) {
    if (spec != "all") {
      // Whoever compares a manager with itself asks how much of a difference is chance.
      if (has(spec)) console.say(text::format("--manager {}: given twice", spec));
      all.push_back(spec);
      continue;
    }
    for (const auto* entry : bundled_managers()) {
      std::string name(entry->name);
      if (entry->device_memory && !has(name)) all.push_back(std::move(name));
    }
  }
  return all;
}

std::vector<std::pair<std::string_view, std::string>> ManagerChoice::words() const {
  std::vector<std::pair<std::string_view, std::string>> all;
  auto manager = manager_;
  if (const char* named = std::getenv("EMM_MEMORY_MANAGER"); manager.empty() && named != nullptr)
    manager = named;
  if (!manager.empty()) all.emplace_back("--manager", manager);
  for (const auto& adaptor : adaptors_) all.emplace_back("--adaptor", adaptor);
  if (!profile_.empty()) all.emplace_back("--profile", profile_);
  return all;
}

Result<ManagerFactory> ManagerChoice::find() const {
  auto manager = spec();
  if (!manager) return std::move(manager).error();
  return find_manager(*manager, adaptors_);
}

std::function<Result<ManagerFactory>(std::string_view)> ManagerChoice::with_options() const {
  const auto given = spec();
  if (!given || given->starts_with("torch:") || given->starts_with("cupy:")) return nullptr;
  return [this, given = *given](std::string_view options) {
    const bool has_some = given.rfind(':') != std::string::npos &&
                          access(given.c_str(), F_OK) != 0;  // a path may hold a colon
    return find_manager(text::format("{}{}{}", given, has_some ? "," : ":", options), adaptors_);
  };
}

Result<ManagerFactory> ManagerChoice::find(std::chrono::milliseconds deadline) const {
  auto manager = spec();
  if (!manager) return std::move(manager).error();
  return choose_manager(*manager, adaptors_, deadline);
}

Result<ManagerFactory> ManagerChoice::find_as(const std::string& spec,
                                              std::chrono::milliseconds deadline) const {
  return choose_manager(spec, adaptors_, deadline);
}

Result<std::string> look_at_foreign(const std::string& spec,
                                    const std::vector<std::string>& adaptors,
                                    std::chrono::milliseconds deadline) {
  const auto end = plugin::run_in_child(
      {.call_deadline = deadline, .on_stderr = true}, [&](const std::atomic<bool>&) -> std::string {
        // The class is asked without a device, whichever one the run has.
        if (plugin::is_python_class(spec)) plugin::lead_python_here();
        const auto found = find_manager(spec, adaptors);
        if (found) return {};
        return static_cast<char>('A' + static_cast<int>(found.error().code)) +
               describe(found.error());
      });
  if (!end) return end.error();
  if (!end->bytes.empty())
    return Error{.code = static_cast<Errc>(end->bytes[0] - 'A'), .message = end->bytes.substr(1)};
  return plugin::describe(*end, deadline);
}

Result<ManagerFactory> choose_manager(const std::string& spec,
                                      const std::vector<std::string>& adaptors,
                                      std::chrono::milliseconds deadline) {
  if (!is_foreign(spec)) return find_manager(spec, adaptors);
  continue_with_all_wings();  // the stand-ins and the libraries for Python are of the wing inside
  if (plugin::is_python_class(spec)) plugin::preload_python_without_driver();
  // A short first look reports usage errors early. A library that is slow or harmful is left to the
  // run.
  constexpr std::chrono::milliseconds kLook{1000};
  if (const auto looked = look_at_foreign(spec, adaptors, std::min(deadline, kLook)); !looked)
    return looked.error();
  return ManagerFactory{
      .name = spec,
      .make = [spec,
               adaptors](const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
        const auto found = unprobed_manager(spec, adaptors);
        if (!found) return found.error();
        return found->make(context);
      },
      .apart = deadline};
}

void CallDeadline::offer(Arguments& arguments) {
  arguments.under(OptionHeading::manager)
      .text("--deadline", seconds_, "SECONDS",
            "How long one call of a manager in a shared object may take");
}

Result<std::chrono::milliseconds> CallDeadline::time() const {
  constexpr double kMost = 1e6;  // eleven days: no limit in practice
  const auto seconds = text::to_double(seconds_);
  if (!seconds || !(*seconds >= 0.001 && *seconds <= kMost)) {
    return fail(Errc::usage, "--deadline {}: expected seconds, from 0.001 to 1,000,000", seconds_);
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

}  // namespace emm::cli
