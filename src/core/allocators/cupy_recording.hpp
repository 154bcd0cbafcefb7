#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocators/agreement.hpp"
#include "allocators/cupy.hpp"
#include "allocators/made_up_memory.hpp"
#include "trace/operation_sink.hpp"

namespace emm::allocators {

/// A row of CuPy's memory hooks, as far as the pool's rules need it.
struct CupyStep {
  enum class Kind : std::uint8_t { alloc, refused, free, free_all_blocks };
  Kind kind = Kind::alloc;
  std::uint32_t allocation = 0;  ///< Index among the allocations.
  std::uint64_t address = 0, size = 0;
  std::uint64_t segment = 0;  ///< For an alloc: bytes requested from the device, 0 if none.
  std::uint64_t stream = 0;
  std::uint64_t event = 0;  ///< The operation's index in the trace.
};

/// Collects a recording of CuPy's pool from the operations of a trace. Only the first device that
/// the trace names counts.
class CupyRecording final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;

  bool is_recording() const noexcept { return is_cupy_ && allocations_ != 0; }
  const std::vector<CupyStep>& steps() const noexcept { return steps_; }
  std::uint32_t allocations() const noexcept { return allocations_; }
  /// The settings of the recorded pool, with its limit if the recording names one.
  const CupySettings& settings() const noexcept { return settings_; }

 private:
  void add(const trace::Operation& operation);

  bool is_cupy_ = false, has_device_ = false;
  std::uint32_t device_ = 0, allocations_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t asked_address_ = 0, asked_size_ = 0;  // The last device allocation.
  CupySettings settings_;
  std::vector<CupyStep> steps_;
  std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>>
      live_;  // number and address by id
};

/// Tells what the pool would have done at each step, had its state been the recorded one.
struct CupyOneStep {
  Agreement segments, placements, refusals;
  /// Indices of steps before which the program must have called free_all_blocks(), although no row
  /// says so.
  std::vector<std::size_t> flushes;
  /// Counts placements where several free chunks have the best size. CuPy takes the one with the
  /// lowest Python object.
  std::uint64_t ties = 0;
  /// Counts placements that depend on memory from before the recording. What was free in it is
  /// unknown.
  std::uint64_t unknown = 0;
  std::vector<std::string> misses;  ///< The first few, in words.
};
CupyOneStep check_one_step(const CupyRecording& recording, const CupySettings& settings);

/// Runs all requests and flushes of the recording through the model, beginning with an empty pool.
/// With `Addresses::recorded`, ties are settled as recorded.
PoolModel::Counts free_run(const CupyRecording& recording, const CupySettings& settings,
                           const CupyOneStep& recorded, Addresses addresses);

}  // namespace emm::allocators
