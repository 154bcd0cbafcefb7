#include "commands/simulated_program.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "base/text.hpp"
#include "base/units.hpp"
#include "commands/program_values.hpp"
#include "commands/recorded_program.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "record/forwarding_library.hpp"
#include "standin/process_report.hpp"
#include "standin/visible.hpp"

namespace emm::cli {
namespace {

// Beside each library that is made here: how often each function was called, and their names.
constexpr std::string_view kCounts = ".counts", kNames = ".names";
constexpr const char* kFolderVariable = "EMM_STANDIN_FOLDER";

// All that <cuda.h> declares: a program that is bound when it is loaded finds each that it names.
constexpr std::string_view kDriverFunctions[] = {
#include "commands/driver_functions.def"
};

Status write_whole(const std::string& path, std::string_view bytes) {
  // Another process may make the same at the same time.
  const auto part = text::format("{}.{}", path, getpid());
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0)
    return fail(Errc::io_error, "{}: {}", path, std::strerror(errno));
  return {};
}

/// The names that the stand-ins for CUDA's libraries answer.
Result<std::set<std::string>> answered_names(const std::string& answers) {
  auto exports = record::exports_of(answers);
  if (!exports) return std::move(exports).error();
  std::set<std::string> names;
  for (auto& function : exports->functions) names.insert(std::move(function.name));
  return names;
}

/// Would the function give memory, or a handle to some? Its success would not be counted as memory,
/// and leave the caller's pointer as it was.
bool gives_memory(std::string_view name) {
  if (!name.starts_with("cu")) return false;
  for (const std::string_view part :
       {"AllocPitch", "MallocArray", "Malloc3D", "MallocMipmapped", "ArrayCreate", "Array3DCreate",
        "ImportExternal", "GreenCtx", "MulticastCreate", "MemPoolImport", "MemPoolExport",
        "GetMapped", "CtxCreate", "GetManaged", "GetGlobal", "AddMemAlloc", "GraphAddNode"}) {
    if (name.find(part) != name.npos) return true;
  }
  return false;
}

/// What a function of cuDNN's that is not answered returns. One that only sets, ends or computes
/// has succeeded; another one would give something.
constexpr std::int32_t kCudnnNotSupported = 3000;
std::int32_t cudnn_status(std::string_view name) {
  for (const std::string_view begin :
       {"cudnnSet", "cudnnDestroy", "cudnnDerive", "cudnnBatchNormalization"}) {
    if (name.starts_with(begin)) return 0;
  }
  return kCudnnNotSupported;
}

/// What the cuDNN at `path` calls its version: a program is built for one. It is asked in a process
/// of its own; 0 if it does not tell.
std::int32_t cudnn_version(const std::string& path) {
  int told[2];
  if (pipe2(told, O_CLOEXEC) != 0) return 0;
  const auto process = fork();
  if (process == 0) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    auto* const ask = library != nullptr
                          ? reinterpret_cast<std::size_t (*)()>(dlsym(library, "cudnnGetVersion"))
                          : nullptr;
    const auto version = ask != nullptr ? static_cast<std::int32_t>(ask()) : 0;
    (void)!::write(told[1], &version, sizeof version);
    _exit(0);
  }
  ::close(told[1]);
  std::int32_t version = 0;
  if (process < 0 || ::read(told[0], &version, sizeof version) != sizeof version) version = 0;
  ::close(told[0]);
  if (process > 0) waitpid(process, nullptr, 0);
  return version;
}

/// The number in "libcudart.so.13"; empty for other libraries.
std::string cudart_major(const std::string& soname) {
  const auto at = soname.find(".so.");
  if (!soname.starts_with("libcudart") || at == soname.npos) return {};
  const auto version = soname.substr(at + std::strlen(".so."));
  return version.substr(0, version.find('.'));
}

/// Where the functions are that a made library leads to.
struct Answers {
  std::string opener;    ///< libemm-answers.so.
  std::string answered;  ///< The library whose functions are answered.
  std::string target{};  ///< The one that they are looked up in; empty: the opener.
  std::int32_t cudnn{};  ///< The version of cuDNN, whose functions have statuses of their own.
};

/// Makes `made`, which stands in for a library that exports `exports`.
Status make_library(const Answers& answers, const std::string& made,
                    record::LibraryExports exports) {
  auto names = answered_names(answers.answered);
  if (!names) return std::move(names).error();
  record::ForwardingLibrary library{.soname = std::move(exports.soname),
                                    .opener = answers.opener,
                                    .open = "emm_standin_open",
                                    .functions = std::move(exports.functions),
                                    .settings = {}};
  std::string counted;
  std::size_t counters = 0;
  for (auto& function : library.functions) {
    auto plain = function.name;
    for (const std::string_view of_thread : {"_ptsz", "_ptds"}) {
      if (plain.ends_with(of_thread)) plain.resize(plain.size() - of_thread.size());
    }
    function.counted = names->count(plain) == 0 && names->count(function.name) == 0;
    if (!function.counted) continue;
    constexpr std::int32_t kNotSupported = 801;  // of the driver, and of cudart
    auto is_refused = gives_memory(function.name);
    if (is_refused) function.answer = kNotSupported;
    if (answers.cudnn != 0 && function.name != "cudnnGetVersion") {
      function.answer = cudnn_status(function.name);
      is_refused = function.answer != 0;
    } else if (answers.cudnn != 0) {
      function.answer = answers.cudnn;
    }
    counted += (is_refused ? "-" : "") + function.name + '\n';
    ++counters;
  }
  if (!answers.target.empty()) library.settings.emplace_back("EMM_STANDIN_TARGET", answers.target);
  library.settings.emplace_back("EMM_STANDIN_COUNTS", made + std::string(kCounts));
  if (auto major = cudart_major(library.soname); !major.empty())
    library.settings.emplace_back("EMM_STANDIN_CUDART", std::move(major));
  const auto bytes = record::build(library);
  if (bytes.empty())
    return fail(Errc::not_supported, "{}: {}", "--device sim", std::strerror(ENOTSUP));
  if (auto written = write_whole(made + std::string(kNames), counted); !written) return written;
  // What others count meanwhile stays.
  const auto counts = made + std::string(kCounts);
  const int file = ::open(counts.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  constexpr std::size_t kPage = 4096;  // bytes: the counters are mapped in whole pages
  const auto size = (counters * sizeof(std::uint64_t) + kPage - 1) / kPage * kPage;
  const bool sized = file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0;
  if (file >= 0) ::close(file);
  if (!sized) return fail(Errc::io_error, "{}: {}", counts, std::strerror(errno));
  return write_whole(made, bytes);
}

/// Where the program's machine has no libcudart, it gets one of the functions that are answered.
Status make_cudart(const std::string& folder, const std::string& answers) {
  auto names = answered_names(answers);
  if (!names) return std::move(names).error();
  for (const std::string soname : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    record::LibraryExports exports{.soname = soname, .functions = {}};
    for (const auto& name : *names) {
      const bool is_its = name.starts_with("cuda") || name.starts_with("__cuda");
      if (is_its && name.find("_of_1") == name.npos)
        exports.functions.push_back({.name = name, .version = soname});
    }
    if (auto made = make_library({answers, answers}, folder + "/" + soname, std::move(exports));
        !made)
      return made;
  }
  return {};
}

std::vector<standin::ProcessReport> reports_in(const std::string& folder) {
  std::vector<standin::ProcessReport> found;
  for (const auto& name : files_in(folder)) {
    if (!name.starts_with("process.")) continue;
    std::ifstream file(folder + "/" + name, std::ios::binary);
    standin::ProcessReport report;
    if (file.read(reinterpret_cast<char*>(&report), sizeof report) &&
        report.version == standin::ProcessReport::kVersion &&
        report.devices <= standin::ProcessReport::kMostDevices)
      found.push_back(report);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.process < b.process; });
  return found;
}

/// The functions that were answered by a counted success, with their libraries: most calls first.
struct Stub {
  std::string library, function;
  std::uint64_t calls = 0;
  bool refused = false;
};
std::vector<Stub> stubs_in(const std::string& folder) {
  std::vector<Stub> found;
  for (const auto& file : files_in(folder)) {
    if (!file.ends_with(kNames)) continue;
    const auto made = file.substr(0, file.size() - kNames.size());
    const auto library = made.substr(made.find("lib"));
    std::ifstream names(folder + "/" + file);
    std::ifstream counts(folder + "/" + made + std::string(kCounts), std::ios::binary);
    std::uint64_t calls = 0;
    for (std::string name;
         std::getline(names, name) && counts.read(reinterpret_cast<char*>(&calls), sizeof calls);) {
      const bool refused = name.starts_with('-');
      if (calls != 0) found.push_back({library, name.substr(refused ? 1 : 0), calls, refused});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Stub& a, const Stub& b) { return a.calls > b.calls; });
  return found;
}

std::string size_words(std::uint64_t bytes) {
  return text::format("{} ({} bytes)", units::bytes(bytes), text::grouped(bytes));
}

/// Has the text an option of that name?
bool has_option(std::string_view options, std::string_view key) {
  for (auto at = options.find(key); at != options.npos; at = options.find(key, at + 1)) {
    if ((at == 0 || options[at - 1] == ',' || options[at - 1] == ':') &&
        options.substr(at + key.size()).starts_with('='))
      return true;
  }
  return false;
}

/// The processes that look for CUDA's libraries in the folder.
std::vector<pid_t> processes_with(const std::string& folder) {
  std::vector<pid_t> found;
  const auto variable = '\0' + text::format("{}={}", kFolderVariable, folder) + '\0';
  for (const auto& name : files_in("/proc")) {
    const auto process = text::to_u64(name);
    if (!process) continue;
    // An iterator would throw where the process ends meanwhile.
    std::ostringstream all;
    all << '\0' << std::ifstream("/proc/" + name + "/environ", std::ios::binary).rdbuf();
    if (all.view().find(variable) != std::string::npos)
      found.push_back(static_cast<pid_t>(*process));
  }
  return found;
}

/// Waits until no process has the folder, and removes it. Called in a forked child.
[[noreturn]] void remove_after_processes(const std::string& folder) {
  setsid();
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  {
    const Unfinished left(folder);
    for (auto going = processes_with(folder); !going.empty(); going = processes_with(folder)) {
      const int process = static_cast<int>(syscall(SYS_pidfd_open, going.front(), 0));
      pollfd ended{.fd = process, .events = POLLIN, .revents = 0};
      constexpr int kAgainMs = 1000;  // it may have become another program
      poll(&ended, process >= 0 ? 1 : 0, kAgainMs);
      if (process >= 0) close(process);
    }
  }
  _exit(0);
}

/// The options with the profile's whole path, since the program may go to another folder.
std::string with_whole_path(const std::string& options) {
  constexpr std::string_view kKey = "profile=";
  const auto at = (',' + options).find(text::format(",{}", kKey));
  if (at == options.npos) return options;
  const auto begin = at + kKey.size(), end = std::min(options.find(',', begin), options.size());
  char whole[PATH_MAX];
  if (realpath(options.substr(begin, end - begin).c_str(), whole) == nullptr) return options;
  return options.substr(0, begin) + whole + options.substr(end);
}

/// Why the answer is that of a part of a run, where its ranks or its values tell it.
std::string cut_of(const SimulatedProgram::Answer& answer) {
  const auto& ranks = answer.ranks;
  if (!ranks.differing.empty()) return ranks.differing.front();
  if (!ranks.gone.empty()) return ranks.gone.front();
  if (!ranks.waiting.empty())
    return text::format("no rank went on for {} s; rank {} waited in {}", ranks.quiet_s,
                        ranks.waiting.front().rank, ranks.waiting.front().what);
  if (!answer.values.endless.empty())
    return text::format("the loop at {} waits for a value that is not known",
                        answer.values.endless);
  if (answer.times_plans)
    return "torch.backends.cudnn.benchmark was on, whose plans' workspaces are not counted";
  return {};
}

}  // namespace

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return found;
  while (const auto* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
  }
  closedir(opened);
  std::sort(found.begin(), found.end());
  return found;
}

std::string standin_folder(const std::string& executable) {
  const auto folder = executable.substr(0, executable.rfind('/') + 1);
  for (const auto* place : {"../standin", "../lib/emmctl/standin"}) {
    char found[PATH_MAX];
    if (realpath((folder + place).c_str(), found) != nullptr) return found;
  }
  return {};
}

Status make_stand_in(const std::string& real, const std::string& made, const std::string& program) {
  auto exports = record::exports_of(real);
  if (!exports) return std::move(exports).error();
  if (exports->soname.empty()) exports->soname = real.substr(real.rfind('/') + 1);
  const auto answers = standin_folder(program) + "/libemm-answers.so";
  Answers all{.opener = answers, .answered = answers};
  if (exports->soname.starts_with("libcudnn.")) {
    all.cudnn = cudnn_version(real);
    if (all.cudnn == 0) return fail(Errc::io_error, "{}: {}", real, "it tells no version");
  }
  return make_library(all, made, *std::move(exports));
}

Result<SimulatedProgram> SimulatedProgram::make(const std::string& device,
                                                const std::string& capacity,
                                                const std::string& program) {
  SimulatedProgram made;
  if (device != "sim" && !device.starts_with("sim:")) {
    return fail(Errc::usage,
                "--device {}: expected sim, or sim:gpu=NAME,capacity=SIZE,devices=N; without "
                "--device the program takes the real driver",
                device);
  }
  auto options = device.size() > 4 ? device.substr(4) : std::string();
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!has_option(options, key))
      options += text::format("{}{}={}", options.empty() ? "" : ",", key, value);
  };
  if (!capacity.empty()) {
    if (has_option(options, "capacity"))
      return fail(Errc::usage, "--capacity {} --device {}: expected one of them", capacity, device);
    add("capacity", capacity);
  }
  made.given_ = text::format("sim{}{}", options.empty() ? "" : ":", options);
  options = with_whole_path(options);
  // Work is done as it comes, which costs no time here; memory reads as zero, and lies where the
  // card of a program from its start has it.
  add("order", "early");
  add("costs", "none");
  add("content", "zero");
  add("addresses", "driver");
  made.device_ = "sim:" + options;
  auto platform = open_platform(made.device_, {});
  if (!platform) return std::move(platform).error();
  made.card_ = (*platform)->gpu()->device;
  made.devices_ = (*platform)->device_count();

  made.standins_ = standin_folder(program);
  if (made.standins_.empty() || access(made.driver().c_str(), R_OK) != 0) {
    return fail(Errc::io_error,
                "the stand-ins are not beside {}: expected them in ../lib/emmctl/standin", program);
  }
  char whole[PATH_MAX];
  made.maker_ = realpath(program.c_str(), whole) != nullptr ? whole : program;
  made.hooks_ = python_hooks(program);
  auto folder = Unfinished::temporary_folder("sim");
  if (!folder) return std::move(folder).error();
  made.folder_ = *std::move(folder);
  if (auto cudart = make_cudart(made.folder(), made.standins_ + "/libemm-answers.so"); !cudart)
    return cudart.error();
  const auto nvml = made.folder() + "/libnvidia-ml.so";
  for (const auto* name : {"", ".1"}) {
    if (symlink((made.standins_ + "/libnvidia-ml.so.1").c_str(), (nvml + name).c_str()) != 0)
      return fail(Errc::io_error, "{}: {}", nvml, std::strerror(errno));
  }
  return made;
}

Status SimulatedProgram::assume(const std::string& unknown_sizes) {
  if (unknown_sizes.empty()) return {};
  if (unknown_sizes != "uniform" && unknown_sizes != "all" && unknown_sizes != "none") {
    double share = -1;
    const auto* const end = unknown_sizes.data() + unknown_sizes.size();
    const auto read = std::from_chars(unknown_sizes.data(), end, share);
    if (read.ec != std::errc{} || read.ptr != end || !(share >= 0 && share <= 1))
      return fail(Errc::usage,
                  "--unknown-sizes {}: expected uniform, all, none, or a share from 0 "
                  "to 1",
                  unknown_sizes);
  }
  unknown_sizes_ = unknown_sizes;
  return {};
}

std::vector<std::string> SimulatedProgram::start_ranks(
    const std::vector<std::string>& program) const {
  const auto ranks = ranks_.words();
  const auto slash = ranks.find('/');
  std::vector<std::string> command{
      maker_, "start-ranks", "--",
      text::format("{} of {}", ranks.substr(0, slash), ranks.substr(slash + 1)),
      text::format("{}", devices_)};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

Status SimulatedProgram::assume_cudnn(const std::string& workspace) {
  has_cudnn_ = workspace != "off";
  if (workspace.empty() || workspace == "fitted" || !has_cudnn_) return {};
  std::uint64_t bytes = 0;
  if (workspace != "none") {
    auto size = units::parse_bytes(workspace);
    if (!size)
      return fail(Errc::usage,
                  "--cudnn-workspace {}: expected fitted, none, off, or a size as 64MiB",
                  workspace);
    bytes = *size;
  }
  cudnn_workspace_ = bytes;
  return {};
}

Status SimulatedProgram::lead_to(const std::string& path) const {
  const auto cannot = [&] {
    return fail(Errc::io_error, "{}: {}", folder(), std::strerror(errno));
  };
  // Under this name, the loader is not led elsewhere.
  const auto target = folder() + "/target.so", library = folder() + "/libcuda.so.1";
  if (symlink(path.c_str(), target.c_str()) != 0) return cannot();
  // A program that is bound when it is loaded wants to find each function that it names.
  auto answered = record::exports_of(driver());
  if (!answered) return std::move(answered).error();
  record::LibraryExports exports{.soname = "libcuda.so.1",
                                 .functions = std::move(answered->functions)};
  // What C++ leaves visible in a library of ours is nobody else's, and would be bound to this one.
  std::erase_if(exports.functions, [](const record::ExportedFunction& function) {
    return !function.name.starts_with("cu") && !function.name.starts_with("emm_");
  });
  std::set<std::string_view> names;
  for (const auto& function : exports.functions) names.insert(function.name);
  std::vector<record::ExportedFunction> others;
  const std::set<std::string_view> known(std::begin(kDriverFunctions), std::end(kDriverFunctions));
  for (const auto name : kDriverFunctions) {
    // The first form of a function that has a second one has sizes of 32 bits: nobody calls it.
    const bool is_old = known.count(std::string(name) + "_v2") != 0;
    if (names.count(name) == 0 && !is_old) others.push_back({.name = std::string(name)});
  }
  exports.functions.insert(exports.functions.end(), others.begin(), others.end());
  for (auto& function : exports.functions) function.version.clear();
  const Answers answers{
      .opener = standins_ + "/libemm-answers.so", .answered = driver(), .target = target};
  if (auto made = make_library(answers, library, std::move(exports)); !made) return made;
  if (symlink("libcuda.so.1", (folder() + "/libcuda.so").c_str()) != 0) return cannot();
  return {};
}

std::optional<std::string> SimulatedProgram::all_devices() const {
  const char* const words = std::getenv("CUDA_VISIBLE_DEVICES");
  if (words == nullptr) return std::nullopt;
  const auto first = text::trim(std::string_view(words).substr(0, std::strcspn(words, ",")));
  const auto digits = first.substr(first.starts_with('+') ? 1 : 0);
  int number = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (first.starts_with(standin::kUuids) || (number >= 0 && number < devices_)) return std::nullopt;
  std::vector<std::string> all;
  for (int device = 0; device < devices_; ++device) all.push_back(text::format("{}", device));
  return text::join(all, ",");
}

std::vector<std::pair<std::string, std::string>> SimulatedProgram::variables(
    Console& console) const {
  const char* const audit = std::getenv("LD_AUDIT");
  auto redirect = standins_ + "/libemm-redirect.so";
  if (audit != nullptr && *audit != '\0') redirect += std::string(":") + audit;
  std::vector<std::pair<std::string, std::string>> all{
      {"LD_AUDIT", redirect},           {kFolderVariable, folder()},
      {"EMM_STANDIN_DRIVER", driver()}, {"EMM_STANDIN_DEVICE", device_},
      {"EMM_STANDIN_MAKER", maker_},    {standin::kProgramFolder, folder()}};
  // What is compiled here was not timed on the card: no run on the card may find it.
  all.emplace_back("TORCHINDUCTOR_CACHE_DIR", folder() + "/inductor");
  all.emplace_back("TRITON_CACHE_DIR", folder() + "/triton");
  if (has_cudnn_)
    all.emplace_back("EMM_STANDIN_CUDNN",
                     cudnn_workspace_ ? text::format("{}", *cudnn_workspace_) : "fitted");
  if (ranks_.all != 0) all.emplace_back("EMM_STANDIN_RANKS", ranks_.words());
  if (auto shown = all_devices()) {
    console.say(
        text::format("CUDA_VISIBLE_DEVICES={} names no simulated device; the program sees {}",
                     std::getenv("CUDA_VISIBLE_DEVICES"),
                     devices_ == 1 ? "the one that there is" : text::format("all {}", devices_)));
    all.emplace_back("CUDA_VISIBLE_DEVICES", *std::move(shown));
  }
  if (!hooks_.empty()) {
    all.emplace_back("PYTHONPATH", before_python_path(hooks_));
    all.emplace_back("EMM_STANDIN_VALUES", unknown_sizes_);
  }
  return all;
}

void SimulatedProgram::leave_to_processes(Console& console) const {
  const auto going = processes_with(folder());
  if (going.empty()) return;
  std::vector<std::string> numbers;
  for (const auto process : going) numbers.push_back(text::format("{}", process));
  console.say(text::format("process {} {} on; {}, which has the device, is removed afterwards",
                           text::join(numbers), going.size() == 1 ? "goes" : "go", folder()));
  // What led to the recorder leads to the device now.
  const auto target = folder() + "/target.so", next = target + ".next";
  if (symlink(driver().c_str(), next.c_str()) == 0) rename(next.c_str(), target.c_str());
  folder_->set_whole();
  if (fork() == 0) remove_after_processes(folder());
}

namespace {

/// What the processes took, before it is judged.
struct DeviceUse {
  std::uint64_t tables = 0;  ///< How often a static cudart asked for tables.
  std::uint64_t bytes = 0;   ///< The sum of all peaks.
  std::vector<std::vector<std::string>> rows{
      {"device", "process", "program", "peak", "peak, bytes", "refused"}};
};

/// Adds up the reports into `answer`: of each device's number, the node where it is fullest.
/// `devices_of_node` is 0 where all processes are on one node.
DeviceUse add_up(const std::vector<standin::ProcessReport>& reports, std::uint64_t devices_of_node,
                 SimulatedProgram::Answer& answer) {
  DeviceUse use;
  // Ranks share a device on one node alone: each node has a device of that number.
  std::map<std::pair<std::uint64_t, std::uint64_t>, SimulatedProgram::Device> devices;
  for (const auto& report : reports) {
    answer.kernels += report.kernels;
    answer.unread += report.unread;
    use.tables += report.tables;
    for (std::uint64_t i = 0; i < report.devices; ++i) {
      const auto& device = report.device[i];
      if (device.peak == 0 && device.refused == 0) continue;
      const auto node = devices_of_node != 0 ? report.rank / devices_of_node : std::uint64_t{0};
      auto& all = devices[{i, node}];
      all.device = i;
      all.total = device.total;
      all.context = device.context;
      all.counts_libraries = device.counts_libraries != 0;
      all.libraries += device.libraries;
      all.peak += device.peak;
      ++all.processes;
      use.bytes += device.peak - std::min(device.peak, device.libraries);
      if (device.refused != 0 && all.refused == 0) {
        all.first_refused = device.first_refused_size;
        all.first_refused_held = device.first_refused_held;
        all.is_library_refused = device.first_refused_library != 0;
      }
      all.refused += device.refused;
      answer.refused = answer.refused || device.refused != 0;
      use.rows.push_back({text::format("{}", i), text::format("{}", report.process), report.command,
                          units::bytes(device.peak), text::grouped(device.peak),
                          text::format("{}", device.refused)});
    }
  }
  for (const auto& [place, device] : devices) {
    const bool is_first = answer.devices.empty() || answer.devices.back().device != device.device;
    if (is_first) answer.devices.push_back(device);
    auto& fullest = answer.devices.back();
    if (!is_first &&
        std::pair(device.refused, device.peak) > std::pair(fullest.refused, fullest.peak))
      fullest = device;
  }
  return use;
}

/// Says whether what was taken of a device fits on it. `where` is its name.
void say_whether_it_fits(Console& console, const SimulatedProgram::Device& device,
                         const std::string& where, bool is_all_counted) {
  const auto capacity = device.capacity();
  if (device.refused != 0) {
    const auto wanted = device.first_refused_held + device.first_refused;
    console.say(text::format(
        "it does not fit as it is: {} refused {} {} for want of memory; the first was of {}{}, "
        "when the process held {} of {}{}",
        where, device.refused, device.refused == 1 ? "request" : "requests",
        size_words(device.first_refused),
        device.is_library_refused ? " by a library of CUDA's or for PyTorch's kernels" : "",
        units::bytes(device.first_refused_held), size_words(capacity),
        wanted > capacity ? ": it lacked " + units::bytes(wanted - capacity) : std::string()));
  } else if (!is_all_counted) {
    console.say(text::format("at most {} of the {} of {} were counted", size_words(device.peak),
                             units::bytes(capacity), where));
  } else if (device.peak <= capacity) {
    console.say(text::format(
        "it fits: at most {} of the {} of {}; {} are left{}", size_words(device.peak),
        units::bytes(capacity), where, units::bytes(device.left()),
        device.is_doubted() ? ", and a card's libraries and kernels take some hundred MiB, "
                              "which are not counted"
                            : ""));
  } else {
    console.say(text::format(
        "{} processes took {} of {} together, each at its own peak, which is more than its {}: "
        "whether it fits depends on when the peaks are",
        device.processes, size_words(device.peak), where, units::bytes(capacity)));
  }
}

/// Says what libraries had of the peak, and what a context takes of the device besides. `card` is
/// what the context was measured on. `is_doubted`: it was said that what libraries take is missing.
void say_context(Console& console, const SimulatedProgram::Device& device, std::string_view card,
                 bool is_doubted) {
  const auto& measured = gpu_profiles().front();
  const auto& libraries = *measured.libraries;
  if (device.libraries != 0) {
    console.say(text::format(
        "at its peak, {} of it were CUDA's libraries', streams' and PyTorch's kernels', "
        "as measured on an H200 ({})",
        units::bytes(device.libraries), libraries.source));
  }
  if (device.context != 0) {
    console.say(text::format("besides, {} of {} are never free: the context, as measured on {}",
                             units::bytes(device.context), units::bytes(device.total), card));
  } else {
    console.say(
        text::format("besides, a context takes memory of a real card, which is not "
                     "counted here; an H200's takes {}",
                     units::bytes(measured.context)));
  }
  if (!device.counts_libraries && !is_doubted) {
    console.say(
        text::format("what CUDA's libraries and PyTorch's kernels take is not counted; in most "
                     "trainings on an H200 it was {}",
                     units::bytes(libraries.of_training())));
  }
}

/// Says what the run did not do as a card would: kernels, and copies whose content is not kept.
void say_what_was_skipped(Console& console, const SimulatedProgram::Answer& answer) {
  if (answer.kernels != 0) {
    console.say(text::format("{} {} skipped: what a program reads back is zero, or what it wrote",
                             text::grouped(answer.kernels),
                             answer.kernels == 1 ? "kernel was" : "kernels were"));
  }
  if (answer.unread != 0) {
    console.say(
        text::format("{} were copied to the device in pieces above 1 MiB, or when 1 GiB was kept, "
                     "whose content is not kept",
                     units::bytes(answer.unread)));
  }
}

/// Says which functions were answered by a counted success or a refusal. `lists`: each of them.
void say_stubs(Console& console, const std::vector<Stub>& called, bool lists) {
  if (called.empty()) return;
  std::uint64_t calls = 0;
  std::string refused;
  for (const auto& stub : called) {
    calls += stub.calls;
    if (stub.refused) refused += (refused.empty() ? "" : ", ") + stub.function;
  }
  if (!refused.empty()) console.say(text::format("not stood in for, and so refused: {}", refused));
  console.say(text::format("{} {} no answer of {} own, and got a stand-in's in {} {}{}",
                           called.size(), called.size() == 1 ? "function has" : "functions have",
                           called.size() == 1 ? "its" : "their", text::grouped(calls),
                           calls == 1 ? "call" : "calls",
                           lists ? ":" : "; --explain-stubs lists them"));
  if (!lists) return;
  std::vector<std::vector<std::string>> listed{{"library", "function", "calls"}};
  for (const auto& stub : called)
    listed.push_back({stub.library, stub.function, text::grouped(stub.calls)});
  console.aside(format::columns("llr", listed));
}

}  // namespace

bool SimulatedProgram::is_used(const std::vector<standin::ProcessReport>& reports) const {
  if (!reports.empty()) return true;
  const auto files = files_in(folder());
  return std::any_of(files.begin(), files.end(), [](const std::string& file) {
    return file.ends_with(kNames) && !file.starts_with("lib");  // the folder's own begin so
  });
}

void SimulatedProgram::say_memory(Console& console, const Answer& answer) const {
  if (answer.devices.empty())
    console.say(text::format("the program used the simulated {}, and took no memory of it", card_));
  const bool has_ranks = !answer.ranks.ranks.empty();
  const auto* const card = has_option(given_, "profile") ? "the card of the profile" : "an H200";
  if (has_ranks) say_ranks(console, answer.ranks, card_);
  for (const auto& device : answer.devices) {
    const bool is_said = has_ranks && (device.refused != 0 || device.peak <= device.capacity());
    if (is_said) continue;  // by say_ranks()
    say_whether_it_fits(console, device,
                        answer.devices.size() == 1
                            ? text::format("the simulated {}", card_)
                            : text::format("device {}, a simulated {}", device.device, card_),
                        !answer.times_plans);
    if (!has_ranks) say_context(console, device, card, !answer.times_plans && device.is_doubted());
  }
  if (has_ranks && !answer.devices.empty()) {
    auto tightest = answer.devices.front();
    tightest.libraries = answer.ranks.ranks.front().libraries;
    say_context(console, tightest, card, false);
  }
  say_nccl(console, answer.ranks);
}

void SimulatedProgram::say_workspaces(Console& console, const Answer& answer) const {
  if (answer.times_plans) {
    console.say(
        "torch.backends.cudnn.benchmark was on, so whether it fits is not known: on a card, cuDNN "
        "times plans whose workspaces are far larger, which are not counted (an H200 allocated "
        "9.5 GB for ResNet-50, and 4.5 GB without it); switch it off, or say --cudnn-workspace "
        "SIZE");
  }
  if (access((folder() + "/planned.cudnn").c_str(), F_OK) != 0) return;
  console.say(cudnn_workspace_
                  ? text::format("each of cuDNN's plans was taken to have a workspace of {}, as "
                                 "--cudnn-workspace says; on a card each has its own",
                                 units::bytes(*cudnn_workspace_))
                  : std::string("the workspaces of cuDNN's convolutions are those of a rule that "
                                "was fitted on an H200: docs/without-a-gpu.md says how far it is "
                                "off"));
}

SimulatedProgram::Answer SimulatedProgram::say(Console& console, bool stubs,
                                               std::string_view next) const {
  Answer answer;
  const auto reports = reports_in(folder());
  answer.used = is_used(reports);
  const auto say_cut = [&](std::string words) {
    console.say(words);
    if (answer.cut.empty()) answer.cut = std::move(words);
  };
  answer.values = values_in(folder());
  answer.times_plans = answer.values.times_plans && has_cudnn_ && !cudnn_workspace_;
  answer.ranks = ranks_in(folder(), reports, answer.values, ranks_.all, card_);
  if (!answer.used) {
    say_waits(console, answer.ranks);
    answer.cut = cut_of(answer);
    console.say(
        "nothing is known of its memory: no process of the program used a CUDA device through "
        "libcuda or a shared libcudart (docs/without-a-gpu.md says which programs cannot)");
    return answer;
  }

  const auto devices_of_node =
      ranks_.all != 0 ? static_cast<std::uint64_t>(devices_) : std::uint64_t{0};
  const auto use = add_up(reports, devices_of_node, answer);
  answer.needs_tables = use.tables != 0 && use.bytes == 0;
  const bool calls_cudnn =
      use.tables != 0 && access((folder() + "/loaded.cudnn").c_str(), F_OK) == 0;
  if (calls_cudnn) {
    console.say(
        "cuDNN is switched off, and the program called it: its functions fail, and what they would "
        "take is not counted");
  }
  if (answer.needs_tables) {
    if (calls_cudnn) return answer;
    say_cut(
        "the program has a cudart that is linked in statically, which asks the driver for tables "
        "that only NVIDIA's has: it cannot run without a GPU");
    return answer;
  }

  say_memory(console, answer);
  const bool has_ranks = !answer.ranks.ranks.empty();
  constexpr std::size_t kHeadAndOne = 2;  // a table of one process says what was said above
  if (has_ranks) {
    show_ranks(console, answer.ranks);
  } else if (use.rows.size() > kHeadAndOne) {
    console.aside(format::columns("lllrrr", use.rows));
  }
  say_absent(console, answer.ranks);
  say_waits(console, answer.ranks);
  for (const auto& report : reports) {
    if (report.waited == 0) continue;
    answer.endless = true;
    say_cut(
        text::format("a loop of {} (process {}) read the same {} bytes of the device again and "
                     "again, which only "
                     "a kernel would change, and was ended: the answer is that of the run so far",
                     report.command, report.process, report.waited));
  }
  if (!has_ranks) say_peaks(console, answer.values);
  answer.endless |= say_values(console, answer.values, unknown_sizes_);
  if (answer.cut.empty()) answer.cut = cut_of(answer);
  say_workspaces(console, answer);
  say_what_was_skipped(console, answer);
  say_stubs(console, stubs_in(folder()), stubs);
  // A recording has nothing of what libraries took.
  const bool is_told = std::none_of(answer.devices.begin(), answer.devices.end(),
                                    [](const Device& one) { return one.is_library_refused; });
  if (!next.empty() && is_told) console.say(text::format("next: {}", next));
  return answer;
}

std::optional<bool> SimulatedProgram::Answer::fits() const noexcept {
  if (refused) return false;
  if (!used || needs_tables || times_plans || ranks.is_cut()) return std::nullopt;
  for (const auto& device : devices) {
    if (device.peak > device.capacity()) return std::nullopt;  // that of several processes
  }
  return true;
}

std::string SimulatedProgram::to_json(const Answer& answer, int exit_code,
                                      const std::optional<ServedRequests>& served) const {
  format::JsonAnswer json("emmctl.run/1", 2);
  json.member("device", given_).member("card", card_).member("exit_code", exit_code);
  json.member("fits", answer.fits()).member("cut", answer.cut);
  json.objects("devices", answer.devices, [&](const Device& device) {
    json.member("device", device.device).member("total_bytes", device.total);
    json.member("context_bytes", device.context).member("peak_bytes", device.peak);
    json.member("libraries_bytes",
                device.counts_libraries ? std::optional(device.libraries) : std::nullopt);
    json.member("processes", device.processes).member("refused", device.refused);
    json.member("first_refused_bytes", device.first_refused);
    json.member("first_refused_held_bytes", device.first_refused_held);
  });
  json.objects("ranks", answer.ranks.ranks, [&](const auto& rank) {
    json.member("rank", rank.rank).member("process", rank.process).member("device", rank.device);
    json.member("peak_bytes", rank.peak).member("capacity_bytes", rank.capacity);
    json.member("refused", rank.refused).member("pytorch_reserved_bytes", rank.reserved);
    json.member("pytorch_allocated_bytes", rank.allocated);
    json.member("nccl_bytes", rank.nccl.bytes).member("nccl_measured", rank.nccl.measured);
    json.member("nccl_unknown", rank.nccl.unknown);
  });
  json.objects("waiting", answer.ranks.waiting, [&](const auto& rank) {
    json.member("rank", rank.rank).member("process", rank.process);
    json.member("collective", rank.what).member("missing", rank.missing).member("line", rank.line);
  });
  json.member("gone", answer.ranks.gone).member("differing", answer.ranks.differing);
  json.member("kernels", answer.kernels).member("unread_bytes", answer.unread);
  json.objects("pytorch", answer.values.peaks, [&](const auto& peak) {
    json.member("device", peak.device).member("reserved_bytes", peak.reserved);
    json.member("allocated_bytes", peak.allocated);
  });
  json.member("unknown_sizes", unknown_sizes_).member("endless", answer.values.endless);
  json.member("stopped", answer.values.stopped);
  json.member("without_cudnn", answer.values.without_cudnn);
  json.member("cudnn_workspace_bytes", cudnn_workspace_).member("compiles", answer.values.compiles);
  json.objects("places", answer.values.places, [&](const auto& place) {
    json.member("place", place.where).member("kind", place.kind).member("level", place.level);
    json.member("operation", place.what).member("times", place.times).member("got", place.taken);
    json.member("least", place.least).member("most", place.most);
  });
  if (ranks_.all != 0) {
    json.object("absent", [&] {
      json.member("of", ranks_.all);
      json.member("not_run", ranks_.all - static_cast<int>(ranks_.run.size()));
      json.member("copies", answer.ranks.copies).member("nothing", answer.ranks.nothing);
    });
  }
  if (served) {
    const auto& report = served->report;
    json.object("served", [&] {
      json.member("manager", served->manager).member("requests", report.served);
      json.member("driver_calls", report.driver_calls).member("refused", report.refused);
      json.member("left", report.left).member("waits", report.waits);
      json.member("peak_live_bytes", report.peak_live);
      json.member("peak_reserved_bytes", report.peak_reserved);
    });
  }
  return json.finish();
}

}  // namespace emm::cli
