#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/unfinished.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "commands/named_ranks.hpp"
#include "commands/recorded_program.hpp"
#include "commands/simulated_program.hpp"
#include "commands/what_if.hpp"
#include "driver/call.hpp"
#include "driver/decorate/fault_injector.hpp"
#include "emm/manager_entry.hpp"
#include "record/run_report.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// The calls that can be made to fail, by their names in emmctl.
struct CallName {
  constexpr CallName(std::string_view given, record::Call call)
      : name(given), kind(static_cast<unsigned>(call)) {}
  constexpr CallName(std::string_view given, record::FaultKind fault) : name(given), kind(fault) {}

  std::string_view name;
  unsigned kind;
};
constexpr CallName kCallNames[] = {
    {"mem_alloc", record::Call::mem_alloc},
    {"mem_free", record::Call::mem_free},
    {"mem_alloc_managed", record::Call::mem_alloc_managed},
    {"mem_host_alloc", record::Call::mem_host_alloc},
    {"mem_free_host", record::Call::mem_free_host},
    {"mem_host_register", record::Call::mem_host_register},
    {"mem_host_unregister", record::Call::mem_host_unregister},
    {"mem_get_info", record::Call::mem_get_info},
    {"ipc_get_mem_handle", record::Call::ipc_get_mem_handle},
    {"ipc_open_mem_handle", record::Call::ipc_open_mem_handle},
    {"ipc_close_mem_handle", record::Call::ipc_close_mem_handle},
    {"event_create", record::Call::event_create},
    {"event_destroy", record::Call::event_destroy},
    {"event_record", record::Call::event_record},
    {"event_query", record::kFaultEventQuery},
    {"event_synchronize", record::Call::event_synchronize},
    {"stream_create", record::Call::stream_create},
    {"stream_destroy", record::Call::stream_destroy},
    {"stream_query", record::kFaultStreamQuery},
    {"stream_synchronize", record::Call::stream_synchronize},
    {"stream_wait_event", record::Call::stream_wait_event},
    {"launch_host_func", record::Call::host_function},
    {"ctx_synchronize", record::Call::ctx_synchronize},
    {"mem_address_reserve", record::Call::mem_address_reserve},
    {"mem_address_free", record::Call::mem_address_free},
    {"mem_create", record::Call::mem_create},
    {"mem_release", record::Call::mem_release},
    {"mem_map", record::Call::mem_map},
    {"mem_unmap", record::Call::mem_unmap},
    {"mem_set_access", record::Call::mem_set_access},
    {"mem_pool_create", record::Call::pool_create},
    {"mem_pool_destroy", record::Call::pool_destroy},
    {"mem_pool_trim_to", record::Call::pool_trim},
    {"mem_alloc_async", record::Call::mem_alloc_async},
    {"mem_alloc_from_pool_async", record::kFaultAllocFromPool},
    {"mem_free_async", record::Call::mem_free_async},
    {"ctx_enable_peer_access", record::Call::peer_enable},
};

Result<std::string> fault_words(const std::string& given) {
  auto plan = FaultPlan::parse(given);
  if (!plan) return std::move(plan).error();
  unsigned kind = record::kFaultAny;
  if (plan->call) {
    const auto wanted = call_info(*plan->call).name;
    for (const auto& known : kCallNames) {
      if (known.name == wanted) kind = known.kind;
    }
    if (kind == record::kFaultAny)
      return fail(Errc::usage, "--fault {}: `emmctl run` does not see {}", given, wanted);
  }
  if (plan->rate != 0) {
    return text::format("rate,{},{},{};", plan->rate, plan->seed, kind);
  }
  return text::format("{},{},{};", kind, plan->nth, plan->native);
}

/// The options of libemm.so for a bundled manager with device memory. "pool:max=8GiB" is
/// "name=pool,max=8GiB". Error usage.
Result<std::string> manager_options(const std::string& spec) {
  const auto* const entry = find_entry(spec);
  std::vector<std::string_view> names;
  for (const auto* one : bundled_managers()) {
    if (one->device_memory) names.push_back(one->name);
  }
  if (entry == nullptr || !entry->device_memory) {
    const auto name = spec.substr(0, spec.find(':'));
    const auto meant = text::nearest(name, names.data(), names.size());
    return fail(Errc::usage, "--manager {}: expected a bundled manager with device memory, {}",
                spec,
                meant ? text::format("did you mean {}?", *meant) : "one of " + text::join(names));
  }
  if (auto found = find_manager(spec); !found) return std::move(found).error();
  auto options = text::format("name={}", entry->name);
  if (spec.size() > entry->name.size() + 1) options += "," + spec.substr(entry->name.size() + 1);
  return options;
}

/// Is the program one that starts ranks?
bool starts_ranks(const std::vector<std::string>& program) {
  const auto name = program.front().substr(program.front().rfind('/') + 1);
  for (const auto* module : {"torch.distributed.run", "torch.distributed.launch",
                             "accelerate.commands.launch", "deepspeed.launcher.runner"}) {
    const auto found = std::find(program.begin(), program.end(), module);
    if (found != program.end() && found != program.begin() && *std::prev(found) == "-m")
      return true;
  }
  constexpr std::string_view kLaunchers[] = {"torchrun", "accelerate",    "deepspeed",  "mpirun",
                                             "mpiexec",  "mpiexec.hydra", "horovodrun", "srun",
                                             "flux",     "jsrun"};
  return std::find(std::begin(kLaunchers), std::end(kLaunchers), name) != std::end(kLaunchers);
}

/// The file in which the program's processes report to emmctl. The destructor removes it.
class ReportFile {
 public:
  explicit ReportFile(std::string path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    constexpr record::RunReport kEmpty;
    if (file_ >= 0 && ::pwrite(file_, &kEmpty, sizeof kEmpty, 0) < 0) unlink(path_.c_str());
  }
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;
  ~ReportFile() {
    if (file_ >= 0) ::close(file_);
    unlink(path_.c_str());
  }

  const std::string& path() const noexcept { return path_; }
  record::RunReport read() const noexcept {
    record::RunReport found;
    if (file_ < 0 || ::pread(file_, &found, sizeof found, 0) != sizeof found) return {};
    return found;
  }

 private:
  std::string path_;
  int file_;
};

class RunProgram final : public CommandRun {
 public:
  explicit RunProgram(Arguments& arguments) {
    arguments.program("PROGRAM", program_, "The program and its arguments, best after --");
    arguments.under(OptionHeading::device)
        .text("--device", device_, "sim[:gpu=NAME|profile=FILE,capacity=SIZE,devices=N]",
              "Runs the program without a GPU: its memory is real, and its kernels are "
              "skipped; list gpus names the cards");
    arguments.under(OptionHeading::output)
        .output("--json", json_,
                "Writes the answer as JSON (emmctl.run/1; with --sweep emmctl.what-if/1), with "
                "--device sim");
    arguments.under(OptionHeading::shown)
        .flag("--explain-stubs", stubs_,
              "Lists the functions that only returned success, with --device sim");
    arguments.under(OptionHeading::device)
        .text("--unknown-sizes", unknown_sizes_, "uniform|all|none|RATIO",
              "With --device sim: what is assumed of masks and indices that only a kernel could "
              "tell; uniform takes half of a mask as true, and spreads indices evenly");
    arguments.under(OptionHeading::device)
        .list("--sweep", sweeps_, "NAME=VALUE,...|LEAST..MOST",
              "With --device sim: runs the program with each value of gpu, profile, capacity or "
              "devices, or of {NAME} in its command line, and answers with the least card on which "
              "it fits; of a range, with the largest number that fits. Repeatable: all "
              "combinations are run");
    arguments.under(OptionHeading::device)
        .text("--cudnn-workspace", cudnn_workspace_, "fitted|none|SIZE|off",
              "With --device sim: the workspace of each of cuDNN's convolutions: that of a rule "
              "fitted on an H200 (the default), none, or one size; off switches cuDNN off");
    arguments.under(OptionHeading::device)
        .text("--ranks", ranks_, "RANK,... of COUNT",
              "With --device sim: starts these ranks of the program, without a launcher, and "
              "answers for the others; devices=N of the device is how many a node has");
    arguments.count("-j,--jobs", jobs_, "N",
                    "With --sweep: the most runs at a time, fewer where this machine's memory does "
                    "not hold them (as many as processors)");
    arguments.under(OptionHeading::device)
        .text("--capacity", capacity_, "SIZE",
              "The program sees devices with this much memory; a request for more is refused as "
              "the driver refuses it");
    arguments.under(OptionHeading::device)
        .list("--fault", faults_, "CALL:N|rate=R,seed=S",
              "The N-th call of that kind fails, or each with a probability; repeatable");
    arguments.under(OptionHeading::manager)
        .text("--manager", manager_, "NAME[:key=value,...]",
              "A bundled manager, of `emmctl list managers`, serves the program's own cuMemAlloc, "
              "cuMemFree, cuMemAllocAsync and cuMemFreeAsync, which cudaMalloc and its like call");
    arguments.under(OptionHeading::manager)
        .text("--implied-wait", implied_wait_, "on|off",
              "With --manager: whether cuMemFree waits for the device, as the driver's does (on); "
              "off is for programs whose work is all on the default stream");
    arguments.footer(
        "With --device sim the program finds stand-ins for CUDA's libraries, and stderr tells at "
        "the end whether its memory fits. "
        "Without it, the program finds a libcuda.so.1 of emmctl's before the driver's, as under "
        "`emmctl record`. Each process has a --capacity of its own, against which its requests to "
        "the "
        "driver count. A call that fails as --fault says does not reach the driver. With "
        "--manager stderr tells at the end what was served. The exit code is the program's; 3 "
        "where the program exits with 0 and one of its processes ran without the manager. With "
        "--sweep "
        "what the program prints is not shown, it "
        "reads nothing, and the exit code is 0 where it fits somewhere, 1 where it fits nowhere, "
        "and 3 where a run failed for another reason than memory.");
  }

  Result<ExitCode> run(Console& console) override {
    if (program_.empty()) return fail(Errc::usage, "expected a program to run, after --");
    if (capacity_.empty() && faults_.empty() && device_.empty() && manager_.empty()) {
      return fail(Errc::usage,
                  "emmctl run: expected --device sim, --capacity SIZE, --fault CALL:N, --manager "
                  "NAME, or some of them");
    }
    if (!implied_wait_.empty() && implied_wait_ != "on" && implied_wait_ != "off")
      return fail(Errc::usage, "--implied-wait {}: expected on or off", implied_wait_);
    if (!implied_wait_.empty() && manager_.empty())
      return fail(Errc::usage, "--implied-wait {}: expected --manager", implied_wait_);
    if (stubs_ && device_.empty())
      return fail(Errc::usage, "--explain-stubs: expected --device sim");
    if (!json_.empty() && device_.empty())
      return fail(Errc::usage, "--json: expected --device sim");
    if (!unknown_sizes_.empty() && device_.empty())
      return fail(Errc::usage, "--unknown-sizes {}: expected --device sim", unknown_sizes_);
    if (!cudnn_workspace_.empty() && device_.empty())
      return fail(Errc::usage, "--cudnn-workspace {}: expected --device sim", cudnn_workspace_);
    if (!ranks_.empty()) {
      if (device_.empty()) return fail(Errc::usage, "--ranks {}: expected --device sim", ranks_);
      if (!faults_.empty() || !manager_.empty())
        return fail(Errc::usage, "--ranks {}: expected no --fault and no --manager", ranks_);
      if (auto named = NamedRanks::parse(ranks_); !named) return std::move(named).error();
      if (starts_ranks(program_))
        return fail(Errc::usage,
                    "--ranks {}: expected the program of a rank, without {}: the ranks are started "
                    "without a launcher",
                    ranks_, program_.front());
    }
    if (!sweeps_.empty()) return sweep(console);
    if (jobs_) return fail(Errc::usage, "--jobs {}: expected --sweep", *jobs_);
    ProgramStart start{.command = program_};
    std::string words;
    for (const auto& given : faults_) {
      auto one = fault_words(given);
      if (!one) return std::move(one).error();
      words += *one;
    }
    if (!words.empty()) start.variables.emplace_back("EMM_RUN_FAULTS", words);
    if (!capacity_.empty()) {
      auto size = units::parse_capacity(capacity_);
      if (!size) return std::move(size).error();
      if (*size == 0)
        return fail(Errc::usage, "--capacity {}: expected at least a byte", capacity_);
      if (device_.empty())
        start.variables.emplace_back("EMM_RUN_CAPACITY", text::format("{}", *size));
    }
    if (!manager_.empty()) {
      auto options = manager_options(manager_);
      if (!options) return std::move(options).error();
      const auto library = library_beside(console.program(), "libemm.so");
      if (library.empty()) {
        return fail(Errc::io_error, "libemm.so is not beside {}: expected it in ../lib",
                    console.program());
      }
      start.variables.emplace_back("EMM_RUN_MANAGER", *std::move(options));
      start.variables.emplace_back("EMM_RUN_MANAGER_LIBRARY", library);
      if (implied_wait_ == "off") start.variables.emplace_back("EMM_RUN_IMPLIED_WAIT", "off");
    }
    if (!device_.empty()) return run_simulated(console, start);
    auto end = run_shimmed(console, start, {});
    if (!end) return std::move(end).error();
    return code_of(*end);
  }

 private:
  /// The program with every combination of what is swept.
  Result<ExitCode> sweep(Console& console) const {
    if (device_.empty()) return fail(Errc::usage, "--sweep {}: expected --device sim", sweeps_[0]);
    if (stubs_) return fail(Errc::usage, "--explain-stubs: expected no --sweep");
    WhatIf asked{.device = device_,
                 .sweeps = sweeps_,
                 .options = {},
                 .program = program_,
                 .jobs = jobs_,
                 .json = json_};
    const auto pass = [&](std::string_view option, const std::string& value) {
      if (!value.empty()) asked.options.push_back(text::format("{}={}", option, value));
    };
    pass("--capacity", capacity_);
    pass("--unknown-sizes", unknown_sizes_);
    pass("--manager", manager_);
    pass("--implied-wait", implied_wait_);
    pass("--ranks", ranks_);
    pass("--cudnn-workspace", cudnn_workspace_);
    for (const auto& fault : faults_) pass("--fault", fault);
    return run_what_if(console, asked);
  }
  /// The program's exit code; `inconclusive` where it passed without the manager that was asked
  /// for.
  ExitCode code_of(const ProgramEnd& end) const noexcept {
    if (end.code == 0 && !manager_.empty() && (said_.unserved != 0 || said_.seen == 0))
      return ExitCode::inconclusive;
    return static_cast<ExitCode>(end.code);
  }
  Result<ExitCode> run_simulated(Console& console, ProgramStart& start) {
    auto simulated = SimulatedProgram::make(device_, capacity_, console.program());
    if (!simulated) return std::move(simulated).error();
    if (auto assumed = simulated->assume(unknown_sizes_); !assumed) return assumed.error();
    if (auto assumed = simulated->assume_cudnn(cudnn_workspace_); !assumed) return assumed.error();
    if (!ranks_.empty()) {
      simulated->run_only(*NamedRanks::parse(ranks_));
      start.command = simulated->start_ranks(program_);
    }
    for (auto& variable : simulated->variables(console))
      start.variables.push_back(std::move(variable));
    auto end = Result<ProgramEnd>(ProgramEnd{});
    if (faults_.empty() && manager_.empty()) {
      if (auto led = simulated->lead_to(simulated->driver()); !led) return led.error();
      end = run_program(start);
    } else {
      end = run_shimmed(console, start, &*simulated);
    }
    if (!end) return std::move(end).error();
    const auto name = [](const std::string& path) {
      return std::filesystem::path(path).filename();
    };
    auto next = "emmctl record --device " + text::shell_word(simulated->given());
    auto rest = program_.begin();
    // A recording of ours inside of this simulates the device itself.
    const auto is_recording = program_.size() > 1 && program_[1] == "record" &&
                              name(program_[0]) == name(console.program());
    if (is_recording)
      rest += 2;
    else
      next += " -o run.emmb --";
    for (; rest != program_.end(); ++rest) next += ' ' + text::shell_word(*rest);
    // A recording is of one process, and has cuDNN as it is by default.
    if (!ranks_.empty() || !cudnn_workspace_.empty()) next.clear();
    const auto answer = simulated->say(console, stubs_, next);
    simulated->leave_to_processes(console);
    if (!json_.empty()) {
      if (auto written = console.write(json_, simulated->to_json(answer, end->code, served()));
          !written)
        return written.error();
    }
    if (answer.is_cut() || (answer.needs_tables && end->code != 0)) return ExitCode::inconclusive;
    return code_of(*end);
  }

  /// Runs the program with a library of ours before its driver, or before the simulated one.
  Result<ProgramEnd> run_shimmed(Console& console, ProgramStart& start,
                                 const SimulatedProgram* simulated) {
    const auto folder = Unfinished::temporary_folder("run");
    if (!folder) return folder.error();
    return run_in(console, (*folder)->path(), start, simulated);
  }

  Result<ProgramEnd> run_in(Console& console, const std::string& folder, ProgramStart& start,
                            const SimulatedProgram* simulated) {
    auto shim = DriverShim::open(folder, console.program(),
                                 simulated != nullptr ? simulated->driver() : std::string());
    if (!shim) return std::move(shim).error();
    for (auto& variable : shim->variables()) start.variables.push_back(std::move(variable));
    const ReportFile report(folder + "/seen");
    start.variables.emplace_back("EMM_RUN_SEEN", report.path());
    if (auto written = shim->write(start.variables); !written) return written.error();
    if (simulated != nullptr) {
      if (auto led = simulated->lead_to(shim->library()); !led) return led.error();
    }
    auto end = run_program(start);
    if (!end) return end;
    said_ = report.read();
    if (said_.seen == 0) {
      console.say(
          text::format("nothing was {}: no process called cuInit with success through libcuda.so.1 "
                       "as the loader "
                       "finds it (docs/recording.md says which programs are not seen)",
                       manager_.empty() ? "refused" : "served"));
    }
    if (said_.uncounted != 0) {
      console.say(text::format(
          "--capacity did not count {} allocations, since there was no memory for accounts of them",
          said_.uncounted));
    }
    if (!manager_.empty() && said_.seen != 0) console.say(served_words());
    return end;
  }

  /// What the manager did, in one line.
  std::string served_words() const {
    auto words = text::format("--manager {} served {} with {} for memory", manager_,
                              text::counted(said_.served, "request"),
                              text::counted(said_.driver_calls, "driver call"));
    if (said_.peak_live != 0)
      words += text::format("; at most {} live", units::bytes(said_.peak_live));
    if (said_.peak_reserved != 0)
      words += text::format(", {} reserved", units::bytes(said_.peak_reserved));
    const auto more = [&](std::uint64_t count, std::string_view what, std::string_view rest) {
      if (count != 0) words += text::format("; {} {}", text::counted(count, what), rest);
    };
    more(said_.waits, "free", "waited for the device");
    more(said_.refused, "request", "found no memory");
    more(said_.left, "request", "left to the driver");
    more(said_.unshared, "IPC handle", "refused");
    more(said_.unserved, "manager", "not made");
    return words;
  }
  /// The same for JSON. Empty without --manager.
  std::optional<ServedRequests> served() const {
    if (manager_.empty()) return std::nullopt;
    return ServedRequests{.manager = manager_, .report = said_};
  }

  std::vector<std::string> program_;
  record::RunReport said_;
  std::string manager_, implied_wait_;
  std::string device_, capacity_, unknown_sizes_, json_, ranks_, cudnn_workspace_;
  bool stubs_ = false;
  std::vector<std::string> faults_, sweeps_;
  std::optional<std::uint64_t> jobs_;
};

}  // namespace

extern constinit const Command run_command{
    "run",
    "Run a CUDA program without a GPU, with less memory, with failing driver calls, or on a "
    "manager of emmctl's",
    false,
    make_run<RunProgram>,
    Heading::traces,
    {{{"emmctl run --device sim:gpu=l4 -- ./program", "Does it fit on an L4? No GPU is needed."},
      {"emmctl run --device sim --sweep gpu=l4,a100-40g --sweep batch=1..512 -- ./train --batch "
       "{batch}",
       "The largest batch that fits on each of two cards."}}}};

}  // namespace emm
