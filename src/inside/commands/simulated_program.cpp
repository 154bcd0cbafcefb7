#include "commands/simulated_program.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/text.hpp"
#include "base/units.hpp"
#include "cli/temporary_folder.hpp"
#include "commands/recorded_program.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "format/columns.hpp"
#include "record/forwarding_library.hpp"
#include "standin/process_report.hpp"

namespace emm::cli {
namespace {

constexpr std::string_view kCounts = ".counts", kNames = ".names";

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
    const bool is_refused = gives_memory(function.name);
    if (is_refused) function.answer = kNotSupported;
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
  constexpr std::size_t kPage = 4096;
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
    if ((at == 0 || options[at - 1] == ',') && options.substr(at + key.size()).starts_with('='))
      return true;
  }
  return false;
}

}  // namespace

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
  return make_library({answers, answers}, made, *std::move(exports));
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
  // Work is done as it comes, which costs no time here; memory reads as zero.
  add("order", "early");
  add("costs", "none");
  add("content", "zero");
  made.device_ = "sim:" + options;
  auto platform = open_platform(made.device_, {});
  if (!platform) return std::move(platform).error();
  made.card_ = (*platform)->gpu()->device;

  made.standins_ = standin_folder(program);
  if (made.standins_.empty() || access(made.driver().c_str(), R_OK) != 0) {
    return fail(Errc::io_error,
                "the stand-ins are not beside {}: expected them in ../lib/emmctl/standin", program);
  }
  char whole[PATH_MAX];
  made.maker_ = realpath(program.c_str(), whole) != nullptr ? whole : program;
  auto folder = make_temporary_folder("sim");
  if (!folder) return std::move(folder).error();
  made.folder_ = *std::move(folder);
  if (auto cudart = make_cudart(made.folder_, made.standins_ + "/libemm-answers.so"); !cudart)
    return cudart.error();
  const auto nvml = made.folder_ + "/libnvidia-ml.so";
  for (const auto* name : {"", ".1"}) {
    if (symlink((made.standins_ + "/libnvidia-ml.so.1").c_str(), (nvml + name).c_str()) != 0)
      return fail(Errc::io_error, "{}: {}", nvml, std::strerror(errno));
  }
  return made;
}

SimulatedProgram::~SimulatedProgram() {
  if (folder_.empty()) return;
  for (const auto& file : files_in(folder_)) unlink((folder_ + "/" + file).c_str());
  rmdir(folder_.c_str());
}

Status SimulatedProgram::lead_to(const std::string& path) const {
  const auto cannot = [&] { return fail(Errc::io_error, "{}: {}", folder_, std::strerror(errno)); };
  // Under this name, the loader is not led elsewhere.
  const auto target = folder_ + "/target.so", library = folder_ + "/libcuda.so.1";
  if (symlink(path.c_str(), target.c_str()) != 0) return cannot();
  // A program that is bound when it is loaded wants to find each function that it names.
  auto answered = record::exports_of(driver());
  if (!answered) return std::move(answered).error();
  record::LibraryExports exports{.soname = "libcuda.so.1",
                                 .functions = std::move(answered->functions)};
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
  if (symlink("libcuda.so.1", (folder_ + "/libcuda.so").c_str()) != 0) return cannot();
  return {};
}

std::vector<std::pair<std::string, std::string>> SimulatedProgram::variables() const {
  const char* const audit = std::getenv("LD_AUDIT");
  auto redirect = standins_ + "/libemm-redirect.so";
  if (audit != nullptr && *audit != '\0') redirect += std::string(":") + audit;
  return {{"LD_AUDIT", redirect},           {"EMM_STANDIN_FOLDER", folder_},
          {"EMM_STANDIN_DRIVER", driver()}, {"EMM_STANDIN_DEVICE", device_},
          {"EMM_STANDIN_MAKER", maker_},    {standin::kProgramFolder, folder_}};
}

SimulatedProgram::Answer SimulatedProgram::say(Console& console, bool stubs,
                                               std::string_view next) const {
  Answer answer;
  const auto reports = reports_in(folder_);
  const auto files = files_in(folder_);
  const bool has_libraries = std::any_of(files.begin(), files.end(), [](const std::string& file) {
    return file.ends_with(kNames) && !file.starts_with("lib");  // the folder's own begin so
  });
  answer.used = !reports.empty() || has_libraries;
  if (!answer.used) {
    console.say(
        "nothing is known of its memory: no process of the program used a CUDA device through "
        "libcuda or a shared libcudart (docs/without-a-gpu.md says which programs cannot)");
    return answer;
  }

  struct Total {
    std::uint64_t total = 0, context = 0, peak = 0, refused = 0, size = 0, held = 0;
    std::uint64_t processes = 0;
  };
  std::map<std::uint64_t, Total> devices;
  std::uint64_t kernels = 0, unread = 0, tables = 0, taken = 0;
  std::vector<std::vector<std::string>> rows{
      {"device", "process", "program", "peak", "peak, bytes", "refused"}};
  for (const auto& report : reports) {
    kernels += report.kernels;
    unread += report.unread;
    tables += report.tables;
    for (std::uint64_t i = 0; i < report.devices; ++i) {
      const auto& device = report.device[i];
      if (device.peak == 0 && device.refused == 0) continue;
      auto& all = devices[i];
      all.total = device.total;
      all.context = device.context;
      all.peak += device.peak;
      ++all.processes;
      taken += device.peak;
      if (device.refused != 0 && all.refused == 0) {
        all.size = device.first_refused_size;
        all.held = device.first_refused_held;
      }
      all.refused += device.refused;
      rows.push_back({text::format("{}", i), text::format("{}", report.process), report.command,
                      units::bytes(device.peak), text::grouped(device.peak),
                      text::format("{}", device.refused)});
    }
  }
  answer.needs_tables = tables != 0 && taken == 0;
  if (answer.needs_tables) {
    console.say(
        "the program has a cudart that is linked in statically, which asks the driver for tables "
        "that only NVIDIA's has: it cannot run without a GPU");
    return answer;
  }
  if (devices.empty()) {
    console.say(text::format("the program used the simulated {}, and took no memory of it", card_));
  }
  for (const auto& [ordinal, all] : devices) {
    const auto capacity = all.total - all.context;
    const auto where = devices.size() == 1
                           ? text::format("the simulated {}", card_)
                           : text::format("device {}, a simulated {}", ordinal, card_);
    answer.refused = answer.refused || all.refused != 0;
    if (all.refused != 0) {
      console.say(text::format(
          "it does not fit as it is: {} refused {} {} for want of memory; the first was of {}, "
          "when the process held {} of {}",
          where, all.refused, all.refused == 1 ? "request" : "requests", size_words(all.size),
          units::bytes(all.held), size_words(capacity)));
    } else if (all.peak <= capacity) {
      console.say(text::format("it fits: at most {} of the {} of {}; {} are left",
                               size_words(all.peak), units::bytes(capacity), where,
                               units::bytes(capacity - all.peak)));
    } else {
      console.say(text::format(
          "{} processes took {} of {} together, each at its own peak, which is more than its {}: "
          "whether it fits depends on when the peaks are",
          all.processes, size_words(all.peak), where, units::bytes(capacity)));
    }
    if (all.context != 0) {
      console.say(
          text::format("besides, {} of {} are never free: the context, as measured on an "
                       "H200",
                       units::bytes(all.context), units::bytes(all.total)));
    } else {
      console.say(
          text::format("besides, a context takes memory of a real card, which is not "
                       "counted here; an H200's takes {}",
                       units::bytes(gpu_profiles().front().context)));
    }
  }
  if (rows.size() > 2) console.aside(format::columns("lllrrr", rows));
  if (kernels != 0) {
    console.say(text::format("{} {} skipped: what a program reads back is zero, or what it wrote",
                             text::grouped(kernels), kernels == 1 ? "kernel was" : "kernels were"));
  }
  if (unread != 0) {
    console.say(
        text::format("{} were copied to the device in pieces above 1 MiB, whose content is "
                     "not kept",
                     units::bytes(unread)));
  }
  if (const auto called = stubs_in(folder_); !called.empty()) {
    std::uint64_t calls = 0;
    std::string refused;
    for (const auto& stub : called) {
      calls += stub.calls;
      if (stub.refused) refused += (refused.empty() ? "" : ", ") + stub.function;
    }
    if (!refused.empty())
      console.say(text::format("not stood in for, and so refused: {}", refused));
    console.say(text::format("{} {} no answer of {} own, and got a stand-in's in {} {}{}",
                             called.size(), called.size() == 1 ? "function has" : "functions have",
                             called.size() == 1 ? "its" : "their", text::grouped(calls),
                             calls == 1 ? "call" : "calls",
                             stubs ? ":" : "; --explain-stubs lists them"));
    if (stubs) {
      std::vector<std::vector<std::string>> listed{{"library", "function", "calls"}};
      for (const auto& stub : called)
        listed.push_back({stub.library, stub.function, text::grouped(stub.calls)});
      console.aside(format::columns("llr", listed));
    }
  }
  if (!next.empty()) console.say(text::format("next: {}", next));
  return answer;
}

}  // namespace emm::cli
