#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/run_files.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/unfinished.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/program_files.hpp"
#include "commands/recorded_program.hpp"
#include "commands/simulated_program.hpp"
#include "exchange/importer.hpp"
#include "exchange/merge_levels.hpp"
#include "format/whole_file.hpp"
#include "raw/raw.hpp"
#include "record/forwarding_library.hpp"
#include "record/room_ahead.hpp"
#include "standin/process_report.hpp"
#include "trace/header.hpp"
#include "trace/live_bytes.hpp"
#include "trace/operation.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Passes a recording on and counts what the line about its trace reports.
class Counting final : public trace::OperationSink {
 public:
  explicit Counting(trace::OperationSink& to) : to_(to) {}

  Status on_header(const trace::Header& header) override { return to_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override {
    using trace::Op;
    if (operation.op == Op::gap && operation.has(trace::Member::lost)) lost_ += operation.lost;
    // below the requests that are counted
    if (operation.has(trace::Member::layer) && operation.layer == trace::Layer::backing)
      return to_.on_operation(operation);
    const bool worked = operation.result.outcome == trace::Outcome::none ||
                        operation.result.outcome == trace::Outcome::ok;
    switch (operation.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
        if (!worked) ++refused_;
        wanted_memory_ = wanted_memory_ || operation.result.outcome == trace::Outcome::oom;
        if (worked) allocated_ += operation.size;
        [[fallthrough]];
      case Op::free:
      case Op::reset:
      case Op::context_destroy:
        live_.take(operation);
        peak_ = std::max(peak_, live_.bytes().value());
        break;
      default:
        break;
    }
    return to_.on_operation(operation);
  }
  Status finish() override { return to_.finish(); }

  std::uint64_t allocated() const noexcept { return allocated_; }
  std::uint64_t peak() const noexcept { return peak_; }
  std::uint64_t refused() const noexcept { return refused_; }
  std::uint64_t lost() const noexcept { return lost_; }  ///< Calls that the recording lacks.
  /// Was one of those refused for want of memory, which `explain` explains?
  bool wanted_memory() const noexcept { return wanted_memory_; }

 private:
  trace::OperationSink& to_;
  trace::LiveBytes live_;  // of the device
  std::uint64_t allocated_ = 0, peak_ = 0, refused_ = 0, lost_ = 0;
  bool wanted_memory_ = false;
};

/// Takes a recording and keeps nothing of it.
class Nowhere final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header&) override { return {}; }
  Status on_operation(const trace::Operation&) override { return {}; }
};

/// The cost of a recorded call on this machine in nanoseconds, as the recorder measures it. 0 if it
/// cannot.
double cost_of_call(const std::string& recorder) {
  void* const library = dlopen(recorder.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto measure = reinterpret_cast<double (*)()>(dlsym(library, "emm_record_cost"));
  // never unloaded, since threads may still run its exit code
  return measure != nullptr ? measure() : 0;
}

/// The folder of the raw recordings. make() creates it; remove() deletes it after all traces are
/// written. Before keep(), which says that the program has begun, it does not outlive this object.
class RawFolder {
 public:
  static Result<RawFolder> make(const std::string& output) {
    RawFolder made;
    for (int again = 1; again < 1000; ++again) {
      made.path_ = again == 1 ? output + ".raw" : text::format("{}.{}.raw", output, again);
      made.unfinished_ = Unfinished::folder(made.path_);
      if (made.unfinished_) break;
      if (errno != EEXIST)
        return fail(Errc::usage, "{}: {}: expected a folder that can be made", made.path_,
                    std::strerror(errno));
      made.path_.clear();
    }
    if (made.path_.empty()) return fail(Errc::usage, "{}: {}", output, std::strerror(EEXIST));
    char absolute[PATH_MAX];
    if (realpath(made.path_.c_str(), absolute) == nullptr)
      return fail(Errc::io_error, "{}: {}", made.path_, std::strerror(errno));
    made.path_ = absolute;
    const int file =
        ::open(made.control_path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return fail(Errc::io_error, "{}: {}", made.path_, std::strerror(errno));
    const record::Control on{.on = 1};
    const bool wrote = ::write(file, &on, sizeof on) == static_cast<ssize_t>(sizeof on);
    void* const page =
        wrote ? mmap(nullptr, sizeof on, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    ::close(file);
    if (page == MAP_FAILED)
      return fail(Errc::io_error, "{}: {}", made.path_, std::strerror(ENOSPC));
    made.control_ = static_cast<record::Control*>(page);
    // Held to the end of this process: it tells the processes of the program that somebody
    // collects.
    made.lock_ = lock_of(made.control_path());
    made.control_->locked = made.lock_ >= 0 ? 1 : 0;
    return made;
  }

  /// Tells the `emmctl record` around this one, if there is one, that what this one runs is
  /// recorded here.
  static void tell_outer() {
    const char* const folder = std::getenv("EMM_RECORD_FOLDER");
    if (folder == nullptr) return;
    const int file = ::open((std::string(folder) + "/control").c_str(), O_RDWR | O_CLOEXEC);
    const auto self = static_cast<std::uint32_t>(getpid());
    if (file < 0) return;
    // without it, the other one only knows less
    if (::pwrite(file, &self, sizeof self, offsetof(record::Control, inner)) < 0) errno = 0;
    ::close(file);
  }
  /// The process of the program that ran an `emmctl record` of its own; 0: none.
  std::uint32_t inner() const noexcept {
    return std::atomic_ref<std::uint32_t>(control_->inner).load();
  }

  const std::string& path() const noexcept { return path_; }
  /// The file whose lock tells that somebody collects. Empty if there is no lock.
  std::string lock() const { return lock_ >= 0 ? control_path() : std::string(); }
  /// Starts recording for the `window`-th time. 0 stops it.
  void set(std::uint32_t window) const noexcept {
    std::atomic_ref<std::uint32_t>(control_->on).store(window);
  }
  void stop() const noexcept { set(0); }
  record::Control& control() const noexcept { return *control_; }
  /// What the driver answered to a cuInit that failed; 0 if none did.
  std::int32_t init_code() const noexcept {
    return std::atomic_ref<std::int32_t>(control_->init_code).load();
  }
  /// How many processes could not record.
  std::uint64_t failed() const noexcept {
    return std::atomic_ref<std::uint64_t>(control_->failed).load();
  }

  /// The raw files: those of the process `first` come first, then the others by name.
  std::vector<std::string> files(pid_t first, std::string_view suffix = ".emmraw") const {
    std::vector<std::string> found;
    DIR* const folder = opendir(path_.c_str());
    if (folder == nullptr) return found;
    while (const auto* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name.ends_with(suffix)) found.push_back(path_ + "/" + name);
    }
    closedir(folder);
    const auto begin = text::format("{}/{}.", path_, first);
    std::sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
      const bool a_first = a.starts_with(begin), b_first = b.starts_with(begin);
      if (a_first != b_first) return a_first;
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    return found;
  }
  void keep() const noexcept { unfinished_->set_whole(); }
  void remove_files() const {
    for (const auto& file : files(0)) unlink(file.c_str());
  }
  void remove() const {
    unlink(control_path().c_str());
    rmdir(path_.c_str());
  }

 private:
  std::string control_path() const { return path_ + "/control"; }
  /// A descriptor that holds the file's lock; -1 if it cannot be had.
  static int lock_of(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (file >= 0 && fcntl(file, F_OFD_SETLK, &lock) == 0) return file;
    if (file >= 0) ::close(file);
    return -1;
  }

  std::string path_;
  std::unique_ptr<Unfinished> unfinished_;
  int lock_ = -1;  // never closed
  record::Control* control_ = nullptr;
};

constexpr std::string_view kNoRequests =
    "no process imported Numba, CuPy or PyTorch and used them, or its Python has another "
    "PYTHONPATH";

class RecordProgram final : public CommandRun {
 public:
  explicit RecordProgram(Arguments& arguments) {
    arguments.program("PROGRAM", program_, "The program and its arguments, best after --");
    arguments.output_file(
        "-o,--output", output_,
        "The trace: .emmb is compact, .json one document, else JSON Lines; .gz and .zst "
        "pack; %p is the number of the process");
    arguments.text("--duration", duration_, "TIME",
                   "Records for this time, writes the trace, and lets the program run on");
    arguments.text("--on-signal", signal_, "SIGNAL",
                   "Records from the time when emmctl gets this signal until it gets the signal "
                   "again, or for --duration: USR1, USR2, HUP or CONT");
    arguments.under(OptionHeading::output)
        .text("--max-file-size", most_, "SIZE",
              "Keeps the newest calls: a process writes no more raw bytes than that, or 128 KiB "
              "for each thread that records at the same time");
    arguments.choice("--through", through_, {"auto", "forwarding", "cupti"},
                     "How calls are seen: by a libcuda.so.1 that forwards them, by CUPTI's "
                     "callbacks, or (auto) by CUPTI only if the program bypasses that library");
    arguments.choice("--stacks", stacks_, {"python", "native", "both"},
                     "Keeps the call stack of each call that gives or takes memory");
    arguments.count("--stack-depth", depth_, "How many frames of a stack are kept: 1 to 64");
    arguments.choice("--level", level_, {"driver", "request", "both"},
                     "What is recorded: the calls that the program and its libraries make to the "
                     "driver; what Python asks of Numba, CuPy and PyTorch; or both as one trace");
    arguments.under(OptionHeading::device)
        .text("--device", device_, "sim[:gpu=NAME|profile=FILE,capacity=SIZE,devices=N]",
              "Records the program without a GPU, as emmctl run --device sim runs it");
    arguments.under(OptionHeading::device)
        .text("--unknown-sizes", unknown_sizes_, "uniform|all|none|RATIO",
              "With --device sim: what is assumed of masks and indices that only a kernel could "
              "tell");
    arguments.flag("--follow", follow_,
                   "Waits for the processes that the program leaves, such as a daemon, and records "
                   "them to their end; SIGTERM ends the waiting, and writes the traces");
    arguments.flag(
        "--require-trace", require_,
        "Exits with 3 where the program exits with 0 and the trace is not whole: nothing "
        "was recorded, calls are lost, or a trace could not be written");
    arguments.footer(
        "The program finds a libcuda.so.1 of emmctl's before the driver's, by LD_LIBRARY_PATH; it "
        "passes every call on. Each process that the program starts has a trace of its own. A "
        "program that is killed leaves FILE.raw, which every command reads as it reads traces. The "
        "exit code is the program's, unless --require-trace makes it 3.");
  }

  Result<ExitCode> run(Console& console) override {
    const auto wanted = read_options(console);
    if (!wanted) return wanted.error();
    ProgramStart start{.command = program_};
    start.signal = wanted->signal;
    start.follows = follow_;
    if (auto made = simulate_device(console, start); !made) return made.error();
    forget_outer();
    auto folder = RawFolder::make(place_of_raw());
    if (!folder) return std::move(folder).error();
    if (wanted->requests) add_request_variables(console, wanted->hooks, *folder, start);
    return wanted->calls ? record_calls(console, *wanted, *folder, start)
                         : record_requests(console, *folder, start);
  }

 private:
  /// What the options ask for, once they are known to make sense.
  struct Wanted {
    std::optional<std::uint64_t> duration_ns{};
    int signal = 0;                ///< That begins and ends a recording; 0: none.
    std::uint64_t file_bytes = 0;  ///< The most raw bytes of a process; 0: no limit.
    bool requests = false;         ///< What Python asks for.
    bool calls = false;            ///< What the driver is asked for.
    std::string hooks{};           ///< The folder of the Python package; empty without requests.
  };

  Result<Wanted> read_options(Console& console) const {
    if (program_.empty()) return fail(Errc::usage, "expected a program to run, after --");
    if (output_.empty() || output_ == "-")
      return fail(Errc::usage, "-o: expected a file, since standard output is the program's");
    if (struct stat about{}; stat(output_.c_str(), &about) == 0 && S_ISDIR(about.st_mode))
      return fail(Errc::usage, "-o {}: it is a folder: expected a file", output_);
    if (auto may = may_become_trace(output_); !may) return may.error();
    Wanted wanted{.requests = level_ != "driver", .calls = level_ != "request"};
    if (!duration_.empty()) {
      auto time = units::parse_ns(duration_);
      if (!time) return std::move(time).error();
      if (*time == 0 || duration_.find_first_not_of("0123456789.") == duration_.npos)
        return fail(Errc::usage, "--duration {}: expected a time such as 500ms, 60s, 5min or 1h",
                    duration_);
      wanted.duration_ns = *time;
    }
    if (!signal_.empty()) {
      wanted.signal = number_of_signal(signal_);
      if (wanted.signal == 0)
        return fail(Errc::usage, "--on-signal {}: expected USR1, USR2, HUP or CONT", signal_);
    }
    if (!most_.empty()) {
      auto size = units::parse_bytes(most_);
      if (!size) return std::move(size).error();
      // Eight of the blocks that a thread takes, and the reach of a block's number in 32 bits.
      constexpr std::uint64_t kLeast = std::uint64_t{1} << 20, kMost = std::uint64_t{4} << 30;
      if (*size < kLeast || *size > kMost)
        return fail(Errc::usage, "--max-file-size {}: expected 1MiB to 4GiB", most_);
      wanted.file_bytes = *size;
    }
    if (depth_ < 1 || depth_ > 64)
      return fail(Errc::usage, "--stack-depth {}: expected 1 to 64", depth_);
    if (wanted.requests && !(duration_.empty() && signal_.empty()))
      return fail(Errc::usage, "--level {}: expected no --duration and no --on-signal", level_);
    if (wanted.requests) {
      wanted.hooks = python_hooks(console.program());
      if (wanted.hooks.empty())
        return fail(Errc::usage,
                    "--level: emmctl's Python package is not here: expected EMM_PYTHON_PACKAGE to "
                    "name its folder");
    }
    if (!unknown_sizes_.empty() && device_.empty())
      return fail(Errc::usage, "--unknown-sizes {}: expected --device sim", unknown_sizes_);
    if (!device_.empty() && through_ == "cupti")
      return fail(Errc::usage, "--through cupti --device {}: expected one of them", device_);
    return wanted;
  }

  /// With --device: makes the simulated device and leads the program to it.
  Status simulate_device(Console& console, ProgramStart& start) {
    if (device_.empty()) return {};
    auto made = SimulatedProgram::make(device_, {}, console.program());
    if (!made) return std::move(made).error();
    if (auto assumed = made->assume(unknown_sizes_); !assumed) return assumed;
    simulated_.emplace(*std::move(made));
    for (auto& variable : simulated_->variables(console))
      start.variables.push_back(std::move(variable));
    return {};
  }

  static void add_request_variables(Console& console, const std::string& hooks,
                                    const RawFolder& folder, ProgramStart& start) {
    start.variables.emplace_back("PYTHONPATH", before_python_path(hooks));
    if (auto lock = folder.lock(); !lock.empty())
      start.variables.emplace_back("EMM_RECORD_LOCK", std::move(lock));
    start.variables.emplace_back("EMM_RECORD_REQUESTS", folder.path() + "/%p.requests.jsonl");
    // The package writes rows through it. It looks here where it finds none of its own.
    if (auto writer = library_beside(console.program(), "libemm.so"); !writer.empty())
      start.variables.emplace_back("EMM_RECORD_WRITER", std::move(writer));
  }

  void add_call_variables(const Wanted& wanted, const RawFolder& folder, const DriverShim& shim,
                          ProgramStart& start) const {
    if (through_ != "cupti") {
      for (auto& variable : shim.variables()) start.variables.push_back(std::move(variable));
    }
    // An injection by another tool is kept unless the user asked for CUPTI.
    const char* const injected = std::getenv("CUDA_INJECTION64_PATH");
    if (through_ == "cupti" ||
        (through_ == "auto" && !simulated_ && !profiled_by_nsight_compute() &&
         (injected == nullptr || *injected == '\0')))
      start.variables.push_back(shim.injection());
    start.variables.emplace_back("EMM_RECORD_FOLDER", folder.path());
    if (wanted.requests) start.variables.emplace_back("EMM_RECORD_LIBRARY", shim.recorder());
    if (!stacks_.empty()) {
      start.variables.emplace_back("EMM_RECORD_STACKS",
                                   stacks_ == "both" ? "python,native" : stacks_);
      start.variables.emplace_back("EMM_RECORD_DEPTH", text::format("{}", depth_));
    }
    if (wanted.file_bytes != 0)
      start.variables.emplace_back("EMM_RECORD_MOST", text::format("{}", wanted.file_bytes));
    if (wanted.signal != 0) start.variables.emplace_back("EMM_RECORD_KEEP", "1");
  }

  /// Opens what stands between the program and the driver. The error says why the program can only
  /// run unrecorded.
  Result<DriverShim> open_shim(Console& console, const RawFolder& folder) const {
    auto shim = DriverShim::open(folder.path(), console.program(),
                                 simulated_ ? simulated_->driver() : std::string());
    if (shim) return shim;
    if (!simulated_ && std::getenv(standin::kProgramFolder) != nullptr) {
      return fail(Errc::usage,
                  "its driver is that of `emmctl run --device`: expected `emmctl record "
                  "--device` instead, which simulates the device, too");
    }
    if (is_simulated_inside(console.program())) {
      return fail(Errc::usage,
                  "`emmctl run --device` simulates a device inside of the recording: "
                  "expected `emmctl record --device` and the program alone");
    }
    return shim;
  }

  /// Runs the program without a recording, except on a simulated device: without that, there would
  /// be nothing to run it on.
  Result<ExitCode> run_unrecorded(Console& console, RawFolder& folder, const Error& why) {
    if (simulated_) return why;
    folder = RawFolder();
    console.say(text::format("the program runs unrecorded: {}", why.message));
    auto end = run_program({.command = program_});
    if (!end) return std::move(end).error();
    whole_ = false;
    return code_of(console, *end);
  }

  /// Turns the recording on and off while the program runs. Without a signal there is one window,
  /// from the program's start on; with one, each signal begins a window or ends it. A window also
  /// ends after --duration. Traces are written at its end.
  class Windows {
   public:
    Windows(RecordProgram& command, Console& console, RawFolder& folder, const Wanted& wanted,
            double cost)
        : command_(command),
          console_(console),
          folder_(folder),
          wanted_(wanted),
          cost_(cost),
          count_(wanted.signal != 0 ? 0 : 1),
          on_(count_ != 0) {}

    /// What ProgramStart::wake wants.
    std::optional<std::uint64_t> wake(pid_t process, Wake why) {
      if (why == Wake::left) {
        console_.say(text::format(
            "the program has ended; what it left is recorded until kill -TERM {}", getpid()));
        return std::nullopt;
      }
      if (why == Wake::begun) {
        folder_.keep();
        make_room();
        if (on_) return wanted_.duration_ns;
        console_.say(text::format("kill -{} {} begins the recording", command_.signal_, getpid()));
        return std::nullopt;
      }
      if (why == Wake::signal && !on_) {
        on_ = true;
        folder_.set(++count_);
        console_.say("recording");
        return wanted_.duration_ns;
      }
      on_ = false;
      stop_recording(folder_, 0);
      room_.reset();  // no block moves while it is read
      unwritten_ = command_.write_traces(console_, folder_, process, cost_, false);
      make_room();
      return std::nullopt;
    }

    /// Stops the recording. `end` is null if the program could not be run.
    void stop(const ProgramEnd* end) {
      stop_recording(folder_, end != nullptr ? end->process : 0);  // for processes that live on
      room_.reset();
      if (on_ && end != nullptr) say_who_goes_on(console_, folder_);
    }

    /// Writes the traces that no window's end has written. Returns whether a raw file gave none.
    bool write_rest(pid_t process) {
      if (count_ == 0) {
        command_.whole_ = false;
        console_.say(text::format("nothing was recorded: no {} came", command_.signal_));
      } else if (on_ || unwritten_) {
        return command_.write_traces(console_, folder_, process, cost_, true);
      }
      folder_.remove_files();
      return false;
    }

   private:
    /// Only after the program was forked, since this starts a thread.
    void make_room() {
      room_.emplace(folder_.path(), folder_.control(),
                    record::RoomAhead::Limits{.file_bytes = wanted_.file_bytes});
    }

    RecordProgram& command_;
    Console& console_;
    RawFolder& folder_;
    const Wanted& wanted_;
    double cost_;          // ns of a recorded call
    std::uint32_t count_;  // windows begun
    bool on_;
    bool unwritten_ = false;  // a raw file of the last window gave no trace
    std::optional<record::RoomAhead> room_;
  };

  Result<ExitCode> record_calls(Console& console, const Wanted& wanted, RawFolder& folder,
                                ProgramStart& start) {
    auto shim = open_shim(console, folder);
    if (!shim) return run_unrecorded(console, folder, shim.error());
    add_call_variables(wanted, folder, *shim, start);
    if (wanted.signal != 0) folder.stop();
    if (through_ != "cupti") {
      if (auto written = shim->write(start.variables); !written)
        return run_unrecorded(console, folder, written.error());
    }
    if (simulated_) {
      if (auto led = simulated_->lead_to(shim->library()); !led) return led.error();
    }
    Windows windows(*this, console, folder, wanted, cost_of_call(shim->recorder()));
    Bypass bypass(folder, *shim);
    if (through_ != "cupti") start.look = [&](pid_t process) { return bypass.look(process); };
    start.wake = [&](pid_t process, Wake why) { return windows.wake(process, why); };
    auto end = run_program(start);
    windows.stop(end ? &*end : nullptr);
    if (!end) return std::move(end).error();
    bypass_ = bypass.words();
    const bool kept = windows.write_rest(end->process);
    shim->remove();
    if (folder.failed() != 0) whole_ = false;
    if (!kept) folder.remove();
    return code_of(console, *end);
  }

  /// Finds processes that have a libcuda other than emmctl's between them and the driver.
  class Bypass {
   public:
    Bypass(const RawFolder& folder, const DriverShim& shim) : folder_(folder), shim_(shim) {}

    /// Looks at the processes of the program. False once there is nothing more to find out.
    bool look(pid_t process) {
      if (!found_.empty() || !folder_.files(process).empty()) return false;
      look_at(static_cast<std::uint64_t>(process), 0);
      return found_.empty();
    }
    /// Names the other library. Empty if none was seen.
    const std::string& words() const noexcept { return found_; }

   private:
    void look_at(std::uint64_t process, int depth) {
      constexpr int kDeepest = 32;  // generations of processes; ends where /proc changes meanwhile
      std::ifstream maps(text::format("/proc/{}/maps", process));
      std::string other;
      bool ours = false;
      for (std::string line; std::getline(maps, line);) {
        const auto path = line.find('/') == line.npos ? "" : line.substr(line.find('/'));
        const auto name = path.substr(path.rfind('/') + 1);
        ours = ours || path.starts_with(folder_.path() + "/") || path == shim_.recorder();
        if (name.starts_with("libcuda.so") && path != shim_.driver()) other = path;
      }
      if (!ours && !other.empty())
        found_ =
            text::format("process {} has {} where emmctl's library would stand", process, other);
      std::ifstream children(text::format("/proc/{}/task/{}/children", process, process));
      for (std::uint64_t child = 0; depth < kDeepest && found_.empty() && children >> child;)
        look_at(child, depth + 1);
    }

    const RawFolder& folder_;
    const DriverShim& shim_;
    std::string found_;
  };

  /// Leaves what an `emmctl record` around this one wants of its program, but for the driver.
  static void forget_outer() {
    RawFolder::tell_outer();
    for (const char* const name :
         {"FOLDER", "STACKS", "DEPTH", "MOST", "KEEP", "REQUESTS", "LOCK", "LIBRARY"})
      unsetenv((std::string("EMM_RECORD_") + name).c_str());
  }

  /// The name of the raw folder, without its suffix. It is beside the output; where that is no
  /// file, as /dev/null, in TMPDIR.
  std::string place_of_raw() const {
    struct stat about {};
    const auto name = plain_name();
    if (stat(output_.c_str(), &about) != 0 || S_ISREG(about.st_mode)) return name;
    return text::format("{}/emmctl-{}", temporary_place(), name.substr(name.rfind('/') + 1));
  }

  /// Returns the output's name without "%p", the place of a process's number.
  std::string plain_name() const { return with_number(""); }
  std::string with_number(const std::string& process) const {
    std::string name;
    std::size_t begin = 0;
    for (auto at = output_.find("%p"); at != output_.npos; at = output_.find("%p", begin)) {
      name.append(output_, begin, at - begin).append(process);
      begin = at + 2;
    }
    return name.append(output_, begin);
  }
  /// The process that left a file: its number, and behind a dot which of the programs it was that
  /// the process ran, from the second on.
  static std::string process_of(const std::string& file) {
    auto name = file.substr(file.rfind('/') + 1);
    name.resize(std::min({name.find(".requests"), name.find(".emmraw"), name.size()}));
    if (const auto torch = name.find("-torch"); torch != name.npos)
      name.erase(torch, std::strlen("-torch"));
    return name;
  }
  /// Names the trace of one process. Where the output has no %p, the process `first` gets its name
  /// as it is, and the others get their number put into it.
  std::string name_for(const std::string& process, const std::string& first) const {
    if (output_.find("%p") != output_.npos) return with_number(process);
    auto name = output_;
    if (process == first) return name;
    const auto slash = name.rfind('/');
    const auto dot = name.find('.', slash == name.npos ? 1 : slash + 2);
    return name.insert(dot == name.npos ? name.size() : dot, "." + process);
  }

  /// Does Nsight Compute run the program, or did it start this process? Nsight Compute ends with an
  /// error if another tool injects code.
  bool profiled_by_nsight_compute() const {
    const auto& path = program_.front();
    const auto name = path.substr(path.rfind('/') + 1);
    return name == "ncu" || name == "nv-nsight-cu-cli" ||
           std::getenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR") != nullptr;
  }

  /// Explains why no process left a recording.
  std::string why_nothing(const RawFolder& folder, bool end) const {
    if (const auto failed = folder.failed(); failed != 0) {
      return text::format("nothing was recorded: {} {} could not open a file, as said above",
                          failed, failed == 1 ? "process" : "processes");
    }
    if (access(folder.path().c_str(), F_OK) != 0) {
      return text::format("nothing was recorded: the folder {} is gone", folder.path());
    }
    if (folder.inner() != 0) return "nothing was recorded: " + words_of_inner(folder);
    if (const auto code = folder.init_code(); code != 0) {
      return text::format("nothing was recorded: the driver answered cuInit with {}, {}", code,
                          native_name(code));
    }
    if (!end) return "nothing was recorded: no process had called cuInit by then";
    if (profiled_by_nsight_compute()) {
      return "nothing was recorded: Nsight Compute puts its own library before the driver; record "
             "the program without it";
    }
    if (through_ == "cupti") {
      return "nothing was recorded: no process loaded the recorder in cuInit, which a profiler in "
             "between prevents; --through forwarding goes beside one";
    }
    if (!bypass_.empty()) {
      return text::format("nothing was recorded: {}; record the program without it", bypass_);
    }
    if (const auto other = preloaded(); !other.empty()) {
      return text::format(
          "nothing was recorded: LD_PRELOAD puts {} between the program and the driver; record the "
          "program without it",
          other);
    }
    return "nothing was recorded: no process called cuInit with success through libcuda.so.1 as "
           "the loader finds it (docs/recording.md says which programs are not seen)";
  }

  static std::string words_of_inner(const RawFolder& folder) {
    return text::format(
        "process {} is an `emmctl record` itself, and what it runs is in its own recording",
        folder.inner());
  }

  /// Is the program an `emmctl run` that simulates the device itself?
  bool is_simulated_inside(const std::string& own) const {
    const auto name = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
    return program_.size() > 2 && name(program_[0]) == name(own) && program_[1] == "run" &&
           std::any_of(program_.begin() + 2, program_.end(), [](const std::string& word) {
             return word == "--device" || word.starts_with("--device=");
           });
  }

  /// A library of LD_PRELOAD, of the environment or among the program's words, that has functions
  /// of the driver. Empty if there is none.
  std::string preloaded() const {
    constexpr std::string_view kVariable = "LD_PRELOAD=";
    std::vector<std::string> given;
    if (const char* const all = std::getenv("LD_PRELOAD")) given.emplace_back(all);
    for (const auto& word : program_) {
      for (auto at = word.find(kVariable); at != word.npos; at = word.find(kVariable, at + 1))
        given.push_back(word.substr(at + kVariable.size()));
    }
    for (std::string_view left : given) {
      while (!left.empty()) {
        const auto end = std::min(left.find_first_of(" :"), left.size());
        std::string path(left.substr(0, end));
        left.remove_prefix(std::min(end + 1, left.size()));
        const auto functions = record::functions_of(path);
        if (functions &&
            std::find(functions->begin(), functions->end(), "cuInit") != functions->end())
          return path;
      }
    }
    return {};
  }

  /// The first page of a raw file, if it can be read.
  static std::optional<record::FileHeader> header_of(const std::string& raw) {
    std::ifstream file(raw, std::ios::binary);
    record::FileHeader header{};
    if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
    return header;
  }
  /// Did the process call cuInit and nothing that is recorded? Helpers of profilers do that.
  static bool has_no_calls(const std::string& raw) {
    const auto header = header_of(raw);
    return header && header->blocks == 0 && header->stopped == 0 && header->lost == 0 &&
           header->bypassed == 0;
  }
  /// Does a raw file lack calls that the options ask for?
  bool lacks_calls(const std::string& raw) const {
    const auto header = header_of(raw);
    const bool is_cut = duration_.empty() && signal_.empty();
    return !header || header->stopped != 0 || header->lost != 0 || header->bypassed != 0 ||
           header->unkept != 0 || header->unnumbered != 0 || (is_cut && header->cut != 0);
  }

  /// Says what a raw file has whose trace could not be written, and what it lacks.
  static void say_kept(Console& console, const std::string& raw) {
    auto words = text::format("the raw recording is kept: {}", raw);
    Nowhere nowhere;
    Counting counting(nowhere);
    if (const auto counts = read(raw, counting)) {
      words +=
          text::format(": {} {} in it, {} lost", text::grouped(counts->rows),
                       counts->rows == 1 ? "call is" : "calls are", text::grouped(counting.lost()));
    }
    const auto name = raw.substr(raw.rfind('/') + 1);
    console.say(words + text::format("; next: emmctl convert {} ELSEWHERE/{}.emmb",
                                     text::shell_word(raw), name.substr(0, name.find('.'))));
  }

  /// Stops the recording. First notes in the raw files of processes that live on that the recording
  /// was cut. `ended` has ended, and another process may have its id by now.
  static void stop_recording(const RawFolder& folder, pid_t ended) {
    for (const auto& raw : folder.files(ended)) {
      std::fstream file(raw, std::ios::binary | std::ios::in | std::ios::out);
      record::FileHeader header{};
      if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) continue;
      if (static_cast<pid_t>(header.pid) == ended || !is_alive(header.pid)) continue;
      const std::uint64_t cut = 1;
      file.seekp(offsetof(record::FileHeader, cut));
      file.write(reinterpret_cast<const char*>(&cut), sizeof cut);
    }
    folder.stop();
  }
  /// Names the processes that live on and have the library between them and the driver. Nothing of
  /// them is recorded from here on.
  static void say_who_goes_on(Console& console, const RawFolder& folder) {
    DIR* const processes = opendir("/proc");
    if (processes == nullptr) return;
    std::vector<std::uint64_t> found;
    while (const auto* entry = readdir(processes)) {
      const auto process = text::to_u64(entry->d_name);
      if (!process || static_cast<pid_t>(*process) == getpid() || !is_alive(*process)) continue;
      std::ifstream maps(text::format("/proc/{}/maps", *process));
      for (std::string line; std::getline(maps, line);) {
        if (line.find(folder.path() + "/") == line.npos) continue;
        found.push_back(*process);
        break;
      }
    }
    closedir(processes);
    std::sort(found.begin(), found.end());
    for (const auto process : found)
      console.say(text::format(
          "process {} goes on, and is not recorded any more; --follow records it to its end",
          process));
  }
  static bool is_alive(std::uint64_t process) {
    std::ifstream file(text::format("/proc/{}/stat", process));
    std::string line;
    if (!std::getline(file, line)) return false;
    const auto state = line.rfind(") ");  // skips the process name, which may contain anything
    return state != line.npos && line.find_first_of("ZX", state) != state + 2;
  }

  /// Runs the program and records what Python requests, without driver calls.
  Result<ExitCode> record_requests(Console& console, const RawFolder& folder, ProgramStart& start) {
    if (simulated_) {
      if (auto led = simulated_->lead_to(simulated_->driver()); !led) return led.error();
    }
    start.wake = [&](pid_t, Wake) {
      folder.keep();
      return std::nullopt;
    };
    auto end = run_program(start);
    if (!end) return std::move(end).error();
    std::string first;
    const bool kept = write_requests(console, folder, end->process, first);
    if (first.empty()) {
      whole_ = false;
      console.say(folder.inner() != 0 ? "nothing was recorded: " + words_of_inner(folder)
                                      : "nothing was recorded: " + std::string(kNoRequests));
    }
    if (!kept) folder.remove();
    return code_of(console, *end);
  }

  /// The program's own exit code, even if a trace could not be written; that was reported. With
  /// --require-trace a script sees it.
  ExitCode code_of(Console& console, const ProgramEnd& end) const {
    run_files::forget_write_error();
    if (simulated_) {
      simulated_->say(console, false, {});
      simulated_->leave_to_processes(console);
    }
    if (!require_ || whole_ || end.code != 0) return static_cast<ExitCode>(end.code);
    console.say("--require-trace: the program exited with 0, and its trace is not whole");
    return ExitCode::inconclusive;
  }

  /// Makes traces of what processes asked for, and removes what they left. Where no process has the
  /// output's name yet, `first` becomes the one that does. Returns whether a trace could not be
  /// made, so that what the process left is kept.
  bool write_requests(Console& console, const RawFolder& folder, pid_t process,
                      std::string& first) {
    bool kept = false;
    for (const auto& sign : folder.files(process, ".unrecorded")) {  // which has said why
      whole_ = false;
      unlink(sign.c_str());
    }
    for (const auto& file : folder.files(process, ".jsonl")) {
      struct stat about {};
      if (stat(file.c_str(), &about) != 0 || about.st_size == 0) {  // it asked for nothing
        unlink(file.c_str());
        continue;
      }
      const auto asked = process_of(file);
      if (first.empty()) first = asked;
      auto name = name_for(asked, first);
      // PyTorch's history goes into a file beside the one with the process's own name.
      if (file.find("-torch.", file.rfind('/')) != file.npos ||
          (level_ == "both" && !names_calls(file))) {
        const auto dot = name.find('.', name.rfind('/') + 1);
        name.insert(dot == name.npos ? name.size() : dot, "-torch");
      }
      const About about_it{.what = "operations", .reserved = name == output_};
      if (auto done = write_trace(console, file, name, about_it); !done) {
        console.say(describe(done.error()));
        console.say(text::format("what was recorded is kept: {}", file));
        whole_ = false;
        kept = true;
        continue;
      }
      unlink(file.c_str());
    }
    for (const auto& sign : folder.files(process, ".history")) {
      const auto number = sign.substr(sign.rfind('/') + 1);
      console.say(text::format(
          "PyTorch's history of process {} is lost: PyTorch writes it when Python ends, and this "
          "process ended before, by a signal, os._exit or exec",
          number.substr(0, number.find('.'))));
      if (first.empty()) first = number;  // so much was recorded
      whole_ = false;
      unlink(sign.c_str());
    }
    return kept;
  }

  /// Do these requests carry numbers that relate them to the driver's calls? PyTorch's history does
  /// not.
  static bool names_calls(const std::string& file) {
    auto source = format::ByteSource::open(file);
    if (!source) return false;
    constexpr std::size_t kHeader = 4096;  // bytes; the tool stands in the first line
    const auto begin = (*source)->peek(kHeader);
    return begin && begin->find("\"tool\":\"emmctl.record\"") != begin->npos;
  }

  static int number_of_signal(std::string_view name) {
    if (name.starts_with("SIG")) name.remove_prefix(3);
    return name == "USR1"   ? SIGUSR1
           : name == "USR2" ? SIGUSR2
           : name == "HUP"  ? SIGHUP
           : name == "CONT" ? SIGCONT
                            : 0;
  }

  /// Writes the traces of all processes. Returns true if a raw file gave no trace. Before the
  /// program's `end` all raw files are kept; at the end only those that gave none.
  bool write_traces(Console& console, const RawFolder& folder, pid_t process, double cost,
                    bool end) {
    auto files = folder.files(process);
    if (files.empty()) {
      whole_ = false;
      console.say(why_nothing(folder, end));
    } else if (folder.inner() != 0) {
      whole_ = false;
      console.say(words_of_inner(folder));
    }
    const auto without =
        std::stable_partition(files.begin(), files.end(), std::not_fn(has_no_calls));
    if (const auto count = files.end() - without; count != 0 && without != files.begin()) {
      for (auto file = without; end && file != files.end(); ++file) unlink(file->c_str());
      files.erase(without, files.end());
      console.say(text::format("{} more {} cuInit, and made no call that is recorded", count,
                               count == 1 ? "process called" : "processes called"));
    }
    std::string first = files.empty() ? std::string() : process_of(files.front());
    bool kept = false;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (lacks_calls(files[i])) whole_ = false;
      const auto name = name_for(process_of(files[i]), first);
      const About about{.what = "calls", .cost = cost, .reserved = name == output_};
      const auto requests =
          files[i].substr(0, files[i].size() - std::strlen(".emmraw")) + ".requests.jsonl";
      struct stat asked {};
      const bool asked_for = stat(requests.c_str(), &asked) == 0 && asked.st_size != 0;
      const bool has_requests = asked_for && names_calls(requests);
      // PyTorch's history also keeps its own file: it has the allocator's settings and no memory of
      // other libraries.
      const bool has_history = asked_for && !has_requests;
      auto done = write_trace(console, files[i], name, about, asked_for ? requests : std::string(),
                              has_history ? trace::merge_history : trace::merge_levels);
      if (!done && has_history) {
        console.say(describe(done.error()));
        done = write_trace(console, files[i], name, about);
      }
      if (done && end && level_ == "both" && !asked_for)
        console.say(text::format("{} has only driver calls: {}", name, kNoRequests));
      if (done) {
        if (end) unlink(files[i].c_str());
        if (end && has_requests) unlink(requests.c_str());
        continue;
      }
      kept = true;
      whole_ = false;
      console.say(describe(done.error()));
      if (end) say_kept(console, files[i]);
    }
    // The files that are left are of processes that called no driver, or are PyTorch's own
    // histories.
    return write_requests(console, folder, process, first) || kept;
  }

  /// What the line about a trace says of its source.
  struct About {
    std::string_view what;  ///< The noun for what is counted.
    double cost = 0;        ///< ns to record one; 0 if not known.
    bool reserved = false;  ///< It is the output that the user named.
  };

  static Result<trace::ImportCounts> read(const std::string& path, trace::OperationSink& sink) {
    auto source = format::ByteSource::open(path);
    if (!source) return std::move(source).error();
    auto importer = trace::detect(**source);
    if (!importer) return std::move(importer).error();
    return (*importer)->read(**source, sink, {.partial = true});
  }

  static Status write_trace(Console& console, const std::string& raw, const std::string& name,
                            const About& about, const std::string& requests = {},
                            decltype(trace::merge_levels)* merge = trace::merge_levels) {
    if (auto may = may_become_trace(name); !may) return may;
    auto sink =
        format::open_whole(name, about.reserved ? std::string_view() : "a process of the program");
    if (!sink) return std::move(sink).error();
    const auto writer = trace::make_writer(**sink, form_of(name));
    Counting counting(*writer);
    trace::EndingSink ending(counting);  // of a Python that was killed
    auto counts = requests.empty() ? read(raw, ending) : merge(requests, raw, counting);
    if (!counts) return std::move(counts).error();
    if (auto closed = (*sink)->close(); !closed) return closed.error();
    for (const auto& note : counts->notes) console.say(text::format("{}: {}", name, note));
    const auto count = counts->rows;
    auto words =
        text::format("{}: {} {}, {} allocated, at most {} live", name, text::grouped(count),
                     about.what.substr(0, about.what.size() - (count == 1 ? 1 : 0)),
                     units::bytes(counting.allocated()), units::bytes(counting.peak()));
    if (counting.lost() != 0) words += text::format(", {} lost", text::grouped(counting.lost()));
    if (counting.refused() != 0) words += text::format(", {} refused", counting.refused());
    if (about.cost > 0) {
      words +=
          text::format("; recording took about {} a call and {} in all, without its file",
                       units::ns(about.cost), units::ns(about.cost * static_cast<double>(count)));
    }
    if (struct stat made{}; stat(name.c_str(), &made) == 0 && S_ISREG(made.st_mode)) {
      words +=
          text::format("; next: emmctl {} {}", counting.wanted_memory() ? "explain" : "inspect",
                       text::shell_word(name));
    }
    console.say(words);
    run_files::note_told(name);
    return {};
  }

  std::vector<std::string> program_;
  std::optional<SimulatedProgram> simulated_;
  std::string device_, unknown_sizes_;
  std::string output_, duration_, signal_, most_, stacks_, level_ = "driver", through_ = "auto",
                                                           bypass_;
  std::uint64_t depth_ = 16;
  bool follow_ = false, require_ = false;
  bool whole_ = true;  ///< So far. What --require-trace asks for.
};

}  // namespace

extern constinit const Command record_command{
    "record",
    "Run any CUDA program and record its memory calls as a trace",
    false,
    make_run<RecordProgram>,
    Heading::traces,
    {{{"emmctl record -o run.emmb -- ./program", "Records a program from its start to its end."},
      {"emmctl record -o 'run.%p.emmb' --duration 60s -- python train.py",
       "Records each process of it for a minute."}}}};

}  // namespace emm
