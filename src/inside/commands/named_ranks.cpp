#include "commands/named_ranks.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::cli {

Result<NamedRanks> NamedRanks::parse(const std::string& given) {
  constexpr std::uint64_t kMost = 65536;
  const auto wrong = [&](std::string_view expected) {
    return fail(Errc::usage, "--ranks {}: expected {}", given, expected);
  };
  constexpr std::string_view kForm = "RANK,... of COUNT, as in '0,7 of 64' or '0..3 of 64'";
  constexpr std::string_view kOf = " of ";
  const auto at = given.find(kOf);
  const auto all = at != given.npos
                       ? text::to_u64(text::trim(std::string_view(given).substr(at + kOf.size())))
                       : std::nullopt;
  if (!all || *all == 0 || *all > kMost) return wrong(kForm);
  NamedRanks made{.run = {}, .all = static_cast<int>(*all)};
  const auto list = std::string_view(given).substr(0, at);
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto part = text::trim(list.substr(begin, end - begin));
    begin = end + 1;
    const auto dots = part.find("..");
    const auto first = text::to_u64(part.substr(0, dots));
    const auto last = dots == part.npos ? first : text::to_u64(part.substr(dots + 2));
    if (!first || !last || *first > *last) return wrong(kForm);
    if (*last >= *all) return wrong(text::format("ranks from 0 to {}", *all - 1));
    for (auto rank = *first; rank <= *last; ++rank) made.run.push_back(static_cast<int>(rank));
  }
  std::sort(made.run.begin(), made.run.end());
  made.run.erase(std::unique(made.run.begin(), made.run.end()), made.run.end());
  return made;
}

std::string NamedRanks::words() const {
  std::vector<std::string> ranks;
  for (const auto rank : run) ranks.push_back(text::format("{}", rank));
  return text::format("{}/{}", text::join(ranks, ","), all);
}

}  // namespace emm::cli
