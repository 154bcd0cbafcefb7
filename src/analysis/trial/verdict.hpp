#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trial/compare.hpp"

namespace emm::trial {

/// How one manager compares with another, by a measure of which less is better.
enum class Standing : std::uint8_t {
  better,
  worse,
  same,          ///< All of the interval of their ratio is within the threshold.
  inconclusive,  ///< The interval crosses the threshold, or the two did different work.
};
std::string_view name(Standing standing) noexcept;

/// Why a verdict is inconclusive.
enum class Doubt : std::uint8_t {
  other_work,     ///< The two did not serve the same operations.
  few_rounds,     ///< There were too few rounds for an interval with 95 % confidence.
  wide_interval,  ///< The interval lies partly within the threshold and partly beyond it.
  no_time,        ///< No round took any time.
};
/// "few_rounds".
std::string_view name(Doubt doubt) noexcept;
/// "too few rounds for an interval with 95 %".
std::string_view words_of(Doubt doubt) noexcept;

/// Judges a measured ratio. It is better or worse if all of its interval is beyond `threshold`, and
/// inconclusive if its confidence is below 95 %.
Standing standing_of(const MedianInterval& ratio, double threshold) noexcept;

/// A manager against an earlier one, or against the recorded one.
struct PairVerdict {
  std::string manager, against;
  std::string measure;  ///< As in --fail-if: "ns_per_event", "reserved", ...
  Standing standing = Standing::inconclusive;
  std::optional<Doubt> doubt{};  ///< Set if it is inconclusive.
  std::string other_work{};      ///< For that doubt: "pool declined get_ipc_handle".
  /// The manager's value over the other's, with confidence 1 if it is exact. Empty if the other's
  /// is 0.
  std::optional<MedianInterval> ratio{};
  std::optional<std::size_t> place{};  ///< Index of the other manager; empty for the recorded one.
};

/// Returns the verdicts of each manager, by measure, against all before it and against the recorded
/// one. Bytes, failures and modelled times are exact. Bytes and times are compared only if both
/// failed and declined the same number of operations. `recorded` is the peak of reserved bytes of
/// the recorded manager `recorded_name`.
std::vector<std::vector<PairVerdict>> verdicts_of(
    const Comparison& comparison, std::optional<std::uint64_t> recorded = std::nullopt,
    std::string_view recorded_name = {});

/// "worse 1.05 [1.04-1.06]".
std::string in_words(const PairVerdict& verdict);
/// Why it is inconclusive: "pool declined get_ipc_handle", or words_of() of its doubt.
/// REQUIRES: it has a doubt.
std::string doubt_words(const PairVerdict& verdict);
/// What the manager did not serve: "declined get_ipc_handle, failed 3". Empty if it served all.
std::string not_served(const log::Summary& judged);
/// "inconclusive 1.01 [0.98-1.04]: the interval is too wide to tell".
std::string in_words_with_doubt(const PairVerdict& verdict);

}  // namespace emm::trial
