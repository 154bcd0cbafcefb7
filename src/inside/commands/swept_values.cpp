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

std::pair<std::optional<std::uint64_t>, std::optional<std::uint64_t>> LargestThatFits::open()
    const {
  const auto failing = std::find_if(known_.begin(), known_.end(),
                                    [](const auto& one) { return !passes(one.second.outcome); });
  std::optional<std::uint64_t> reached, too_large;
  if (failing != known_.begin()) reached = std::prev(failing)->first;
  if (failing != known_.end()) too_large = failing->first;
  return {reached, too_large};
}

std::optional<std::uint64_t> LargestThatFits::more_by_line(std::uint64_t reached) const {
  const auto last = known_.find(reached);
  const auto peak = last->second.peak;
  for (auto before = last; before != known_.begin();) {
    --before;
    if (before->second.peak >= peak) continue;  // small ones share pages
    const auto slope = static_cast<double>(peak - before->second.peak) /
                       static_cast<double>(reached - before->first);
    const auto more = static_cast<double>(capacity_ - std::min(capacity_, peak)) / slope;
    // A line through small numbers is a guess, and a run far above what fits takes long.
    constexpr std::uint64_t kFarthest = 16;
    const auto left = most_ - reached;
    const auto farthest = reached > left / kFarthest ? left : reached * kFarthest;
    return more >= static_cast<double>(farthest) ? farthest : static_cast<std::uint64_t>(more);
  }
  return std::nullopt;
}

void LargestThatFits::tell(std::uint64_t number, Outcome outcome, std::uint64_t peak,
                           std::uint64_t capacity) {
  const auto before = open();
  known_[number] = {.outcome = outcome, .peak = peak};
  capacity_ = capacity;
  const auto after = open();
  bool is_slow = false;
  if (before.first && after.first && after.second) {
    is_slow = before.second && *after.second - *after.first > (*before.second - *before.first) / 2;
  } else if (before.first && after.first) {
    is_slow = *after.first - *before.first < *after.first / 2;
  }
  slow_ = is_slow ? slow_ + 1 : 0;
}

std::optional<std::uint64_t> LargestThatFits::next() const {
  if (known_.empty()) return least_;
  if (not_judged()) return std::nullopt;
  const auto [reached, failing] = open();
  const bool is_found = failing && (!reached || *failing - *reached <= 1);
  if (is_found) return known_.count(most_) == 0 ? std::optional(most_) : std::nullopt;
  const auto left = (failing ? *failing - 1 : most_) - *reached;
  if (left == 0) return std::nullopt;
  auto more = more_by_line(*reached);
  // The range is halved once two tries in a row have left more than half of it. A step of 2^63
  // still fits into 64 bits.
  constexpr unsigned kPatience = 2, kMostDoubled = 63;
  if (failing) {
    // A peak of a run that was refused memory is what the card has: no line goes through it.
    const bool is_misled =
        known_.at(*reached).outcome == Outcome::tight || more.value_or(0) >= left;
    if (!more || is_misled || slow_ >= kPatience) more = (*failing - *reached) / 2;
  } else if (!more) {
    more = *reached;  // doubles
  } else if (slow_ > 0) {
    more = std::max(*more, std::uint64_t{1} << std::min(slow_, kMostDoubled));
  }
  return *reached + std::clamp<std::uint64_t>(*more, 1, left);
}

std::optional<std::uint64_t> LargestThatFits::largest() const {
  const auto found = std::find_if(known_.rbegin(), known_.rend(),
                                  [](const auto& one) { return passes(one.second.outcome); });
  if (found == known_.rend()) return std::nullopt;
  return found->first;
}

std::optional<std::uint64_t> LargestThatFits::least_too_large() const {
  const auto reached = largest();
  for (auto one = reached ? known_.upper_bound(*reached) : known_.begin(); one != known_.end();
       ++one) {
    if (one->second.outcome == Outcome::too_small) return one->first;
  }
  return std::nullopt;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> LargestThatFits::not_monotone() const {
  const auto reached = largest();
  for (const auto& [number, known] : known_) {
    if (reached && number < *reached && known.outcome == Outcome::too_small)
      return std::pair(number, *reached);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> LargestThatFits::not_judged() const {
  for (const auto& [number, known] : known_) {
    if (!passes(known.outcome) && known.outcome != Outcome::too_small) return number;
  }
  return std::nullopt;
}

}  // namespace emm::cli
