#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/ids.hpp"
#include "inspect/categories.hpp"
#include "trace/operation_sink.hpp"
#include "trace/trace.hpp"

namespace emm::inspect {

/// A trace with what a replay does not need and a look at the recording does: addresses, granted
/// bytes, and the device's free bytes when a request failed. It takes at most 80 bytes per event,
/// besides the call stacks. If all frames of a recording differ, its stacks grow without end, so
/// past kStackBytesMost only the most telling frames of a stack are kept. Any thread may read once
/// it is finished.
class Recording final : public trace::OperationSink {
 public:
  // Frames beyond kFramesKept are dropped once stacks take so much; a page has to load them.
  static constexpr std::uint64_t kStackBytesMost = std::uint64_t{128} << 20;
  static constexpr std::size_t kFramesKept = 8;  // of each stack then

  explicit Recording(std::uint64_t stack_bytes_most = kStackBytesMost)
      : stack_bytes_most_(stack_bytes_most) {}
  /// Names the trace in messages.
  void set_source(std::string source) { trace_.set_source(std::move(source)); }
  Status on_header(const trace::Header& header) override { return trace_.on_header(header); }
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override { return trace_.finish(); }

  const trace::Trace& trace() const noexcept { return trace_; }
  void set_pool_steps(trace::PoolSteps steps) { trace_.set_pool_steps(std::move(steps)); }
  /// How many call stacks were kept only in part.
  std::uint64_t stacks_cut() const noexcept { return stacks_cut_; }
  bool has_addresses() const noexcept { return !addresses_.empty(); }
  std::uint64_t address(AllocId id) const noexcept {
    return at(addresses_, id);
  }  ///< 0: not recorded.
  std::uint64_t granted(AllocId id) const noexcept {
    return at(granted_, id);
  }  ///< Bytes; 0: not recorded.
  /// Answers whether memory of the backing layer was mapped into an address range (kind
  /// "physical").
  bool is_mapped(AllocId id) const noexcept {
    return index(id) < mapped_.size() && mapped_[index(id)];
  }
  /// Answers whether the recording has a row of its own for that event: without "x-no_row".
  bool has_row(std::uint32_t event) const noexcept { return rowless_.count(event) == 0; }
  /// Answers whether the event says what remains of a segment that the event before it ended in
  /// part. Both come from the row of the event before.
  bool is_what_stays(std::uint32_t event) const noexcept { return stays_.count(event) != 0; }
  /// Returns the last event that comes from one row with `event`. After it, memory is as after the
  /// row.
  std::uint32_t with_what_stays(std::uint32_t event) const noexcept {
    while (is_what_stays(event + 1)) ++event;
    return event;
  }
  /// What the recording says of the categories of its memory, in the order of events.
  const Categories& categories() const noexcept { return categories_; }
  /// Returns the device's free bytes when the request failed. Empty if not recorded
  /// ("x-device_free").
  std::optional<std::uint64_t> device_free(AllocId id) const;

 private:
  static constexpr std::uint64_t kLookEvery = 1024;  // in stacks

  /// Counts a stack. Returns true if stacks take too much memory to be kept whole.
  bool count_stack();

  static std::uint64_t at(const std::vector<std::uint64_t>& values, AllocId id) noexcept {
    return index(id) < values.size() ? values[index(id)] : 0;
  }

  trace::Trace trace_;
  std::vector<std::uint64_t> addresses_, granted_;  // by AllocId, up to the last that has one
  std::vector<bool> mapped_;                        // likewise
  std::unordered_set<std::uint32_t> rowless_, stays_;
  std::map<std::uint32_t, std::uint64_t> device_free_;
  Categories categories_;
  std::uint64_t stack_bytes_most_, stacks_ = 0, stacks_cut_ = 0;
  bool many_ = false;
};

}  // namespace emm::inspect
