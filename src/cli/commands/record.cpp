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
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/run_files.hpp"
#include "base/shell_word.hpp"
#include "base/units.hpp"
#include "cli/command.hpp"
#include "cli/load.hpp"
#include "cli/recorded_program.hpp"
#include "format/whole_file.hpp"
#include "record/raw.hpp"
#include "record/room_ahead.hpp"
#include "trace/importer.hpp"
#include "trace/merge_levels.hpp"
#include "trace/writer.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// Passes a recording on, and adds up what its last line tells.
class Counting final : public trace::OperationSink {
 public:
  explicit Counting(trace::OperationSink& to) : to_(to) {}

  Status on_header(const trace::Header& header) override { return to_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override {
    using trace::Op;
    if (operation.has(trace::Member::layer) && operation.layer == trace::Layer::backing)
      return to_.on_operation(operation);  // beneath what is counted
    const bool worked = operation.result.outcome == trace::Outcome::none ||
                        operation.result.outcome == trace::Outcome::ok;
    switch (operation.op) {
      case Op::memalloc:
      case Op::memallocmanaged:
        if (!worked) {
          ++refused_;
          break;
        }
        allocated_ += operation.size;
        live_ += operation.size;
        sizes_[key_of(operation.id)] = operation.size;
        peak_ = std::max(peak_, live_);
        break;
      case Op::free:
        if (const auto found = sizes_.find(key_of(operation.id)); found != sizes_.end()) {
          live_ -= found->second;
          sizes_.erase(found);
        }
        break;
      case Op::reset:
      case Op::context_destroy:
        live_ = 0;
        sizes_.clear();
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

 private:
  static std::uint64_t key_of(const trace::Id& id) {
    return id.is_number() ? id.number : std::hash<std::string_view>()(id.text);
  }

  trace::OperationSink& to_;
  std::unordered_map<std::uint64_t, std::uint64_t> sizes_;
  std::uint64_t allocated_ = 0, live_ = 0, peak_ = 0, refused_ = 0;
};

/// What a recorded call costs on this machine, as the recorder measures it; 0 where it cannot.
double cost_of_call(const std::string& recorder) {
  void* const library = dlopen(recorder.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto measure = reinterpret_cast<double (*)()>(dlsym(library, "emm_record_cost"));
  return measure != nullptr ? measure() : 0;  // it stays loaded: threads may have ends to run
}

/// The folder of the raw recordings: made here, and gone when all of it is in traces.
class RawFolder {
 public:
  static Result<RawFolder> make(const std::string& output) {
    RawFolder made;
    for (int again = 1; again < 1000; ++again) {
      made.path_ = again == 1 ? output + ".raw" : text::format("{}.{}.raw", output, again);
      if (mkdir(made.path_.c_str(), 0777) == 0) break;
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
    if (made.path_.find_first_of(":;") != std::string::npos) {
      rmdir(absolute);
      return fail(Errc::usage,
                  "{}: expected a path without : and ;, which LD_LIBRARY_PATH cannot hold",
                  made.path_);
    }
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
    return made;
  }

  const std::string& path() const noexcept { return path_; }
  /// Calls are recorded from here on, for the `window`-th time; 0: they are not.
  void set(std::uint32_t window) const noexcept {
    std::atomic_ref<std::uint32_t>(control_->on).store(window);
  }
  void stop() const noexcept { set(0); }
  record::Control& control() const noexcept { return *control_; }

  /// The raw files, that of `first` before the others, and others by name.
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
  void remove_files() const {
    for (const auto& file : files(0)) unlink(file.c_str());
  }
  void remove() const {
    unlink(control_path().c_str());
    rmdir(path_.c_str());
  }

 private:
  std::string control_path() const { return path_ + "/control"; }
  std::string path_;
  record::Control* control_ = nullptr;
};

class RecordProgram final : public CommandRun {
 public:
  explicit RecordProgram(Arguments& arguments) {
    arguments.program("PROGRAM", program_,
                      "The program and its arguments, best after --: it runs as itself");
    arguments.text("-o,--output", output_, "FILE",
                   "The trace: .emmb is compact, .json one document, else JSON Lines; .gz and .zst "
                   "pack; %p is the number of the process");
    arguments.text("--duration", duration_, "TIME",
                   "Records so long, writes the trace, and lets the program run on");
    arguments.text("--on-signal", signal_, "SIGNAL",
                   "Records from when emmctl gets this signal, until the next or for --duration: "
                   "USR1, USR2, HUP or CONT");
    arguments.text("--max-file-size", most_, "SIZE",
                   "Keeps the newest calls: a process writes no more raw bytes than that");
    arguments.choice("--through", through_, {"auto", "forwarding", "cupti"},
                     "The way in: a libcuda.so.1 that forwards, CUPTI's callbacks, or CUPTI where "
                     "a program passes the library by");
    arguments.choice("--stacks", stacks_, {"python", "native", "both"},
                     "Keeps the call stack of each call that gives or takes memory");
    arguments.count("--stack-depth", depth_, "How many frames of a stack are kept: 1 to 64");
    arguments.choice("--level", level_, {"driver", "request", "both"},
                     "What is recorded: the calls that the program and its libraries make to the "
                     "driver; what Python asks of Numba, CuPy and PyTorch; or both as one trace");
    arguments.footer(
        "The program finds a libcuda.so.1 of emmctl's before the driver's, by LD_LIBRARY_PATH; it "
        "passes every call on. Each process that the program starts has a trace of its own. A "
        "program that is killed leaves FILE.raw, which every command reads as it reads traces. The "
        "exit code is the program's.");
  }

  Result<ExitCode> run(Console& console) override {
    if (program_.empty()) return fail(Errc::usage, "expected a program to run, after --");
    if (output_.empty() || output_ == "-")
      return fail(Errc::usage, "-o: expected a file, since standard output is the program's");
    if (auto apart = run_files::reserve(output_, "-o"); !apart) return apart.error();
    ProgramStart start{.command = program_};
    std::uint64_t most = 0;
    std::optional<std::uint64_t> duration;
    if (!duration_.empty()) {
      auto time = units::parse_ns(duration_);
      if (!time) return std::move(time).error();
      duration = *time;
    }
    if (!signal_.empty()) {
      start.signal = number_of_signal(signal_);
      if (start.signal == 0)
        return fail(Errc::usage, "--on-signal {}: expected USR1, USR2, HUP or CONT", signal_);
    }
    if (!most_.empty()) {
      auto size = units::parse_bytes(most_);
      if (!size) return std::move(size).error();
      constexpr std::uint64_t kLeast = std::uint64_t{1} << 20, kMost = std::uint64_t{4} << 30;
      if (*size < kLeast || *size > kMost)
        return fail(Errc::usage, "--max-file-size {}: expected 1MiB to 4GiB", most_);
      most = *size;
    }
    if (depth_ < 1 || depth_ > 64)
      return fail(Errc::usage, "--stack-depth {}: expected 1 to 64", depth_);
    const bool asks = level_ != "driver", calls = level_ != "request";
    if (asks && !(duration_.empty() && signal_.empty()))
      return fail(Errc::usage, "--level {}: expected no --duration and no --on-signal", level_);
    std::string hooks;
    if (asks) {
      auto found = python_hooks(console.program());
      if (!found) return std::move(found).error();
      hooks = *std::move(found);
    }
    auto folder = RawFolder::make(plain_name());
    if (!folder) return std::move(folder).error();
    if (asks) {
      const char* const paths = std::getenv("PYTHONPATH");
      start.variables.emplace_back(
          "PYTHONPATH", paths != nullptr && *paths != '\0' ? hooks + ":" + paths : hooks);
      start.variables.emplace_back("EMM_RECORD_REQUESTS", folder->path() + "/%p.requests.jsonl");
    }
    if (!calls) return record_requests(console, *folder, start);
    auto door = DriverDoor::open(folder->path(), console.program());
    if (!door) {
      folder->remove();
      console.say(text::format("the program runs unrecorded: {}", door.error().message));
      auto end = run_program({.command = program_});
      if (!end) return std::move(end).error();
      return static_cast<ExitCode>(end->code);
    }
    if (through_ != "cupti") {
      for (auto& variable : door->variables()) start.variables.push_back(std::move(variable));
    }
    // Another tool's stays where nobody asked for CUPTI.
    const char* const injected = std::getenv("CUDA_INJECTION64_PATH");
    if (through_ == "cupti" || (through_ == "auto" && (injected == nullptr || *injected == '\0')))
      start.variables.push_back(door->injection());
    start.variables.emplace_back("EMM_RECORD_FOLDER", folder->path());
    if (asks) start.variables.emplace_back("EMM_RECORD_LIBRARY", door->recorder());
    if (!stacks_.empty()) {
      start.variables.emplace_back("EMM_RECORD_STACKS",
                                   stacks_ == "both" ? "python,native" : stacks_);
      start.variables.emplace_back("EMM_RECORD_DEPTH", text::format("{}", depth_));
    }
    if (most != 0) start.variables.emplace_back("EMM_RECORD_MOST", text::format("{}", most));
    if (start.signal != 0) {
      start.variables.emplace_back("EMM_RECORD_KEEP", "1");
      folder->stop();
    }
    std::uint32_t windows = start.signal != 0 ? 0 : 1;
    bool on = windows != 0, unwritten = false;
    const auto cost = cost_of_call(door->recorder());
    std::optional<record::RoomAhead> room;  // its thread begins after the fork
    start.wake = [&](pid_t process, Wake why) -> std::optional<std::uint64_t> {
      if (why == Wake::begun) {
        room.emplace(folder->path(), folder->control(),
                     record::RoomAhead::Limits{.file_bytes = most});
        if (on) return duration;
        console.say(text::format("kill -{} {} begins the recording", signal_, getpid()));
        return std::nullopt;
      }
      if (why == Wake::signal && !on) {
        on = true;
        folder->set(++windows);
        console.say("recording");
        return duration;
      }
      on = false;
      folder->stop();
      unwritten = write_traces(console, *folder, process, cost, false);
      return std::nullopt;
    };
    auto end = run_program(start);
    folder->stop();  // of processes that live on
    room.reset();
    if (!end) {
      door->remove();
      folder->remove();
      return std::move(end).error();
    }
    bool kept = false;
    if (windows == 0) {
      console.say(text::format("nothing was recorded: no {} came", signal_));
      folder->remove_files();
    } else if (on || unwritten) {
      kept = write_traces(console, *folder, end->process, cost, true);
    } else {
      folder->remove_files();  // their traces were written when recording ended
    }
    door->remove();
    if (!kept) folder->remove();
    return static_cast<ExitCode>(end->code);
  }

 private:
  /// The output without the number of a process in it.
  std::string plain_name() const {
    auto name = output_;
    for (auto at = name.find("%p"); at != name.npos; at = name.find("%p")) name.erase(at, 2);
    return name;
  }
  /// The trace of one process. The first has the name alone where that has no %p.
  std::string name_for(const std::string& raw, bool first) const {
    const auto begin = raw.rfind('/') + 1;
    const auto whole = raw.substr(begin);
    const auto process = whole.substr(
        0, std::min({whole.find("-torch."), whole.find(".requests"), whole.find(".emmraw")}));
    auto name = output_;
    const auto at = name.find("%p");
    if (at != name.npos) return name.replace(at, 2, process);
    if (first) return name;
    const auto slash = name.rfind('/');
    const auto dot = name.find('.', slash == name.npos ? 1 : slash + 2);
    return name.insert(dot == name.npos ? name.size() : dot, "." + process);
  }

  /// The folder with the module that Python imports first.
  static Result<std::string> python_hooks(const std::string& program) {
    const char* const given = std::getenv("EMM_PYTHON_PACKAGE");
    const auto folder = program.substr(0, program.rfind('/') + 1);
    std::vector<std::string> places = {folder + "../../../tools/python/emmctl",  // a checkout's
                                       folder + "../../../emmctl",               // a wheel's
                                       folder + "../lib/python3/dist-packages/emmctl"};
    if (given != nullptr && *given != '\0') places = {given};
    for (const auto& place : places) {
      char absolute[PATH_MAX];
      if (realpath((place + "/_at_start").c_str(), absolute) != nullptr)
        return std::string(absolute);
    }
    return fail(Errc::usage,
                "--level: emmctl's Python package is not here: expected EMM_PYTHON_PACKAGE to name "
                "its folder");
  }

  /// What Python asked for, without the calls of the driver.
  Result<ExitCode> record_requests(Console& console, const RawFolder& folder,
                                   const ProgramStart& start) const {
    auto end = run_program(start);
    if (!end) {
      folder.remove();
      return std::move(end).error();
    }
    bool any = false, kept = false;
    for (const auto& file : folder.files(end->process, ".jsonl")) {
      const auto failed = write_requests(console, file, end->process, any);
      if (failed) console.say(text::format("what was recorded is kept: {}", file));
      kept = kept || failed;
    }
    if (!any && !kept)
      console.say("nothing was recorded: no process imported Numba, CuPy or PyTorch and used them");
    if (!kept) folder.remove();
    return static_cast<ExitCode>(end->code);
  }

  /// The trace of what one process asked for, which goes. True where none could be made.
  bool write_requests(Console& console, const std::string& file, pid_t process, bool& any) const {
    struct stat about {};
    if (stat(file.c_str(), &about) != 0 || about.st_size == 0) {  // it asked for nothing
      unlink(file.c_str());
      return false;
    }
    const auto begin = file.rfind('/') + 1;
    const auto digits = file.find_first_not_of("0123456789", begin) - begin;
    auto name = name_for(file, file.compare(begin, digits, text::format("{}", process)) == 0);
    // PyTorch's history stands beside what has the process's own name.
    if (file.find("-torch.", begin) != file.npos || (level_ == "both" && !names_calls(file))) {
      const auto dot = name.find('.', name.rfind('/') + 1);
      name.insert(dot == name.npos ? name.size() : dot, "-torch");
    }
    any = true;
    auto done =
        write_trace(console, file, name, {.what = "operations", .reserved = name == output_});
    if (!done) {
      console.say(describe(done.error()));
      return true;
    }
    unlink(file.c_str());
    return false;
  }

  /// Did the hooks number these requests together with the driver's calls? PyTorch's history did
  /// not.
  static bool names_calls(const std::string& file) {
    auto source = format::ByteSource::open(file);
    if (!source) return false;
    constexpr std::size_t kHeader = 4096;
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

  /// True where a raw file is kept, since no trace could be made of it. Before the program's `end`
  /// all are.
  bool write_traces(Console& console, const RawFolder& folder, pid_t process, double cost,
                    bool end) const {
    const auto files = folder.files(process);
    if (files.empty()) {
      console.say(
          "nothing was recorded: no process called cuInit through libcuda.so.1 as the loader finds "
          "it (docs/recording.md says which programs are not seen)");
      return false;
    }
    bool kept = false;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto name = name_for(files[i], i == 0);
      const About about{.what = "calls", .cost = cost, .reserved = name == output_};
      const auto requests =
          files[i].substr(0, files[i].size() - std::strlen(".emmraw")) + ".requests.jsonl";
      struct stat asked {};
      const bool asked_for = stat(requests.c_str(), &asked) == 0 && asked.st_size != 0;
      const bool has_requests = asked_for && names_calls(requests);
      // PyTorch's history stays: it has the allocator's settings, and nothing that others took.
      const bool has_history = asked_for && !has_requests;
      auto done = write_trace(console, files[i], name, about, asked_for ? requests : std::string(),
                              has_history ? trace::merge_history : trace::merge_levels);
      if (!done && has_history) {
        console.say(describe(done.error()));
        done = write_trace(console, files[i], name, about);
      }
      if (done) {
        if (end) unlink(files[i].c_str());
        if (end && has_requests) unlink(requests.c_str());
        continue;
      }
      kept = true;
      console.say(describe(done.error()));
      if (end) console.say(text::format("the raw recording is kept: {}", files[i]));
    }
    // Of processes that called no driver, and PyTorch's own histories.
    bool any = true;
    for (const auto& file : folder.files(process, ".jsonl"))
      kept = write_requests(console, file, process, any) || kept;
    return kept;
  }

  /// What the line about a trace says of its source.
  struct About {
    std::string_view what;  ///< What is counted.
    double cost = 0;        ///< ns that recording one took; 0: not known.
    bool reserved = false;  ///< It is the output that was named.
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
    auto sink =
        format::open_whole(name, about.reserved ? std::string_view() : "a process of the program");
    if (!sink) return std::move(sink).error();
    const auto writer = trace::make_writer(**sink, form_of(name));
    Counting counting(*writer);
    auto counts = requests.empty() ? read(raw, counting) : merge(requests, raw, counting);
    if (!counts) return std::move(counts).error();
    if (auto closed = (*sink)->close(); !closed) return closed.error();
    for (const auto& note : counts->notes) console.say(text::format("{}: {}", name, note));
    const auto count = counts->rows;
    auto words =
        text::format("{}: {} {}, {} allocated, at most {} live", name, text::grouped(count),
                     about.what, units::bytes(counting.allocated()), units::bytes(counting.peak()));
    if (counting.refused() != 0) words += text::format(", {} refused", counting.refused());
    if (about.cost > 0) {
      words += text::format("; recording took about {} a call, {} in all", units::ns(about.cost),
                            units::ns(about.cost * static_cast<double>(count)));
    }
    words += text::format("; next: emmctl {} {}", counting.refused() != 0 ? "explain" : "inspect",
                          text::shell_word(name));
    console.say(words);
    return {};
  }

  std::vector<std::string> program_;
  std::string output_, duration_, signal_, most_, stacks_, level_ = "driver", through_ = "auto";
  std::uint64_t depth_ = 16;
};

}  // namespace

extern constinit const Command record_command{
    "record", "Run any CUDA program and record its memory calls as a trace", false,
    make_run<RecordProgram>};

}  // namespace emm
