#include "fleet/rank_files.hpp"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "base/text.hpp"

namespace emm::fleet {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMissingMost = 4096;  // a gap that is larger is no gap of ranks

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Digits without leading zeros: they compare as numbers by length, then by text.
std::string_view digits_at(std::string_view text, std::size_t& at) noexcept {
  auto begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  while (begin + 1 < at && text[begin] == '0') ++begin;
  return text.substr(begin, at - begin);
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string_view without(std::string_view path, std::initializer_list<std::string_view> endings) {
  for (const auto ending : endings) {
    if (path.size() > ending.size() && path.ends_with(ending))
      return path.substr(0, path.size() - ending.size());
  }
  return path;
}

/// The path without what says how the file is packed and of which format it is.
std::string_view stem_of(std::string_view path) {
  return without(without(path, {".gz", ".zst"}),
                 {".pickle", ".pkl", ".json", ".jsonl", ".csv", ".emmb", ".raw", ".log"});
}

/// Files of a folder that are no recordings, by their names.
bool is_other(const std::string& path) {
  static constexpr std::array<std::string_view, 12> kEndings{".md",  ".txt", ".html", ".svg",
                                                             ".png", ".py",  ".sh",   ".out",
                                                             ".err", ".yml", ".yaml", ".tmp"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

/// A number in a path, and what stands before it.
struct Token {
  std::size_t at = 0;
  std::string digits;
  bool after_rank = false;  // "rank", perhaps with a sign between
  bool before_of = false;   // "3-of-8", "3of8", "3_of_8"
  bool after_of = false;
};

std::string_view word_before(std::string_view path, std::size_t at) {
  while (at > 0 && (path[at - 1] == '_' || path[at - 1] == '-' || path[at - 1] == '.' ||
                    path[at - 1] == '=' || path[at - 1] == ' '))
    --at;
  auto begin = at;
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(path[begin - 1])) != 0) --begin;
  return path.substr(begin, at - begin);
}

struct Named {
  std::string path, stem, pattern;
  std::vector<Token> tokens;
};

Named named(const std::string& path) {
  Named out{.path = path, .stem = std::string(stem_of(path)), .pattern = {}, .tokens = {}};
  const std::string_view stem = out.stem;
  for (std::size_t at = 0; at < stem.size();) {
    if (!is_digit(stem[at])) {
      out.pattern += stem[at++];
      continue;
    }
    Token token{.at = at, .digits = {}};
    const auto word = text::lower(word_before(stem, at));
    token.after_rank = word.ends_with("rank") || word == "r";
    token.after_of = word == "of" && !out.tokens.empty();
    if (token.after_of) out.tokens.back().before_of = true;
    token.digits = digits_at(stem, at);
    out.pattern += '#';
    out.tokens.push_back(std::move(token));
  }
  return out;
}

/// Which token of names that have one pattern is the rank.
std::vector<std::size_t> rank_tokens(const std::vector<Named>& names) {
  const auto& first = names.front().tokens;
  for (auto i = first.size(); i-- > 0;) {
    if (first[i].after_rank) return {i};
  }
  for (auto i = first.size(); i-- > 0;) {
    if (first[i].before_of) return {i};
  }
  std::vector<std::size_t> differing;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const Named& each) { return each.tokens[i].digits != first[i].digits; }))
      differing.push_back(i);
  }
  if (differing.empty() && names.size() == 1 && !first.empty()) return {first.size() - 1};
  return differing;
}

std::string label_of(const Named& name, const std::vector<std::size_t>& tokens) {
  std::vector<std::string> parts;
  for (const auto i : tokens) parts.push_back(name.tokens[i].digits);
  return parts.empty() ? std::string(stem_of(fs::path(name.path).filename().string()))
                       : text::join(parts, "/");
}

/// The path with * where the rank is.
std::string name_of(const Named& name, const std::vector<std::size_t>& tokens) {
  std::string out;
  std::size_t from = 0;
  for (const auto i : tokens) {
    const auto& token = name.tokens[i];
    auto end = token.at;
    while (end < name.stem.size() && is_digit(name.stem[end])) ++end;
    out += name.stem.substr(from, token.at - from) + '*';
    from = end;
  }
  return out + name.stem.substr(from) + name.path.substr(name.stem.size());
}

/// Names that have one pattern, or patterns that differ only in text: one set or several.
void add_sets(std::vector<RankSet>& sets, std::vector<Named> names) {
  const auto tokens = rank_tokens(names);
  std::map<std::string, std::vector<Named>> by_rest;
  std::set<std::string> labels;
  bool twice = false;
  for (auto& name : names) twice = !labels.insert(label_of(name, tokens)).second || twice;
  for (auto& name : names) {
    // The same rank twice: the runs are told apart by the other numbers.
    by_rest[twice ? name_of(name, tokens) : std::string()].push_back(std::move(name));
  }
  for (auto& [rest, members] : by_rest) {
    RankSet set{.name = name_of(members.front(), tokens)};
    set.by_rank = tokens.size() == 1 && members.front().tokens[tokens.front()].after_rank;
    std::uint64_t told = 0;
    for (const auto& each : members) {
      RankFile file{
          .path = each.path, .label = label_of(each, tokens), .number = {}, .figures = {}};
      if (tokens.size() == 1) file.number = text::to_u64(each.tokens[tokens.front()].digits);
      for (const auto& token : each.tokens) {
        if (token.after_of) told = std::max(told, text::to_u64(token.digits).value_or(0));
      }
      set.ranks.push_back(std::move(file));
    }
    set.told = told;
    sets.push_back(std::move(set));
  }
}

/// Where the names of hosts differ in text, the ranks of one run are in several patterns.
void join_hosts(std::vector<std::vector<Named>>& groups) {
  const auto base = [](const std::vector<Named>& group) {
    return fs::path(group.front().pattern).filename().string();
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (auto k = i + 1; k < groups.size();) {
      std::set<std::string> labels;
      bool disjoint = base(groups[i]) == base(groups[k]) &&
                      groups[i].front().tokens.size() == groups[k].front().tokens.size();
      if (disjoint) {
        const auto tokens = rank_tokens(groups[i]);
        disjoint = tokens.size() == 1 && groups[i].front().tokens[tokens.front()].after_rank;
        for (const auto* group : {&groups[i], &groups[k]}) {
          for (const auto& each : *group)
            disjoint = labels.insert(label_of(each, tokens)).second && disjoint;
        }
      }
      if (!disjoint) {
        ++k;
        continue;
      }
      for (auto& each : groups[k]) groups[i].push_back(std::move(each));
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

}  // namespace

bool stands_before(std::string_view a, std::string_view b) noexcept {
  std::size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      const auto one = digits_at(a, i), other = digits_at(b, k);
      if (one.size() != other.size()) return one.size() < other.size();
      if (one != other) return one < other;
    } else if (a[i] != b[k]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
    } else {
      ++i;
      ++k;
    }
  }
  const auto left = a.size() - i, right = b.size() - k;
  return left != right ? left < right : a < b;
}

Result<std::vector<std::string>> files_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const auto& argument : arguments) {
    std::error_code error;
    const auto before = files.size();
    if (fs::is_directory(argument, error)) {
      auto each = fs::recursive_directory_iterator(
          argument, fs::directory_options::skip_permission_denied, error);
      for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
        if (is_hidden(each->path())) {
          if (each->is_directory(error)) each.disable_recursion_pending();
        } else if (each->is_regular_file(error) && !is_other(each->path().string())) {
          files.push_back(each->path().string());
        }
      }
      if (files.size() == before)
        return fail(Errc::usage, "{}: expected a folder with recordings", argument);
    } else if (!fs::exists(argument, error) && argument.find_first_of("*?[") != std::string::npos) {
      glob_t found{};
      const auto status = glob(argument.c_str(), 0, nullptr, &found);
      for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
        files.emplace_back(found.gl_pathv[i]);
      globfree(&found);
      if (files.size() == before) return fail(Errc::usage, "{}: no file has such a name", argument);
    } else {
      files.push_back(argument);
    }
  }
  std::sort(files.begin(), files.end(), stands_before);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<RankSet> sets_of(const std::vector<std::string>& files) {
  // A JSON beside a recording of the same name holds the run's own figures.
  std::set<std::string, std::less<>> recorded;
  for (const auto& path : files) {
    if (!path.ends_with(".json")) recorded.insert(std::string(stem_of(path)));
  }
  std::map<std::string, std::vector<Named>> by_pattern;
  std::vector<std::string> order;
  for (const auto& path : files) {
    if (path.ends_with(".json") && recorded.find(stem_of(path)) != recorded.end()) continue;
    auto name = named(path);
    auto& group = by_pattern[name.pattern];
    if (group.empty()) order.push_back(name.pattern);
    group.push_back(std::move(name));
  }
  std::vector<std::vector<Named>> groups;
  for (const auto& pattern : order) groups.push_back(std::move(by_pattern[pattern]));
  join_hosts(groups);
  std::vector<RankSet> sets;
  const bool alone =
      groups.size() > 1 &&
      std::all_of(groups.begin(), groups.end(), [](auto& group) { return group.size() == 1; });
  if (alone) {
    // Names that have nothing in common are the ranks of one run all the same.
    RankSet set{.name = text::format("{} files", groups.size())};
    for (const auto& group : groups) {
      const auto& path = group.front().path;
      set.ranks.push_back({.path = path,
                           .label = std::string(stem_of(fs::path(path).filename().string())),
                           .number = {},
                           .figures = {}});
    }
    sets.push_back(std::move(set));
  } else {
    for (auto& group : groups) add_sets(sets, std::move(group));
  }
  for (auto& set : sets) {
    std::stable_sort(set.ranks.begin(), set.ranks.end(), [](const RankFile& a, const RankFile& b) {
      return stands_before(a.label, b.label);
    });
    for (auto& rank : set.ranks) {
      const auto beside = std::string(stem_of(rank.path)) + ".json";
      std::error_code error;
      if (beside != rank.path && fs::is_regular_file(beside, error)) rank.figures = beside;
    }
  }
  return sets;
}

std::vector<std::uint64_t> missing_of(const RankSet& set, std::uint64_t world) {
  std::set<std::uint64_t> there;
  for (const auto& rank : set.ranks) {
    if (!rank.number) return {};
    there.insert(*rank.number);
  }
  if (there.size() < set.ranks.size() || there.empty()) return {};
  const auto least = *there.begin(), most = *there.rbegin();
  auto count = std::max(set.told, world);
  // "1-of-8" to "8-of-8" count from one; ranks count from zero.
  auto begin = count != 0 ? (most == count ? 1 : 0) : least;
  if (count == 0 && set.by_rank && least == 1 && there.size() > 1) begin = 0;
  const auto end = std::max(most + 1, count + begin);
  if (end - begin - there.size() > kMissingMost) return {};
  std::vector<std::uint64_t> missing;
  for (auto number = begin; number < end; ++number) {
    if (there.count(number) == 0) missing.push_back(number);
  }
  return missing;
}

}  // namespace emm::fleet
