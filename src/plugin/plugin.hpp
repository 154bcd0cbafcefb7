#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// A plugin that was loaded and checked: its table as far as this side knows it, and the function
/// that makes its managers. The library stays loaded to the end of the process, so that a finalizer
/// may run at any time.
struct Plugin {
  const char* name = nullptr;  ///< As it was found, for messages. Never freed.
  emm_plugin_table_v1 table{};
  std::function<emm_status(const emm_create_v1*, emm_manager**)> create;
  void* library = nullptr;  ///< As dlopen gave it, null where there is none.
};

/// Opens the first of `files` that dlopen can open. Null where it opens none: `tried` then has what
/// dlopen said of each. An error where the library is a file that this run writes.
Result<void*> open_library(const std::vector<std::string>& files, std::string& opened,
                           std::vector<std::string>& tried);

/// Undoes a chdir() that a library made when it was loaded, or a manager when it was made: the
/// user's paths are relative to the folder in which the program was started.
void back_to_folder() noexcept;

/// Whether `name` names a file: it holds a slash, or ends in ".so".
bool is_path(std::string_view name) noexcept;
/// The files to try. For a path these are the path itself and, where it has no slash, the same name
/// on the library path. For a name it is libemm-NAME.so on the library path, never in the current
/// folder.
std::vector<std::string> library_names(std::string_view name);

/// Loads the first of `library_names(name)` that exports emm_plugin_v1(). Error not_found with
/// every name tried and the reason: no such file, no such function, another version, a table that
/// is too short, a slot that is missing.
Result<Plugin> load_plugin(std::string_view name);

/// How a library describes its managers. libemm.so has several, which its option `name` chooses.
struct ManagerWords {
  std::string name, summary, options;
};
/// Loads as load_plugin(name) does, with the same errors.
Result<std::vector<ManagerWords>> managers_of(std::string_view name);

/// Makes a plugin of two functions of a library that was written for another program. `spec` is
/// "LIB,alloc,free" and after that what is said at each. Slots that they cannot serve are NULL.
///
/// PyTorch's CUDAPluggableAllocator: void* alloc(ssize_t, int device, cudaStream_t) and void
/// free(void*, ssize_t, int device, cudaStream_t); "init=NAME" is void(int device_count),
/// "reset=NAME" is void(), which empties its cache and is trim() here.
Result<Plugin> load_torch_functions(std::string_view spec);
/// CuPy's CFunctionAllocator: void* malloc(void* param, size_t, int device) and void free(void*
/// param, void*, int device); `param` is null. No streams.
Result<Plugin> load_cupy_functions(std::string_view spec);

}  // namespace emm::plugin
