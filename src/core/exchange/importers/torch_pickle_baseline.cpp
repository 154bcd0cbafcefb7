#include "exchange/importers/torch_pickle_baseline.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/address_range.hpp"

namespace emm::trace {
namespace {

using format::Pickle;
using format::PickleValue;

/// The allocator's memory by address, while the rows are undone from last to first.
class MemoryByAddress {
 public:
  void add(const TorchMemory& memory) { memory_.emplace(memory.address, memory); }
  void remove(std::uint64_t address) { memory_.erase(address); }
  /// Removes the range from all memory. Parts outside of the range stay.
  void remove_range(std::uint64_t begin, std::uint64_t size) {
    emm::remove_range(memory_, begin, size);
  }
  /// The memory that contains `address`; null if none does.
  const TorchMemory* at(std::uint64_t address) const {
    auto after = memory_.upper_bound(address);
    if (after == memory_.begin()) return nullptr;
    const auto& memory = (--after)->second;
    return address - memory.address < memory.size ? &memory : nullptr;
  }
  const std::map<std::uint64_t, TorchMemory>& all() const noexcept { return memory_; }

 private:
  std::map<std::uint64_t, TorchMemory> memory_;
};

}  // namespace

void TorchBaseline::row(const TorchRow& row) {
  switch (row.action) {
    case TorchAction::alloc:
      *seen_.add(row.address, {}).first = {.seen = Seen::live, .alloc = ++allocs_};
      return;
    case TorchAction::free_requested: {
      const auto [at, first] = seen_.add(row.address, {});
      at->seen = Seen::requested;
      any_requested_ = true;
      if (first)
        allocations_.push_back({.address = row.address, .size = row.size, .stream = row.stream});
      return;
    }
    case TorchAction::free_completed: {
      const auto [at, first] = seen_.add(row.address, {});
      at->seen = Seen::ended;
      if (first)
        allocations_.push_back(
            {.address = row.address, .size = row.size, .stream = row.stream, .pending = true});
      return;
    }
    case TorchAction::segment_alloc:
    case TorchAction::segment_free:
    case TorchAction::segment_map:
    case TorchAction::segment_unmap:
      segment_rows_.push_back({row.action,
                               {.address = row.address,
                                .size = row.size,
                                .stream = row.stream,
                                .mapped = row.action == TorchAction::segment_unmap}});
      return;
    case TorchAction::oom:
    case TorchAction::snapshot:
    case TorchAction::user_defined:
      return;
  }
}

void TorchBaseline::segment(const TorchMemory& segment) { segments_.push_back(segment); }

void TorchBaseline::active_block(const TorchMemory& block) {
  const auto [at, first] =
      seen_.add(block.address, {.seen = block.pending ? Seen::requested : Seen::live, .alloc = 0});
  if (first) {
    allocations_.push_back(block);
  } else if (at->seen == Seen::ended || (at->seen == Seen::requested && !block.pending)) {
    ++contradictions_;
  } else if (at->alloc != 0) {
    granted_.emplace(at->alloc - 1, block.granted);
  }
}

void TorchBaseline::finish() {
  seen_ = {};
  if (!any_requested_) {
    for (auto& memory : allocations_)
      memory.pending = memory.pending && memory.granted != 0;  // the state shows it
  }
  MemoryByAddress held;
  for (const auto& segment : segments_) held.add(segment);
  for (auto at = segment_rows_.rbegin(); at != segment_rows_.rend(); ++at) {
    const auto& [action, memory] = *at;
    for (const auto address :
         {memory.address, memory.address + (memory.size == 0 ? 0 : memory.size - 1)}) {
      const auto* const there =
          held.at(address);  // one end of the range may have been unmapped since
      if (there == nullptr || there->pool.is_default()) continue;
      pools_[static_cast<std::size_t>(segment_rows_.rend() - at) - 1] = there->pool;
    }
    switch (action) {
      case TorchAction::segment_alloc:
        held.remove(memory.address);
        break;
      case TorchAction::segment_map:
        held.remove_range(memory.address, memory.size);
        break;
      case TorchAction::segment_free:
      case TorchAction::segment_unmap:
        held.add(memory);
        break;
      default:
        break;
    }
  }
  segment_rows_ = {};
  segments_.clear();
  for (const auto& [address, memory] : held.all()) segments_.push_back(memory);
  std::sort(allocations_.begin(), allocations_.end(), [](const auto& a, const auto& b) {
    return a.pending != b.pending ? a.pending : a.address < b.address;
  });
}

ByteSum TorchBaseline::bytes() const noexcept {
  ByteSum sum;
  for (const auto& memory : allocations_) sum.add(memory.size);
  return sum;
}

ByteSum TorchBaseline::reserved() const noexcept {
  ByteSum sum;
  for (const auto& memory : segments_) sum.add(memory.size);
  return sum;
}

TorchPool read_torch_pool(const Pickle& pickle, PickleValue value) {
  std::uint64_t halves[2] = {0, 0};
  auto each = pickle.elements(value);
  PickleValue half;
  for (auto& number : halves) {
    if (each.next(half)) number = pickle.u64(half).value_or(0);
  }
  return {.owner = halves[0], .number = halves[1]};
}

TorchSegment read_torch_segment(const Pickle& pickle, PickleValue value) {
  TorchSegment segment;
  auto& lacking = segment.lacking;
  const auto number = [&](PickleValue dict, std::string_view key) -> std::uint64_t {
    const auto found = pickle.u64(pickle.find(dict, key));
    if (!found && lacking.empty()) lacking = key;
    return found.value_or(0);
  };
  segment.memory.address = number(value, "address");
  segment.memory.size = number(value, "total_size");
  const auto device = pickle.u64(pickle.find(value, "device")).value_or(0);
  segment.device = static_cast<std::uint32_t>(std::min<std::uint64_t>(device, ~std::uint32_t{0}));
  const auto stream = pickle.find(value, "stream");
  segment.memory.stream =
      pickle.u64(stream).value_or(static_cast<std::uint64_t>(pickle.i64(stream).value_or(0)));
  segment.memory.mapped = pickle.boolean(pickle.find(value, "is_expandable")).value_or(false);
  segment.memory.small = pickle.string(pickle.find(value, "segment_type")).value_or("") == "small";
  segment.memory.frames = pickle.find(value, "frames");
  segment.memory.pool = read_torch_pool(pickle, pickle.find(value, "segment_pool_id"));

  auto next = segment.memory.address;  // blocks are adjacent; early versions give no addresses
  PickleValue block;
  for (auto each = pickle.elements(pickle.find(value, "blocks"));
       lacking.empty() && each.next(block);) {
    const auto size = number(block, "size");
    const auto address = pickle.u64(pickle.find(block, "address")).value_or(next);
    next = address + size;
    const auto state = pickle.string(pickle.find(block, "state")).value_or("");
    const auto pending = state == "active_pending_free" || state == "active_awaiting_free";
    if (state != "active_allocated" && !pending) continue;
    auto requested = pickle.u64(pickle.find(block, "requested_size"));
    auto frames = pickle.find(block, "frames");
    if (!requested) {
      PickleValue made;
      auto history = pickle.elements(pickle.find(block, "history"));
      if (history.next(made)) {
        requested = pickle.u64(pickle.find(made, "real_size"));
        frames = pickle.find(made, "frames");
      }
    }
    segment.active.push_back({.address = address,
                              .size = requested.value_or(size),
                              .granted = size,
                              .stream = segment.memory.stream,
                              .pending = pending,
                              .frames = frames});
  }
  return segment;
}

}  // namespace emm::trace
