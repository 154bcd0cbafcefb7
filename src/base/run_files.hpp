#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

/// What one run of the program reads and writes. No output is an input, or another output: whoever
/// opens a file asks here first, and is refused with a usage error that names both.
///
/// Files are told apart by what they are: a symbolic link, a hard link and another path mean the
/// same file. Devices such as /dev/null may be shared. "-" is standard input to a reader and
/// standard output to a writer. `who` names the user of a path in messages: "TRACE", "--json".
///
/// Until begin() nothing is kept and nothing refused: what a library's process does with its files
/// is not known here. Any thread.
namespace emm::run_files {

/// The program begins: its executable is an input, standard output and standard error are outputs
/// where they are files. What was kept before is forgotten.
void begin();
void end();  ///< As before begin(). For tests.

Status reads(const std::string& path, std::string_view who = {});
/// An output that will be opened later, so that a conflict is found before there is work to lose.
Status reserve(const std::string& path, std::string_view who);

/// An output that is open. It stays this run's afterwards: only the same `who` may open it again.
class Output {
 public:
  Output() = default;
  explicit Output(std::size_t number) : number_(number) {}
  Output(Output&& other) noexcept : number_(std::exchange(other.number_, std::nullopt)) {}
  Output& operator=(Output&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Output();

 private:
  std::optional<std::size_t> number_;
};
/// To be asked before the file is opened. Without `who` it is whoever reserved that very path.
Result<Output> writes(const std::string& path, std::string_view who = {});

/// The descriptor that a path names: /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N. Such a
/// file must not be opened anew, which would cut it and write from its beginning.
std::optional<int> descriptor_named(const std::string& path);

/// A write that failed, in this process or one forked from it. The first is kept until the run
/// ends, so that it can fail even if whoever wrote has nobody to tell, as a destructor.
void note_write_error(const Error& error) noexcept;
std::optional<Error> write_error();

}  // namespace emm::run_files
