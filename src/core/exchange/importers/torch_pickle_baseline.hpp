#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exchange/importers/address_table.hpp"
#include "exchange/importers/torch_pickle_rows.hpp"
#include "exchange/importers/torch_session.hpp"
#include "format/pickle.hpp"

namespace emm::trace {

/// The totals of a snapshot's "segments" for one device: its state after the last row.
struct TorchState {
  std::uint64_t segments = 0;
  ByteSum reserved;              ///< Bytes of segments.
  std::uint64_t blocks = 0;      ///< Active blocks.
  ByteSum allocated, requested;  ///< Bytes of active blocks, as rounded and as requested.
  std::uint64_t pending = 0;     ///< Freed but not completed blocks, left out above.
};

/// Reconstructs what one device's allocator held before the first row. Allocations are those that
/// the rows free, or that are active at the end, without a row that allocates them. Segments are
/// those of the end with every row undone, last row first. If the rows have only the completion of
/// a free, the free was requested before them, unless the rows request no free at all.
class TorchBaseline {
 public:
  /// Takes the rows of the device in their order, before the other calls.
  void row(const TorchRow& row);
  /// Takes each segment that exists at the end, and each active block.
  void segment(const TorchMemory& segment);
  void active_block(const TorchMemory& block);
  void finish();

  /// After finish(), by address. Pending memory comes first: its free is replayed at once, so it
  /// adds nothing to the live bytes.
  const std::vector<TorchMemory>& allocations() const noexcept { return allocations_; }
  const std::vector<TorchMemory>& segments() const noexcept { return segments_; }
  ByteSum bytes() const noexcept;
  ByteSum reserved() const noexcept;
  /// The pool of a segment row, as the state at the end shows it. `number` counts the device's
  /// segment rows from 0. The default pool if the state does not show it.
  TorchPool pool_of_segment_row(std::size_t number) const {
    const auto found = pools_.find(number);
    return found == pools_.end() ? TorchPool() : found->second;
  }
  /// Bytes of the block that an alloc row made; `number` counts the device's alloc rows from 0. 0
  /// if the block is gone at the end.
  std::uint64_t granted_to_alloc_row(std::uint32_t number) const {
    const auto found = granted_.find(number);
    return found == granted_.end() ? 0 : found->second;
  }
  /// Blocks that the rows freed but that are active at the end.
  std::uint64_t contradictions() const noexcept { return contradictions_; }

 private:
  enum class Seen : std::uint8_t { live, requested, ended };
  struct Last {
    Seen seen = Seen::live;
    std::uint32_t alloc = 0;  // number + 1 of the last alloc row at the address
  };

  AddressTable<Last> seen_;
  std::uint32_t allocs_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> granted_;
  std::vector<std::pair<TorchAction, TorchMemory>> segment_rows_;
  std::vector<TorchMemory> allocations_, segments_;
  std::map<std::size_t, TorchPool> pools_;  // without the default pool
  std::uint64_t contradictions_ = 0;
  bool any_requested_ = false;
};

/// One dict of "segments".
struct TorchSegment {
  TorchMemory memory;
  std::uint32_t device = 0;
  std::vector<TorchMemory> active;  ///< Active and pending blocks.
  std::string_view lacking{};  ///< The required member that is not a number of bytes or an address;
                               ///< empty if all are right.
};
/// Returns the default pool if the value is not a pair of numbers.
TorchPool read_torch_pool(const format::Pickle& pickle, format::PickleValue value);
TorchSegment read_torch_segment(const format::Pickle& pickle, format::PickleValue value);

}  // namespace emm::trace
