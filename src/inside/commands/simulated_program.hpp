#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unfinished.hpp"
#include "cli/console.hpp"
#include "commands/named_ranks.hpp"
#include "commands/program_ranks.hpp"
#include "commands/program_values.hpp"
#include "record/run_report.hpp"

namespace emm::cli {

/// The folder of the stand-ins beside this executable. Empty if there is none.
std::string standin_folder(const std::string& executable);

/// Makes `made`, a library with exactly the functions of the library `real`, their versions and its
/// soname. Those that the stand-ins answer lead there; each other one returns 0 and is counted.
/// Errors: io_error, parse_error, not_supported on this machine.
Status make_stand_in(const std::string& real, const std::string& made, const std::string& program);

/// What the manager of `run --manager` did for the program.
struct ServedRequests {
  std::string manager;
  record::RunReport report;
};

/// What surrounds a program that runs on simulated devices: a folder with the libraries that it
/// finds in place of CUDA's, what leads the loader there, and the reports of its processes. The
/// destructor removes the folder, unless leave_to_processes() left it.
class SimulatedProgram {
 public:
  /// Is so little left of a card that what libraries and kernels take of it decides, where that is
  /// not counted? With PyTorch it was some hundred MiB of an H200.
  static bool is_scarce(std::uint64_t left, std::uint64_t capacity) noexcept {
    constexpr std::uint64_t kLibraries = std::uint64_t{512} << 20;
    constexpr std::uint64_t kCardLeast = std::uint64_t{4} << 30;  // less is a test's capacity
    return left < kLibraries && capacity >= kCardLeast;
  }
  /// `device` is "sim" or "sim:OPTIONS"; `capacity` is that of --capacity, or empty. `program` is
  /// this executable. Errors: usage, io_error, not_supported on this machine.
  static Result<SimulatedProgram> make(const std::string& device, const std::string& capacity,
                                       const std::string& program);
  /// What is assumed of values that are not known: "uniform", "all", "none", or a share. Error:
  /// usage.
  Status assume(const std::string& unknown_sizes);

  /// What each of cuDNN's plans takes: "fitted" (by a rule, the default), "none", or a size; "off"
  /// switches cuDNN off. Error: usage.
  Status assume_cudnn(const std::string& workspace);
  /// Only these ranks of the program run, as start_ranks() starts them; the others are answered
  /// for.
  void run_only(const NamedRanks& ranks) { ranks_ = ranks; }
  /// What starts the ranks that run, each as `program`.
  std::vector<std::string> start_ranks(const std::vector<std::string>& program) const;

  const std::string& folder() const noexcept { return folder_->path(); }
  /// The stand-in for libcuda.
  std::string driver() const { return standins_ + "/libcuda.so.1"; }
  /// Makes the program's libcuda the library at `path`: driver(), or one that leads there.
  Status lead_to(const std::string& path) const;
  /// Variables for the program's environment. Says where one of the user's is replaced.
  std::vector<std::pair<std::string, std::string>> variables(Console& console) const;

  /// What the processes reported.
  struct Device {
    std::uint64_t device = 0, total = 0, context = 0, peak = 0, processes = 0;
    std::uint64_t refused = 0;  ///< Requests that were refused for want of memory.
    std::uint64_t first_refused = 0, first_refused_held = 0;
    bool is_library_refused = false;  ///< The first of them was a library's.
    bool counts_libraries = false;    ///< Of this card it is known what they take.
    std::uint64_t libraries = 0;      ///< Bytes of the peak that CUDA's libraries had.
    std::uint64_t capacity() const noexcept { return total - context; }
    std::uint64_t left() const noexcept { return capacity() - std::min(capacity(), peak); }
    /// Does what libraries take, which does not count here, decide whether it fits?
    bool is_doubted() const noexcept {
      return !counts_libraries && refused == 0 && peak <= capacity() &&
             is_scarce(left(), capacity());
    }
  };
  struct Answer {
    bool used = false;     ///< A process used a device.
    bool refused = false;  ///< A request was refused for want of memory.
    /// A static cudart asked for tables that only a driver has, and no memory was taken.
    bool needs_tables = false;
    /// cuDNN's benchmark mode was on, whose workspaces nobody named.
    bool times_plans = false;
    bool endless = false;  ///< A loop waited for a value that is not known, and was ended.
    std::uint64_t kernels = 0, unread = 0;
    std::string cut{};  ///< Why it is not that of a whole run: a sentence. Else empty.
    std::vector<Device> devices{};
    ProgramValues values{};
    ProgramRanks ranks{};
    /// The answer is that of a part of a run.
    bool is_cut() const noexcept {
      return endless || !ranks.waiting.empty() || !ranks.differing.empty();
    }

    /// Null where it is not known.
    std::optional<bool> fits() const noexcept;
  };
  /// What --device would be told, with the capacity.
  const std::string& given() const noexcept { return given_; }
  /// Says what the program took, whether it fits, and what is not known of it. `stubs`: which
  /// functions were answered by a counted success. `next`: the command that tells more.
  Answer say(Console& console, bool stubs, std::string_view next) const;
  /// Where processes of the program go on, says so, and leaves them the folder: a process of ours
  /// removes it after their end.
  void leave_to_processes(Console& console) const;
  /// The answer as JSON (emmctl.run/1). `served` is what a manager of `run --manager` did.
  std::string to_json(const Answer& answer, int exit_code,
                      const std::optional<ServedRequests>& served) const;

 private:
  SimulatedProgram() = default;

  /// The value of CUDA_VISIBLE_DEVICES that shows all devices, where the one that was inherited
  /// begins with none of them: it was meant for the cards of this machine. Else nothing.
  std::optional<std::string> all_devices() const;
  /// Did a process report, or get a library made? A program that does neither uses no device.
  bool is_used(const std::vector<standin::ProcessReport>& reports) const;
  /// Says what was taken of each device, whether it fits, and what a context takes besides.
  void say_memory(Console& console, const Answer& answer) const;
  /// Says how the workspaces of cuDNN's plans were sized, where there were any.
  void say_workspaces(Console& console, const Answer& answer) const;

  std::unique_ptr<Unfinished> folder_;
  std::string standins_, device_, card_, given_, maker_, hooks_;
  std::string unknown_sizes_ = "uniform";
  bool has_cudnn_ = true;
  std::optional<std::uint64_t> cudnn_workspace_;  // nothing: by the rule
  int devices_ = 1;                               // of each node
  NamedRanks ranks_;                              // those that run; of none where all do
};

}  // namespace emm::cli
