#include "conformance/findings.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>
#include <string_view>

#include "base/shell_word.hpp"
#include "base/text_format.hpp"

namespace emm::conformance {
namespace {

using Kind = Verdict::Kind;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_letter(char c) noexcept { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) noexcept { return is_letter(c) || is_digit(c) || c == '_'; }

/// `words` with one sign in place of every number and address.
std::string without_numbers(std::string_view words) {
  std::string out;
  for (std::size_t i = 0; i < words.size();) {
    const bool begins = is_digit(words[i]) && (i == 0 || !is_word(words[i - 1]));
    if (!begins) {
      out += words[i++];
      continue;
    }
    while (i < words.size() && (is_word(words[i]) || words[i] == '.')) ++i;
    out += '#';
  }
  return out;
}

/// How many words of letters there are.
std::size_t word_count(std::string_view words) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < words.size(); ++i)
    count += is_letter(words[i]) && (i == 0 || !is_word(words[i - 1]));
  return count;
}

/// The error that `seen` tells, with the manager's words: `CUDA_ERROR_NOT_FOUND (500): "nothing"`.
std::string_view answer_in(std::string_view seen) {
  for (const std::string_view head : {"CUDA_ERROR_", "status ("}) {
    const auto at = seen.find(head);
    if (at == seen.npos) continue;
    auto end = seen.find(')', at);
    if (end == seen.npos) return {};
    ++end;
    if (seen.substr(end).starts_with(": \"")) {
      const auto quote = seen.find('"', end + 3);
      if (quote != seen.npos) end = quote + 1;
    }
    return seen.substr(at, end - at);
  }
  return {};
}

/// "memhostalloc() answers success without an address", as the host says it of an answer. Else
/// empty.
std::string empty_answer_in(std::string_view seen) {
  constexpr std::string_view kAnswered = " answered success without ";
  const auto at = seen.find(kAnswered);
  if (at == seen.npos) return {};
  auto what = seen.substr(0, at);
  if (const auto path = what.rfind(": "); path != what.npos) what.remove_prefix(path + 2);
  return text::format("{}() answers success without {}", what.substr(0, what.find(' ')),
                      seen.substr(at + kAnswered.size()));
}

/// The operation that `done` names last: "flush()". Empty if it names none.
std::string operation_in(std::string_view done) {
  for (auto at = done.rfind('('); at != done.npos && at > 0; at = done.rfind('(', at - 1)) {
    auto begin = at;
    while (begin > 0 && (is_letter(done[begin - 1]) || done[begin - 1] == '_')) --begin;
    if (begin != at) return std::string(done.substr(begin, at - begin)) + "()";
  }
  const auto end = std::find_if_not(done.begin(), done.end(), is_word);
  const std::string first(done.begin(), end);
  if (!first.empty() && (end == done.end() || *end == ',')) return first + "()";
  return {};
}

/// What is left of each kind, and who made it, as CallLedger::verdict() words it.
std::vector<std::string> things_left_in(std::string_view seen) {
  std::vector<std::string> things;
  const auto end = std::min(seen.find(" is not released"), seen.find(" are not released"));
  if (end == seen.npos || !is_digit(seen[0])) return things;
  seen = seen.substr(0, end);
  while (!seen.empty()) {
    const auto stop = std::min(seen.find(", "), seen.size());
    auto thing = without_numbers(seen.substr(0, stop));
    if (const auto bytes = thing.find(" (# bytes)"); bytes != thing.npos) thing.erase(bytes, 10);
    // "# events made by free()" is what "# event made by free()" is.
    const auto by = std::min(thing.find(" made by "), thing.size());
    const auto noun = std::min(thing.find(" of "), by);
    if (noun > 0 && thing[noun - 1] == 's') thing.erase(noun - 1, 1);
    things.push_back(std::move(thing));
    seen.remove_prefix(std::min(stop + 2, seen.size()));
  }
  return things;
}

/// Where and how the process of a clause ended, without the operation that the clause was at.
std::string_view harm_in(std::string_view seen) { return seen.substr(0, seen.find(", at ")); }

bool is_declared(std::string_view list, std::string_view id) {
  while (!list.empty()) {
    const auto end = std::min(list.find(' '), list.size());
    if (list.substr(0, end) == id) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

/// A failure, and what it has in common with others of the same cause.
struct Failure {
  const Judged* judged = nullptr;
  const Verdict* verdict = nullptr;
  std::set<std::string> marks{};
  /// Its marks name who is guilty. Only a clause that lists this one by its id takes it in.
  bool is_plain = false;
};

constexpr std::string_view kHarmless = "abi/harmless";

Failure failure_of(const Judged& one, const Verdict& verdict, bool is_harm) {
  Failure failure{.judged = &one, .verdict = &verdict};
  auto& marks = failure.marks;
  const std::string_view seen = verdict.seen;
  if (is_harm) {
    marks.insert("harm " + without_numbers(harm_in(seen)));
    failure.is_plain = true;
    return failure;
  }
  if (!verdict.cause.empty()) marks.insert(verdict.cause);
  const auto answer = answer_in(seen);
  const auto left = things_left_in(seen);
  const bool is_out_of_memory = answer.starts_with("CUDA_ERROR_OUT_OF_MEMORY");
  for (const auto& thing : left) marks.insert("left " + thing);
  if (!answer.empty()) marks.insert("answer " + std::string(answer));
  if (verdict.expected == "success" && !is_out_of_memory) {
    if (const auto operation = operation_in(verdict.words); !operation.empty())
      marks.insert("fails " + operation);
  }
  const auto empty = empty_answer_in(seen);
  if (!empty.empty()) marks.insert(empty);
  failure.is_plain = !left.empty() || !verdict.cause.empty() || !empty.empty() ||
                     seen.find(kWrongEnds) != seen.npos || (!answer.empty() && !is_out_of_memory);
  constexpr std::size_t kTelling = 3, kTellingAlone = 5;  // words
  const auto words = word_count(seen);
  if (answer.empty() && left.empty() && words >= kTelling) {
    marks.insert(text::format(
        "seen {}{}", without_numbers(seen),
        words >= kTellingAlone ? std::string() : " | " + without_numbers(verdict.expected)));
  }
  return failure;
}

struct Group {
  std::vector<Failure> failures;
  bool is_plain = false;
};

/// Groups failures that share a mark, also through others.
std::vector<Group> grouped(std::vector<Failure> failures) {
  std::vector<std::size_t> root(failures.size());
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto find = [&](std::size_t i) {
    while (root[i] != i) i = root[i];
    return i;
  };
  for (std::size_t i = 0; i < failures.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const bool share =
          std::any_of(failures[i].marks.begin(), failures[i].marks.end(),
                      [&](const auto& mark) { return failures[k].marks.count(mark); });
      if (!share) continue;
      const auto one = find(i);
      const auto other = find(k);
      root[std::max(one, other)] = std::min(one, other);
    }
  }
  std::vector<Group> groups;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    if (root[i] != i) continue;
    auto& group = groups.emplace_back();
    for (std::size_t k = i; k < failures.size(); ++k) {
      if (find(k) != i) continue;
      group.is_plain |= failures[k].is_plain;
      group.failures.push_back(failures[k]);
    }
  }
  return groups;
}

bool judges_all(const Clause& clause) { return clause.may_fail_with.starts_with("**"); }

/// Answers whether `other` is what `group` may break besides.
bool takes_in(const Group& group, const Group& other) {
  const bool judges_more =
      std::any_of(group.failures.begin(), group.failures.end(),
                  [](const Failure& one) { return !judges_all(*one.judged->clause); });
  return std::all_of(other.failures.begin(), other.failures.end(), [&](const Failure& theirs) {
    const auto& clause = *theirs.judged->clause;
    if (judges_more && !theirs.is_plain && judges_all(clause)) return true;
    return std::any_of(group.failures.begin(), group.failures.end(), [&](const Failure& own) {
      return is_declared(own.judged->clause->may_fail_with, clause.id);
    });
  });
}

void take_in(std::vector<Group>& groups) {
  const auto is_first = [](const Group& a, const Group& b) {
    if (a.is_plain != b.is_plain) return a.is_plain;
    return a.failures.size() > b.failures.size();
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    std::stable_sort(groups.begin(), groups.end(), is_first);
    for (std::size_t i = 0; i < groups.size() && !goes_on; ++i) {
      for (std::size_t k = 0; k < groups.size() && !goes_on; ++k) {
        if (i == k || !takes_in(groups[i], groups[k])) continue;
        // Its failures stay behind those of the group, which show the cause.
        for (auto& failure : groups[k].failures) groups[i].failures.push_back(std::move(failure));
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
        goes_on = true;
      }
    }
  }
}

/// What a failure says is wrong, and how well it says so: the more, the better.
struct Headline {
  std::string says;
  int worth = 0;
};

Headline headline_of(const Report& report, const Failure& failure) {
  const auto* const one = failure.judged;
  const auto* const verdict = failure.verdict;
  const auto& marks = failure.marks;
  const std::string_view seen = verdict->seen;
  if (seen.starts_with(kMemoryNotReleased)) return {std::string(seen), 7};
  if (seen.starts_with(kNotJoined)) return {std::string(seen.substr(0, seen.find(';'))), 7};
  const bool is_harm = marks.size() == 1 && marks.begin()->starts_with("harm ");
  if (is_harm) return {std::string(harm_in(seen)), 6};
  if (!things_left_in(seen).empty() || seen.find(kWrongEnds) != seen.npos) {
    const bool balances = verdict->expected == "balanced";
    return {std::string(seen), balances ? (one->clause->id == "accounts/balance" ? 6 : 5) : 4};
  }
  if (auto empty = empty_answer_in(seen); !empty.empty()) return {std::move(empty), 6};
  const auto answer = answer_in(seen);
  const auto operation = operation_in(verdict->words);
  if (failure.is_plain && !answer.empty() && !operation.empty()) {
    return {text::format("{} answers {}", operation, answer),
            verdict->expected == "success" ? 5 : 4};
  }
  // A rule that is watched throughout says more where it was seen broken in other clauses, too.
  const bool is_watched = one->clause->may_fail_with.starts_with('*') && !judges_all(*one->clause);
  const bool keeps_others =
      std::any_of(report.judged.begin(), report.judged.end(),
                  [&](const Judged& other) { return other.behind == one->clause; });
  const int worth = judges_all(*one->clause) ? 0 : is_watched ? (keeps_others ? 3 : 1) : 2;
  return {std::string(one->clause->rule), worth};
}

}  // namespace

std::vector<Finding> findings_of(const Report& report) {
  std::vector<Failure> failures;
  for (const auto& one : report.judged) {
    if (one.verdict.kind == Kind::fail) {
      const bool is_harm = one.clause->id == kHarmless || one.verdict.broken == kHarmless;
      failures.push_back(failure_of(one, one.verdict, is_harm));
    } else if (one.behind != nullptr && one.behind->id == kHarmless) {
      failures.push_back(failure_of(one, one.shown_behind, true));
    }
  }
  auto groups = grouped(std::move(failures));
  take_in(groups);
  std::vector<Finding> findings;
  for (const auto& group : groups) {
    auto& finding = findings.emplace_back();
    int worth = -1;
    std::size_t fewest = 0;
    for (const auto& failure : group.failures) {
      const auto& one = *failure.judged;
      const bool has_failed = one.verdict.kind == Kind::fail;
      (has_failed ? finding.failed : finding.unjudged).push_back(&one);
      auto headline = headline_of(report, failure);
      const auto length = failure.verdict->words.size();
      const bool is_answer = headline.worth == 5;
      if (headline.worth < worth || (headline.worth == worth && !(is_answer && length < fewest)))
        continue;
      worth = headline.worth;
      fewest = length;
      finding.says = std::move(headline.says);
      finding.shown = &one;
    }
    for (const auto& one : report.judged) {
      if (one.behind == nullptr || one.behind->id == kHarmless) continue;
      if (std::any_of(finding.failed.begin(), finding.failed.end(),
                      [&](const Judged* failed) { return failed->clause == one.behind; }))
        finding.unjudged.push_back(&one);
    }
    const auto by_place = [](const Judged* a, const Judged* b) { return a < b; };
    std::sort(finding.failed.begin(), finding.failed.end(), by_place);
    std::sort(finding.unjudged.begin(), finding.unjudged.end(), by_place);
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return a.failed.size() + a.unjudged.size() > b.failed.size() + b.unjudged.size();
  });
  return findings;
}

std::string command_of(const Report& report, const Finding& finding) {
  const auto& one = *finding.shown;
  const auto* clause = one.seen_in != nullptr ? one.seen_in : one.clause;
  return text::format("{} --clause {}", report.again, clause->id);
}

}  // namespace emm::conformance
