#include "cli/program_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/run_files.hpp"
#include "base/text.hpp"
#include "exchange/importer.hpp"

namespace emm::cli {
namespace {

bool is_regular(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

std::string beginning_of(const std::string& path) {
  // Bytes: what an importer's sniff() is shown.
  constexpr std::size_t kMost = std::size_t{64} << 10;
  std::ifstream file(path, std::ios::binary);
  std::string begin(kMost, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return begin;
}

/// Is it surely a trace in emmctl's own format, by its header?
bool holds_trace(const std::string& path) {
  constexpr std::size_t kHeader = 4096;  // bytes
  constexpr int kSure = 100;             // of sniff(), in percent
  const auto begin = beginning_of(path);
  const auto source = format::ByteSource::memory(begin);
  const auto header = source->peek(kHeader);
  const auto importer = trace::find_importer("emm");
  return header && importer && (*importer)->sniff(*header) == kSure;
}

/// Where the shell finds a program.
std::string path_of_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const variable = std::getenv("PATH");
  std::string_view places = variable != nullptr ? variable : "/bin:/usr/bin";
  while (!places.empty()) {
    const auto end = std::min(places.find(':'), places.size());
    auto path = end == 0 ? name : text::format("{}/{}", places.substr(0, end), name);
    if (is_regular(path) && access(path.c_str(), X_OK) == 0) return path;
    places.remove_prefix(std::min(end + 1, places.size()));
  }
  return name;
}

/// What `#!` on the first line names. Empty if it names nothing.
std::string interpreter_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return {};
  const auto words = text::trim(line);
  return std::string(words.substr(0, words.find_first_of(" \t")));
}

void register_file(const std::string& path, std::string_view who) {
  if (is_regular(path) && !holds_trace(path)) run_files::belongs_to_program(path, who);
}

}  // namespace

void register_program(const std::vector<std::string>& command) {
  if (command.empty()) return;
  const auto program = path_of_program(command.front());
  run_files::belongs_to_program(program, "the program");
  if (const auto interpreter = interpreter_of(program); !interpreter.empty())
    run_files::belongs_to_program(interpreter, "the program's interpreter");
  for (auto word = command.begin() + 1; word != command.end(); ++word) {
    constexpr std::string_view kWho = "the program's argument";
    register_file(*word, kWho);
    // "--config=FILE", and the words of a command line for `sh -c`
    std::string_view rest = *word;
    while (!rest.empty()) {
      const auto end = std::min(rest.find_first_of(" \t\n=;|&()<>'\"`$"), rest.size());
      if (end != 0 && end != word->size()) register_file(std::string(rest.substr(0, end)), kWho);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

Status may_become_trace(const std::string& path) {
  struct stat about {};
  const bool is_file = stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
  if (!is_file || about.st_size == 0 || holds_trace(path)) return {};
  return fail(Errc::usage,
              "{} is there and is no trace: expected a new file, or a trace to replace", path);
}

}  // namespace emm::cli
