#include "cli/arguments.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/text.hpp"

namespace emm::cli {
namespace {

/// Is `value`, as --help shows it, a path and nothing else?
bool is_only_path(std::string_view value) {
  const auto kind = value.substr(0, value.find('|'));
  return kind == "FILE" || kind == "FOLDER" || kind == "DIR";
}

}  // namespace

Argument& Arguments::add(std::string_view names, std::string_view value, std::string_view help,
                         Argument::Place place, std::string_view otherwise) {
  auto& added = declared_.emplace_back(Argument{
      .names = {}, .value = std::string(value), .help = std::string(help), .place = place});
  while (!names.empty()) {
    const auto comma = std::min(names.find(','), names.size());
    added.names.emplace_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  if (!otherwise.empty()) added.help += text::format(" [{}]", otherwise);
  if (const auto heading = std::exchange(next_heading_, std::nullopt)) added.heading = *heading;
  return added;
}

void Arguments::positional(std::string_view name, std::string& into, std::string_view help,
                           bool required) {
  add(name, {}, help, &into).required = required;
}

void Arguments::program(std::string_view name, std::vector<std::string>& into,
                        std::string_view help) {
  auto& added = add(name, {}, help, &into);
  added.required = true;
  added.use = Argument::Use::program;
}

void Arguments::text(std::string_view name, std::string& into, std::string_view value,
                     std::string_view help) {
  EMM_ASSERT(!is_only_path(value));
  add(name, value, help, &into, into);
}

void Arguments::input(std::string_view name, std::string& into, std::string_view help,
                      bool required) {
  const bool option = name.starts_with('-');
  auto& added = add(name, option ? "FILE" : "", help, &into);
  added.required = required && !option;
  added.use = Argument::Use::input;
}

void Arguments::inputs(std::string_view name, std::vector<std::string>& into,
                       std::string_view value, std::string_view help) {
  const bool option = name.starts_with('-');
  auto& added = add(name, option ? value : "", help, &into);
  added.required = !option;
  added.use = Argument::Use::input;
}

void Arguments::output(std::string_view name, std::string& into, std::string_view help) {
  if (!next_heading_) next_heading_ = OptionHeading::output;
  const bool option = name.starts_with('-');
  add(name, option ? "FILE|-" : "", help, &into, option ? into : "").use = Argument::Use::output;
}

void Arguments::output_file(std::string_view name, std::string& into, std::string_view help) {
  if (!next_heading_) next_heading_ = OptionHeading::output;
  add(name, "FILE", help, &into, into).use = Argument::Use::output;
}

void Arguments::output_folder(std::string_view name, std::string& into, std::string_view value,
                              std::string_view help) {
  if (!next_heading_) next_heading_ = OptionHeading::output;
  const bool option = name.starts_with('-');
  auto& added = add(name, option ? value : "", help, &into, option ? into : "");
  added.required = !option;
  added.use = Argument::Use::folder;
}

void Arguments::list(std::string_view name, std::vector<std::string>& into, std::string_view value,
                     std::string_view help) {
  EMM_ASSERT(!is_only_path(value));
  add(name, value, help, &into);
}

void Arguments::choice(std::string_view name, std::string& into,
                       const std::vector<std::string>& choices, std::string_view help) {
  add(name, text::join(choices, "|"), help, &into, into).choices = choices;
}

void Arguments::count(std::string_view name, std::uint64_t& into, std::string_view help) {
  add(name, "N", help, &into, text::format("{}", into));
}

void Arguments::count(std::string_view name, std::optional<std::uint64_t>& into,
                      std::string_view value, std::string_view help) {
  add(name, value, help, &into);
}

void Arguments::flag(std::string_view name, bool& into, std::string_view help) {
  add(name, {}, help, &into);
}

}  // namespace emm::cli
