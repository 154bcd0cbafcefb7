#include "cli/gates.hpp"

#include "base/text.hpp"

namespace emm::cli {

void Gates::offer(Arguments& arguments, std::string_view example) {
  std::vector<std::string_view> names;
  for (const auto& measure : measures_) names.push_back(measure.name);
  arguments.list(
      "--fail-if", given_, "CONDITION",
      text::format("Exit with 1 if the condition holds, such as '{}'; names are {}; repeatable",
                   example, text::join(names)));
}

Status Gates::parse() {
  for (const auto& words : given_) {
    auto condition = Condition::parse(words, measures_);
    if (!condition) return std::move(condition).error();
    if (condition->is_relative())
      return fail(Errc::usage, "--fail-if {}: expected a number or a size: there is no baseline",
                  words);
    conditions_.push_back(*std::move(condition));
  }
  return {};
}

ExitCode Gates::judge(Console& console, ExitCode code, std::initializer_list<std::uint64_t> values,
                      std::string_view of_leaks) const {
  bool fails = false;
  for (const auto& condition : conditions_) {
    for (std::size_t at = 0; at < measures_.size(); ++at) {
      const auto value = static_cast<double>(values.begin()[at]);
      if (measures_[at].name != condition.measure()) continue;
      const bool holds = condition.holds(value, value, condition.bound());
      const bool of_them = !holds && condition.measure().starts_with("leaked");
      console.say(text::format("--fail-if {}: {}{} is {}{}", condition.words(),
                               holds ? "" : "passes: ", condition.measure(), condition.shown(value),
                               of_them ? of_leaks : std::string_view()));
      fails = fails || holds;
    }
  }
  return fails && code == ExitCode::fine ? ExitCode::failure : code;
}

}  // namespace emm::cli
