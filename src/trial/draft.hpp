#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace emm::trial {

/// Which events of a trace stand or fall together: all of one allocation, of allocations that a
/// handle or a comparison of addresses ties, of one guard, of one stream; any other alone.
struct Parts {
  std::uint32_t count = 0;
  std::vector<std::uint32_t> of;  ///< By event.

  explicit Parts(const trace::Trace& trace);
};

/// An event of the original trace as a smaller one has it.
struct Step {
  std::uint32_t event = 0;
  std::uint32_t part = 0;
  std::uint64_t size = 0;        ///< Of a request: what it asks for here;
  std::uint64_t whole = 0;       ///< what the requests asked for that it stands for;
  std::uint32_t stands_for = 1;  ///< and how many these are.

  bool operator==(const Step&) const = default;
};
using Steps = std::vector<Step>;

/// A smaller trace made of another by deletions, merges and shrinks.
struct Draft {
  Steps steps;                     ///< In the order of their events.
  std::vector<bool> plain_stream;  ///< By StreamId: its work goes to the default stream.
  bool one_thread = false;         ///< No operation says its thread.

  bool operator==(const Draft&) const = default;
};

/// All of `trace`.
Draft whole(const trace::Trace& trace, const Parts& parts);

/// Makes traces of drafts, for replays alone: ids are numbers, the line of an event is the index of
/// its step, counted from 1, and what only people read is left out. `of` must outlive it. One
/// thread at a time.
class DraftBuilder {
 public:
  explicit DraftBuilder(const trace::Trace& of);

  /// parse_error where the draft is no trace: it ends what it did not begin.
  Result<trace::Trace> build(const Draft& draft);

 private:
  const trace::Trace& of_;
  std::vector<std::uint32_t> numbers_;  ///< By AllocId: its number here;
  std::vector<std::uint32_t> stamps_;   ///< and in which build it got it.
  std::uint32_t stamp_ = 0, next_ = 0;

  std::uint64_t number(AllocId id);
  bool known(AllocId id) const { return stamps_[index(id)] == stamp_; }
  bool put(trace::Operation& operation, const Step& step, const Draft& draft);
  void put_detail(trace::Operation& operation, const trace::Event& event);

  std::vector<trace::Id> uses_;
};

}  // namespace emm::trial
