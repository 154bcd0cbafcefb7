#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plugin/emm_plugin.h"

namespace emm::plugin {

/// A plugin that can be called: its table as far as this side knows it, checked, and how its
/// managers are made. The library behind it stays loaded to the end of the process, so that a
/// finalizer may run as late as it likes.
struct Plugin {
  const char* name = nullptr;  ///< As it was found, for messages; never freed.
  emm_plugin_table_v1 table{};
  std::function<emm_status(const emm_create_v1*, emm_manager**)> create;
  void* library = nullptr;  ///< As dlopen gave it; null of a pair of functions.
};

/// Opens the first of `files` that can be, as dlopen takes them. Null where none can: `tried` then
/// has a reason for each, with what dlopen said. An error where the library is a file that this run
/// writes.
Result<void*> open_library(const std::vector<std::string>& files, std::string& opened,
                           std::vector<std::string>& tried);

/// Undoes the chdir() of a library that was loaded, and of a manager that was made: the paths that
/// the user gave are those of the folder that he gave them in.
void back_to_folder() noexcept;

/// Whether `name` names a file: it holds a slash, or ends in ".so".
bool is_path(std::string_view name) noexcept;
/// The files to try. Of a path: itself, and without a slash in it the library path after the
/// current folder. Of a name: libemm-NAME.so on the library path, and nothing of the current
/// folder.
std::vector<std::string> library_names(std::string_view name);

/// The plugin of a library that exports emm_plugin_v1(): one of `library_names(name)`. Error
/// not_found with every name tried and why it was not taken: not there, no such function, another
/// version, a table too short, a slot missing.
Result<Plugin> load_plugin(std::string_view name);

/// What a library says of its managers. libemm.so has several, which its option `name` names.
struct ManagerWords {
  std::string name, summary, options;
};
/// Of one that load_plugin(name) loads; errors as there.
Result<std::vector<ManagerWords>> managers_of(std::string_view name);

/// Two functions of a library written for another program, as a plugin. `spec` is "LIB,alloc,free"
/// and after that what is said at each. What they cannot do is not offered.
///
/// PyTorch's CUDAPluggableAllocator: void* alloc(ssize_t, int device, cudaStream_t) and void
/// free(void*, ssize_t, int device, cudaStream_t); "init=NAME" is void(int device_count),
/// "reset=NAME" is void(), which empties its cache and is trim() here.
Result<Plugin> load_torch_functions(std::string_view spec);
/// CuPy's CFunctionAllocator: void* malloc(void* param, size_t, int device) and void free(void*
/// param, void*, int device); `param` is null. No streams.
Result<Plugin> load_cupy_functions(std::string_view spec);

}  // namespace emm::plugin
