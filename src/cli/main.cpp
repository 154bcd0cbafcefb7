// The program. The only file that includes CLI11.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <sstream>

#include "base/host_memory.hpp"
#include "base/run_files.hpp"
#include "cli/command.hpp"
#include "inspect/columns.hpp"

namespace {

using namespace emm;
using namespace emm::cli;

/// A command's arguments as options of a CLI11 subcommand.
class Cli11Arguments final : public Arguments {
 public:
  /// What the command says of its files, which are looked at once all is parsed.
  struct Files {
    struct Named {
      std::string who;
      std::string* path;
    };
    struct Listed {
      std::string who;
      std::vector<std::string>* paths;
    };
    std::vector<Named> inputs, outputs;
    std::vector<Listed> input_lists;
    std::vector<std::string>* program = nullptr;
  };

  Cli11Arguments(CLI::App& app, Files& files) : app_(app), files_(files) {}

  void positional(std::string_view name, std::string& into, std::string_view help,
                  bool required) override {
    app_.add_option(std::string(name), into, std::string(help))->required(required)->type_name("");
  }
  void program(std::string_view name, std::vector<std::string>& into,
               std::string_view help) override {
    app_.add_option(std::string(name), into, std::string(help))->type_name("");
    files_.program = &into;
  }
  void text(std::string_view name, std::string& into, std::string_view value,
            std::string_view help) override {
    app_.add_option(std::string(name), into, with_default(help, into))
        ->type_name(std::string(value));
  }
  void input(std::string_view name, std::string& into, std::string_view help,
             bool required) override {
    positional(name, into, help, required);
    files_.inputs.push_back({std::string(name), &into});
  }
  void inputs(std::string_view name, std::vector<std::string>& into, std::string_view value,
              std::string_view help) override {
    if (name.starts_with('-')) {
      list(name, into, value, help);
    } else {
      app_.add_option(std::string(name), into, std::string(help))->required()->type_name("");
    }
    files_.input_lists.push_back({std::string(name), &into});
  }
  void output(std::string_view name, std::string& into, std::string_view help) override {
    if (name.starts_with('-')) {
      text(name, into, "FILE|-", help);
    } else {
      positional(name, into, help, false);
    }
    files_.outputs.push_back({std::string(name.substr(name.rfind(',') + 1)), &into});
  }
  void list(std::string_view name, std::vector<std::string>& into, std::string_view value,
            std::string_view help) override {
    app_.add_option(std::string(name), into, std::string(help))
        ->type_name(std::string(value))
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  void choice(std::string_view name, std::string& into, const std::vector<std::string>& choices,
              std::string_view help) override {
    const auto joined = text::join(choices, "|");
    app_.add_option(std::string(name), into, with_default(help, into))
        ->type_name(joined)
        ->check([choices, joined](const std::string& given) {
          for (const auto& known : choices) {
            if (known == given) return std::string();
          }
          return "'" + given + "' is not one of " + joined;
        });
  }
  void count(std::string_view name, std::uint64_t& into, std::string_view help) override {
    app_.add_option(std::string(name), into, with_default(help, text::format("{}", into)))
        ->type_name("N")
        ->check(whole_number);
  }
  void count(std::string_view name, std::optional<std::uint64_t>& into, std::string_view value,
             std::string_view help) override {
    app_.add_option(std::string(name), into, std::string(help))
        ->type_name(std::string(value))
        ->check(whole_number);
  }
  void flag(std::string_view name, bool& into, std::string_view help) override {
    app_.add_flag(std::string(name), into, std::string(help));
  }
  void footer(std::string_view words) override {
    auto lines = inspect::wrapped(words, 100);
    lines.pop_back();
    app_.footer(lines);
  }

 private:
  /// CLI11 would take -1 for the largest number.
  static std::string whole_number(const std::string& given) {
    return text::to_u64(given) ? std::string() : "'" + given + "' is not a whole number";
  }
  static std::string with_default(std::string_view help, std::string_view value) {
    return value.empty() ? std::string(help) : text::format("{} [{}]", help, value);
  }

  CLI::App& app_;
  Files& files_;
};

/// A folder that a killed `emmctl record` left stands for the recording in it.
Status name_recording(std::string& path) {
  std::error_code none;
  if (!path.ends_with(".raw") && !path.ends_with(".raw/")) return {};
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path, none)) {
    if (entry.path().extension() == ".emmraw") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  if (found.size() == 1) path = found.front();
  if (found.size() < 2) return {};
  return fail(Errc::usage, "{} has the recordings of {} processes: expected one of {}", path,
              found.size(), text::join(found));
}

/// No output is an input or another output.
Status look_at_files(const Cli11Arguments::Files& files) {
  for (const auto& [who, path] : files.inputs) {
    if (path->empty()) continue;
    if (auto named = name_recording(*path); !named) return named;
    if (auto apart = run_files::reads(*path, who); !apart) return apart;
  }
  for (const auto& [who, paths] : files.input_lists) {
    for (const auto& path : *paths) {
      if (auto apart = run_files::reads(path, who); !apart) return apart;
    }
  }
  for (const auto& [who, path] : files.outputs) {
    if (path->empty()) continue;
    if (run_files::descriptor_named(*path) == STDOUT_FILENO) *path = "-";
    if (auto apart = run_files::reserve(*path, who); !apart) return apart;
  }
  return {};
}

std::string executable_path() {
  char path[PATH_MAX];
  const auto size = readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : "emmctl";
}

bool is_command(std::string_view given) {
  for (const auto* command : bundled_commands()) {
    if (command->name == given) return true;
  }
  return false;
}

int no_such_command(std::string_view given) {
  std::vector<std::string_view> known;
  for (const auto* command : bundled_commands()) {
    if (!command->hidden) known.push_back(command->name);
  }
  const auto meant = text::nearest(given, known.data(), known.size());
  const auto words = given.empty()
                         ? text::format("expected a command: {}", text::join(known))
                         : text::format("no command '{}'{}: known are {}", given,
                                        meant ? text::format(", did you mean {}?", *meant) : "",
                                        text::join(known));
  std::fprintf(stderr, "emmctl: %s; see emmctl --help\n",
               text::printable(words, std::string::npos).c_str());
  return static_cast<int>(ExitCode::usage);
}

/// The exit code, once all that was to be printed is. `said` is the error that ended the command.
int finished(Console& console, ExitCode code, const std::string& said = {}) {
  if (const auto lost = run_files::write_error()) {
    if (describe(*lost) != said) console.say(describe(*lost));
    if (code == ExitCode::fine || code == ExitCode::failure) code = ExitCode::inconclusive;
  }
  if (auto done = console.finish(); !done) {
    console.say(describe(done.error()));
    return static_cast<int>(ExitCode::inconclusive);
  }
  if (const auto signal = interrupting_signal(); signal != 0) return 128 + signal;
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Replays allocation traces against CUDA External Memory Management (NBEP 7) managers.\n"
      "No GPU is needed: --device sim is one, in this process.",
      "emmctl");
  app.set_version_flag("--version", "emmctl " EMM_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return "emmctl: " + text::printable(error.what(), std::string::npos) + "; see emmctl --help\n";
  });

  struct Offered {
    CLI::App* app;
    std::unique_ptr<Cli11Arguments::Files> files;
    std::unique_ptr<CommandRun> run;
  };
  std::vector<Offered> offered;
  for (const auto* command : bundled_commands()) {
    auto* sub = app.add_subcommand(std::string(command->name), std::string(command->summary));
    if (command->hidden) sub->group("");
    auto files = std::make_unique<Cli11Arguments::Files>();
    Cli11Arguments arguments(*sub, *files);
    auto made = command->make(arguments);
    offered.push_back({sub, std::move(files), std::move(made)});
  }

  // CLI11 would say only that a subcommand is required.
  if (argc < 2 || (argv[1][0] != '-' && !is_command(argv[1]))) {
    return no_such_command(argc < 2 ? "" : argv[1]);
  }
  Console console(executable_path());
  // What stands after `--` is a program's own, whatever it looks like.
  const auto rest = std::find(argv, argv + argc, std::string_view("--"));
  for (const auto& [sub, files, command] : offered) {
    if (files->program == nullptr || sub->get_name() != argv[1] || rest == argv + argc) continue;
    for (auto word = rest + 1; word != argv + argc; ++word) files->program->emplace_back(*word);
    argc = static_cast<int>(rest - argv);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 gives every mistake a code of its own; a shell gets ours. Help and version are
    // successes.
    std::ostringstream told, wrong;
    const auto code = app.exit(error, told, wrong) == 0 ? ExitCode::fine : ExitCode::usage;
    console.result(told.str());
    console.aside(wrong.str());
    return finished(console, code);
  }
  for (auto& [sub, files, command] : offered) {
    if (!sub->parsed()) continue;
    run_files::begin();
    const auto apart = look_at_files(*files);
    auto code = apart ? command->run(console) : Result<ExitCode>(apart.error());
    command.reset();  // what it left open is closed, which may fail
    if (!code) {
      console.say(describe(code.error()));
      return finished(console, exit_code_of(code.error()), describe(code.error()));
    }
    return finished(console, *code);
  }
  return static_cast<int>(ExitCode::usage);
}

/// Room for the stack to grow: where the address space is limited, a stack that cannot grow is a
/// crash.
void grow_stack() {
  constexpr std::size_t kRoom = std::size_t{512} << 10, kPage = 4096;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 4 * kRoom) return;
  void* const room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) out_of_host_memory();
  munmap(room, kRoom);
  auto* const pages = static_cast<volatile char*>(__builtin_alloca(kRoom));
  for (std::size_t at = kRoom; at >= kPage; at -= kPage) pages[at - 1] = 0;
}

/// Before anything allocates: objects of other files do, before main.
[[gnu::constructor(101)]] void begin() {
  end_where_host_memory_ends();
  grow_stack();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(
      SIGXFSZ,
      SIG_IGN);  // a file that may grow no further (ulimit -f) is a failed write, as a full disk is
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    out_of_host_memory();  // of what no computer has
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emmctl: a bug of ours: %s\n",
                 text::printable(error.what(), std::string::npos).c_str());
  }
  return static_cast<int>(ExitCode::bug);
}
