#pragma once

#include <cstdint>

#include "allocators/pytorch/by_id.hpp"
#include "trace/operation_sink.hpp"

namespace emm::allocators::pytorch {

/// What a recording of PyTorch's allocator has after its last row, as a recording of a state: all
/// of it existed before the first row. The recording is read twice, first to find it and then,
/// after pass_to(), to pass it on. Memory is bounded by what is live at once.
class Survivors final : public trace::OperationSink {
 public:
  Status on_header(const trace::Header& header) override;
  Status on_operation(const trace::Operation& operation) override;
  Status finish() override { return to_ == nullptr ? Status() : to_->finish(); }

  /// What is read from now on is the same recording again. `to` must outlive this.
  void pass_to(trace::OperationSink& to) noexcept;
  /// Does the recording tell the block of each allocation? Otherwise only the rows before tell how
  /// much of a block an allocation left to others. Valid after the second reading.
  bool are_sized() const noexcept { return are_sized_; }

 private:
  struct Survivor {
    std::uint64_t number = 0;  ///< Among the allocations and segments, since ids may come again.
    std::uint32_t device = 0;
    bool segment = false;
    bool pending = false;  ///< Freed, and waiting; its number is not known any more.
  };
  void collect(const trace::Operation& operation);
  void end_all(std::uint32_t device);

  trace::OperationSink* to_ = nullptr;
  bool are_sized_ = true;
  std::uint64_t count_ = 0;  ///< Allocations and segments so far.
  ById<Survivor> survivors_;
};

}  // namespace emm::allocators::pytorch
