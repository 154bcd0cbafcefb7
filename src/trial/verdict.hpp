#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trial/compare.hpp"

namespace emm::trial {

/// What one manager is beside another, by one measure of which less is better.
enum class Standing : std::uint8_t {
  better,
  worse,
  same,          ///< All of the interval of their ratio is within the threshold.
  inconclusive,  ///< The interval reaches beyond, or the two did not do the same work.
};
std::string_view name(Standing standing) noexcept;

/// Why a verdict is inconclusive.
enum class Doubt : std::uint8_t {
  other_work,     ///< The two did not serve the same operations.
  few_rounds,     ///< There were too few rounds for an interval with 95 % confidence.
  wide_interval,  ///< The interval reaches past what is the same, and not beyond it.
  no_time,        ///< No round took any time.
};
/// "few_rounds".
std::string_view name(Doubt doubt) noexcept;
/// "too few rounds for an interval with 95 %".
std::string_view words_of(Doubt doubt) noexcept;

/// Of a ratio whose interval is no exact number: better or worse where all of it is beyond
/// `threshold`, and inconclusive where its confidence is below 95 %.
Standing standing_of(const MedianInterval& ratio, double threshold) noexcept;

/// A manager against another that was named before it, or against the recorded one.
struct PairVerdict {
  std::string manager, against;
  std::string measure;  ///< As --fail-if has it: "ns_per_event", "reserved", ...
  Standing standing = Standing::inconclusive;
  std::optional<Doubt> doubt{};  ///< Of what is inconclusive.
  /// The manager's over the other's, with confidence 1 where it is exact; nothing where the other
  /// has 0.
  std::optional<MedianInterval> ratio{};
  std::optional<std::size_t> place{};  ///< Of the other among the managers; none: the recorded one.
};

/// By manager: its verdicts against all before it and against the recorded one, by measure. Bytes,
/// failures and times by the model are exact. Bytes and times are compared where the two failed and
/// declined the same number of operations. `recorded` is what the recorded manager `recorded_name`
/// reserved at most.
std::vector<std::vector<PairVerdict>> verdicts_of(
    const Comparison& comparison, std::optional<std::uint64_t> recorded = std::nullopt,
    std::string_view recorded_name = {});

/// "worse 1.05 [1.04-1.06]".
std::string in_words(const PairVerdict& verdict);
/// "inconclusive 1.01 [0.98-1.04]: the interval is too wide to tell".
std::string in_words_with_doubt(const PairVerdict& verdict);

}  // namespace emm::trial
