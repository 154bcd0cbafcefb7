// libemm-python-class.so: a plugin whose manager is an NBEP 7 class of Python's, in this process.
//
// The library loads the user's Python as a shared library and runs python_class.py in it, which
// has Numba make the manager. The slots below lead to functions of that file, which are called
// through ctypes. Numba and the class call libcuda.so.1 themselves.
//
// Python and Numba take a second to load. A program that judges each clause in a process of its own
// loads them once, by emm_python_class_preload(), and forks.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "plugin/abi.hpp"

namespace {

constexpr const char* kProgram =
#include "python_class.inc"
    ;

/// What python_class.py puts here: functions made by ctypes, in this order. `manager` is the
/// number that create() chose.
struct Functions {
  emm_status (*create)(const char* spec, std::int32_t device, std::uint32_t probe,
                       std::uint64_t* manager);
  void (*destroy)(std::uint64_t manager);
  std::size_t (*last_error)(char* buffer, std::size_t size);
  emm_status (*initialize)(std::uint64_t manager);
  emm_status (*memalloc)(std::uint64_t manager, std::uint64_t size, std::uint64_t* answer);
  emm_status (*free)(std::uint64_t manager, std::uint64_t token);
  emm_status (*memhostalloc)(std::uint64_t manager, std::uint64_t size, std::uint32_t flags,
                             std::uint64_t* answer);
  emm_status (*mempin)(std::uint64_t manager, void* pointer, std::uint64_t size,
                       std::uint32_t flags, std::uint64_t* answer);
  emm_status (*memallocmanaged)(std::uint64_t manager, std::uint64_t size, std::uint32_t attach,
                                std::uint64_t* answer);
  emm_status (*get_ipc_handle)(std::uint64_t manager, std::uint64_t pointer, std::uint64_t size,
                               emm_ipc_handle* handle);
  emm_status (*get_memory_info)(std::uint64_t manager, std::uint64_t* answer);
  void (*reset)(std::uint64_t manager);
  void (*defer_cleanup)(std::uint64_t manager);
  void (*end_defer_cleanup)(std::uint64_t manager);
  std::int32_t (*interface_version)(std::uint64_t manager);
  emm_status (*flush)(std::uint64_t manager);
  std::size_t (*story)(char* buffer, std::size_t size);
  void (*keep_stories)();
  void (*ask)(std::uint64_t manager, const char* question);
  std::size_t (*answer)(char* buffer, std::size_t size);
  std::int32_t (*import_early)(const char* spec);
};
Functions functions;

/// Functions of Python's.
struct Python {
  void* (*of_this_thread)();  ///< PyGILState_GetThisThreadState
  int (*ensure)();            ///< PyGILState_Ensure
  void (*release)(int state);
  void* (*save)();  ///< PyEval_SaveThread
  void (*restore)(void* thread);
};
Python python;

/// Why there is no Python here; empty if there is one.
std::string trouble;  // NOLINT(cert-err58-cpp): an empty string

/// Runs the user's Python once and returns what it prints: the program, then the shared library.
std::string ask_python(const std::string& program) {
  const auto command = program +
                       " -c 'import os, sys, sysconfig; get = sysconfig.get_config_var;"
                       " print(sys.executable);"
                       " print(os.path.join(get(\"LIBDIR\") or \"\", get(\"MULTIARCH\") or \"\"));"
                       " print(get(\"LIBDIR\")); print(get(\"INSTSONAME\"))' 2>/dev/null";
  std::string said;
  if (auto* pipe = popen(command.c_str(), "r"); pipe != nullptr) {  // NOLINT(cert-env33-c)
    char buffer[1024];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) said += buffer;
    pclose(pipe);
  }
  return said;
}

std::string first_line(std::string& text) {
  const auto end = text.find('\n');
  auto line = text.substr(0, end);
  text.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

void start() {
  const char* given = std::getenv("EMM_PYTHON");
  const std::string command = given != nullptr && *given != '\0' ? given : "python3";
  auto said = ask_python(command);
  const auto program = first_line(said);
  const auto by_architecture = first_line(said), folder = first_line(said);
  const auto soname = first_line(said);
  if (program.empty()) {
    trouble = command + " cannot be started; EMM_PYTHON names another Python";
    return;
  }
  void* library = nullptr;
  if (soname.find(".so") != std::string::npos) {
    for (const auto& path : {by_architecture + "/" + soname, folder + "/" + soname, soname}) {
      // The modules of Python's that are shared objects find its functions there.
      library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (library != nullptr) break;
    }
  }
  if (library == nullptr) {
    trouble = program + " has no shared library" + (soname.empty() ? "" : " (" + soname + ")") +
              ": expected a Python that has one, as Debian's with the package libpython3; "
              "EMM_PYTHON names another Python";
    return;
  }
  const auto decode =
      reinterpret_cast<wchar_t* (*)(const char*, std::size_t*)>(dlsym(library, "Py_DecodeLocale"));
  const auto set_name =
      reinterpret_cast<void (*)(const wchar_t*)>(dlsym(library, "Py_SetProgramName"));
  const auto initialize = reinterpret_cast<void (*)(int)>(dlsym(library, "Py_InitializeEx"));
  const auto run = reinterpret_cast<int (*)(const char*)>(dlsym(library, "PyRun_SimpleString"));
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (initialize == nullptr || run == nullptr || decode == nullptr ||
      !find(python.of_this_thread, "PyGILState_GetThisThreadState") ||
      !find(python.ensure, "PyGILState_Ensure") || !find(python.release, "PyGILState_Release") ||
      !find(python.save, "PyEval_SaveThread") || !find(python.restore, "PyEval_RestoreThread")) {
    trouble = program + ": its shared library has no Py_InitializeEx";
    return;
  }
  if (set_name != nullptr) set_name(decode(program.c_str(), nullptr));
  initialize(0);
  const auto code = "FUNCTIONS = " + std::to_string(reinterpret_cast<std::uintptr_t>(&functions)) +
                    "\nPYTHON = r'''" + program + "'''\n" + kProgram;
  if (run(code.c_str()) != 0) trouble = program + " cannot run what asks the class";
  python.save();
}

bool is_ready() {
  static std::once_flag once;
  std::call_once(once, start);
  return trouble.empty() && functions.import_early != nullptr;
}

/// Python's state of a thread that it has not made. Without it each call of such a thread makes one
/// and ends it.
class StateOfThread {
 public:
  StateOfThread() {
    if (python.of_this_thread() != nullptr) return;
    ensured_ = python.ensure();
    saved_ = python.save();
  }
  ~StateOfThread() {
    if (saved_ == nullptr) return;
    python.restore(saved_);
    python.release(ensured_);
  }
  StateOfThread(const StateOfThread&) = delete;
  StateOfThread& operator=(const StateOfThread&) = delete;

 private:
  int ensured_ = 0;
  void* saved_ = nullptr;
};

std::uint64_t number(const emm_manager* self) {
  static thread_local const StateOfThread state;
  return reinterpret_cast<std::uintptr_t>(self);
}

/// Asks for memory, and hands on the token, the device's address and the host's.
template <class Ask>
emm_status memory_of(emm_memory* memory, Ask ask) {
  std::uint64_t answer[3] = {0, 0, 0};
  const emm_status status = ask(answer);
  if (status != EMM_SUCCESS) return status;
  memory->token = answer[0];
  memory->device_pointer = answer[1];
  memory->host_pointer = reinterpret_cast<void*>(answer[2]);  // NOLINT(performance-no-int-to-ptr)
  return EMM_SUCCESS;
}

constexpr emm_plugin_table_v1 kTable{
    .struct_size = sizeof(emm_plugin_table_v1),
    .abi_version = EMM_PLUGIN_ABI_VERSION,
    .flags = EMM_PLUGIN_CALLS_CUDA,
    .name = "python-class",
    .summary = "a class of Python's, as NBEP 7 defines it",
    .options = "",
    .create = [](const emm_create_v1* create, emm_manager** self) -> emm_status {
      if (!is_ready()) return EMM_INVALID_VALUE;
      std::uint64_t manager = 0;
      const auto status = functions.create(create->options, create->device,
                                           create->flags & EMM_CREATE_PROBE, &manager);
      *self = reinterpret_cast<emm_manager*>(manager);  // NOLINT(performance-no-int-to-ptr)
      return status;
    },
    .destroy = [](emm_manager* self) { functions.destroy(number(self)); },
    .last_error = [](emm_manager*, char* buffer, std::size_t size) -> std::size_t {
      if (!trouble.empty()) return emm::plugin::put_text(trouble, buffer, size);
      return functions.last_error(buffer, size);
    },
    .initialize = [](emm_manager* self) { return functions.initialize(number(self)); },
    // NBEP 7 has no streams.
    .memalloc = [](emm_manager* self, std::uint64_t size, emm_stream,
                   emm_memory* memory) -> emm_status {
      return memory_of(
          memory, [&](auto* answer) { return functions.memalloc(number(self), size, answer); });
    },
    .free = [](emm_manager* self, emm_token token, emm_stream) -> emm_status {
      return functions.free(number(self), token);
    },
    .memhostalloc = [](emm_manager* self, std::uint64_t size, std::uint32_t flags,
                       emm_memory* memory) -> emm_status {
      return memory_of(memory, [&](auto* answer) {
        return functions.memhostalloc(number(self), size, flags, answer);
      });
    },
    .mempin = [](emm_manager* self, void* pointer, std::uint64_t size, std::uint32_t flags,
                 emm_memory* memory) -> emm_status {
      return memory_of(memory, [&](auto* answer) {
        return functions.mempin(number(self), pointer, size, flags, answer);
      });
    },
    .memallocmanaged = [](emm_manager* self, std::uint64_t size, std::uint32_t attach,
                          emm_memory* memory) -> emm_status {
      return memory_of(memory, [&](auto* answer) {
        return functions.memallocmanaged(number(self), size, attach, answer);
      });
    },
    .get_ipc_handle = [](emm_manager* self, emm_device_ptr pointer, std::uint64_t size,
                         emm_ipc_handle* handle) -> emm_status {
      return functions.get_ipc_handle(number(self), pointer, size, handle);
    },
    .get_memory_info = [](emm_manager* self, emm_memory_info* info) -> emm_status {
      std::uint64_t answer[2] = {0, 0};
      const auto status = functions.get_memory_info(number(self), answer);
      info->free = answer[0];
      info->total = answer[1];
      return status;
    },
    .reset = [](emm_manager* self) { functions.reset(number(self)); },
    .defer_cleanup = [](emm_manager* self) { functions.defer_cleanup(number(self)); },
    .end_defer_cleanup = [](emm_manager* self) { functions.end_defer_cleanup(number(self)); },
    .interface_version =
        [](emm_manager* self) { return functions.interface_version(number(self)); },
    .flush = [](emm_manager* self) { return functions.flush(number(self)); },
    .state = nullptr,
    .report = nullptr,
    .trim = nullptr,
    .statistics = nullptr,
};

}  // namespace

extern "C" {
EMM_PLUGIN_EXPORT const emm_plugin_table_v1* emm_plugin_v1() { return &kTable; }
/// Loads Python and Numba, and no class. What goes wrong is told by create().
EMM_PLUGIN_EXPORT void emm_python_class_preload() { is_ready(); }
/// Imports the class's module. 1: a process that forks may do so, since no thread was begun and
/// Numba's driver not asked.
EMM_PLUGIN_EXPORT std::int32_t emm_python_class_import(const char* spec) {
  return is_ready() ? functions.import_early(spec) : 0;
}
/// From here on the lines of the class that an operation runs are kept, which takes twice the time.
EMM_PLUGIN_EXPORT void emm_python_class_keep_stories() {
  if (is_ready()) functions.keep_stories();
}
/// Asks a question of python_questions.py.
EMM_PLUGIN_EXPORT void emm_python_class_ask(emm_manager* self, const char* question) {
  functions.ask(number(self), question);
}
/// What was answered to the calling thread's last question.
EMM_PLUGIN_EXPORT std::size_t emm_python_class_answer(char* buffer, std::size_t size) {
  return functions.answer(buffer, size);
}
/// The lines of the class that this thread's last call ran, and the traceback of what it raised.
EMM_PLUGIN_EXPORT std::size_t emm_python_class_story(char* buffer, std::size_t size) {
  return is_ready() ? functions.story(buffer, size) : 0;
}
}
