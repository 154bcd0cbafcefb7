#include "cli/page.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli/what_is.hpp"
#include "emm/manager_entry.hpp"
#include "format/columns.hpp"

namespace emm::cli {
namespace {

bool declares(const Arguments& arguments, std::string_view name) {
  const auto& all = arguments.declared();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& option) { return option.longest() == name; });
}

/// The commands that --help lists, in the order of their headings.
std::vector<const Command*> listed_commands() {
  std::vector<const Command*> listed;
  for (const auto* command : bundled_commands()) {
    if (!command->hidden) listed.push_back(command);
  }
  std::stable_sort(listed.begin(), listed.end(),
                   [](const auto* a, const auto* b) { return a->heading < b->heading; });
  return listed;
}

std::vector<Page> all_pages() {
  std::vector<Page> pages;
  for (const auto* command : listed_commands()) pages.push_back(page_of(*command));
  return pages;
}

std::string usage(const Page& page) {
  auto line = text::format("emmctl {} [OPTIONS]", page.name);
  for (const auto& one : page.positionals) {
    const auto name = one.longest() + (one.is_repeatable() ? "..." : "");
    line += one.required ? " " + name : " [" + name + "]";
  }
  return line;
}

/// "  -o, --output FILE|-"
std::string left_of(const Argument& option) {
  auto left = option.names.size() == 1 && !option.is_positional() ? "    " + option.names[0]
                                                                  : text::join(option.names, ", ");
  if (!option.value.empty()) left += " " + option.value;
  return left;
}

constexpr std::size_t kColumn = 26;  // where the right column begins

/// A row with `left` in the left column and `words`, wrapped, in the right one.
std::string row(std::string left, std::string_view words, int width) {
  const auto room = static_cast<std::size_t>(std::max(width - static_cast<int>(kColumn), 30));
  std::string out = "  " + left;
  if (left.size() + 4 > kColumn) {
    out += '\n';
    out.append(kColumn, ' ');
  } else {
    out.append(kColumn - 2 - left.size(), ' ');
  }
  bool first = true;
  auto lines = format::wrapped(words, room);
  for (std::string_view rest = lines; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (!first) out.append(kColumn, ' ');
    first = false;
    out.append(rest.substr(0, end));
    out += '\n';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

// ---- manual pages

/// Escapes text for troff: a dash stays a dash, and no line begins with a request.
std::string troff(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string title(std::string_view name, std::string_view version, std::string_view summary) {
  auto upper = std::string(name);
  for (auto& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text::format(".TH {} 1 \"\" \"emmctl {}\"\n.SH NAME\n{} \\- {}\n", troff(upper), version,
                      troff(name), troff(summary));
}

std::string examples(const std::vector<CommandExample>& given) {
  std::string out;
  if (given.empty()) return out;
  out += ".SH EXAMPLES\n";
  for (const auto& [command, what] : given) {
    out += text::format(".TP\n.B {}\n{}\n", troff(command), troff(what));
  }
  return out;
}

constexpr std::string_view kFiles =
    ".SH FILES\n.TP\n.I emmctl.json\nDefaults of options, in the current folder, else in "
    "~/.config/emmctl/. EMM_CONFIG names another file; set and empty, it names none.\n";

// ---- completions

std::string quoted(std::string_view words) {  // for use inside '...'
  std::string out;
  for (const char c : words) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out;
}

/// "the wings judge and inside": those that are not in this program. Empty if all are.
std::string absent_wings() {
  std::vector<std::string_view> wings;
  for (const auto& absent : absent_commands()) {
    if (wings.empty() || wings.back() != absent.wing) wings.push_back(absent.wing);
  }
  if (wings.empty()) return {};
  return text::format("the {} {}", wings.size() == 1 ? "wing" : "wings",
                      text::join(wings, " and "));
}

std::string names_of(const Page& page) {
  std::vector<std::string> names;
  for (const auto& option : page.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return text::join(names, " ");
}

/// The possible values of an option, if they are known.
std::vector<std::string> values_of(const Argument& option) {
  if (!option.choices.empty()) return option.choices;
  std::vector<std::string> values;
  if (option.longest() == "--manager" || option.longest() == "--against") {
    for (const auto* entry : bundled_managers()) values.emplace_back(entry->name);
  } else if (option.longest() == "--adaptor") {
    for (const auto* entry : bundled_adaptors()) values.emplace_back(entry->name);
  } else if (option.longest() == "--device") {
    values = {"auto", "sim", "cuda"};
  }
  return values;
}

/// The possible words of the first positional, if they are known.
std::vector<std::string> first_words(const Page& page) {
  if (page.name == "help") {
    std::vector<std::string> words;
    for (const auto& one : all_pages()) words.emplace_back(one.name);
    return words;
  }
  if (page.name == "completion") return {"bash", "zsh", "fish"};
  if (page.name == "plugin") return {"new"};
  if (page.name == "list" || page.name == "generate") {
    std::vector<std::string> words;
    for (std::string_view rest = page.positionals.front().help; !rest.empty();) {
      const auto end = std::min(rest.find(", "), rest.size());
      words.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    return words;
  }
  return {};
}

std::string bash() {
  const auto pages = all_pages();
  std::vector<std::string_view> names;
  for (const auto& page : pages) names.push_back(page.name);
  std::string out =
      "# Completion of emmctl for bash, made by `emmctl completion bash`.\n_emmctl() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '" +
      text::join(names, " ") +
      " --help --version' -- \"$word\") $(compgen -f -- \"$word\"))\n"
      "    return\n  fi\n  case ${COMP_WORDS[1]}:$before in\n";
  for (const auto& page : pages) {
    for (const auto& option : page.options) {
      const auto values = values_of(option);
      if (values.empty()) continue;
      for (const auto& name : option.names)
        out += text::format("    {}:{}) words='{}' ;;\n", page.name, name, text::join(values, " "));
    }
  }
  out += "  esac\n  if [ -z \"$words\" ]; then\n    case ${COMP_WORDS[1]} in\n";
  for (const auto& page : pages) {
    const auto first = first_words(page);
    out += text::format("      {}) words='{}{}{}' ;;\n", page.name, names_of(page),
                        first.empty() ? "" : " ", text::join(first, " "));
  }
  out +=
      "    esac\n    case $word in -*) ;; *) COMPREPLY=($(compgen -f -- \"$word\")) ;; esac\n  fi\n"
      "  COMPREPLY+=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
      "complete -o filenames -F _emmctl emmctl\n";
  return out;
}

std::string zsh() {
  std::string out =
      "#compdef emmctl\n# Completion of emmctl for zsh, made by `emmctl completion zsh`.\n"
      "_emmctl() {\n  local -a commands\n  commands=(\n";
  const auto pages = all_pages();
  const auto plain = [](std::string_view words) {
    std::string text;
    for (const char c : quoted(words)) {
      if (c == ':' || c == '[' || c == ']') text += '\\';
      text += c;
    }
    return text;
  };
  for (const auto& page : pages)
    out += text::format("    '{}:{}'\n", page.name, plain(page.summary));
  out +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    _files\n    return\n"
      "  fi\n  case $words[2] in\n";
  for (const auto& page : pages) {
    out += text::format("    {})\n      _arguments \\\n", page.name);
    for (const auto& option : page.options) {
      for (const auto& name : option.names) {
        const auto values = values_of(option);
        std::string value;
        if (!option.value.empty()) {
          value = values.empty() ? option.is_path() ? ":file:_files" : ": :"
                                 : text::format(":value:({})", text::join(values, " "));
        }
        out += text::format("        '{}{}[{}]{}' \\\n", option.is_repeatable() ? "*" : "", name,
                            plain(option.help), value);
      }
    }
    const auto first = first_words(page);
    out += first.empty() ? "        '*:file:_files' ;;\n"
                         : text::format("        '*:word:({})' ;;\n", text::join(first, " "));
  }
  return out + "  esac\n}\n_emmctl \"$@\"\n";
}

std::string fish() {
  std::string out = "# Completion of emmctl for fish, made by `emmctl completion fish`.\n";
  const auto escaped = [](std::string_view words) {
    std::string text;
    for (const char c : words) {
      if (c == '\'' || c == '\\') text += '\\';
      text += c;
    }
    return text;
  };
  const auto pages = all_pages();
  for (const auto& page : pages) {
    out += text::format("complete -c emmctl -n __fish_use_subcommand -a {} -d '{}'\n", page.name,
                        escaped(page.summary));
  }
  for (const auto& page : pages) {
    const auto when =
        text::format("complete -c emmctl -n '__fish_seen_subcommand_from {}'", page.name);
    if (const auto first = first_words(page); !first.empty())
      out += text::format("{} -f -a '{}'\n", when, text::join(first, " "));
    for (const auto& option : page.options) {
      out += when;
      for (const auto& name : option.names) {
        out += name.starts_with("--") ? text::format(" -l {}", std::string_view(name).substr(2))
                                      : text::format(" -s {}", std::string_view(name).substr(1));
      }
      if (const auto values = values_of(option); !values.empty()) {
        out += text::format(" -x -a '{}'", text::join(values, " "));
      } else if (!option.value.empty()) {
        out += option.is_path() ? " -r -F" : " -x";
      }
      out += text::format(" -d '{}'\n", escaped(option.help));
    }
  }
  return out;
}

}  // namespace

void offer_capacity(Arguments& arguments, std::string& into) {
  const bool has_device = declares(arguments, "--device");
  const bool has_capacity = declares(arguments, "--capacity");
  if (has_device && !has_capacity) {
    arguments.under(OptionHeading::device)
        .text("--capacity", into, "SIZE",
              "The simulated device's memory, short for --device sim:capacity=SIZE");
  } else if (has_capacity && !has_device) {
    arguments.under(OptionHeading::device)
        .text("--device", into, "sim:capacity=SIZE", "The same as --capacity SIZE");
  }
}

Page page_of(const Command& command) {
  Page page{.name = command.name,
            .summary = command.summary,
            .hidden = command.hidden,
            .positionals = {},
            .options = {},
            .footer = {},
            .heading = command.heading,
            .examples = {}};
  for (const auto& example : command.examples) {
    if (!example.command.empty()) page.examples.push_back(example);
  }
  Arguments arguments;
  const auto run = command.make(arguments);
  std::string capacity;
  offer_capacity(arguments, capacity);
  bool asks_for_help = false;
  arguments.under(OptionHeading::other).flag("-h,--help", asks_for_help, "Show this page");
  for (const auto& one : arguments.declared())
    (one.is_positional() ? page.positionals : page.options).push_back(one);
  page.footer = arguments.footer();
  return page;
}

std::string help_text(const Page& page, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 60));
  auto out = format::wrapped(text::format("{}.", page.summary), columns);
  out += text::format("\nUsage: {}\n", usage(page));
  if (!page.positionals.empty()) out += '\n';
  for (const auto& one : page.positionals) out += row(left_of(one), one.help, width);
  if (!page.examples.empty()) out += "\nExamples:\n";
  for (const auto& [command, what] : page.examples)
    out += text::format("  {}\n      {}\n", command, what);
  for (std::size_t heading = 0; heading < std::size(kOptionHeadings); ++heading) {
    bool begun = false;
    for (const auto& option : page.options) {
      if (static_cast<std::size_t>(option.heading) != heading) continue;
      if (!begun) out += text::format("\n{}:\n", kOptionHeadings[heading]);
      begun = true;
      out += row(left_of(option), option.help, width);
    }
  }
  if (!page.footer.empty()) out += "\n" + format::wrapped(page.footer, columns);
  return out;
}

std::string no_such_command(std::string_view given) {
  std::vector<std::string_view> known;
  for (const auto* command : listed_commands()) known.push_back(command->name);
  if (given.starts_with('-'))
    return text::format("expected a command before {}: {}", given, text::join(known));
  for (const auto& absent : absent_commands()) {
    if (absent.name == given)
      return text::format("emmctl was built without the wing {}, which has {}", absent.wing, given);
  }
  if (const auto meant = text::nearest(given, known.data(), known.size()))
    return text::format("no command '{}', did you mean {}", given, *meant);
  return text::format("no command '{}': known are {}", given, text::join(known));
}

std::string overview(int width) {
  std::string out =
      "emmctl says why a CUDA program ran out of memory, which memory manager serves it with "
      "less,\n"
      "and whether a manager keeps NBEP 7's contract. No GPU is needed: --device sim simulates "
      "one.\n";
  if (const auto absent = absent_wings(); !absent.empty()) {
    out = text::format(
        "emmctl replays the allocations of CUDA programs on memory managers. It was built without "
        "{}.\n",
        absent);
  }
  out += "\nUsage: emmctl COMMAND [OPTIONS]\n";
  if (what_is_or_null() != nullptr)
    out += "       emmctl FILE    says what a file is, and what one can ask of it\n";
  const auto pages = all_pages();
  for (std::size_t heading = 0; heading < std::size(kHeadings); ++heading) {
    bool begun = false;
    for (const auto& page : pages) {
      if (static_cast<std::size_t>(page.heading) != heading) continue;
      if (!begun) out += text::format("\n{}:\n", kHeadings[heading]);
      begun = true;
      out += row(std::string(page.name), page.summary, width);
    }
  }
  out += "\nExamples:\n";
  for (const auto heading : {Heading::ask, Heading::judge}) {
    const auto first = std::find_if(pages.begin(), pages.end(),
                                    [&](const Page& page) { return page.heading == heading; });
    if (first == pages.end() || first->examples.empty()) continue;
    const auto& [command, what] = first->examples.front();
    out += text::format("  {}\n      {}\n", command, what);
  }
  return out +
         "\n`emmctl help COMMAND` shows the options of a command; --version shows the version.\n";
}

std::string manual(const Page& page, std::string_view version) {
  auto out = title(text::format("emmctl-{}", page.name), version, page.summary);
  out += text::format(".SH SYNOPSIS\n.B {}\n", troff(usage(page)));
  if (!page.footer.empty()) out += text::format(".SH DESCRIPTION\n{}\n", troff(page.footer));
  if (!page.positionals.empty()) out += ".SH ARGUMENTS\n";
  for (const auto& one : page.positionals)
    out += text::format(".TP\n.I {}\n{}\n", troff(one.longest()), troff(one.help));
  out += ".SH OPTIONS\n";
  for (std::size_t heading = 0; heading < std::size(kOptionHeadings); ++heading) {
    bool begun = false;
    for (const auto& option : page.options) {
      if (static_cast<std::size_t>(option.heading) != heading) continue;
      if (!begun) out += text::format(".SS {}\n", kOptionHeadings[heading]);
      begun = true;
      out += text::format(".TP\n.BR \"{}\" \" {}\"\n{}\n", troff(text::join(option.names, ", ")),
                          troff(option.value), troff(option.help));
    }
  }
  return out + examples(page.examples) + std::string(kFiles) + ".SH SEE ALSO\n.BR emmctl (1)\n";
}

std::string manual_of_program(std::string_view version) {
  auto out = title("emmctl", version,
                   "says why a CUDA program ran out of memory, and which memory manager serves it");
  out +=
      ".SH SYNOPSIS\n.B emmctl\n.I COMMAND\n[OPTIONS]\n.br\n.B emmctl\n.I FILE\n.SH DESCRIPTION\n"
      "Each command has a page of its own: emmctl\\-replay(1) is that of emmctl replay.\n";
  const auto pages = all_pages();
  for (std::size_t heading = 0; heading < std::size(kHeadings); ++heading) {
    bool begun = false;
    for (const auto& page : pages) {
      if (static_cast<std::size_t>(page.heading) != heading) continue;
      if (!begun) out += text::format(".SS {}\n", kHeadings[heading]);
      begun = true;
      out += text::format(".TP\n.BR emmctl\\-{} (1)\n{}\n", page.name, troff(page.summary));
    }
  }
  out +=
      ".SH EXIT STATUS\n0 fine; 1 the run found a failure; 2 wrong usage; 3 inconclusive; 4 "
      "damaged "
      "input; 5 no device; 70 a bug in emmctl; 128+n ended by signal n.\n"
      ".SH ENVIRONMENT\n.TP\n.B EMM_MEMORY_MANAGER\nThe manager where no \\-\\-manager is given.\n"
      ".TP\n.B EMM_CONFIG\nThe file with the defaults of options.\n";
  return out + std::string(kFiles);
}

std::string completion(std::string_view shell) {
  if (shell == "bash") return bash();
  if (shell == "zsh") return zsh();
  return fish();
}

}  // namespace emm::cli
