#include "cli/exit_code.hpp"

namespace emm::cli {

ExitCode exit_code_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::usage:
    case Errc::not_found:
      return ExitCode::usage;
    case Errc::parse_error:
    case Errc::unknown_format:
      return ExitCode::damaged;
    case Errc::no_device:
      return ExitCode::no_device;
    case Errc::internal:
      return ExitCode::bug;
    default:
      return ExitCode::inconclusive;
  }
}

}  // namespace emm::cli
