// The program. Only this file includes CLI11.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>
#include <optional>
#include <sstream>

#include "base/assert.hpp"
#include "base/host_memory.hpp"
#include "base/run_files.hpp"
#include "base/text.hpp"
#include "base/unfinished.hpp"
#include "base/units.hpp"
#include "cli/all_wings.hpp"
#include "cli/command.hpp"
#include "cli/defaults.hpp"
#include "cli/load.hpp"
#include "cli/page.hpp"
#include "cli/program_files.hpp"
#include "cli/rank_names.hpp"
#include "cli/what_is.hpp"

namespace {

using namespace emm;
using namespace emm::cli;

/// Checks numbers here, because CLI11 would take -1 for the largest number.
std::string whole_number(const std::string& given) {
  return text::to_u64(given) ? std::string() : "'" + given + "' is not a whole number";
}

/// Makes an option of the CLI11 subcommand out of the argument.
void register_argument(CLI::App& app, const Argument& argument) {
  const auto name = text::join(argument.names, ",");
  struct Visitor {
    CLI::App& app;
    const std::string& name;
    CLI::Option* operator()(std::monostate) const { return nullptr; }
    CLI::Option* operator()(bool* into) const { return app.add_flag(name, *into); }
    CLI::Option* operator()(std::string* into) const { return app.add_option(name, *into); }
    CLI::Option* operator()(std::uint64_t* into) const {
      return app.add_option(name, *into)->check(whole_number);
    }
    CLI::Option* operator()(std::optional<std::uint64_t>* into) const {
      return app.add_option(name, *into)->check(whole_number);
    }
    CLI::Option* operator()(std::vector<std::string>* into) const {
      auto* const option = app.add_option(name, *into);
      if (!name.starts_with('-')) return option;
      return option->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->allow_extra_args(false);  // the word after its value is the command's
    }
  };
  auto* const option = std::visit(Visitor{app, name}, argument.place);
  if (option == nullptr) return;
  if (!std::holds_alternative<bool*>(argument.place)) option->type_name(argument.value);
  // the words of a program may stand behind `--`, which CLI11 does not see
  option->required(argument.required && argument.use != Argument::Use::program);
  if (argument.choices.empty()) return;
  option->check([choices = argument.choices](const std::string& given) {
    const bool known = std::find(choices.begin(), choices.end(), given) != choices.end();
    return known ? std::string() : "'" + given + "' is not one of " + text::join(choices, "|");
  });
}

/// A command as the command line offers it.
struct OfferedCommand {
  CLI::App* app;
  Arguments arguments;
  /// The value of --capacity or --device, whichever the command lacks (offer_capacity()).
  std::string capacity{};
  std::unique_ptr<CommandRun> run{};

  /// Where the command takes the value of an option. Null if the command does not declare it.
  std::string* place_of(std::string_view name) const {
    for (const auto& argument : arguments.declared()) {
      const auto* const into = std::get_if<std::string*>(&argument.place);
      if (argument.longest() == name && into != nullptr && *into != &capacity) return *into;
    }
    return nullptr;
  }
  /// Where the command takes a program and its arguments. Null if it runs none.
  std::vector<std::string>* program() const {
    for (const auto& argument : arguments.declared()) {
      if (argument.use == Argument::Use::program)
        return std::get<std::vector<std::string>*>(argument.place);
    }
    return nullptr;
  }
};

/// The recordings in a folder that a killed `emmctl record` left. None if `path` is no such folder.
std::vector<std::string> recordings_in(const std::string& path) {
  std::vector<std::string> found;
  if (!path.ends_with(".raw") && !path.ends_with(".raw/")) return found;
  std::error_code error;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".emmraw") found.push_back(entry->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Replaces such a folder by the recording in it. In a list it stands for all recordings in it.
Status name_recording(std::string& path) {
  const auto found = recordings_in(path);
  if (found.size() == 1) path = found.front();
  if (found.size() < 2) return {};
  return fail(Errc::usage, "{} has the recordings of {} processes: expected one of {}", path,
              found.size(), text::join(found));
}
void name_recordings(std::vector<std::string>& paths) {
  std::vector<std::string> named;
  for (auto& path : paths) {
    auto found = recordings_in(path);
    if (found.empty()) found.push_back(std::move(path));
    std::move(found.begin(), found.end(), std::back_inserter(named));
  }
  paths = std::move(named);
}

/// Fails if a command that reads one file is given a folder.
Status expect_file(const std::string& path, std::string_view command) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) return {};
  return fail(Errc::usage, "{} is a folder, and {} takes one file: `emmctl ranks` takes a folder",
              path, command);
}

/// Resolves the name of a file that is read.
Status look_at_input(const Argument& input, std::string_view command) {
  if (auto* const* paths = std::get_if<std::vector<std::string>*>(&input.place)) {
    name_recordings(**paths);
    for (auto& path : **paths) {
      if (auto named = name_rank(path); !named) return named;
      if (auto apart = run_files::reads(path, input.names.front()); !apart) return apart;
    }
    return {};
  }
  auto& path = *std::get<std::string*>(input.place);
  if (path.empty()) return {};
  if (auto named = name_rank(path); !named) return named;
  if (auto named = name_recording(path); !named) return named;
  if (auto file = expect_file(path, command); !file) return file;
  return run_files::reads(path, input.names.front());
}

Status look_at_output(const Argument& output) {
  auto& path = *std::get<std::string*>(output.place);
  if (path.empty()) return {};
  if (output.use == Argument::Use::folder)
    return path == "none" ? Status() : run_files::reserve_folder(path, output.longest());
  if (auto named = name_rank(path); !named) return named;
  if (run_files::descriptor_named(path) == STDOUT_FILENO) path = "-";
  return run_files::reserve(path, output.longest());
}

/// Resolves the names of the files. Fails if an output is also an input or another output. Inputs
/// come first, because an output that is also one of them is the mistake.
Status look_at_files(const OfferedCommand& offered) {
  const auto& declared = offered.arguments.declared();
  for (const auto& one : declared) {
    if (one.use != Argument::Use::input) continue;
    if (auto looked = look_at_input(one, offered.app->get_name()); !looked) return looked;
  }
  if (const auto* program = offered.program()) register_program(*program);
  for (const auto use : {Argument::Use::output, Argument::Use::folder}) {
    for (const auto& one : declared) {
      if (one.use != use) continue;
      if (auto looked = look_at_output(one); !looked) return looked;
    }
  }
  return {};
}

/// The files that a command reads, as they were given.
std::vector<std::string> input_files(const Arguments& arguments) {
  std::vector<std::string> paths;
  for (const auto& one : arguments.declared()) {
    if (one.use != Argument::Use::input) continue;
    if (const auto* const path = std::get_if<std::string*>(&one.place)) paths.push_back(**path);
    if (const auto* const all = std::get_if<std::vector<std::string>*>(&one.place))
      paths.insert(paths.end(), (*all)->begin(), (*all)->end());
  }
  std::erase_if(paths, [](const std::string& path) { return !has_name(path); });
  return paths;
}

bool can_be_read_again(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

/// Says what the files are that a command cannot read and another can.
void say_what_they_are(Console& console, const std::vector<std::string>& paths) {
  const auto what_is = what_is_or_null();
  if (what_is == nullptr) return;
  for (const auto& path : paths) {
    const auto answer = what_is(path);
    if (!answer || answer->code != ExitCode::fine) continue;
    console.say(answer->what);
    console.aside(answer->lines);
  }
}

/// --device sim:capacity=SIZE and --capacity SIZE mean the same. Passes either one to the option
/// that the command has.
Status apply_capacity(const OfferedCommand& offered) {
  constexpr std::string_view kOption = "capacity=";
  const std::string_view given = offered.capacity;
  if (given.empty()) return {};
  if (auto* const into = offered.place_of("--device")) {
    if (text::to_u64(given)) {
      if (auto size = units::parse_capacity(given); !size) return size.error();
    }
    auto& device = *into;
    const auto kind = std::string_view(device).substr(0, device.find(':'));
    if (device.empty()) {
      return fail(Errc::usage, "--capacity {}: expected --device sim besides", given);
    }
    if (kind != "sim" && device != "auto") {
      return fail(Errc::usage, "--capacity with --device {}: expected a simulated device", device);
    }
    const auto options = kind.size() < device.size() ? device.substr(kind.size() + 1) : "";
    if (options.find(kOption) != std::string::npos) {
      return fail(Errc::usage, "--capacity {} --device {}: expected one of them", given, device);
    }
    device = text::format("sim:capacity={}{}{}", given, options.empty() ? "" : ",", options);
    return {};
  }
  auto* const capacity = offered.place_of("--capacity");
  if (capacity == nullptr) return {};
  const auto at = given.find(kOption);
  if (!given.starts_with("sim:capacity=") || given.find(',') != std::string_view::npos) {
    return fail(Errc::usage,
                "--device {}: expected sim:capacity=SIZE, which is all that counts here", given);
  }
  if (!capacity->empty()) {
    return fail(Errc::usage, "--capacity {} --device {}: expected one of them", *capacity, given);
  }
  *capacity = given.substr(at + kOption.size());
  return {};
}

/// Adds the defaults of the configuration file to the command line, except for options that it
/// already gives.
std::vector<std::string> with_defaults(const Page& page, const Defaults& defaults, int argc,
                                       char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  const auto given = [&](const Argument& option) {
    return std::any_of(words.begin() + 2, words.end(), [&](const std::string& word) {
      return std::any_of(option.names.begin(), option.names.end(), [&](const std::string& name) {
        return word == name || word.starts_with(name + "=");
      });
    });
  };
  std::vector<std::string> added;
  const char* manager = std::getenv("EMM_MEMORY_MANAGER");
  for (const auto& [name, value] : defaults.options) {
    const auto option =
        std::find_if(page.options.begin(), page.options.end(),
                     [&wanted = name](const auto& one) { return one.longest() == wanted; });
    const bool by_variable = name == "--manager" && manager != nullptr && *manager != '\0';
    if (option == page.options.end() || given(*option) || by_variable) continue;
    // giving either one overrides the default of the other
    if (name == "--capacity" || name == "--device") {
      const auto other = name == "--capacity" ? "--device" : "--capacity";
      if (std::any_of(words.begin() + 2, words.end(), [&](const std::string& word) {
            return word == other || word.starts_with(std::string(other) + "=");
          }))
        continue;
    }
    added.push_back(name);
    if (!option->value.empty()) added.back().append("=").append(value);
  }
  words.insert(words.begin() + 2, added.begin(), added.end());
  return words;
}

/// Describes the first word that is no option of the command: "no option '--manger', did you mean
/// --manager". Empty if there is none.
std::string unknown_option(const Page& page, const std::vector<std::string>& words) {
  std::vector<std::string_view> known;
  for (const auto& option : page.options)
    for (const auto& name : option.names) known.push_back(name);
  for (std::size_t at = 2; at < words.size() && words[at] != "--"; ++at) {
    const auto name = std::string_view(words[at]).substr(0, words[at].find('='));
    if (!name.starts_with('-') || name == "-") continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto meant = text::nearest(name, known.data(), known.size());
    return text::format("{} has no option {}{}", page.name, name,
                        meant ? text::format(", did you mean {}", *meant) : "");
  }
  return {};
}

/// Are there several files where the command takes one trace?
bool names_several_files(const Page& page, const std::vector<std::string>& words) {
  const bool takes_one = std::any_of(page.positionals.begin(), page.positionals.end(),
                                     [](const Argument& one) { return one.longest() == "TRACE"; });
  const auto files = std::count_if(words.begin() + 2, words.end(), [](const std::string& word) {
    std::error_code none;
    return !word.starts_with('-') && std::filesystem::exists(word, none);
  });
  return takes_one && files > 1;
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

/// Names the files that the command wrote.
void say_written(Console& console) {
  std::string words;
  for (const auto& path : run_files::written()) words += (words.empty() ? "" : ", ") + path;
  if (!words.empty()) console.say("wrote " + words);
}

/// Finishes all output and returns the exit code. `said` is the error that ended the command.
int finish(Console& console, ExitCode code, const std::string& said = {}) {
  if (const auto lost = run_files::write_error()) {
    if (describe(*lost) != said) console.say(describe(*lost));
    if (code == ExitCode::fine || code == ExitCode::failure) code = ExitCode::inconclusive;
  } else if (said.empty()) {
    say_written(console);
  }
  if (auto done = console.finish(); !done) {
    console.say(describe(done.error()));
    return static_cast<int>(ExitCode::inconclusive);
  }
  if (const auto signal = interrupting_signal(); signal != 0) return 128 + signal;
  return static_cast<int>(code);
}

using OfferedCommands = std::vector<std::unique_ptr<OfferedCommand>>;

/// Gives CLI11 all commands. It keeps addresses of the fields of what is returned.
OfferedCommands offer_commands(CLI::App& app, int width) {
  OfferedCommands offered;
  for (const auto* command : bundled_commands()) {
    auto* sub = app.add_subcommand(std::string(command->name), std::string(command->summary));
    if (command->hidden) sub->group("");
    auto& one = *offered.emplace_back(std::make_unique<OfferedCommand>(OfferedCommand{sub, {}}));
    one.run = command->make(one.arguments);
    offer_capacity(one.arguments, one.capacity);
    for (const auto& argument : one.arguments.declared()) register_argument(*sub, argument);
    sub->formatter_fn([command, width](const CLI::App*, const std::string&, CLI::AppFormatMode) {
      return help_text(page_of(*command), width);
    });
  }
  return offered;
}

/// `emmctl FILE`: says what the file is, and what one can do with it.
int say_what_file_is(Console& console, std::string path) {
  if (auto named = name_recording(path); !named) {
    console.say(describe(named.error()));
    return finish(console, exit_code_of(named.error()));
  }
  const auto what_is = what_is_or_null();
  if (what_is == nullptr) {
    console.say("emmctl was built without the wing analysis, which says what a file is");
    return finish(console, ExitCode::usage);
  }
  const auto answer = what_is(path);
  if (!answer) {
    console.say(describe(answer.error()));
    return finish(console, exit_code_of(answer.error()));
  }
  return finish(console, say(console, *answer));
}

/// Answers a command line whose first word is no command; nothing if it is one.
std::optional<int> answer_without_command(Console& console, int argc, char** argv) {
  if (argc < 2) {
    console.result(overview(console.width()));
    return finish(console, ExitCode::usage);
  }
  const std::string_view first = argv[1];
  constexpr std::string_view kAlone[] = {"-h", "--help", "--version"};
  const bool is_option = first.starts_with('-');
  const bool is_known =
      is_option ? std::find(std::begin(kAlone), std::end(kAlone), first) != std::end(kAlone)
                : is_command(first);
  if (is_known) return std::nullopt;
  std::error_code none;
  if (!is_option && argc == 2 && std::filesystem::exists(first, none))
    return say_what_file_is(console, argv[1]);
  console.say(no_such_command(first) + "; see emmctl --help");
  return static_cast<int>(ExitCode::usage);
}

/// Gives the words after `--` to the command that takes a program, whatever they look like, and
/// takes them from the command line.
void take_program_words(const OfferedCommands& offered, int& argc, char** argv) {
  const auto rest = std::find(argv, argv + argc, std::string_view("--"));
  for (const auto& one : offered) {
    auto* const program = one->program();
    if (program == nullptr || one->app->get_name() != argv[1] || rest == argv + argc) continue;
    for (auto word = rest + 1; word != argv + argc; ++word) program->emplace_back(*word);
    argc = static_cast<int>(rest - argv);
  }
}

/// Adds what the defaults file says of the command to `words`, unless they ask for help. An error
/// is one of that file.
Status add_defaults(const Page& page, bool is_hidden, int argc, char** argv,
                    std::vector<std::string>& words) {
  const bool asks_for_help = std::any_of(words.begin(), words.end(), [](const auto& word) {
    return word == "-h" || word == "--help";
  });
  if (is_hidden || asks_for_help) return {};
  const auto defaults = defaults_of(page);  // also registers the file, as an input
  if (page.name == "doctor") return {};     // which says itself what is wrong there
  if (!defaults) return defaults.error();
  words = with_defaults(page, *defaults, argc, argv);
  return {};
}

/// CLI11 has an exit code for each mistake; all of them become `usage`. Help and version, which it
/// throws too, are successes. `page` is null where no command was named.
int answer_parse_error(Console& console, const CLI::App& app, const CLI::ParseError& error,
                       const Page* page, const std::vector<std::string>& words) {
  if (error.get_exit_code() == 0) {
    std::ostringstream told, wrong;
    app.exit(error, told, wrong);
    console.result(told.str());
    return finish(console, ExitCode::fine);
  }
  auto said = page != nullptr ? unknown_option(*page, words) : std::string();
  constexpr auto kExtras = static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (said.empty() && page != nullptr && error.get_exit_code() == kExtras &&
      names_several_files(*page, words)) {
    said = text::format("{} takes one file: `emmctl ranks` takes several, or a folder", page->name);
  }
  if (said.empty()) said = error.what();
  console.say(
      text::format("{}; see emmctl {}--help", said,
                   page != nullptr && !page->hidden ? text::format("{} ", page->name) : ""));
  return finish(console, ExitCode::usage);
}

int run_command(Console& console, OfferedCommand& one) {
  auto apart = apply_capacity(one);
  if (apart) apart = look_at_files(one);
  auto code = apart ? one.run->run(console) : Result<ExitCode>(apart.error());
  const bool is_other = !code && code.error().code == Errc::unknown_format;
  const auto inputs = is_other ? input_files(one.arguments) : std::vector<std::string>();
  one.run.reset();  // closes what the command left open, which may fail
  if (std::any_of(inputs.begin(), inputs.end(), can_be_read_again)) continue_with_all_wings();
  if (code) return finish(console, *code);
  console.say(describe(code.error()));
  say_what_they_are(console, inputs);
  return finish(console, exit_code_of(code.error()), describe(code.error()));
}

int run(int argc, char** argv) {
  constexpr std::string_view kVersion = "--version";
  if (argc < 2 || !(is_command(argv[1]) || argv[1] == kVersion)) continue_with_all_wings();
  Console console(executable_path());
  CLI::App app("", "emmctl");
  app.set_version_flag(std::string(kVersion), "emmctl " EMM_VERSION);
  app.require_subcommand(1);
  const auto width = console.width();
  app.formatter_fn(
      [&](const CLI::App*, const std::string&, CLI::AppFormatMode) { return overview(width); });
  const auto offered = offer_commands(app, width);

  if (const auto answered = answer_without_command(console, argc, argv)) return *answered;
  take_program_words(offered, argc, argv);
  run_files::begin();
  std::vector<std::string> words(argv, argv + argc);
  std::optional<Page> page;
  for (const auto* command : bundled_commands()) {
    if (command->name != words[1]) continue;
    page = page_of(*command);
    if (auto added = add_defaults(*page, command->hidden, argc, argv, words); !added) {
      console.say(describe(added.error()));
      return finish(console, exit_code_of(added.error()));
    }
    break;
  }
  try {
    auto given = words;
    std::reverse(given.begin(), given.end());  // CLI11 takes the words in reverse
    given.pop_back();                          // the program's name
    app.parse(given);
  } catch (const CLI::ParseError& error) {
    return answer_parse_error(console, app, error, page ? &*page : nullptr, words);
  }
  for (const auto& one : offered) {
    if (one->app->parsed()) return run_command(console, *one);
  }
  return static_cast<int>(ExitCode::usage);
}

/// Makes the stack grow now, which touching its lowest page does. If the address space is limited,
/// a stack that cannot grow later crashes.
void grow_stack() {
  // Bytes. A stack limit of less than four times as many is left as the user set it.
  constexpr std::size_t kRoom = std::size_t{512} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur < 4 * kRoom) return;
  void* const room = mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) out_of_host_memory();
  munmap(room, kRoom);
  *static_cast<volatile char*>(__builtin_alloca(kRoom)) = 0;
}

/// Opens the standard streams that were closed when the program began, in a way that refuses their
/// use. The next file would otherwise take the number of standard output, and the answer with it.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int refusing = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", refusing) < 0) return;
  }
}

/// Runs before main and before the constructors of other files, which allocate.
[[gnu::constructor(101)]] void begin() {
  end_where_host_memory_ends();
  hold_standard_streams();
  grow_stack();
}

}  // namespace

int main(int argc, char** argv) {
  // makes a write beyond the file size limit (ulimit -f) fail, as on a full disk
  std::signal(SIGXFSZ, SIG_IGN);
  obey_signals();
  try {
    remove_left_folders();
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    out_of_host_memory();  // a request too large for any computer
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emmctl: a bug of ours: %s\n",
                 text::printable(error.what(), std::string::npos).c_str());
  }
  return static_cast<int>(ExitCode::bug);
}
