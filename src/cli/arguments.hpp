#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace emm::cli {

/// The headings of options on a page of help, in its order.
enum class OptionHeading : std::uint8_t { input, manager, device, run, shown, output, other };
inline constexpr std::string_view kOptionHeadings[] = {
    "Input", "Manager", "Device", "How it runs", "What is shown", "Output", "Other"};

/// One option or positional of a command: what the command line, the pages of help, the manual
/// pages and the completions know of it.
struct Argument {
  /// Where the given value goes. Of a repeatable argument it is the list, of a flag the bool.
  using Place = std::variant<std::monostate, std::string*, std::vector<std::string>*,
                             std::uint64_t*, std::optional<std::uint64_t>*, bool*>;
  /// What the command does with the value, if that is a path or a program.
  enum class Use : std::uint8_t { value, input, output, folder, program };

  std::vector<std::string> names;  ///< "-o", "--output". A positional has one name, "TRACE".
  std::string value;               ///< "FILE|-". Empty if it takes no value.
  std::string help;                ///< With the default in brackets.
  Place place;
  std::vector<std::string> choices{};
  OptionHeading heading = OptionHeading::run;
  Use use = Use::value;
  bool required = false;

  const std::string& longest() const noexcept { return names.back(); }
  bool is_positional() const noexcept { return !names.front().starts_with('-'); }
  bool is_path() const noexcept { return use != Use::value && use != Use::program; }
  bool is_repeatable() const noexcept {
    return std::holds_alternative<std::vector<std::string>*>(place);
  }
};

/// The arguments that a command takes. A command declares them here in the order of --help and
/// finds the given values in its own fields. The value of a field at the declaration is the default
/// that --help shows. The command itself parses texts of sizes and times.
class Arguments {
 public:
  /// The next option that is declared stands under this heading. Without it an output stands under
  /// "Output", and every other option under "How it runs".
  Arguments& under(OptionHeading heading) {
    next_heading_ = heading;
    return *this;
  }

  void positional(std::string_view name, std::string& into, std::string_view help,
                  bool required = true);
  void text(std::string_view name, std::string& into, std::string_view value,
            std::string_view help);
  /// A program to run and its arguments: everything from the first positional or `--` on.
  void program(std::string_view name, std::vector<std::string>& into, std::string_view help);
  /// A positional, or an option with the value FILE, that names a file which the command reads.
  /// Before the command runs, an output that is also an input or another output is refused
  /// (run_files.hpp).
  void input(std::string_view name, std::string& into, std::string_view help, bool required = true);
  void inputs(std::string_view name, std::vector<std::string>& into, std::string_view value,
              std::string_view help);  ///< Repeatable.
  /// A file that the command writes: an option with the value "FILE|-", or an optional positional.
  /// A path that means standard output becomes "-". All that a command writes is declared by this
  /// and the next two, and no other option may have the value FILE, FOLDER or DIR.
  void output(std::string_view name, std::string& into, std::string_view help);
  /// An option for a file that cannot be standard output.
  void output_file(std::string_view name, std::string& into, std::string_view help);
  /// A folder that the command makes or fills: an option with this value, or a positional.
  void output_folder(std::string_view name, std::string& into, std::string_view value,
                     std::string_view help);
  /// Repeatable.
  void list(std::string_view name, std::vector<std::string>& into, std::string_view value,
            std::string_view help);
  void choice(std::string_view name, std::string& into, const std::vector<std::string>& choices,
              std::string_view help);
  void count(std::string_view name, std::uint64_t& into, std::string_view help);
  void count(std::string_view name, std::optional<std::uint64_t>& into, std::string_view value,
             std::string_view help);
  void flag(std::string_view name, bool& into, std::string_view help);
  /// Free text after the options.
  void footer(std::string_view text) { footer_ = text; }

  /// What was declared, in that order.
  const std::vector<Argument>& declared() const noexcept { return declared_; }
  const std::string& footer() const noexcept { return footer_; }

 private:
  /// `names` is "-o,--output", or the name of a positional. `otherwise` is the default that the
  /// help shows, if any.
  Argument& add(std::string_view names, std::string_view value, std::string_view help,
                Argument::Place place, std::string_view otherwise = {});

  std::vector<Argument> declared_;
  std::string footer_;
  std::optional<OptionHeading> next_heading_;
};

}  // namespace emm::cli
