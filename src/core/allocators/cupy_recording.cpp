#include "allocators/cupy_recording.hpp"

#include <iterator>
#include <map>

#include "allocators/stream_of.hpp"
#include "base/text_format.hpp"
#include "format/json_value.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::allocators {
namespace {

using trace::Member;
using trace::Op;
using trace::Operation;
using Kind = CupyStep::Kind;

constexpr std::size_t kMisses = 5;  // rows that the model did not explain, of which a message tells

/// Holds the state of the recorded pool. It follows the rows, not the model.
class RecordedPool {
 public:
  RecordedPool(const CupySettings& settings, CupyOneStep& found)
      : limit_(settings.limit), flushes_too_large_(settings.flushes_too_large), found_(found) {}

  void alloc(std::size_t index, const CupyStep& step) {
    const auto size = CupyPool::round_size(step.size);
    step.segment != 0 ? segment(index, step, size) : reuse(index, step, size);
  }
  void refused(const CupyStep& step) {
    const auto size = CupyPool::round_size(step.size);
    ++found_.refusals.recorded;
    const auto* const fit = heap_.best_fit(step.stream, size);
    if (fit != nullptr) return miss(step, "it was refused, and the pool had a chunk for it");
    if (is_over(size) && (size <= limit_ || flushes_too_large_)) flush();
    // Without a limit, the device refused. A recording does not say how much memory the device had,
    // so every refusal counts as agreed.
    ++found_.refusals.as_recorded;
    if (limit_ == 0) flush();
  }
  void free(std::uint64_t address) {
    auto* const chunk = heap_.at(address);
    if (chunk != nullptr && !chunk->is_free) heap_.release(chunk, chunk->list);
  }
  void flush() {
    for (auto* chunk : heap_.idle_regions()) {
      reserved_ -= chunk->size;
      heap_.remove_region(chunk);
    }
  }

 private:
  bool is_over(std::uint64_t size) const noexcept {
    return limit_ != 0 && reserved_ + size > limit_;
  }

  void segment(std::size_t index, const CupyStep& step, std::uint64_t size) {
    ++found_.segments.recorded;
    if (heap_.best_fit(step.stream, size) != nullptr) infer_flush(index);
    if (is_over(size)) flush();
    make_room(index, step.address, step.segment);
    if (heap_.best_fit(step.stream, size) != nullptr) {
      miss(step, "the device was asked, and the pool had a chunk for it");
    } else if (step.segment != size) {
      miss(step,
           text::format("the device was asked for {} bytes, expected {}", step.segment, size));
    } else {
      ++found_.segments.as_recorded;
    }
    reserved_ += step.segment;
    heap_.forget(step.address, step.segment);
    auto* const chunk = heap_.add_region(step.address, step.segment, step.stream);
    heap_.take(chunk, size, true);
  }

  void reuse(std::size_t index, const CupyStep& step, std::uint64_t size) {
    auto* there = heap_.at(step.address);
    if (there == nullptr && !is_inside(step.address)) {
      ++found_.unknown;
      add_unknown(step, size);
      return;
    }
    const auto serves = [&] {
      const auto* const fit = heap_.best_fit(step.stream, size);
      there = heap_.at(step.address);
      return fit != nullptr && there != nullptr && there->is_free && there->list == step.stream &&
             there->size == fit->size;
    };
    if (!serves() && has_idle_that_fits(step.stream, size)) infer_flush(index);
    if (const auto* const fit = heap_.best_fit(step.stream, size);
        !serves() && (is_unknown(step.address, size) ||
                      (fit != nullptr && is_unknown(fit->address, fit->size)))) {
      ++found_.unknown;
      if (there == nullptr || !there->is_free || there->size < size) return add_unknown(step, size);
      heap_.take(there, size, true);
      return;
    }
    ++found_.placements.recorded;
    if (serves()) {
      ++found_.placements.as_recorded;
      found_.ties += heap_.all_of(step.stream, there->size).size() > 1 ? 1 : 0;
    } else {
      miss(step, "it lies elsewhere than in the smallest chunk that serves it");
    }
    if (there != nullptr && there->is_free && there->size >= size) {
      heap_.take(there, size, true);
      return;
    }
    add_unknown(step, size);
  }

  /// Answers whether the best fit is an idle region. A flush would have released it, and the
  /// request would then have taken a larger chunk.
  bool has_idle_that_fits(std::uint64_t stream, std::uint64_t size) const {
    const auto* const fit = heap_.best_fit(stream, size);
    return fit != nullptr && fit->is_region();
  }
  void infer_flush(std::size_t index) {
    found_.flushes.push_back(index);
    flush();
  }
  bool is_inside(std::uint64_t address) const {
    const auto& chunks = heap_.chunks();
    const auto after = chunks.upper_bound(address);
    if (after == chunks.begin()) return false;
    const auto& chunk = std::prev(after)->second;
    return address - chunk.address < chunk.size;
  }
  /// Infers a flush if a free region overlaps the new one: the device handed its addresses out
  /// again, so the pool had released it.
  void make_room(std::size_t index, std::uint64_t address, std::uint64_t size) {
    const auto& chunks = heap_.chunks();
    const auto after = chunks.lower_bound(address + size);
    if (after == chunks.begin()) return;
    const auto& chunk = std::prev(after)->second;
    if (chunk.address + chunk.size > address && chunk.is_free && chunk.is_region())
      infer_flush(index);
  }
  /// Adds memory from before the recording. Adjacent pieces count as parts of one region.
  void add_unknown(const CupyStep& step, std::uint64_t size) {
    heap_.forget(step.address, size);
    unknown_[step.address] = step.address + size;
    auto* const chunk = heap_.add_region(step.address, size, step.stream);
    heap_.take(chunk, size, false);
    if (auto* const before = heap_.before(chunk); before != nullptr && before->list == chunk->list)
      heap_.join(before, chunk);
  }

  /// Answers whether the range overlaps memory from before the recording, whose bounds are unknown.
  bool is_unknown(std::uint64_t address, std::uint64_t size) const {
    auto at = unknown_.lower_bound(address + size);
    return at != unknown_.begin() && std::prev(at)->second > address;
  }

  void miss(const CupyStep& step, std::string_view words) {
    if (found_.misses.size() < kMisses)
      found_.misses.push_back(text::format("event {}, {} bytes: {}", step.event, step.size, words));
  }

  const std::uint64_t limit_;
  const bool flushes_too_large_;
  CupyOneStep& found_;
  ChunkHeap heap_;
  std::map<std::uint64_t, std::uint64_t> unknown_;  // end by address
  std::uint64_t reserved_ = 0;
};

}  // namespace

Status CupyRecording::on_header(const trace::Header& header) {
  is_cupy_ = header.framework == "CuPy" || header.framework.starts_with("CuPy ");
  if (!is_cupy_ || header.source_options.empty()) return {};
  const auto said = format::parse_json(header.source_options);
  if (!said) return {};
  if (const auto* const limit = said->find("limit")) settings_.limit = limit->as_u64().value_or(0);
  if (const auto* const version = said->find("cupy")) {
    const auto text = version->as_string().value_or("");
    settings_.flushes_too_large = text.starts_with("13.") || text.starts_with("14.0");
  }
  return {};
}

Status CupyRecording::on_operation(const Operation& operation) {
  if (!is_cupy_ || operation.op == Op::define || operation.op == Op::end ||
      operation.op == Op::extension)
    return {};
  add(operation);
  ++events_;
  return {};
}

void CupyRecording::add(const Operation& operation) {
  const auto device = operation.has(Member::device) ? operation.device : 0;
  if (operation.op == Op::mark) {
    if (operation.text == "free_all_blocks")
      steps_.push_back({.kind = Kind::free_all_blocks, .event = events_});
    return;
  }
  if (operation.op == Op::free) {
    if (operation.has(Member::layer)) return;  // The importer inferred it.
    const auto found = live_.find(operation.id.number);
    if (found == live_.end()) return;
    steps_.push_back({.kind = Kind::free,
                      .allocation = found->second.first,
                      .address = found->second.second,
                      .event = events_});
    live_.erase(found);
    return;
  }
  if (operation.op != Op::memalloc) return;
  if (!has_device_) {
    device_ = device;
    has_device_ = true;
  }
  if (device != device_) return;
  if (operation.has(Member::layer)) {
    asked_address_ = operation.addr;
    asked_size_ = operation.size;
    return;
  }
  CupyStep step{.kind = operation.has(Member::addr) ? Kind::alloc : Kind::refused,
                .allocation = allocations_,
                .address = operation.addr,
                .size = operation.size,
                .event = events_};
  step.stream = stream_of(operation);
  if (step.kind == Kind::alloc) {
    if (asked_size_ != 0 && asked_address_ == step.address) step.segment = asked_size_;
    asked_size_ = 0;
    live_[operation.id.number] = {allocations_++, step.address};
  }
  steps_.push_back(step);
}

CupyOneStep check_one_step(const CupyRecording& recording, const CupySettings& settings) {
  CupyOneStep found;
  RecordedPool pool(settings, found);
  const auto& steps = recording.steps();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    switch (steps[i].kind) {
      case Kind::alloc:
        pool.alloc(i, steps[i]);
        break;
      case Kind::refused:
        pool.refused(steps[i]);
        break;
      case Kind::free:
        pool.free(steps[i].address);
        break;
      case Kind::free_all_blocks:
        pool.flush();
        break;
    }
  }
  return found;
}

PoolModel::Counts free_run(const CupyRecording& recording, const CupySettings& settings,
                           const CupyOneStep& recorded, Addresses addresses) {
  const auto& steps = recording.steps();
  MadeUpMemory::Segments segments;
  for (const auto& step : steps) {
    if (step.kind == Kind::alloc && step.segment != 0)
      segments.emplace_back(step.address, step.segment);
  }
  MadeUpMemory memory(addresses, ~std::uint64_t{0}, &segments);
  CupyPool pool(settings, memory);
  std::vector<std::optional<PoolModel::Block>> blocks(recording.allocations());
  auto flush = recorded.flushes.begin();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (; flush != recorded.flushes.end() && *flush <= i; ++flush) pool.release_idle();
    const auto& step = steps[i];
    switch (step.kind) {
      case Kind::alloc:
        if (addresses == Addresses::recorded) pool.prefer(step.address);
        blocks[step.allocation] = pool.allocate(step.size, step.stream);
        break;
      case Kind::refused:
        if (const auto served = pool.allocate(step.size, step.stream))
          pool.free(*served, step.size, step.stream);
        break;
      case Kind::free:
        if (const auto& block = blocks[step.allocation]) pool.free(*block, 0, block->stream);
        break;
      case Kind::free_all_blocks:
        pool.release_idle();
        break;
    }
  }
  return pool.counts();
}

}  // namespace emm::allocators
