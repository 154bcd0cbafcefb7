#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unfinished.hpp"

namespace emm::cli {

/// Places a library of our own between a program and the CUDA driver: a folder with a libcuda.so.1
/// that the program finds first. It also holds what that library needs to know.
class DriverShim {
 public:
  /// Finds the recorder, and the driver unless `driver` names one. `folder` must exist. If its path
  /// contains a `:` or `;`, a folder in TMPDIR replaces it. Errors: no_device without a driver,
  /// io_error.
  static Result<DriverShim> open(const std::string& folder, const std::string& program,
                                 const std::string& driver = {});

  const std::string& driver() const noexcept { return driver_; }      ///< The real libcuda.so.1.
  const std::string& recorder() const noexcept { return recorder_; }  ///< libemm-record.so.
  std::string library() const { return folder_ + "/libcuda.so.1"; }   ///< What write() writes.
  /// Makes the driver load the recorder too. This covers programs that bypass the folder; CUPTI
  /// sees them.
  std::pair<std::string, std::string> injection() const {
    return {"CUDA_INJECTION64_PATH", recorder_};
  }
  /// Writes the library into the folder. The library also stores those of `variables` that are
  /// emmctl's own, for processes that are started without them. Errors: io_error, not_supported on
  /// this machine.
  Status write(const std::vector<std::pair<std::string, std::string>>& variables) const;
  /// Variables for the program's environment.
  std::vector<std::pair<std::string, std::string>> variables() const;
  /// Removes what write() wrote into the folder that was given.
  void remove() const;

 private:
  std::string folder_, driver_, recorder_;
  std::unique_ptr<Unfinished> elsewhere_;  // where the path of the given folder cannot be used
  std::vector<std::string> functions_;
};

/// The absolute path of a library of ours beside this executable. Empty if there is none.
std::string library_beside(const std::string& executable, const std::string& name);

/// The folder of the module that Python imports first. Empty if emmctl's package is not there.
std::string python_hooks(const std::string& program);
/// PYTHONPATH with that folder before what it has.
std::string before_python_path(const std::string& hooks);

/// How a program ended. It has our standard streams, and signals that we get are passed on to it.
struct ProgramEnd {
  pid_t process = 0;
  int code = 0;  ///< Its exit code, or 128 + the number of the signal that ended it.
};
enum class Wake : std::uint8_t {
  begun,
  signal,
  time,
  left  ///< The program has ended, and processes that it left go on. The answer is not used.
};
struct ProgramStart {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> variables{};
  /// A signal that we handle and do not pass on; 0: none.
  int signal = 0;
  /// Called when the program has begun, when the signal came, and when the time that it last
  /// returned is over. Returns how many nanoseconds to wait until the next call for time; nothing
  /// waits for ever.
  std::function<std::optional<std::uint64_t>(pid_t process, Wake why)> wake{};
  /// Wait until all processes that the program left have ended too, or until a signal comes that
  /// would end the program.
  bool follows = false;
  /// Called now and then, ever less often, while it answers true.
  std::function<bool(pid_t process)> look{};
};
/// Runs the program and returns after its end. Error: usage if it cannot be started.
Result<ProgramEnd> run_program(const ProgramStart& start);

}  // namespace emm::cli
