#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <memory>

#include "base/run_files.hpp"
#include "cli/command.hpp"
#include "commands/plugin_templates.hpp"
#include "format/whole_file.hpp"

namespace emm {
namespace {

using namespace emm::cli;

/// A file of the project and its template.
struct ProjectFile {
  std::string to;
  std::string_view from;
};

void replace_all(std::string& text, std::string_view word, std::string_view by) {
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + by.size())) {
    text.replace(at, word.size(), by);
  }
}

bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), fits);
}

std::string_view text_of(std::string_view file) {
  for (const auto& known : plugin_templates()) {
    if (known.file == file) return known.text;
  }
  EMM_ASSERT(false);
  return {};
}

Status make_folder(const std::string& path, bool may_exist = false) {
  if (mkdir(path.c_str(), 0777) == 0 || (may_exist && errno == EEXIST)) return {};
  return fail(Errc::usage, "cannot make the folder {}: {}", path, std::strerror(errno));
}

class Plugin final : public CommandRun {
 public:
  explicit Plugin(Arguments& arguments) {
    arguments.positional("ACTION", action_,
                         "new: writes a manager's project into the folder NAME; for a FILE.py in "
                         "this folder, which is a manager already, it writes the workflows alone");
    arguments.positional(
        "NAME", name_,
        "The manager's name; its library is libemm-NAME.so, its Python module NAME.py");
    arguments.choice("--language", language_, {"c", "c++", "python"},
                     "The language of the project; in Python it is a class for Numba, as NBEP 7 "
                     "defines it");
  }

  Result<ExitCode> run(Console& console) override {
    if (action_ != "new") return fail(Errc::usage, "plugin {}: expected new", action_);
    if (name_.ends_with(".py")) return write_workflows(console);
    if (auto free = run_files::reserve_folder(name_, "NAME"); !free) return std::move(free).error();
    if (!is_name(name_)) {
      return fail(
          Errc::usage,
          "plugin new {}: expected a name of lower-case letters, digits, - and _, a letter first",
          name_);
    }
    if (language_ == "python") return write_python(console);
    const bool plain = language_ == "c";
    const std::vector<ProjectFile> files{
        {plain ? name_ + ".c" : name_ + ".cpp", plain ? "plugin.c" : "plugin.cpp"},
        {"CMakeLists.txt", "CMakeLists.txt.in"},
        {"emm_plugin.h", "emm_plugin.h"},
        {"README.md", "README.md.in"},
        {"first.json", "first.json"},
        {".github/workflows/emmctl.yml", "github.yml.in"},
        {".gitlab-ci.yml", "gitlab.yml.in"}};
    auto written = write(console, {"", "/.github", "/.github/workflows"}, files,
                         [&](std::string_view from, std::string& text) {
                           if (from != "emm_plugin.h") fill_in(text, plain);
                         });
    if (!written) return std::move(written).error();
    console.say(text::format("next: cmake -S {} -B {}/build && cmake --build {}/build", name_,
                             name_, name_));
    return ExitCode::fine;
  }

 private:
  template <class FillIn>
  Status write(Console& console, std::initializer_list<const char*> folders,
               const std::vector<ProjectFile>& files, FillIn fill_in) const {
    for (const auto* folder : folders) {
      if (auto made = make_folder(name_ + folder); !made) return made.error();
    }
    std::string said;
    for (const auto& file : files) {
      std::string text(text_of(file.from));
      fill_in(file.from, text);
      const auto path = name_ + "/" + file.to;
      if (auto written = format::write_whole(path, text, "NAME"); !written) return written.error();
      said += path + "\n";
    }
    console.result(said);
    return {};
  }

  Result<ExitCode> write_python(Console& console) const {
    auto module = name_, name_of_class = std::string();
    std::replace(module.begin(), module.end(), '-', '_');
    bool begins = true;
    for (const char c : name_) {
      const bool is_letter = c >= 'a' && c <= 'z';
      if (c != '-' && c != '_')
        name_of_class += begins && is_letter ? static_cast<char>(c - 'a' + 'A') : c;
      begins = c == '-' || c == '_';
    }
    auto written = write(console, {"", "/tests", "/.github", "/.github/workflows"},
                         {{module + ".py", "python/plugin.py.in"},
                          {"pyproject.toml", "python/pyproject.toml.in"},
                          {"tests/conftest.py", "python/conftest.py.in"},
                          {"tests/test_contract.py", "python/test_contract.py.in"},
                          {"README.md", "python/README.md.in"},
                          {"first.json", "first.json"},
                          {".github/workflows/emmctl.yml", "python/github_python.yml.in"},
                          {".gitlab-ci.yml", "python/gitlab_python.yml.in"}},
                         [&](std::string_view, std::string& text) {
                           replace_all(text, "MODULE", module);
                           replace_all(text, "CLASS", name_of_class + "Manager");
                           replace_all(text, "NAME", name_);
                         });
    if (!written) return std::move(written).error();
    console.say(text::format("next: emmctl conformance --manager {}/{}.py", name_, module));
    return ExitCode::fine;
  }

  /// Writes the workflows of a class that is in this folder already. A file that is there stays.
  Result<ExitCode> write_workflows(Console& console) const {
    if (name_.find('/') != name_.npos || access(name_.c_str(), R_OK) != 0)
      return fail(Errc::usage, "plugin new {}: expected a file of this folder", name_);
    const std::vector<ProjectFile> files{
        {"first.json", "first.json"},
        {".github/workflows/emmctl.yml", "python/github_python.yml.in"},
        {".gitlab-ci.yml", "python/gitlab_python.yml.in"}};
    for (const auto& file : files) {
      if (access(file.to.c_str(), F_OK) == 0)
        return fail(Errc::usage, "plugin new {}: {} exists already", name_, file.to);
    }
    for (const auto* folder : {".github", ".github/workflows"}) {
      if (auto made = make_folder(folder, true); !made) return made.error();
    }
    std::string said;
    for (const auto& file : files) {
      std::string text(text_of(file.from));
      replace_all(text, "MODULE", name_.substr(0, name_.size() - 3));
      if (auto written = format::write_whole(file.to, text, "NAME"); !written)
        return std::move(written).error();
      said += file.to + "\n";
    }
    console.result(said);
    console.say(text::format("next: emmctl conformance --manager {}", name_));
    return ExitCode::fine;
  }

  void fill_in(std::string& text, bool plain) const {
    for (const auto& [word, by] :
         {std::pair<std::string_view, std::string_view>("LANGUAGES LANGUAGE",
                                                        plain ? "LANGUAGES C" : "LANGUAGES CXX"),
          {"PRIVATE STANDARD", plain ? "PRIVATE c_std_11" : "PRIVATE cxx_std_20"},
          {"NAME.SUFFIX", plain ? "NAME.c" : "NAME.cpp"}}) {
      replace_all(text, word, by);
    }
    replace_name(text);
  }
  /// Replaces NAME, except in add_test(NAME ...), where it is CMake's keyword.
  void replace_name(std::string& text) const {
    constexpr std::string_view kKeyword = "add_test(NAME", kKept = "add_test(\1";
    replace_all(text, kKeyword, kKept);
    replace_all(text, "NAME", name_);
    replace_all(text, kKept, kKeyword);
  }

  std::string action_, name_, language_ = "c";
};

}  // namespace

extern constinit const Command plugin_command{
    "plugin",
    "Begin a memory manager of your own: a project with its tests and workflows",
    false,
    make_run<Plugin>,
    Heading::judge,
    {{{"emmctl plugin new mine", "Makes a project in C, in the folder mine."},
      {"emmctl plugin new yours --language python",
       "Makes one of a Python class for Numba, as NBEP 7 defines it."}}}};

}  // namespace emm
