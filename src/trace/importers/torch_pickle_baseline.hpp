#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/pickle.hpp"
#include "trace/importers/address_table.hpp"
#include "trace/importers/torch_pickle_rows.hpp"
#include "trace/importers/torch_session.hpp"

namespace emm::trace {

/// What a snapshot's "segments" add up to, of one device: its state at the end of the rows.
struct TorchState {
  std::uint64_t segments = 0;
  ByteSum reserved;              ///< Bytes of segments.
  std::uint64_t blocks = 0;      ///< Active ones.
  ByteSum allocated, requested;  ///< Bytes of active blocks, rounded and as asked for.
  std::uint64_t pending = 0;     ///< Blocks that are freed and not yet free; not in the above.
};

/// Finds out what one device's allocator held before the first of its rows: memory that is freed in
/// them, or active at the end, and was not allocated in between; and the segments of the end, with
/// every row undone. Memory of which the rows have only the completion of its free was freed before
/// them, unless they have no other frees at all.
class TorchBaseline {
 public:
  /// Every row of the device, in order.
  void row(const TorchRow& row);
  /// Then every segment of the end: its memory, and its blocks.
  void segment(const TorchMemory& segment);
  void active_block(const TorchMemory& block);
  void finish();

  /// After finish(); by address, what is pending first: it is freed at once, and adds nothing to
  /// what lives.
  const std::vector<TorchMemory>& allocations() const noexcept { return allocations_; }
  const std::vector<TorchMemory>& segments() const noexcept { return segments_; }
  ByteSum bytes() const noexcept;
  ByteSum reserved() const noexcept;
  /// The pool of a segment row, known from the state at the end. `number` counts the device's rows
  /// of segments, from 0. The default pool where the state does not tell.
  TorchPool pool_of_segment_row(std::size_t number) const {
    const auto found = pools_.find(number);
    return found == pools_.end() ? TorchPool() : found->second;
  }
  /// Bytes of the block that an alloc row made, by its number among the device's, from 0; 0 where
  /// it is gone at the end.
  std::uint64_t granted_to_alloc_row(std::uint32_t number) const {
    const auto found = granted_.find(number);
    return found == granted_.end() ? 0 : found->second;
  }
  /// Blocks that the rows freed, and that are active at the end all the same.
  std::uint64_t contradictions() const noexcept { return contradictions_; }

 private:
  enum class Seen : std::uint8_t { live, requested, ended };
  struct Last {
    Seen seen = Seen::live;
    std::uint32_t alloc = 0;  // the number of the last alloc row there, plus one
  };

  AddressTable<Last> seen_;
  std::uint32_t allocs_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> granted_;
  std::vector<std::pair<TorchAction, TorchMemory>> segment_rows_;
  std::vector<TorchMemory> allocations_, segments_;
  std::map<std::size_t, TorchPool> pools_;  // but the default one
  std::uint64_t contradictions_ = 0;
  bool any_requested_ = false;
};

/// What a dict of "segments" says.
struct TorchSegment {
  TorchMemory memory;
  std::uint32_t device = 0;
  std::vector<TorchMemory> active;  ///< And what is pending.
  std::string_view
      lacking{};  ///< A member that must be there and is not a number of bytes or an address.
};
/// The default pool where the value is no pair of numbers.
TorchPool read_torch_pool(const format::Pickle& pickle, format::PickleValue value);
TorchSegment read_torch_segment(const format::Pickle& pickle, format::PickleValue value);

}  // namespace emm::trace
