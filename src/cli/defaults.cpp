#include "cli/defaults.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

#include "base/run_files.hpp"
#include "base/text.hpp"
#include "cli/manager_choice.hpp"
#include "format/json_value.hpp"

namespace emm::cli {
namespace {

using format::JsonValue;

constexpr std::string_view kSchema = "emmctl.config/1";

std::vector<std::string> places() {
  const char* named = std::getenv("EMM_CONFIG");
  if (named != nullptr)
    return *named == '\0' ? std::vector<std::string>() : std::vector{std::string(named)};
  std::vector<std::string> all{"emmctl.json"};
  const char* folder = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (folder != nullptr && *folder != '\0') {
    all.push_back(std::string(folder) + "/emmctl/emmctl.json");
  } else if (home != nullptr) {
    all.push_back(std::string(home) + "/.config/emmctl/emmctl.json");
  }
  return all;
}

const Argument* option_of(const Page& page, std::string_view name) {
  for (const auto& option : page.options) {
    if (option.longest() == text::format("--{}", name)) return &option;
  }
  return nullptr;
}

/// The value as a word of the command line. Nothing if it cannot be one.
std::optional<std::string> word_of(const JsonValue& value) {
  if (const auto string = value.as_string()) return std::string(*string);
  if (const auto number = value.as_u64()) return text::format("{}", *number);
  if (const auto number = value.as_double()) return text::format("{}", *number);
  return std::nullopt;
}

/// Does "all" apply to the option? A list, such as the managers that `compare` compares, means
/// something else in each command; that of `fit` means the same, so often as it is given. So does a
/// --device that can only be simulated: it replaces --capacity, or takes a program's GPU away. A
/// --manager that can be no file, that of `run`, serves a program's own memory.
bool is_for_all(const Argument& option) {
  return (!option.is_repeatable() || option.help == kManagersHelp) &&
         !option.value.starts_with("sim") &&
         !(option.longest() == "--manager" && option.value.starts_with("NAME["));
}

/// Is it a command of this program, or of a wing that it lacks? One file holds for all programs.
bool names_command(std::string_view name) {
  const auto built = bundled_commands();
  const auto absent = absent_commands();
  return std::any_of(built.begin(), built.end(), [&](auto* one) { return one->name == name; }) ||
         std::any_of(absent.begin(), absent.end(), [&](auto& one) { return one.name == name; });
}

Status add(const std::string& path, const Argument& option, const JsonValue& value,
           Defaults& into) {
  const auto& name = option.longest();
  const auto refuse = [&](std::string_view expected) {
    return fail(Errc::usage, "{}: \"{}\": expected {}", path, std::string_view(name).substr(2),
                expected);
  };
  if (option.value.empty()) {
    const auto flag = value.as_bool();
    if (!flag) return refuse("true or false");
    if (*flag) into.options.emplace_back(name, "");
    return {};
  }
  const bool several = value.type == JsonValue::Type::array;
  if (several && !option.is_repeatable()) return refuse("one value");
  for (const auto& one : several ? std::span(value.elements) : std::span(&value, 1)) {
    const auto word = word_of(one);
    if (!word) return refuse("a string or a number");
    into.options.emplace_back(name, *word);
  }
  return {};
}

}  // namespace

Result<Defaults> defaults_of(const Page& page) {
  Defaults found;
  std::optional<JsonValue> root;
  const auto looked_at = places();
  for (const auto& path : looked_at) {
    if (access(path.c_str(), F_OK) != 0) {
      if (std::getenv("EMM_CONFIG") == nullptr) continue;
      return fail(Errc::usage, "EMM_CONFIG is {}: there is no such file", path);
    }
    if (auto apart = run_files::reads(path, "the defaults of"); !apart) return apart.error();
    std::ifstream file(path, std::ios::binary);
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    auto value = format::parse_json(words, path);
    if (!value) return std::move(value).error();
    const auto* schema = value->find("schema");
    if (schema == nullptr || schema->as_string() != kSchema) {
      found.why +=
          text::format("{} is not a configuration file: its schema is not {}; ", path, kSchema);
      continue;
    }
    found.path = path;
    root = std::move(*value);
    break;
  }
  if (!root) {
    found.why +=
        looked_at.empty() ? std::string("EMM_CONFIG is empty") : "none of " + text::join(looked_at);
    return found;
  }
  const JsonValue* own = nullptr;
  const JsonValue* of_all = nullptr;
  for (const auto& [name, at, value] : root->members) {
    if (name == "schema") continue;
    const bool known = name == "all" || names_command(name);
    if (!known || value.type != JsonValue::Type::object) {
      return fail(Errc::usage, "{}: \"{}\": expected \"all\" or a command, with an object",
                  found.path, name);
    }
    if (name == "all") of_all = &value;
    if (name == page.name) own = &value;
  }
  for (const auto* group : {own, of_all}) {
    if (group == nullptr) continue;
    for (const auto& [name, at, value] : group->members) {
      const auto* option = option_of(page, name);
      if (option == nullptr && group == own) {
        return fail(Errc::usage, "{}: {} has no option \"{}\"", found.path, page.name, name);
      }
      if (option == nullptr || (group == of_all && !is_for_all(*option))) continue;
      if (group == of_all && own != nullptr && own->find(name) != nullptr) continue;
      if (auto added = add(found.path, *option, value, found); !added) return added.error();
    }
  }
  return found;
}

}  // namespace emm::cli
