#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emm::cli {

/// The arguments that a command takes. A command declares them here in the order of --help and
/// finds the given values in its own fields. The value of a field at the declaration is the default
/// that --help shows. The command itself parses texts of sizes and times.
class Arguments {
 public:
  virtual ~Arguments() = default;

  /// Is `value`, as --help shows it, a path and nothing else?
  static bool is_path(std::string_view value) {
    const auto kind = value.substr(0, value.find('|'));
    return kind == "FILE" || kind == "FOLDER" || kind == "DIR";
  }

  virtual void positional(std::string_view name, std::string& into, std::string_view help,
                          bool required = true) = 0;
  virtual void text(std::string_view name, std::string& into, std::string_view value,
                    std::string_view help) = 0;
  /// A program to run and its arguments: everything from the first positional or `--` on.
  virtual void program(std::string_view name, std::vector<std::string>& into,
                       std::string_view help) = 0;
  /// A positional, or an option with the value FILE, that names a file which the command reads.
  /// Before the command runs, an output that is also an input or another output is refused
  /// (run_files.hpp).
  virtual void input(std::string_view name, std::string& into, std::string_view help,
                     bool required = true) = 0;
  virtual void inputs(std::string_view name, std::vector<std::string>& into, std::string_view value,
                      std::string_view help) = 0;  ///< Repeatable.
  /// A file that the command writes: an option with the value "FILE|-", or an optional positional.
  /// A path that means standard output becomes "-". All that a command writes is declared by this
  /// and the next two, and no other option may have the value FILE, FOLDER or DIR.
  virtual void output(std::string_view name, std::string& into, std::string_view help) = 0;
  /// An option for a file that cannot be standard output.
  virtual void output_file(std::string_view name, std::string& into, std::string_view help) = 0;
  /// A folder that the command makes or fills: an option with this value, or a positional.
  virtual void output_folder(std::string_view name, std::string& into, std::string_view value,
                             std::string_view help) = 0;
  /// Repeatable.
  virtual void list(std::string_view name, std::vector<std::string>& into, std::string_view value,
                    std::string_view help) = 0;
  virtual void choice(std::string_view name, std::string& into,
                      const std::vector<std::string>& choices, std::string_view help) = 0;
  virtual void count(std::string_view name, std::uint64_t& into, std::string_view help) = 0;
  virtual void count(std::string_view name, std::optional<std::uint64_t>& into,
                     std::string_view value, std::string_view help) = 0;
  virtual void flag(std::string_view name, bool& into, std::string_view help) = 0;
  /// Free text after the options.
  virtual void footer(std::string_view text) = 0;
};

}  // namespace emm::cli
