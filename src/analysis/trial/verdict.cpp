#include "trial/verdict.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::trial {
namespace {

constexpr double kConfidenceLeast = 0.95;  // a wider interval gives no verdict

constexpr MedianInterval exactly(double ratio) {
  return {.median = ratio, .low = ratio, .high = ratio, .confidence = 1};
}

std::uint64_t not_done(const Contestant& of) {
  std::uint64_t count = of.judged.pass.failures + of.judged.pass.unmade + of.judged.refused_again;
  for (const auto& declined : of.judged.declined) count += declined.count;
  return count;
}

PairVerdict exact_verdict(std::string_view measure, double mine, double other, double threshold) {
  PairVerdict verdict;
  verdict.measure = measure;
  if (other > 0) {
    verdict.ratio = exactly(mine / other);
    verdict.standing = standing_of(*verdict.ratio, threshold);
  } else {
    verdict.standing = mine > 0 ? Standing::worse : Standing::same;
  }
  return verdict;
}

/// Decides between two managers of one comparison.
class Pair {
 public:
  Pair(const Comparison& comparison, const Contestant& one, const Contestant& other,
       std::vector<PairVerdict>& out)
      : comparison_(comparison), one_(one), other_(other), out_(out) {}

  void judge() {
    const bool exact = comparison_.clock == "simulated";
    if (exact) {
      add(exact_verdict("ns_per_event", one_.warm.median, other_.warm.median, threshold()), true);
      add(exact_verdict("first_ns_per_event", one_.first.median, other_.first.median, threshold()),
          true);
    } else {
      measured("ns_per_event", one_.warm_ns, other_.warm_ns);
      measured("first_ns_per_event", one_.first_ns, other_.first_ns);
      if (!one_.instructions.empty())
        measured("instructions_per_event", one_.instructions, other_.instructions);
    }
    add(exact_verdict("reserved", double_of(one_.judged.pass.peak_reserved_bytes),
                      double_of(other_.judged.pass.peak_reserved_bytes), threshold()),
        true);
    add(exact_verdict("failures", double_of(one_.judged.pass.failures),
                      double_of(other_.judged.pass.failures), 0),
        false);
  }

 private:
  static double double_of(std::uint64_t number) { return static_cast<double>(number); }
  double threshold() const { return comparison_.threshold; }

  void measured(std::string_view measure, const std::vector<double>& one,
                const std::vector<double>& other) {
    PairVerdict verdict;
    verdict.measure = measure;
    verdict.ratio = ratio_of(one, other);
    if (verdict.ratio) verdict.standing = standing_of(*verdict.ratio, threshold());
    if (verdict.standing == Standing::inconclusive) {
      verdict.doubt = !verdict.ratio                                 ? Doubt::no_time
                      : verdict.ratio->confidence < kConfidenceLeast ? Doubt::few_rounds
                                                                     : Doubt::wide_interval;
    }
    add(std::move(verdict), true);
  }

  void add(PairVerdict verdict, bool of_the_same_work) {
    verdict.manager = one_.manager;
    verdict.against = other_.manager;
    if (of_the_same_work && not_done(one_) != not_done(other_)) {
      verdict.standing = Standing::inconclusive;
      verdict.doubt = Doubt::other_work;
      verdict.other_work = other_work();
    }
    out_.push_back(std::move(verdict));
  }

  /// Says who left out what.
  std::string other_work() const {
    std::vector<std::string> words;
    for (const auto* each : {&one_, &other_}) {
      if (auto what = not_served(each->judged); !what.empty())
        words.push_back(text::format("{} {}", each->manager, what));
    }
    return text::join(words, "; ");
  }

  const Comparison& comparison_;
  const Contestant &one_, &other_;
  std::vector<PairVerdict>& out_;
};

}  // namespace

std::string_view name(Standing standing) noexcept {
  switch (standing) {
    case Standing::better:
      return "better";
    case Standing::worse:
      return "worse";
    case Standing::same:
      return "same";
    case Standing::inconclusive:
      break;
  }
  return "inconclusive";
}

std::string_view name(Doubt doubt) noexcept {
  switch (doubt) {
    case Doubt::other_work:
      return "other_work";
    case Doubt::few_rounds:
      return "few_rounds";
    case Doubt::wide_interval:
      return "wide_interval";
    case Doubt::no_time:
      break;
  }
  return "no_time";
}

std::string_view words_of(Doubt doubt) noexcept {
  switch (doubt) {
    case Doubt::other_work:
      return "the two did not serve the same operations";
    case Doubt::few_rounds:
      return "too few rounds for an interval with 95 %";
    case Doubt::wide_interval:
      return "the interval is too wide to tell";
    case Doubt::no_time:
      break;
  }
  return "no round took any time";
}

Standing standing_of(const MedianInterval& ratio, double threshold) noexcept {
  if (ratio.confidence < kConfidenceLeast) return Standing::inconclusive;
  const double most = 1 + threshold, least = 1 / most;
  if (ratio.low > most) return Standing::worse;
  if (ratio.high < least) return Standing::better;
  return ratio.low >= least && ratio.high <= most ? Standing::same : Standing::inconclusive;
}

std::vector<std::vector<PairVerdict>> verdicts_of(const Comparison& comparison,
                                                  std::optional<std::uint64_t> recorded,
                                                  std::string_view recorded_name) {
  std::vector<std::vector<PairVerdict>> out;
  const auto& all = comparison.contestants;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& own = out.emplace_back();
    for (std::size_t other = 0; other < i; ++other) {
      const auto before = own.size();
      Pair(comparison, all[i], all[other], own).judge();
      for (auto at = before; at < own.size(); ++at) own[at].place = other;
    }
    if (!recorded) continue;
    auto verdict =
        exact_verdict("reserved", static_cast<double>(all[i].judged.pass.peak_reserved_bytes),
                      static_cast<double>(*recorded), comparison.threshold);
    verdict.manager = all[i].manager;
    verdict.against = recorded_name;
    if (not_done(all[i]) != 0) {
      verdict.standing = Standing::inconclusive;
      verdict.doubt = Doubt::other_work;
      verdict.other_work = text::format("{} {}", all[i].manager, not_served(all[i].judged));
    }
    own.push_back(std::move(verdict));
  }
  return out;
}

std::string in_words(const PairVerdict& verdict) {
  std::string words(name(verdict.standing));
  if (!verdict.ratio || verdict.ratio->high == 0 || verdict.ratio->confidence == 0) return words;
  const auto number = [](double value) {
    return text::fixed(value, value < 0.1 ? 4 : value < 10 ? 2 : 1);
  };
  const auto& ratio = *verdict.ratio;
  const auto low = number(ratio.low), high = number(ratio.high), median = number(ratio.median);
  if (verdict.standing != Standing::same || median != "1.00") words += " " + median;
  if (low != high) words += text::format(" [{}-{}]", low, high);
  return words;
}

std::string in_words_with_doubt(const PairVerdict& verdict) {
  auto words = in_words(verdict);
  if (verdict.doubt) words += text::format(": {}", doubt_words(verdict));
  return words;
}

std::string doubt_words(const PairVerdict& verdict) {
  return verdict.other_work.empty() ? std::string(words_of(*verdict.doubt)) : verdict.other_work;
}

std::string not_served(const log::Summary& judged) {
  std::vector<std::string> words;
  if (!judged.declined.empty()) {
    std::vector<std::string_view> operations;
    for (const auto& each : judged.declined) {
      const auto operation = trace::name(each.op);
      if (std::find(operations.begin(), operations.end(), operation) == operations.end())
        operations.push_back(operation);
    }
    words.push_back("declined " + text::join(operations));
  }
  if (judged.pass.failures != 0)
    words.push_back(text::format("failed {}", text::grouped(judged.pass.failures)));
  if (judged.refused_again != 0)
    words.push_back(text::format("refused {} as recorded", text::grouped(judged.refused_again)));
  if (words.empty() && judged.pass.unmade != 0)
    words.push_back(text::format("left out {}", text::grouped(judged.pass.unmade)));
  return text::join(words);
}

}  // namespace emm::trial
