#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace emm::cli {

/// The door between a program and the CUDA driver: a folder with a libcuda.so.1 of our own, which
/// the program finds first, and what that needs to know.
class DriverDoor {
 public:
  /// Finds the driver and the recorder, and writes the library into `folder`, which exists. Errors:
  /// no_device where there is no driver, io_error.
  static Result<DriverDoor> open(const std::string& folder, const std::string& program);

  const std::string& driver() const noexcept { return driver_; }      ///< The real libcuda.so.1.
  const std::string& recorder() const noexcept { return recorder_; }  ///< libemm-record.so.
  /// The driver loads the recorder too, for programs that pass the folder by and are seen by CUPTI.
  std::pair<std::string, std::string> injection() const {
    return {"CUDA_INJECTION64_PATH", recorder_};
  }
  /// Variables of the program's environment.
  std::vector<std::pair<std::string, std::string>> variables() const;
  /// What open() wrote.
  void remove() const;

 private:
  std::string folder_, driver_, recorder_;
};

/// The absolute path of libemm-record.so beside this executable; empty where it is not there.
std::string recorder_beside(const std::string& executable);

/// Runs a program as itself: its standard streams are ours, signals that we get are passed on, and
/// we go on when it has ended.
struct ProgramEnd {
  pid_t process = 0;
  int code = 0;  ///< Its exit code; 128 and the signal's number where a signal ended it.
};
enum class Wake : std::uint8_t { begun, signal, time };
struct ProgramStart {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> variables{};
  /// A signal that is ours and not the program's; 0: none.
  int signal = 0;
  /// Is called when the program has begun, when the signal came, and when the time that it answered
  /// last is over. Answers how long to wait for that time; nothing: for ever.
  std::function<std::optional<std::uint64_t>(pid_t process, Wake why)> wake{};
};
/// Errors: usage where the program cannot be started.
Result<ProgramEnd> run_program(const ProgramStart& start);

}  // namespace emm::cli
