#include "commands/known_blocks.hpp"

#include <algorithm>
#include <map>

#include "allocators/pytorch/one_step.hpp"
#include "allocators/pytorch/policy.hpp"

namespace emm::cli {
namespace {

namespace pytorch = allocators::pytorch;
using inspect::Beyond;
using MemoryKind = trace::Lifetime::MemoryKind;

Beyond store_of(const pytorch::OneStep::SegmentPool& pool) {
  if (!pool.id.is_default()) return Beyond::free_private;
  return pool.small ? Beyond::free_small : Beyond::free_large;
}

/// Maps addresses to the last segment there. A block belongs to the pool of its segment.
class Segments {
 public:
  void add(std::uint64_t address, std::uint64_t size, Beyond store) {
    const auto end = address + size;
    auto at = all_.lower_bound(address);
    if (at != all_.begin()) {
      auto& [begin, before] = *std::prev(at);
      if (before.end > end) all_[end] = before;
      before.end = std::min(before.end, address);
    }
    while (at != all_.end() && at->first < end) {
      if (at->second.end > end) all_[end] = at->second;
      at = all_.erase(at);
    }
    all_[address] = {.end = end, .store = store};
  }
  Beyond at(std::uint64_t address) const {
    const auto after = all_.upper_bound(address);
    if (after == all_.begin()) return Beyond::free;
    const auto& [begin, segment] = *std::prev(after);
    return address < segment.end ? segment.store : Beyond::free;
  }

 private:
  struct Segment {
    std::uint64_t end = 0;
    Beyond store = Beyond::free;
  };
  std::map<std::uint64_t, Segment> all_;
};

}  // namespace

inspect::KnownBlocks known_blocks(const inspect::Recording& recording,
                                  const trace::Lifetimes& lifetimes,
                                  const pytorch::Recording& of_pytorch) {
  inspect::KnownBlocks known;
  if (!of_pytorch.is_recording() || !recording.has_addresses()) return known;
  const auto& trace = recording.trace();
  // Rows: with more, the model is of another allocator.
  constexpr std::uint64_t kUnexplainedMost = 1000;
  const auto model = check_one_step(of_pytorch, of_pytorch.settings(), nullptr, kUnexplainedMost);
  if (model.gave_up) return known;
  known.blocks.resize(lifetimes.all().size());
  known.stores.resize(lifetimes.all().size(), Beyond::free);
  Segments segments;
  auto step = of_pytorch.steps().begin();
  for (std::uint32_t event = 0; event < trace.size(); ++event) {
    const auto id = trace[event].id;
    if (index(id) >= lifetimes.all().size()) continue;  // the event is about no memory
    const auto& memory = lifetimes[id];
    const bool begins = memory.birth == event;
    const bool is_here = begins && lifetimes.device(memory) == of_pytorch.device();
    const auto address = recording.address(id);
    if (is_here && memory.what == MemoryKind::backing)
      known.stores[index(id)] = segments.at(address);
    for (; step != of_pytorch.steps().end() && step->event <= event; ++step) {
      if (!is_here || step->event != event) continue;
      if (step->kind == pytorch::Step::Kind::segment_begin) {
        known.stores[index(id)] = store_of(model.segment_pools[step->allocation]);
      } else if (step->kind == pytorch::Step::Kind::alloc) {
        known.blocks[index(id)] = {
            .bytes = model.blocks[step->allocation],
            .rounded = round_size(of_pytorch.settings(), step->size),
        };
      }
    }
    // The remainder of a segment has no step. It belongs to the pool of the segment that it was a
    // part of.
    if (is_here && memory.what == MemoryKind::backing)
      segments.add(address, memory.size, known.stores[index(id)]);
    if (is_here && memory.what == MemoryKind::device)
      known.stores[index(id)] = segments.at(address);
  }
  return known;
}

}  // namespace emm::cli
