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

/// The options of what makes a page: INPUT..., --manager and what says how to read and to replay.
class ReportInputs {
 public:
  void offer(Arguments& arguments);
  /// The page of all inputs. Errors are those of the first input that cannot be read.
  Result<std::string> page(Console& console) const;

  /// A row of each cell of the sweeps among the inputs, under a header.
  Result<std::string> table() const;

  const std::vector<std::string>& paths() const noexcept { return paths_; }

 private:
  /// What could be done about the first refused request of a recording of PyTorch, into `part`.
  Status advise(Console& console, const inspect::Recording& recording,
                const inspect::Lifetimes& lifetimes,
                const allocators::pytorch::Recording& of_pytorch, report::Part& part) const;
  /// What other settings of PyTorch's allocator would do, as a further result.
  Status tune(Console& console, const trace::Trace& trace,
              const allocators::pytorch::Recording& recording, const std::string& path,
              std::vector<report::Part>& results) const;

  std::vector<std::string> paths_, managers_;
  std::string format_, device_ = "sim", title_;
  CallDeadline deadline_;
  bool partial_ = false, tune_ = false;
};

}  // namespace emm::cli
