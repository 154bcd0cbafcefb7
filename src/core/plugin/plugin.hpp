#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// A plugin that was loaded and checked. `table` has the members that this side knows, and `create`
/// makes its managers. The library stays loaded until the process ends, so that a finalizer may run
/// at any time.
struct Plugin {
  const char* name = nullptr;  ///< The name under which it was found, for messages. Never freed.
  emm_plugin_table_v1 table{};
  std::function<emm_status(const emm_create_v1*, emm_manager**)> create;
  void* library = nullptr;  ///< The handle from dlopen; null without a library.
};

/// Opens the first of `files` that dlopen can open, and sets `opened` to its name. Returns null if
/// dlopen opens none; `tried` then has the reason for each. Error if the library is a file that
/// this run writes.
Result<void*> open_library(const std::vector<std::string>& files, std::string& opened,
                           std::vector<std::string>& tried);

/// Undoes a chdir() by a library that was loaded or by a manager that was made. The user's paths
/// are relative to the folder in which the program was started.
void back_to_folder() noexcept;

/// Whether `name` names a file: it holds a slash, or ends in ".so".
bool is_path(std::string_view name) noexcept;
/// The files to try. For a path: the path itself and, if it has no slash, the same name on the
/// library path. For a name: libemm-NAME.so on the library path, never in the current folder.
std::vector<std::string> library_names(std::string_view name);

/// Loads the first of `library_names(name)` that exports emm_plugin_v1(). Error not_found with
/// every name tried and the reason: no such file, no such function, another version, a table that
/// is too short, a missing slot.
Result<Plugin> load_plugin(std::string_view name);

/// How a library describes its managers. libemm.so has several; its option `name` chooses one.
struct ManagerWords {
  std::string name, summary, options;
};
/// Loads as load_plugin(name) does, with the same errors.
Result<std::vector<ManagerWords>> managers_of(std::string_view name);

/// Makes a plugin from two functions of a library that was written for another program. `spec` is
/// "LIB,alloc,free", followed by the options named below. Slots without a function are NULL.
///
/// PyTorch's CUDAPluggableAllocator: void* alloc(ssize_t, int device, cudaStream_t) and void
/// free(void*, ssize_t, int device, cudaStream_t). "init=NAME" names a void(int device_count).
/// "reset=NAME" names a void() that empties the cache; trim() calls it.
Result<Plugin> load_torch_functions(std::string_view spec);
/// CuPy's CFunctionAllocator: void* malloc(void* param, size_t, int device) and void free(void*
/// param, void*, int device); `param` is null. No streams.
Result<Plugin> load_cupy_functions(std::string_view spec);

}  // namespace emm::plugin
