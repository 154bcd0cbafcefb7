#pragma once

#include "base/units.hpp"
#include "cli/arguments.hpp"

namespace emm::cli {

/// The options --more and --bytes of a command that answers in one breath (format/brief.hpp).
class BriefOptions {
 public:
  void offer(Arguments& arguments) {
    arguments.under(OptionHeading::shown)
        .flag("--more", all_, "Show all that is known, and not the answer alone");
    arguments.under(OptionHeading::shown).flag("--bytes", bytes_, "Write sizes as exact bytes");
  }
  /// Answers whether all is asked for. From here on sizes are written as --bytes says.
  bool apply() const {
    if (bytes_) units::write_exact_bytes();
    return all_;
  }

 private:
  bool all_ = false, bytes_ = false;
};

}  // namespace emm::cli
