#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocators/agreement.hpp"
#include "allocators/cupy.hpp"
#include "allocators/made_up_memory.hpp"
#include "trace/operation.hpp"

namespace emm::allocators {

/// A row of CuPy's memory hooks, as far as the pool's rules need it.
struct CupyStep {
  enum class Kind : std::uint8_t { alloc, refused, free, free_all_blocks };
  Kind kind = Kind::alloc;
  std::uint32_t allocation = 0;  ///< Counts the allocations, from 0.
  std::uint64_t address = 0, size = 0;
  std::uint64_t segment = 0;  ///< Of an alloc: bytes that the device was asked for; 0: none.
  std::uint64_t stream = 0;
  std::uint64_t event = 0;  ///< The operation's index in the trace.
};

/// A recording of CuPy's pool, taken from the operations of its trace: those on the first device
/// that it names.
class CupyRecording final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;

  bool is_recording() const noexcept { return is_cupy_ && allocations_ != 0; }
  const std::vector<CupyStep>& steps() const noexcept { return steps_; }
  std::uint32_t allocations() const noexcept { return allocations_; }
  /// With the limit that the recording names.
  const CupySettings& settings() const noexcept { return settings_; }

 private:
  void add(const trace::Operation& operation);

  bool is_cupy_ = false, has_device_ = false;
  std::uint32_t device_ = 0, allocations_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t asked_address_ = 0, asked_size_ = 0;  // of the device, for the next request
  CupySettings settings_;
  std::vector<CupyStep> steps_;
  std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>>
      live_;  // number and address by id
};

/// What the pool would have done at each step, its state being as recorded.
struct CupyOneStep {
  Agreement segments, placements, refusals;
  /// Calls of free_all_blocks() that no row tells of: before which steps.
  std::vector<std::size_t> flushes;
  /// Placements among several chunks of one size, where CuPy takes the lowest Python object.
  std::uint64_t ties = 0;
  /// Placements that depend on memory that was taken before the recording began: it cannot be known
  /// what of it was free.
  std::uint64_t unknown = 0;
  std::vector<std::string> misses;  ///< The first few, in words.
};
CupyOneStep check_one_step(const CupyRecording& recording, const CupySettings& settings);

/// The recording's requests and flushes through the model, from the first and with an empty pool.
/// With the recorded addresses, a tie is settled as it was recorded.
PoolModel::Counts free_run(const CupyRecording& recording, const CupySettings& settings,
                           const CupyOneStep& recorded, Addresses addresses);

}  // namespace emm::allocators
