#include "allocators/pytorch/recording.hpp"

#include <algorithm>
#include <map>

#include "allocators/pytorch/one_step.hpp"
#include "allocators/stream_of.hpp"
#include "format/json_value.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::allocators::pytorch {
namespace {

using trace::Member;
using trace::Op;
using trace::Operation;

/// A trace keeps no definitions, and its events are numbered without them.
bool kept_by_trace(Op op) { return op != Op::define && op != Op::end && op != Op::extension; }

struct Extension {
  PoolId pool{};
  bool has_pool = false, no_row = false, small = false;
  std::uint64_t device_free = 0;
};

Extension extension_of(const Operation& operation) {
  Extension found;
  if (operation.extension.empty()) return found;
  const auto parsed = format::parse_json("{" + std::string(operation.extension) + "}");
  if (!parsed) return found;
  if (const auto* const pool = parsed->find("x-pool_id");
      pool != nullptr && pool->elements.size() == 2) {
    found.has_pool = true;
    found.pool = {pool->elements[0].as_u64().value_or(0), pool->elements[1].as_u64().value_or(0)};
  }
  if (const auto* const no_row = parsed->find("x-no_row")) found.no_row = no_row->boolean;
  if (const auto* const type = parsed->find("x-segment_type")) found.small = type->text == "small";
  if (const auto* const free = parsed->find("x-device_free"))
    found.device_free = free->as_u64().value_or(0);
  return found;
}

}  // namespace

Status Recording::on_header(const trace::Header& header) {
  is_torch_ = header.framework == "torch" || header.framework.starts_with("torch ");
  has_segments_of_others_ = !is_torch_ && header.framework != trace::kTorchProfiler;
  if (is_torch_ && !header.source_options.empty()) {
    if (auto read = read_snapshot_settings(header.source_options, settings_); !read)
      settings_fault_ = describe(read.error());
  }
  return {};
}

Status Recording::on_operation(const Operation& operation) {
  if (!is_torch_ && takes_ == Takes::recordings) return {};
  const auto event = kept_by_trace(operation.op) ? events_++ : events_;
  if (operation.op == Op::reset) end_all(event, operation.device);
  if (operation.op != Op::memalloc && operation.op != Op::free) return {};
  const Step step{.stream = stream_of(operation), .event = event};
  if (operation.op == Op::memalloc) {
    add_memory(operation, step);
  } else {
    add_free(operation, step);
  }
  while (device_of_.size() < steps_.size()) device_of_.push_back(operation.device);
  return {};
}

/// A reset frees everything live on its device.
void Recording::end_all(std::uint64_t event, std::uint32_t device) {
  const auto before = static_cast<std::ptrdiff_t>(steps_.size());
  live_.erase_if([&](const Live& live) {
    if (live.segment || live.device != device) return false;
    if (live.freed) return true;
    steps_.push_back({.kind = Step::Kind::free,
                      .allocation = live.number,
                      .address = live.address,
                      .size = live.size,
                      .stream = live.stream,
                      .event = event});
    return true;
  });
  std::sort(steps_.begin() + before, steps_.end(),
            [](const Step& a, const Step& b) { return a.allocation < b.allocation; });
  while (device_of_.size() < steps_.size()) device_of_.push_back(device);
}

void Recording::add_memory(const Operation& operation, Step step) {
  const auto backing = operation.has(Member::layer) && operation.layer == trace::Layer::backing;
  // Another allocator's segments tell nothing of what PyTorch's would do.
  if (backing && has_segments_of_others_) return;
  if (!backing && operation.has(Member::kind) && operation.kind != trace::Kind::device) return;
  const auto more = extension_of(operation);
  step.address = operation.addr;
  step.size = operation.size;
  step.pool = more.pool;
  step.pool_known = more.has_pool;
  step.preexisting = operation.has(Member::preexisting) && operation.preexisting;
  step.granted = operation.has(Member::granted) ? operation.granted : 0;
  if (operation.has(Member::result) && operation.result.outcome == trace::Outcome::oom) {
    step.kind = Step::Kind::refused;
    step.device_free = more.device_free;
    steps_.push_back(step);
    return;
  }
  Live live{.address = step.address, .size = step.size, .stream = step.stream, .pool = step.pool};
  live.device = operation.device;
  if (backing) {
    has_segments_ = true;
    live.segment = true;
    live.mapped = step.mapped =
        operation.has(Member::kind) && operation.kind == trace::Kind::physical;
    if (more.no_row && !step.preexisting) {
      // This row shows what remains of a segment, so the segment_end before it covers only the
      // rest.
      for (auto at = steps_.rbegin(); at != steps_.rend(); ++at) {
        if (at->kind != Step::Kind::segment_end) continue;
        if (step.address < at->address || step.address - at->address >= at->size) continue;
        live.number = at->allocation;
        if (step.address == at->address) {
          const auto stays = std::min(at->size, step.size);
          at->address += stays;
          at->size -= stays;
        } else {
          at->size = step.address - at->address;
        }
        break;
      }
      live_[operation.id] = live;
      return;
    }
    step.kind = Step::Kind::segment_begin;
    step.small = more.small || step.size == kSmallSegment;
    live.number = step.allocation = segments_++;
  } else {
    pools_in_rows_ = pools_in_rows_ || more.has_pool;
    step.kind = Step::Kind::alloc;
    live.number = step.allocation = allocations_++;
  }
  steps_.push_back(step);
  live_[operation.id] = live;
}

void Recording::add_free(const Operation& operation, Step step) {
  auto* const found = live_.find(operation.id);
  if (found == nullptr) return;
  auto& live = *found;
  const auto backing = operation.has(Member::layer) && operation.layer == trace::Layer::backing;
  step.address = live.address;
  step.size = live.size;
  step.allocation = live.number;
  step.stream = live.stream;
  step.pool = live.pool;
  step.mapped = live.mapped;
  const auto device = live.device;  // A free need not name its device.
  if (live.segment) {
    step.kind = Step::Kind::segment_end;
    steps_.push_back(step);
    live_.erase(operation.id);
  } else if (!backing) {
    step.kind = Step::Kind::free;
    live.freed = true;
    live.freed_at = steps_.size();
    steps_.push_back(step);
    if (!is_torch_)
      live_.erase(operation.id);  // Only PyTorch says later that a free has completed.
  } else {
    steps_[live.freed_at].delayed = true;
    const auto completed = !operation.has(Member::result);
    if (completed) {
      step.kind = Step::Kind::complete;
      steps_.push_back(step);
    }
    live_.erase(operation.id);
  }
  while (device_of_.size() < steps_.size()) device_of_.push_back(device);
}

Status Recording::finish() {
  std::map<std::uint32_t, std::size_t> counts;
  for (const auto device : device_of_) ++counts[device];
  for (const auto& [device, count] : counts) {
    if (count > counts[device_] || counts.size() == 1) device_ = device;
  }
  other_devices_ = counts.empty() ? 0 : counts.size() - 1;
  if (other_devices_ != 0) {
    for (std::size_t i = 0; i < steps_.size(); ++i) all_.emplace_back(device_of_[i], steps_[i]);
  }
  device_of_.clear();
  live_.clear();
  take_device();
  return {};
}

Recording Recording::on_device(std::uint32_t device) const {
  auto other = *this;
  if (device == device_) return other;
  other.device_ = device;
  if (all_.empty()) other.steps_.clear();
  if (limit_is_inferred_) {
    other.settings_.known_limit = kNoLimit;
    other.limit_is_inferred_ = false;
  }
  other.take_device();
  return other;
}

void Recording::take_device() {
  if (!all_.empty()) {
    steps_.clear();
    for (const auto& [device, step] : all_) {
      if (device == device_) steps_.push_back(step);
    }
  }
  // If rows name pools, the pool of every segment is known. If not, the final state names the pools
  // of the segments that have not ended.
  std::vector<bool> ended(segments_, false);
  for (const auto& step : steps_) {
    if (step.kind == Step::Kind::segment_end) ended[step.allocation] = true;
  }
  for (auto& step : steps_) {
    if (step.kind == Step::Kind::segment_begin && (pools_in_rows_ || !ended[step.allocation]))
      step.pool_known = true;
  }
  if (is_recording()) {
    if (const auto limit = limit_of_collections(*this, settings_)) {
      settings_.known_limit = *limit;
      limit_is_inferred_ = true;
    }
  }
}

}  // namespace emm::allocators::pytorch
