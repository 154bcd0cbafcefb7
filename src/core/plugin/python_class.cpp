#include "plugin/python_class.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

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

void lead_python_to_standins() {
  const auto folder = StandIns::folder();
  if (folder.empty()) return;
  const char* given = std::getenv("LD_LIBRARY_PATH");
  const std::string_view path = given != nullptr ? given : "";
  if (!path.starts_with(folder))
    setenv("LD_LIBRARY_PATH", (folder + (path.empty() ? "" : ":") + std::string(path)).c_str(), 1);
  setenv("NUMBA_CUDA_DRIVER", (folder + "libcuda.so.1").c_str(), 1);
  // A library of NumPy's that has threads could not be used after a fork.
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  setenv("OMP_NUM_THREADS", "1", 0);
}

void preload_python() {
  const auto library = load_library();
  if (!library) return;
  const auto preload =
      reinterpret_cast<void (*)()>(dlsym(library->library, "emm_python_class_preload"));
  if (preload != nullptr) preload();
}

}  // namespace emm::plugin
