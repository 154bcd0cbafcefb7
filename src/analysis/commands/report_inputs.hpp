#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/recording.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "cli/manager_choice.hpp"
#include "report/page.hpp"

namespace emm::cli {

/// The options of the commands that make a page: INPUT..., --manager, and those for reading and
/// replaying.
class ReportInputs {
 public:
  void offer(Arguments& arguments);
  /// Makes the page of all inputs. Fails with the error of the first input that cannot be read.
  Result<std::string> page(Console& console) const;

  /// The cells of the sweeps among the inputs, one row each, under a header.
  Result<std::string> table() const;

  const std::vector<std::string>& paths() const noexcept { return paths_; }

 private:
  /// Adds remedies for the first refused request of a PyTorch recording to `part`.
  Status advise(Console& console, const inspect::Recording& recording,
                const trace::Lifetimes& lifetimes, const allocators::pytorch::Recording& of_pytorch,
                report::Part& part) const;
  /// Adds a result that shows what other settings of PyTorch's allocator would do.
  Status tune(Console& console, const trace::Trace& trace,
              const allocators::pytorch::Recording& recording, const std::string& path,
              std::vector<report::Part>& results) const;

  std::vector<std::string> paths_, managers_;
  std::string format_, device_ = "sim", title_;
  CallDeadline deadline_;
  bool partial_ = false, tune_ = false;
};

}  // namespace emm::cli
