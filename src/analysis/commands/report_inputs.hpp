#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/recording.hpp"
#include "cli/arguments.hpp"
#include "cli/console.hpp"
#include "cli/manager_choice.hpp"
#include "report/page.hpp"
#include "report/replayed.hpp"

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
  /// What each trace is replayed on.
  struct Replays {
    std::vector<ManagerFactory> managers{};   ///< Those that managers_ names.
    std::chrono::milliseconds deadline{};     ///< The time that a call of a manager may take.
    std::optional<std::uint64_t> capacity{};  ///< Bytes of the device, if its options say so.
  };
  struct PageParts {
    std::vector<report::PagePart> traces, results;
  };

  Result<Replays> replays() const;
  /// Reads the trace at `path`, replays it, and adds what the page shows of it. `name` is its name
  /// in messages.
  Status add_trace(Console& console, const Replays& replays, const std::string& path,
                   const std::string& name, PageParts& parts) const;
  /// Replays the trace on one manager. `sink` takes its log, summary and segments.
  Status replay(Console& console, const trace::Trace& trace, const ManagerFactory& manager,
                report::Replayed& sink) const;
  /// Adds remedies for the first refused request of a PyTorch recording to `part`.
  Status advise(Console& console, const inspect::Recording& recording,
                const trace::Lifetimes& lifetimes, const allocators::pytorch::Recording& of_pytorch,
                report::PagePart& part) const;
  /// Adds a result that shows what other settings of PyTorch's allocator would do.
  Status tune(Console& console, const trace::Trace& trace,
              const allocators::pytorch::Recording& recording, const std::string& path,
              std::vector<report::PagePart>& results) const;

  std::vector<std::string> paths_, managers_;
  std::string format_, device_ = "sim", title_;
  CallDeadline deadline_;
  bool partial_ = false, tune_ = false;
};

}  // namespace emm::cli
