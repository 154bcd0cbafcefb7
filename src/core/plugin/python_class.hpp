#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "plugin/plugin.hpp"

namespace emm::plugin {

/// Whether `spec` names a class of Python's: "FILE.py[:CLASS]" or "python:PACKAGE.MODULE[:CLASS]".
/// "python:name=..." names an allocator in a process of its own.
bool is_python_class(std::string_view spec) noexcept;

/// Loads libemm-python-class.so, whose manager is such a class, and sets `options` to what it takes
/// for the class.
Result<Plugin> load_python_class(std::string_view spec, std::string& options);

/// Sets the variables of this process by which Python, which must not have been loaded, finds the
/// stand-ins for libcuda.so.1 and libcudart where Numba or the class opens them by name.
void lead_python_here();

/// Sets the variables of this process by which Numba, and a library that the class opens by name,
/// find the stand-ins for libcuda.so.1 and libcudart, and restarts the program, since the loader
/// reads one of them when a program starts: so libraries that are linked to them find them, too.
/// Does nothing the second time. Call it before anything is opened or printed. `over`: the stand-in
/// passes calls on to that driver instead of the simulated device. False: there are none.
bool lead_python_to_standins(const std::string& over = {});

/// The file of the CUDA driver that the loader finds, not a stand-in's; empty if there is none.
std::string real_driver();

/// Loads Python and Numba into this process, which must have one thread, and not the class. So a
/// forked child has them. What goes wrong is told when the class is loaded.
void preload_python();

/// Imports the module of the class that `spec` names. True: a process that forks may do so, since
/// the import began no thread and Numba's driver was not asked.
bool import_python_class(std::string_view spec);

/// As preload_python(), on a machine that has no driver, whose runs are all on the simulated
/// device. Else each child loads Python, with the driver or the stand-in, as the run's device is.
void preload_python_without_driver();

/// The answer of a manager of that library to a question of python_questions.py: "pass", "not
/// asked" and why, or "broken" and what was done, seen and expected, with 0x1e between. Empty:
/// `plugin` is another library.
std::string ask_python_class(const Plugin& plugin, emm_manager* manager,
                             const std::string& question);

/// From here on the lines of the class that a call runs are kept, which takes twice the time.
void keep_python_stories();

/// What the calling thread's last call ran of the class, and the traceback of what it raised, on
/// lines. Empty: nothing, or `plugin` is another library.
std::string story_of_python_class(const Plugin& plugin);

}  // namespace emm::plugin
