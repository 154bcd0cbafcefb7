#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace emm::trial {

/// Divides the events of a trace into parts that are kept or left out together. A part has the
/// events of one allocation, of several that a handle or a comparison of addresses ties, of one
/// guard, or of one stream. Any other event is a part of its own.
struct EventParts {
  std::uint32_t count = 0;
  std::vector<std::uint32_t> of;  ///< The part of each event.

  explicit EventParts(const trace::Trace& trace);
};

/// An event of the original trace, as a smaller trace has it.
struct Step {
  std::uint32_t event = 0;
  std::uint32_t part = 0;
  std::uint64_t size = 0;        ///< The request's size here.
  std::uint64_t whole = 0;       ///< The sum of the sizes of the requests that it stands for.
  std::uint32_t stands_for = 1;  ///< The number of these requests.

  bool operator==(const Step&) const = default;
};
using Steps = std::vector<Step>;

/// A block that the original does not ask for.
struct ExtraBlock {
  std::uint32_t from = 0, to = 0;  ///< Requested, and freed, before these events.
  std::uint64_t size = 0;

  bool operator==(const ExtraBlock&) const = default;
};

/// A trace made of another by deletions, merges and shrinks, with at most one extra block.
struct Draft {
  Steps steps;                        ///< In the order of their events.
  std::vector<bool> plain_stream;     ///< By StreamId: whether its work goes to the default stream.
  bool one_thread = false;            ///< All operations are on one thread.
  std::optional<ExtraBlock> block{};  ///< Its operations have line 0.

  bool operator==(const Draft&) const = default;
};

/// Returns a draft that keeps all of `trace`.
Draft whole(const trace::Trace& trace, const EventParts& parts);

/// Builds traces from drafts, for replays only. Ids are numbers, an event's line is the number of
/// its step, counted from 1, and members that only people read are left out. `of` must outlive the
/// builder. One thread at a time.
class DraftBuilder {
 public:
  explicit DraftBuilder(const trace::Trace& of);

  /// Errors: parse_error if the draft ends something that it did not begin.
  Result<trace::Trace> build(const Draft& draft);

 private:
  const trace::Trace& of_;
  std::vector<std::uint32_t> numbers_;  ///< By AllocId: its number in the new trace.
  std::vector<std::uint32_t> stamps_;   ///< By AllocId: the build that gave it the number.
  std::uint32_t stamp_ = 0, next_ = 0;

  std::uint64_t number(AllocId id);
  bool known(AllocId id) const { return stamps_[index(id)] == stamp_; }
  bool put(trace::Operation& operation, const Step& step, const Draft& draft);
  Status put_block(trace::Trace& to, const ExtraBlock& block, trace::Op op) const;
  void put_detail(trace::Operation& operation, const trace::Event& event);

  std::vector<trace::Id> uses_;
};

}  // namespace emm::trial
