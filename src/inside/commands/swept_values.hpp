#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace emm::cli {

/// What became of a program on a card.
enum class Outcome : std::uint8_t {
  fits,       ///< It ended well, and no request was refused.
  tight,      ///< It ended well, though requests were refused: it gave memory back, or went on.
  too_small,  ///< It failed, and was out of memory.
  failed,     ///< It failed for another reason.
  unknown,    ///< Nothing is known: it took no memory of a device, or was ended while it waited.
  not_run     ///< The sweep was interrupted before.
};
std::string_view name_of(Outcome outcome) noexcept;
/// Did the program end well with the memory that there was?
constexpr bool passes(Outcome outcome) noexcept {
  return outcome == Outcome::fits || outcome == Outcome::tight;
}

/// One --sweep: a name, and its values or a range of whole numbers.
struct Swept {
  std::string name;
  std::vector<std::string> values;  ///< Empty for a range.
  std::uint64_t least = 0, most = 0;
  bool is_range() const noexcept { return values.empty(); }

  /// Reads 'gpu=l40s,h100' or 'batch=1..512'. Error: usage.
  static Result<Swept> parse(const std::string& given);
  /// Is it an option of the simulated device?
  bool is_of_device() const noexcept;
};

/// A name with the value that it has in one run.
using Setting = std::pair<std::string, std::string>;
/// "gpu=l40s, batch=8"
std::string words_of_settings(const std::vector<Setting>& settings);
/// `word` with each {NAME} replaced by the value of that name.
std::string with_values(const std::string& word, const std::vector<Setting>& settings);

/// Every combination of the values that are no range: the last name changes first.
std::vector<std::vector<Setting>> combinations(const std::vector<Swept>& all);

/// Looks for the largest number of a range with which a program passes. What a program takes mostly
/// grows in proportion, so a line through the peaks of the two largest that passed says what to try
/// next. Where that does not halve what is left, twice in a row, or misleads, the middle of it is
/// tried; where more passes than the line says, the steps double. Where one does not pass, the end
/// of the range is tried, too: if that passes, the outcome is not monotone.
class LargestThatFits {
 public:
  LargestThatFits(std::uint64_t least, std::uint64_t most) : least_(least), most_(most) {}

  /// The number to try next; nothing when the search is over.
  std::optional<std::uint64_t> next() const;
  /// `peak` of `capacity` bytes were taken; of a run that did not pass they are not looked at.
  void tell(std::uint64_t number, Outcome outcome, std::uint64_t peak, std::uint64_t capacity);

  /// The largest with which it passes.
  std::optional<std::uint64_t> largest() const;
  /// The least that is larger, with which it is out of memory.
  std::optional<std::uint64_t> least_too_large() const;
  /// Two numbers of which the first is out of memory, and the second, larger one passes.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> not_monotone() const;
  /// The number whose run neither passed nor was out of memory, which ends the search.
  std::optional<std::uint64_t> not_judged() const;

 private:
  struct Known {
    Outcome outcome = Outcome::not_run;
    std::uint64_t peak = 0;
  };
  /// What is still open: the largest of those that pass before the first that does not, and that
  /// one. Without the first, none passed; without the second, all did.
  std::pair<std::optional<std::uint64_t>, std::optional<std::uint64_t>> open() const;
  /// How many more than `reached` a line through peaks says would fit, and at most what is left;
  /// nothing where it says nothing.
  std::optional<std::uint64_t> more_by_line(std::uint64_t reached) const;

  std::uint64_t least_, most_, capacity_ = 0;
  std::map<std::uint64_t, Known> known_;
  unsigned slow_ = 0;  // tries, one after the other, that brought little
};

}  // namespace emm::cli
