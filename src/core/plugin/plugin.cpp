#include "plugin/plugin.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <optional>

#include "base/host_memory.hpp"
#include "base/run_files.hpp"
#include "base/text.hpp"
#include "plugin/abi.hpp"
#include "plugin/running_call.hpp"

namespace emm::plugin {
namespace {

constexpr const char* kFunction = "emm_plugin_v1";
using Table = emm_plugin_table_v1;

/// Says why a table cannot be used. Empty if it can.
std::string defect(const Table* given) {
  constexpr auto kNeeded = offsetof(Table, free) + sizeof(Table::free);
  if (given == nullptr) return "emm_plugin_v1() gives no table";
  if (given->struct_size < kNeeded) {
    return text::format("its table has {} bytes: expected at least {}", given->struct_size,
                        kNeeded);
  }
  if (given->abi_version != EMM_PLUGIN_ABI_VERSION) {
    return text::format("its table has version {}: expected {}", given->abi_version,
                        EMM_PLUGIN_ABI_VERSION);
  }
  const auto table = as_known_here(*given);
  for (const auto& [slot, present] : {std::pair("create", table.create != nullptr),
                                      {"destroy", table.destroy != nullptr},
                                      {"memalloc", table.memalloc != nullptr},
                                      {"free", table.free != nullptr}}) {
    if (!present) return text::format("its table has no {}", slot);
  }
  if ((table.defer_cleanup == nullptr) != (table.end_defer_cleanup == nullptr)) {
    return "its table has only one of defer_cleanup and end_defer_cleanup";
  }
  return {};
}

const Table* table_of(void* library) {
  using Function = const Table* (*)(void);
  const auto function = reinterpret_cast<Function>(dlsym(library, kFunction));
  const RunningCall running(kFunction);
  const auto* table = function();
  back_to_folder();
  return table;
}

/// The current folder of this process before it loaded any library.
int first_folder() noexcept {
  static const int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  return folder;
}

}  // namespace

void back_to_folder() noexcept {
  if (fchdir(first_folder()) != 0) return;  // the folder is gone, so its files are too
}

Result<void*> open_library(const std::vector<std::string>& files, std::string& opened,
                           std::vector<std::string>& tried) {
  for (const auto& file : files) {
    first_folder();
    auto library = [&] {
      const RunningCall running("dlopen");  // its constructors are foreign code
      return open_shared_object(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    }();
    back_to_folder();
    if (library.handle != nullptr) {
      link_map* found = nullptr;  // holds the path at which the loader found it
      const bool known = dlinfo(library.handle, RTLD_DI_LINKMAP, &found) == 0;
      if (auto apart = run_files::reads(known ? found->l_name : file, "the library"); !apart) {
        return apart.error();
      }
      opened = file;
      return library.handle;
    }
    const bool missing = library.why_not.find("No such file or directory") != std::string::npos;
    tried.push_back(missing ? file + ": not found" : std::move(library.why_not));
  }
  return nullptr;
}

bool is_path(std::string_view name) noexcept {
  return name.find('/') != std::string_view::npos || name.ends_with(".so");
}

std::vector<std::string> library_names(std::string_view name) {
  const std::string given(name);
  if (name.empty()) return {};
  if (name.find('/') != std::string_view::npos) return {given};
  if (is_path(name)) return {"./" + given, given};
  return {"libemm-" + given + ".so"};
}

Result<Plugin> load_plugin(std::string_view name) {
  std::vector<std::string> tried;
  for (const auto& file : library_names(name)) {
    std::string opened;
    const auto found = open_library({file}, opened, tried);
    if (!found) return found.error();
    void* const library = *found;
    if (library == nullptr) continue;
    if (dlsym(library, kFunction) == nullptr) {
      tried.push_back(text::format("{}: it has no function {}", file, kFunction));
      continue;
    }
    const char* const path = kept_name(file);
    const auto* table = table_of(library);
    if (const auto why = defect(table); !why.empty()) {
      tried.push_back(text::format("{}: {}", file, why));
      continue;
    }
    Plugin plugin{.name = path, .table = as_known_here(*table), .create = {}, .library = library};
    plugin.create = plugin.table.create;
    return plugin;
  }
  return Error{.code = Errc::not_found, .message = text::join(tried, "; ")};
}

Result<std::vector<ManagerWords>> managers_of(std::string_view name) {
  auto plugin = load_plugin(name);
  if (!plugin) return std::move(plugin).error();
  const auto words = [](const char* text) {
    return text != nullptr ? std::string(text) : std::string();
  };
  std::vector<ManagerWords> all;
  const auto bundled = reinterpret_cast<decltype(&emm_bundled_manager)>(
      dlsym(plugin->library, "emm_bundled_manager"));
  if (bundled == nullptr) {
    const auto& table = plugin->table;
    all.push_back({words(table.name), words(table.summary), words(table.options)});
    return all;
  }
  emm_manager_info info{};
  info.struct_size = sizeof info;
  const RunningCall running("emm_bundled_manager");
  for (std::size_t i = 0; bundled(i, &info) == EMM_SUCCESS; ++i) {
    all.push_back({words(info.name), words(info.summary), words(info.options)});
  }
  return all;
}

}  // namespace emm::plugin
