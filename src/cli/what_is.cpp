#include "cli/what_is.hpp"

#include <fstream>
#include <vector>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "cli/statistics_answer.hpp"
#include "trace/importer.hpp"

namespace emm::cli {
namespace {

struct Asked {
  std::string command, what;
};

std::string listed(std::string words, const std::vector<Asked>& asked) {
  words += "\nAsk of it:\n";
  for (const auto& [command, what] : asked)
    words += text::format("  emmctl {}\n      {}\n", command, what);
  return words;
}

/// The schema ("emmctl.compare/2") of a result that a command wrote with --json. Empty for any
/// other file.
std::string schema_of(std::string_view begin) {
  const auto key = begin.find("\"schema\"");
  if (!begin.starts_with('{') || key == std::string_view::npos) return {};
  const auto open = begin.find('"', key + 8);
  if (open == std::string_view::npos) return {};
  const auto close = begin.find('"', open + 1);
  const auto value = begin.substr(open + 1, close - open - 1);
  return value.starts_with("emmctl.") ? std::string(value) : std::string();
}

std::string of_result(const std::string& path, const std::string& schema) {
  const auto shown = text::shell_word(path);
  if (schema.starts_with("emmctl.config/")) {
    return text::format(
        "{} holds defaults of options ({}); `emmctl doctor` says what is in effect.\n", path,
        schema);
  }
  const auto command = schema.substr(7, schema.find_first_of("/-", 7) - 7);
  std::vector<Asked> asked{{text::format("report {} -o page.html", shown), "Makes a page of it."}};
  if (command == "compare") {
    asked.push_back(
        {text::format("compare TRACE --baseline {} --fail-if 'reserved > 1.02x'", shown),
         "Says whether a manager reserves more than it did then."});
  }
  return listed(
      text::format("{} is the answer of `emmctl {}` as JSON ({}).\n", path, command, schema),
      asked);
}

std::string of_library(const std::string& path) {
  const auto shown = text::shell_word(path.find('/') == std::string::npos ? "./" + path : path);
  return listed(
      text::format("{} is a shared object or a program.\n", path),
      {{text::format("list managers {}", shown), "Lists the memory managers in it."},
       {text::format("conformance --manager {}", shown), "Judges its manager by the contract."},
       {text::format("record -o run.jsonl -- {}", shown),
        "Records it, where it is a program that uses CUDA."}});
}

std::string of_recording(const std::string& path, const trace::Importer& importer) {
  const auto shown = text::shell_word(path);
  std::vector<Asked> asked{
      {text::format("inspect {}", shown), "Shows sizes, lifetimes, the peak and leaks."},
      {text::format("explain {}", shown), "Says why it ran out of memory, if it did."},
      {text::format("tune {}", shown),
       "Finds the setting of PyTorch's allocator that takes the least memory."},
      {text::format("replay {} --manager pool", shown), "Says whether the pool serves it."},
      {text::format("compare {} --manager pool --manager pytorch", shown),
       "Shows which manager reserves less."},
      {text::format("report {} -o page.html", shown), "Makes a page for a browser."},
  };
  if (importer.name != "emm") {
    asked.push_back({text::format("convert {} run.jsonl", shown), "Makes a trace of it."});
  } else {
    asked.push_back({text::format("check {}", shown), "Says whether it is sound."});
  }
  return listed(
      text::format("{} is in the format {}: {}.\n", path, importer.name, importer.summary), asked);
}

}  // namespace

Result<std::string> what_is(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  if (begin.starts_with("\x7f"
                        "ELF"))
    return of_library(path);
  if (const auto schema = schema_of(begin); !schema.empty()) return of_result(path, schema);
  auto source = format::ByteSource::open(path);
  if (!source) return std::move(source).error();
  const auto importer = trace::detect(**source);
  if (!importer) {
    if (auto words = what_statistics(**source, path); !words.empty()) return words;
    return importer.error();
  }
  return of_recording(path, **importer);
}

}  // namespace emm::cli
