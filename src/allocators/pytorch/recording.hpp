#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocators/pytorch/heap.hpp"
#include "trace/operation.hpp"

namespace emm::allocators::pytorch {

/// One row of a snapshot, as far as the allocator's rules need it.
struct Step {
  enum class Kind : std::uint8_t {
    alloc,
    free,      ///< Asked for; the memory is free at once unless `delayed`.
    complete,  ///< Of a delayed free: the memory is free now.
    refused,   ///< An allocation that failed.
    segment_begin,
    segment_end,  ///< Or the part of a range that was unmapped.
  };
  Kind kind = Kind::alloc;
  bool delayed = false;
  bool preexisting = false;
  bool mapped = false;           ///< Of segments: a part of an expandable one.
  bool pool_known = false;       ///< Of segments.
  std::uint32_t allocation = 0;  ///< Counts the allocations, from 0; of segments, these.
  std::uint64_t address = 0;
  std::uint64_t size = 0;     ///< As requested; of a refused one rounded.
  std::uint64_t granted = 0;  ///< Bytes of the block, where the recording knows; else 0.
  std::uint64_t stream = 0;
  std::uint64_t device_free = 0;  ///< Of a refused one: bytes free on the device then; 0: not said.
  std::uint64_t event = 0;        ///< The operation's index in the trace.
  PoolId pool{};
};

/// A recording of PyTorch's caching allocator on one device, taken from the operations of its
/// trace: the device that has most of them. `steps()` after finish().
class Recording final : public trace::OperationSink {
 public:
  enum class Takes : std::uint8_t {
    recordings,  ///< Of PyTorch alone: of other traces nothing is kept.
    any,         ///< Also the requests of other traces.
  };
  explicit Recording(Takes takes = Takes::recordings) : takes_(takes) {}

  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override;

  /// Whether the trace is a recording of PyTorch's allocator, with its segments.
  bool is_recording() const noexcept { return is_torch_ && has_segments_; }
  const std::vector<Step>& steps() const noexcept { return steps_; }
  std::uint32_t allocations() const noexcept { return allocations_; }
  /// As the snapshot carries them: neither fraction nor total, unless emmctl.torch saved it. Where
  /// the collections of garbage tell the limit, that is known.
  const Settings& settings() const noexcept { return settings_; }
  bool limit_is_inferred() const noexcept { return limit_is_inferred_; }
  /// Says which setting could not be read; empty where all could.
  const std::string& settings_fault() const noexcept { return settings_fault_; }
  std::uint32_t device() const noexcept { return device_; }
  std::size_t other_devices() const noexcept { return other_devices_; }
  /// What that device did in the same trace.
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
  Live* find(const trace::Id& id);
  Live& at(const trace::Id& id);
  void erase(const trace::Id& id);

  Takes takes_;
  bool is_torch_ = false, has_segments_ = false, pools_in_rows_ = false;
  std::uint32_t device_ = 0;
  std::size_t other_devices_ = 0;
  std::uint64_t events_ = 0;
  std::uint32_t allocations_ = 0, segments_ = 0;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> device_of_;             // of each step, until finish()
  std::vector<std::pair<std::uint32_t, Step>> all_;  // of all devices, where there are several
  std::unordered_map<std::uint64_t, Live> live_;
  std::unordered_map<std::string, Live> named_;  ///< Whose ids are no numbers.
  Settings settings_;
  bool limit_is_inferred_ = false;
  std::string settings_fault_;
};

}  // namespace emm::allocators::pytorch
