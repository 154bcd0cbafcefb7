#include "plugin/python_class.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>

#include "base/host_memory.hpp"
#include "plugin/abi.hpp"
#include "plugin/child.hpp"
#include "plugin/standin.hpp"

namespace emm::plugin {
namespace {

constexpr std::string_view kPython = "python:";
constexpr const char* kLibrary = "libemm-python-class.so";

/// The library beside this program, else the one on the library path.
Result<Plugin> load_library() {
  const auto beside = folder_of_program() + "../lib/" + kLibrary;
  return load_plugin(access(beside.c_str(), F_OK) == 0 ? beside : "python-class");
}

template <class Function>
Function function_of(const Plugin& plugin, const char* name) {
  if (plugin.library == nullptr) return nullptr;
  return reinterpret_cast<Function>(dlsym(plugin.library, name));
}

void call(const char* function) {
  const auto library = load_library();
  if (!library) return;
  if (const auto call = function_of<void (*)()>(*library, function)) call();
}

}  // namespace

bool is_python_class(std::string_view spec) noexcept {
  if (spec.starts_with(kPython)) {
    const auto module = spec.substr(kPython.size());
    return !module.empty() &&
           module.substr(0, module.find(':')).find('=') == std::string_view::npos;
  }
  const auto at = spec.rfind(".py");
  return at != std::string_view::npos && at != 0 && (at + 3 == spec.size() || spec[at + 3] == ':');
}

Result<Plugin> load_python_class(std::string_view spec, std::string& options) {
  options = spec.starts_with(kPython) ? spec.substr(kPython.size()) : spec;
  return load_library();
}

void lead_python_here() {
  const auto folder = StandIns::folder();
  if (folder.empty()) return;
  setenv("EMM_STANDIN_FOLDER", folder.c_str(), 1);
  setenv("NUMBA_CUDA_DRIVER", (folder + "libcuda.so.1").c_str(), 1);
  // A library of NumPy's that has threads could not be used after a fork.
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  setenv("OMP_NUM_THREADS", "1", 0);
}

std::string real_driver() {
  if (const char* known = std::getenv("EMM_STANDIN_OVER"); known != nullptr) return known;
  void* const library = open_shared_object("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL).handle;
  const link_map* file = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &file) != 0) return {};
  return file->l_name;
}

bool lead_python_to_standins(const std::string& over) {
  const auto folder = StandIns::folder();
  if (folder.empty()) return false;
  const char* given = std::getenv("LD_LIBRARY_PATH");
  const std::string_view path = given != nullptr ? given : "";
  if (path.starts_with(folder)) return true;
  setenv("LD_LIBRARY_PATH", (folder + (path.empty() ? "" : ":") + std::string(path)).c_str(), 1);
  lead_python_here();
  if (!over.empty()) setenv("EMM_STANDIN_OVER", over.c_str(), 1);
  restart_program();
  return true;
}

std::string ask_python_class(const Plugin& plugin, emm_manager* manager,
                             const std::string& question) {
  const auto ask = function_of<void (*)(emm_manager*, const char*)>(plugin, "emm_python_class_ask");
  const auto answer =
      function_of<std::size_t (*)(char*, std::size_t)>(plugin, "emm_python_class_answer");
  if (ask == nullptr || answer == nullptr) return {};
  ask(manager, question.c_str());
  return get_text(answer).text;
}

std::string story_of_python_class(const Plugin& plugin) {
  const auto story =
      function_of<std::size_t (*)(char*, std::size_t)>(plugin, "emm_python_class_story");
  return story != nullptr ? get_text(story).text : std::string();
}

void preload_python() { call("emm_python_class_preload"); }

void preload_python_without_driver() {
  if (StandIns::folder().empty() || dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr)
    return;
  lead_python_here();
  preload_python();
}

bool import_python_class(std::string_view spec) {
  std::string options;
  const auto library = load_python_class(spec, options);
  if (!library) return false;
  const auto import =
      function_of<std::int32_t (*)(const char*)>(*library, "emm_python_class_import");
  return import != nullptr && import(options.c_str()) == 1;
}

void keep_python_stories() { call("emm_python_class_keep_stories"); }

}  // namespace emm::plugin
