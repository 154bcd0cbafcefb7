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

constexpr std::uint64_t kMissingMost = 4096;  // a larger gap is not one of missing ranks

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Reads digits without leading zeros. As numbers they compare by length, then by text.
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

/// Returns the path without the endings that name the packing and the format.
std::string_view stem_of(std::string_view path) {
  return without(without(path, {".gz", ".zst"}), {".pickle", ".pkl", ".json", ".jsonl", ".csv",
                                                  ".emmb", ".raw", ".log", ".out", ".err", ".txt"});
}

/// Answers whether a file of a folder is no recording, by its name.
bool is_other(const std::string& path) {
  // A folder that a killed `emmctl record` left holds more than recordings.
  if (fs::path(path).parent_path().extension() == ".raw") return !path.ends_with(".emmraw");
  // What runs leave beside their recordings: notes, pages, pictures, scripts, output and settings.
  static constexpr std::array<std::string_view, 12> kEndings{".md",  ".txt", ".html", ".svg",
                                                             ".png", ".py",  ".sh",   ".out",
                                                             ".err", ".yml", ".yaml", ".tmp"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

/// Answers whether a file of a folder without recordings may be a rank's log.
bool is_log_name(std::string_view path) {
  return path.ends_with(".out") || path.ends_with(".err") || path.ends_with(".txt");
}

/// What a number counts, according to the word before it.
enum class Counts : std::uint8_t {
  nothing,  // no known word
  ranks,    // "rank3": of the whole run
  places,   // "local_rank3", "gpu3": on one machine
  hosts,    // "node3"
  steps,    // "step3", "run3": not ranks
};

/// A number in a path, and what the word before it says.
struct Token {
  std::size_t at = 0;
  std::string digits;
  Counts counts = Counts::nothing;
  bool before_of = false;  // "3-of-8", "3of8", "3_of_8"
  bool after_of = false;
  bool is_stamp() const noexcept { return digits.size() >= kStampDigits; }

  static constexpr std::size_t kStampDigits = 9;  // seconds since 1970 have ten
};

// Words that launchers, schedulers and loggers write before a number in the names of files: of
// hosts, of places on one host, and of what is no rank.
constexpr std::array<std::string_view, 6> kHosts{"node",   "host",   "machine",
                                                 "server", "worker", "ip"};
constexpr std::array<std::string_view, 7> kPlaces{"gpu",   "cuda",      "device", "dev",
                                                  "local", "localrank", "card"};
constexpr std::array<std::string_view, 11> kSteps{
    "step", "iter", "iteration", "epoch", "batch", "run", "trial", "attempt", "dump", "time", "t"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view word_before(std::string_view path, std::size_t at) {
  while (at > 0 && (path[at - 1] == '_' || path[at - 1] == '-' || path[at - 1] == '.' ||
                    path[at - 1] == '=' || path[at - 1] == ' '))
    --at;
  auto begin = at;
  while (begin > 0 && std::isalpha(static_cast<unsigned char>(path[begin - 1])) != 0) --begin;
  return path.substr(begin, at - begin);
}

/// `word` stands before a number, and `before` stands before `word`.
Counts counted_by(std::string_view word, std::string_view before) {
  if (word.ends_with("rank") || word == "r")
    return before == "local" || word.ends_with("localrank") ? Counts::places : Counts::ranks;
  if (is_one_of(kPlaces, word)) return Counts::places;
  if (is_one_of(kHosts, word)) return Counts::hosts;
  return is_one_of(kSteps, word) ? Counts::steps : Counts::nothing;
}

struct Named {
  std::string path, stem, pattern;
  std::vector<Token> tokens;
  std::string host{};  // if its name is not a number
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
    const auto found = word_before(stem, at);
    const auto begin = static_cast<std::size_t>(found.data() - stem.data());
    const auto word = text::lower(found);
    token.counts = counted_by(word, text::lower(word_before(stem, begin)));
    token.after_of = word == "of" && !out.tokens.empty();
    if (token.after_of) out.tokens.back().before_of = true;
    token.digits = digits_at(stem, at);
    out.pattern += '#';
    out.tokens.push_back(std::move(token));
  }
  return out;
}

using Tokens = std::vector<std::size_t>;

/// Makes the label of a rank from some of its tokens.
std::string label_by(const Named& name, const Tokens& tokens) {
  std::vector<std::string> parts;
  if (!name.host.empty()) parts.push_back(name.host);
  for (const auto i : tokens) parts.push_back(name.tokens[i].digits);
  return text::join(parts, "/");
}

bool tells_apart(const std::vector<Named>& names, const Tokens& tokens) {
  std::set<std::string> labels;
  return std::all_of(names.begin(), names.end(), [&](const Named& each) {
    return labels.insert(label_by(each, tokens)).second;
  });
}

/// Finds the tokens that are the rank, in names of one pattern.
Tokens rank_tokens(const std::vector<Named>& names) {
  const auto& first = names.front().tokens;
  Tokens differing;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (std::any_of(names.begin(), names.end(),
                    [&](const Named& each) { return each.tokens[i].digits != first[i].digits; }))
      differing.push_back(i);
  }
  for (auto i = first.size(); i-- > 0;) {
    if (first[i].counts != Counts::ranks) continue;
    Tokens with_hosts;
    for (const auto k : differing) {
      if (k == i || first[k].counts == Counts::hosts) with_hosts.push_back(k);
    }
    // Each machine may count its ranks from 0, whatever its files call them.
    return !tells_apart(names, {i}) && tells_apart(names, with_hosts) ? with_hosts : Tokens{i};
  }
  for (auto i = first.size(); i-- > 0;) {
    if (first[i].before_of) return {i};
  }
  const auto without = [&](auto is_other) {
    Tokens rest;
    for (const auto i : differing) {
      if (!is_other(i)) rest.push_back(i);
    }
    if (!rest.empty()) differing = std::move(rest);
  };
  without([&](std::size_t i) { return first[i].counts == Counts::steps; });
  without([&](std::size_t i) {
    return std::all_of(names.begin(), names.end(),
                       [&](const Named& each) { return each.tokens[i].is_stamp(); });
  });
  if (differing.empty() && names.size() == 1 && !first.empty()) return {first.size() - 1};
  return differing;
}

std::string label_of(const Named& name, const Tokens& tokens) {
  auto label = label_by(name, tokens);
  return label.empty() ? std::string(stem_of(fs::path(name.path).filename().string())) : label;
}

/// Returns the path with * in place of the rank.
std::string name_of(const Named& name, const Tokens& tokens) {
  std::string out;
  std::size_t from = 0;
  for (const auto i : tokens) {
    const auto& token = name.tokens[i];
    auto end = token.at;
    while (end < name.stem.size() && is_digit(name.stem[end])) ++end;
    out += name.stem.substr(from, token.at - from) + '*';
    from = end;
  }
  out += name.stem.substr(from) + name.path.substr(name.stem.size());
  if (!name.host.empty()) out.replace(out.find(name.host), name.host.size(), "*");
  return out;
}

RankSet set_of(std::string name, const std::vector<Named>& members, const Tokens& tokens) {
  RankSet set{.name = std::move(name)};
  const auto counts = [&](std::size_t i) { return members.front().tokens[i].counts; };
  const bool one = tokens.size() == 1 && members.front().host.empty();
  set.by_rank = one && counts(tokens.front()) == Counts::ranks;
  for (const auto& each : members) {
    RankFile file{.path = each.path, .label = label_of(each, tokens), .number = {}, .figures = {}};
    if (one) file.number = text::to_u64(each.tokens[tokens.front()].digits);
    for (const auto& token : each.tokens) {
      if (token.after_of) set.told = std::max(set.told, text::to_u64(token.digits).value_or(0));
    }
    set.ranks.push_back(std::move(file));
  }
  return set;
}

/// Adds one set or several, for names of one pattern or of patterns that differ only in text.
void add_sets(std::vector<RankSet>& sets, std::vector<Named> names, std::size_t family) {
  const auto tokens = rank_tokens(names);
  const auto first = sets.size();
  if (tells_apart(names, tokens)) {
    auto name = name_of(names.front(), tokens);
    sets.push_back(set_of(std::move(name), names, tokens));
  } else {
    // The same rank occurs several times, so the other numbers tell the runs apart.
    std::map<std::string, std::vector<Named>> by_rest, by_label;
    for (const auto& name : names) {
      by_rest[name_of(name, tokens)].push_back(name);
      by_label[label_by(name, tokens)].push_back(name);
    }
    std::size_t most = 0;
    for (const auto& [label, all] : by_label) most = std::max(most, all.size());
    if (by_rest.size() <= most) {
      for (auto& [rest, members] : by_rest) sets.push_back(set_of(rest, members, tokens));
    } else {
      // Times differ from rank to rank: the first of each are a set, then the second of each.
      Tokens all(names.front().tokens.size());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
      for (std::size_t k = 0; k < most; ++k) {
        std::vector<Named> members;
        for (auto& [label, files] : by_label) {
          std::sort(files.begin(), files.end(),
                    [](const Named& a, const Named& b) { return stands_before(a.path, b.path); });
          if (k < files.size()) members.push_back(files[k]);
        }
        sets.push_back(
            set_of(text::format("{} ({} of {})", name_of(members.front(), all), k + 1, most),
                   members, tokens));
      }
    }
  }
  std::stable_sort(
      sets.begin() + static_cast<std::ptrdiff_t>(first), sets.end(),
      [](const RankSet& a, const RankSet& b) { return stands_before(a.name, b.name); });
  for (auto i = first; i < sets.size(); ++i) sets[i].family = family;
}

/// The one place where two patterns differ, and the words there.
struct Apart {
  std::size_t at = 0;
  std::string one, other;
};
Apart apart(const std::string& a, const std::string& b) {
  std::size_t begin = 0, end = 0;
  const auto shorter = std::min(a.size(), b.size());
  while (begin < shorter && a[begin] == b[begin]) ++begin;
  while (begin > 0 && a[begin - 1] != '/' && a[begin - 1] != '_') --begin;
  while (end < shorter - begin && a[a.size() - 1 - end] == b[b.size() - 1 - end]) ++end;
  return {begin, a.substr(begin, a.size() - begin - end), b.substr(begin, b.size() - begin - end)};
}

bool names_host(std::string_view word) {
  const auto lower = text::lower(word);
  return lower.find_first_of("/#") == std::string::npos &&
         std::any_of(kHosts.begin(), kHosts.end(),
                     [&](std::string_view host) { return lower.starts_with(host); });
}

/// Joins groups whose hosts have names: "node-a/gpu0" and "node-b/gpu0" are two ranks.
void join_named_hosts(std::vector<std::vector<Named>>& groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (auto k = i + 1; k < groups.size();) {
      const auto words = apart(groups[i].front().pattern, groups[k].front().pattern);
      if (groups[i].front().tokens.size() != groups[k].front().tokens.size() ||
          !names_host(words.one) || !names_host(words.other)) {
        ++k;
        continue;
      }
      for (auto& each : groups[i]) {
        if (each.host.empty()) each.host = words.one;
      }
      for (auto& each : groups[k]) {
        each.host = words.other;
        groups[i].push_back(std::move(each));
      }
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

/// Joins patterns that differ in the names of hosts, if their ranks are those of one run.
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
        disjoint =
            tokens.size() == 1 && groups[i].front().tokens[tokens.front()].counts == Counts::ranks;
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
    std::vector<std::string> logs;
    std::error_code error;
    const auto before = files.size();
    if (fs::is_directory(argument, error)) {
      auto each = fs::recursive_directory_iterator(
          argument, fs::directory_options::skip_permission_denied, error);
      for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
        if (is_hidden(each->path())) {
          if (each->is_directory(error)) each.disable_recursion_pending();
        } else if (auto path = each->path().string(); each->is_regular_file(error)) {
          if (!is_other(path)) {
            files.push_back(std::move(path));
          } else if (is_log_name(path)) {
            logs.push_back(std::move(path));
          }
        }
      }
      if (files.size() == before) files.insert(files.end(), logs.begin(), logs.end());
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
  join_named_hosts(groups);
  std::vector<RankSet> sets;
  const bool alone =
      groups.size() > 1 &&
      std::all_of(groups.begin(), groups.end(), [](auto& group) { return group.size() == 1; });
  if (alone) {
    // Names that have nothing in common still are the ranks of one run.
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
    for (std::size_t i = 0; i < groups.size(); ++i) add_sets(sets, std::move(groups[i]), i);
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
  // Files that are named by process ids have gaps, where other processes began in between. The
  // recorder names its own so, and in a container the ids are small.
  constexpr std::uint64_t kProcessLeast = 1000;
  const bool are_processes = least >= kProcessLeast || set.ranks.front().path.ends_with(".emmraw");
  if (!set.by_rank && count == 0 && are_processes) return {};
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

std::vector<std::string> missing_places_of(const RankSet& set) {
  std::set<std::string> there, hosts, places;
  for (const auto& rank : set.ranks) {
    const auto slash = rank.label.find('/');
    if (slash == std::string::npos || rank.label.find('/', slash + 1) != std::string::npos)
      return {};
    there.insert(rank.label);
    hosts.insert(rank.label.substr(0, slash));
    places.insert(rank.label.substr(slash + 1));
  }
  const auto all = hosts.size() * places.size();
  // If most combinations are missing, the two numbers are not those of hosts and devices.
  if (hosts.size() < 2 || places.size() < 2 || there.size() * 2 <= all) return {};
  std::vector<std::string> missing;
  for (const auto& host : hosts) {
    for (const auto& place : places) {
      auto label = text::format("{}/{}", host, place);
      if (there.count(label) == 0) missing.push_back(std::move(label));
    }
  }
  std::sort(missing.begin(), missing.end(), stands_before);
  return missing;
}

}  // namespace emm::fleet
