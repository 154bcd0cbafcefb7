#include "commands/swept_values.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::cli {

std::string_view name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::fits:
      return "fits";
    case Outcome::tight:
      return "tight";
    case Outcome::too_small:
      return "too small";
    case Outcome::failed:
      return "failed";
    case Outcome::unknown:
      return "not known";
    case Outcome::not_run:
      return "not run";
  }
  return "";
}

Result<Swept> Swept::parse(const std::string& given) {
  const auto wrong = [&](std::string_view expected) {
    return fail(Errc::usage, "--sweep {}: expected {}", given, expected);
  };
  const auto at = given.find('=');
  if (at == given.npos || at == 0) return wrong("NAME=VALUE,... or NAME=LEAST..MOST");
  Swept made{.name = given.substr(0, at), .values = {}};
  const auto rest = std::string_view(given).substr(at + 1);
  if (const auto dots = rest.find(".."); dots != rest.npos) {
    const auto least = text::to_u64(rest.substr(0, dots)),
               most = text::to_u64(rest.substr(dots + 2));
    if (!least || !most || *least > *most)
      return wrong("two whole numbers, the lesser first, as in batch=1..512");
    if (made.is_of_device()) return wrong("values of a device, as in capacity=24GiB,40GiB");
    made.least = *least;
    made.most = *most;
    return made;
  }
  for (std::size_t begin = 0; begin <= rest.size();) {
    const auto end = std::min(rest.find(',', begin), rest.size());
    made.values.emplace_back(rest.substr(begin, end - begin));
    if (made.values.back().empty()) return wrong("a value before and after each comma");
    begin = end + 1;
  }
  return made;
}

bool Swept::is_of_device() const noexcept {
  constexpr std::string_view kOptions[] = {"gpu", "profile", "capacity", "devices"};
  return std::find(std::begin(kOptions), std::end(kOptions), name) != std::end(kOptions);
}

std::string words_of_settings(const std::vector<Setting>& settings) {
  std::vector<std::string> words;
  for (const auto& [name, value] : settings) words.push_back(name + "=" + value);
  return text::join(words);
}

std::string with_values(const std::string& word, const std::vector<Setting>& settings) {
  std::string made;
  for (std::size_t at = 0; at < word.size();) {
    const Setting* found = nullptr;
    if (word[at] == '{') {
      for (const auto& setting : settings) {
        if (word.compare(at + 1, setting.first.size() + 1, setting.first + '}') == 0)
          found = &setting;
      }
    }
    if (found == nullptr) {
      made += word[at++];
    } else {
      made += found->second;
      at += found->first.size() + 2;
    }
  }
  return made;
}

std::vector<std::vector<Setting>> combinations(const std::vector<Swept>& all) {
  std::vector<std::vector<Setting>> made{{}};
  for (const auto& swept : all) {
    if (swept.is_range()) continue;
    std::vector<std::vector<Setting>> longer;
    for (const auto& known : made) {
      for (const auto& value : swept.values) {
        longer.push_back(known);
        longer.back().emplace_back(swept.name, value);
      }
    }
    made = std::move(longer);
  }
  return made;
}

std::optional<std::uint64_t> LargestThatFits::next() const {
  if (known_.empty()) return least_;
  if (not_judged()) return std::nullopt;
  const auto first_failing = std::find_if(known_.begin(), known_.end(),
                                          [](const auto& one) { return !passes(one.second); });
  const auto reached = first_failing == known_.begin()
                           ? std::optional<std::uint64_t>()
                           : std::optional(std::prev(first_failing)->first);
  if (first_failing == known_.end()) {  // doubles
    if (*reached == most_) return std::nullopt;
    return *reached >= most_ / 2 ? most_ : std::max<std::uint64_t>(*reached * 2, 1);
  }
  const auto failing = first_failing->first;
  if (reached && failing - *reached > 1) return *reached + (failing - *reached) / 2;
  if (known_.count(most_) == 0) return most_;
  return std::nullopt;
}

std::optional<std::uint64_t> LargestThatFits::largest() const {
  const auto found = std::find_if(known_.rbegin(), known_.rend(),
                                  [](const auto& one) { return passes(one.second); });
  if (found == known_.rend()) return std::nullopt;
  return found->first;
}

std::optional<std::uint64_t> LargestThatFits::least_too_large() const {
  const auto reached = largest();
  for (auto one = reached ? known_.upper_bound(*reached) : known_.begin(); one != known_.end();
       ++one) {
    if (one->second == Outcome::too_small) return one->first;
  }
  return std::nullopt;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> LargestThatFits::not_monotone() const {
  const auto reached = largest();
  for (const auto& [number, outcome] : known_) {
    if (reached && number < *reached && outcome == Outcome::too_small)
      return std::pair(number, *reached);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> LargestThatFits::not_judged() const {
  for (const auto& [number, outcome] : known_) {
    if (!passes(outcome) && outcome != Outcome::too_small) return number;
  }
  return std::nullopt;
}

}  // namespace emm::cli
