#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {

/// What one category of memory took.
struct CategoryUse {
  std::string name;
  std::uint64_t at_peak = 0;  ///< Bytes, when most is live of all categories together.
  std::uint64_t peak = 0;
  std::uint32_t peak_event = 0;  ///< The first event after which the category's own peak holds.
  std::uint64_t at_end = 0;
  /// The most in each of at most 64 equal parts of the trace.
  std::vector<std::uint64_t> over_events;
  bool operator==(const CategoryUse&) const = default;
};

/// The categories that a recording gives its memory: the member "x-category" of what allocates and
/// frees, and the operation "x-category", which says that bytes went from one to another.
class Categories {
 public:
  struct Step {
    std::uint32_t event = 0;  ///< A change without an event of its own comes before this one.
    std::uint8_t category = 0;
    bool begins = false;
    std::uint64_t bytes = 0;
  };

  /// `event` is the operation's, or the next one's where it is none. `id` is of what it makes or
  /// frees.
  void take(const trace::Operation& operation, std::uint32_t event, std::optional<AllocId> id);

  bool empty() const noexcept { return steps_.empty(); }
  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::vector<Step>& steps() const noexcept { return steps_; }
  /// Sums the steps up. `peak_event` is where most is live; `events` is how many there are.
  std::vector<CategoryUse> use(std::uint32_t peak_event, std::size_t events) const;

 private:
  std::optional<std::uint8_t> number_of(std::string_view name);

  std::vector<std::string> names_;
  std::vector<Step> steps_;
  std::vector<std::uint64_t> sizes_;  // by AllocId, of what has a category
};

}  // namespace emm::inspect
