#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
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

/// Bytes that come to a category, or leave it.
struct CategoryStep {
  std::uint32_t event = 0;  ///< A change without an event of its own counts to the one before it.
  std::uint8_t category = 0;
  bool begins = false;
  std::uint64_t bytes = 0;
};

/// Reads the categories that a recording gives its memory: the member "x-category" of what
/// allocates and frees, and the operation "x-category", which says that bytes went from one to
/// another. Memory leaves the category that its free names or, if it names none, the one that it
/// was allocated in.
class CategoryReader {
 public:
  /// `event` is the operation's, or the next one's where it is none. `id` is of what it makes or
  /// frees; empty if it does neither, or was refused. The steps are those of this operation.
  std::span<const CategoryStep> take(const trace::Operation& operation, std::uint32_t event,
                                     std::optional<AllocId> id);
  /// Answers whether take() may say something of the operation.
  bool may_tell(const trace::Operation& operation) const noexcept {
    return operation.has(trace::Member::extension) || operation.op == trace::Op::extension ||
           (!names_.empty() && operation.has(trace::Member::id));
  }
  const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  static constexpr std::uint8_t kNone = 255;  // no category
  struct Memory {
    std::uint64_t bytes = 0;
    std::uint8_t category = kNone;
  };
  std::uint8_t number_of(std::string_view name);

  std::vector<std::string> names_;
  std::vector<Memory> memory_;  // by AllocId
  std::array<CategoryStep, 2> steps_{};
};

/// Sums up what each category has over the events of a recording.
class CategorySums {
 public:
  /// `peak_event` is where most is live. What the events before `first_moment` lay out exists at
  /// that moment.
  CategorySums(std::uint32_t first_moment, std::uint32_t peak_event, std::uint64_t events);

  /// The steps come in the order of their events.
  void take(const CategoryStep& step);
  /// The category with most at the peak comes first.
  std::vector<CategoryUse> finish(const std::vector<std::string>& names);

 private:
  void note(std::size_t category, std::uint64_t from, std::uint64_t to);
  void hold_until(std::uint64_t event);

  std::uint64_t first_, peak_event_, events_, at_ = 0;
  std::vector<std::uint64_t> live_;
  std::vector<CategoryUse> uses_;
};

/// All steps of a recording.
class Categories {
 public:
  void take(const trace::Operation& operation, std::uint32_t event, std::optional<AllocId> id);
  bool may_tell(const trace::Operation& operation) const noexcept {
    return reader_.may_tell(operation);
  }

  bool empty() const noexcept { return steps_.empty(); }
  const std::vector<std::string>& names() const noexcept { return reader_.names(); }
  const std::vector<CategoryStep>& steps() const noexcept { return steps_; }
  std::vector<CategoryUse> use(std::uint32_t first_moment, std::uint32_t peak_event,
                               std::uint64_t events) const;

 private:
  CategoryReader reader_;
  std::vector<CategoryStep> steps_;
};

}  // namespace emm::inspect
