#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace emm::record {

/// Returns the functions that the shared library at `path` exports to the loader. Fails with
/// io_error when the file cannot be read and with parse_error when it is no library of this
/// machine.
Result<std::vector<std::string>> functions_of(const std::string& path);

/// A function that a library exports.
struct ExportedFunction {
  std::string name;
  std::string version{};  ///< The symbol's version; empty if it has none.
  bool counted = false;   ///< It is not forwarded: it counts its calls, and returns `answer`.
  std::int32_t answer = 0;
};

/// What a library offers to the loader: its DT_SONAME, which may be empty, and its functions, those
/// whose names begin with an underscore among them. Errors as of functions_of().
struct LibraryExports {
  std::string soname;
  std::vector<ExportedFunction> functions;
};
Result<LibraryExports> exports_of(const std::string& path);

/// A library that leads to another one.
struct ForwardingLibrary {
  std::string soname;
  std::string opener;  ///< The path of the library that has the function `open`.
  std::string open;    ///< It fills the slots of the functions that are forwarded.
  std::vector<ExportedFunction> functions;
  std::vector<std::pair<std::string, std::string>> settings;
};

/// Builds the library. Each forwarded function is one jump through a slot of its own. Each counted
/// one adds to a counter of its own, 8 bytes each, in the order of `functions`; the counters begin
/// at a page. When the loader initializes the library, the library calls
///
///   void open(void** slots, const Elf64_Sym* symbols, const char* strings, unsigned forwarded,
///             std::uint64_t* counters, unsigned counted)
///
/// Works for x86-64; the result is empty on other machines.
std::string build(const ForwardingLibrary& library);

/// Builds a shared library named `soname` that exports `functions`. Each function is one jump
/// through a slot of its own. When the loader initializes the library, the library calls
/// emm_record_open of `recorder` (a path), which fills the slots. A program therefore gets exactly
/// the symbols of the real library, whatever its version. Works for x86-64; the result is empty on
/// other machines.
///
/// `settings` holds names and values. They are stored as "NAME=VALUE" strings from the second byte
/// of the string table on; each ends with a 0, and an empty string ends the list. The recorder
/// looks there for settings that the environment lacks, because a program may be started with
/// LD_LIBRARY_PATH and none of our other variables.
std::string forwarding_library(const std::string& soname, const std::string& recorder,
                               const std::vector<std::string>& functions,
                               const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace emm::record
