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

/// Sets the variables of this process by which Numba, and a library that the class opens by name,
/// find the stand-ins for libcuda.so.1 and libcudart. The loader reads one of them when a program
/// starts. Does nothing the second time.
void lead_python_to_standins();

/// Loads Python and Numba into this process, which must have one thread, and not the class. So a
/// forked child has them. What goes wrong is told when the class is loaded.
void preload_python();

}  // namespace emm::plugin
