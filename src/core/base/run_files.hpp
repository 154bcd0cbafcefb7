#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

/// The files that one run of the program reads and writes. No output may be an input or another
/// output. All code that opens a file asks here first, and gets a usage error that names both uses.
///
/// Files are compared by identity: a symbolic link, a hard link and another path mean the same
/// file. Devices such as /dev/null may be shared. "-" is standard input to a reader and standard
/// output to a writer. `who` names the user of a path in messages: "TRACE", "--json".
///
/// Before begin() nothing is recorded and nothing refused, since a library does not know its
/// process's files. Any thread may call.
namespace emm::run_files {

/// Forgets all earlier records, and begins a run: its executable is an input, and standard output
/// and standard error are outputs if they are files.
void begin();
void end();  ///< Restores the state before begin(). For tests.

Status reads(const std::string& path, std::string_view who = {});
/// Records a file that another program reads, so that no output replaces it. It may be an output of
/// that program's own, such as the file that standard output is.
void belongs_to_program(const std::string& path, std::string_view who);
/// Records an output that will be opened later, so that a conflict is found before work can be
/// lost.
Status reserve(const std::string& path, std::string_view who);
/// Records a folder that this run makes or fills; usage if it is there and is no folder. Its files
/// are outputs of their own, unless the run chooses all names in it (`owns_all`): then no input and
/// no output of another `who` may lie in it.
Status reserve_folder(const std::string& path, std::string_view who, bool owns_all = false);

/// An open output. After its end the file still belongs to this run: only the same `who` may open
/// it again.
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
/// Must be called before the file is opened. Without `who` it stands for the one that reserved this
/// exact path, which somebody must have: a path that no option declared is a bug of ours.
Result<Output> writes(const std::string& path, std::string_view who = {});

/// The files that this run wrote, as they were named, except those in folders that it fills, pipes,
/// devices, and what note_told() had.
std::vector<std::string> written();
/// Notes that a message has named this output.
void note_told(const std::string& path);

/// The descriptor that a path names: /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N. Such a
/// file must not be opened again, since that would truncate it and write from its start.
std::optional<int> descriptor_named(const std::string& path);

/// Notes a write that failed in this process or in a fork of it. The first failure is kept until
/// the run ends, so that the run fails even if the writer could not report it, like a destructor.
void note_write_error(const Error& error) noexcept;
std::optional<Error> write_error();
/// A command calls it that has reported the failure and exits with another program's code.
void forget_write_error() noexcept;

}  // namespace emm::run_files
