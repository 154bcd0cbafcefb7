#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocators/pytorch/by_id.hpp"
#include "allocators/pytorch/heap.hpp"
#include "trace/operation_sink.hpp"

namespace emm::allocators::pytorch {

/// One row of a snapshot, with the facts that the allocator's rules need.
struct Step {
  enum class Kind : std::uint8_t {
    alloc,
    free,      ///< The memory is free at once unless `delayed`.
    complete,  ///< A delayed free has completed: the memory is free now.
    refused,   ///< An allocation that failed.
    segment_begin,
    segment_end,  ///< Or a part of a range was unmapped.
  };
  Kind kind = Kind::alloc;
  bool delayed = false;
  bool preexisting = false;
  bool mapped = false;           ///< For segments: a part of an expandable segment.
  bool pool_known = false;       ///< For segments.
  bool small = false;            ///< For segments from before the first row: of a small pool.
  std::uint32_t allocation = 0;  ///< Index among the allocations; for segments, among the segments.
  std::uint64_t address = 0;
  std::uint64_t size = 0;     ///< As requested; for `refused`, rounded.
  std::uint64_t granted = 0;  ///< Bytes of the block; 0 if the recording does not say.
  std::uint64_t stream = 0;
  std::uint64_t device_free = 0;  ///< For `refused`: free device bytes; 0 if not recorded.
  std::uint64_t event = 0;        ///< The operation's index in the trace.
  PoolId pool{};
};

/// Collects a recording of PyTorch's caching allocator on one device from the operations of a
/// trace. It takes the device with the most operations. `steps()` is valid after finish().
class Recording final : public trace::OperationSink {
 public:
  enum class Takes : std::uint8_t {
    recordings,  ///< Keeps nothing of traces that are not PyTorch's.
    any,         ///< Keeps the requests of all traces.
  };
  explicit Recording(Takes takes = Takes::recordings) : takes_(takes) {}

  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// Answers whether the trace records PyTorch's allocator with its segments.
  bool is_recording() const noexcept { return is_torch_ && has_segments_; }
  const std::vector<Step>& steps() const noexcept { return steps_; }
  std::uint32_t allocations() const noexcept { return allocations_; }
  /// The settings of the snapshot. They lack fraction and total unless emmctl.torch saved these. If
  /// garbage collections tell the limit, known_limit has it.
  const Settings& settings() const noexcept { return settings_; }
  bool limit_is_inferred() const noexcept { return limit_is_inferred_; }
  /// Names the setting that could not be read. Empty if all could.
  const std::string& settings_fault() const noexcept { return settings_fault_; }
  std::uint32_t device() const noexcept { return device_; }
  std::size_t other_devices() const noexcept { return other_devices_; }
  /// Returns the recording of another device in the same trace.
  Recording on_device(std::uint32_t device) const;

 private:
  struct Live {
    std::uint32_t number = 0;
    std::uint64_t address = 0, size = 0, stream = 0;
    std::uint32_t device = 0;
    bool segment = false, mapped = false, freed = false;
    std::size_t freed_at = 0;
    PoolId pool{};
  };
  void add_memory(const trace::Operation& operation, Step step);
  void add_free(const trace::Operation& operation, Step step);
  void take_device();
  void end_all(std::uint64_t event, std::uint32_t device);

  Takes takes_;
  bool is_torch_ = false, has_segments_of_others_ = false, has_segments_ = false,
       pools_in_rows_ = false;
  std::uint32_t device_ = 0;
  std::size_t other_devices_ = 0;
  std::uint64_t events_ = 0;
  std::uint32_t allocations_ = 0, segments_ = 0;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> device_of_;  // By step, until finish().
  std::vector<std::pair<std::uint32_t, Step>>
      all_;  // The steps of all devices, if there are several.
  ById<Live> live_;
  Settings settings_;
  bool limit_is_inferred_ = false;
  std::string settings_fault_;
};

}  // namespace emm::allocators::pytorch
