#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/run_files.hpp"
#include "base/text_format.hpp"
#include "base/unfinished.hpp"
#include "base/utf8.hpp"
#include "cli/command.hpp"
#include "commands/report_inputs.hpp"

extern char** environ;

namespace emm {
namespace {

using namespace emm::cli;

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

/// Can a browser open a window? Without one xdg-open would start a browser for terminals, which
/// runs no scripts.
bool has_screen() { return is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") || is_set("BROWSER"); }

bool open_in_browser(const std::string& path) {
  std::string program = "xdg-open", argument = path;
  char* arguments[] = {program.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return error == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

/// A path in the user's cache, where the next page of the same name replaces this one. In
/// `temporary`, a folder made for it, if there is no cache that can be written.
Result<std::string> place_for(const std::string& input, std::unique_ptr<Unfinished>& temporary) {
  std::string folder = is_set("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME")
                       : is_set("HOME")         ? std::string(std::getenv("HOME")) + "/.cache"
                                                : "";
  for (const std::string_view part : {"", "/emmctl"}) {
    if (!folder.empty()) folder += part;
    mkdir(folder.c_str(), 0700);  // access() tells whether it is there now
  }
  if (access(folder.c_str(), W_OK) != 0) {
    auto made = Unfinished::temporary_folder("view");
    if (!made) return std::move(made).error();
    temporary = *std::move(made);
    folder = temporary->path();
  }
  // The name contains the folders of the path, because traces of several runs often have one name.
  auto name = input == "-" ? std::string("stdin") : input;
  while (name.starts_with("./") || name.starts_with("../") || name.starts_with("/"))
    name.erase(0, name.find('/') + 1);
  std::replace(name.begin(), name.end(), '/', '-');
  constexpr std::size_t kNameMost = 200;  // bytes: most file systems allow 255
  return text::format("{}/{}.html", folder, text::tail(name, kNameMost));
}

class View final : public CommandRun {
 public:
  explicit View(Arguments& arguments) {
    inputs_.offer(arguments);
    arguments.footer(
        "Makes the page that `emmctl report` makes, in $XDG_CACHE_HOME/emmctl or, where that "
        "cannot "
        "be written, in a temporary folder, prints its path, and opens it with xdg-open where "
        "there is a screen. A page that was made before is opened "
        "as it is. Nothing is served. Exit codes are those of report.");
  }

  Result<ExitCode> run(Console& console) override {
    auto path = inputs_.paths().front();
    const bool made = inputs_.paths().size() == 1 && path.ends_with(".html");
    if (!made) {
      auto page = inputs_.page(console);
      if (!page) return std::move(page).error();
      std::unique_ptr<Unfinished> temporary;
      auto place = place_for(path, temporary);
      if (!place) return std::move(place).error();
      path = *std::move(place);
      if (auto written = console.write(path, *page, "view"); !written) return written.error();
      if (temporary) temporary->set_whole();
    } else if (access(path.c_str(), R_OK) != 0) {
      return fail(Errc::usage, "cannot open {}: expected a page of emmctl report, or a trace",
                  path);
    }
    console.result(path + '\n');
    run_files::note_told(path);
    if (!has_screen()) {
      console.say("there is no screen to open a browser on; the page is one file, to be copied");
    } else if (!open_in_browser(path)) {
      console.say(
          "xdg-open did not open a browser; open the page, which is one file, in any browser");
    }
    return ExitCode::fine;
  }

 private:
  ReportInputs inputs_;
};

}  // namespace

extern constinit const Command view_command{
    "view",
    "Make the page of report, and open it in a browser",
    false,
    make_run<View>,
    Heading::look,
    {{{"emmctl view run.jsonl", "Makes the page, and opens it."},
      {"emmctl view run.jsonl --manager pool", "Puts the pool beside it."}}}};

}  // namespace emm
