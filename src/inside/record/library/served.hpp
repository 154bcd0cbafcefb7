#pragma once

#include <cstdint>

#include "record/library/recorder.hpp"
#include "record/run_report.hpp"

/// `emmctl run --manager`: a manager of emmctl's serves the program's own cuMemAlloc, cuMemFree,
/// cuMemAllocAsync and cuMemFreeAsync. Each context has a manager, made at its first request. The
/// manager's own driver calls go through the recorder's wrappers, as if the program made them, so
/// they count against a capacity, may be made to fail, and are recorded.
///
/// Nothing here throws, takes memory on the heap, or holds a lock over a call of the driver or of
/// a manager.
namespace emm::record {

/// Begins to serve when `emmctl run` asked for it. Called once, as the library is initialized.
void begin_serving() noexcept;
bool is_serving() noexcept;
/// The function that serves `symbol` in front of the recorder's wrapper; null if there is none.
void* serving_function(const char* symbol) noexcept;
/// The function that serves in front of this one of the driver's, which the recorder does not wrap;
/// null if there is none.
void* serving_function_before(const void* function) noexcept;
/// Likewise for a function that the driver gave for a name without a version and does not export.
void* serving_function_named(const char* symbol, void* function) noexcept;
/// What the program's calls of `symbol` reach if nothing serves them: the recorder's wrapper, or
/// the driver's function, or null.
void* function_behind(const char* symbol) noexcept;
/// The driver's own function of that name, or null.
void* driver_function(const char* symbol) noexcept;
/// Looks for the functions behind those that serve. Called when the driver has been found.
void find_served() noexcept;

}  // namespace emm::record
