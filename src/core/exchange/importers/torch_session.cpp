#include "exchange/importers/torch_session.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

Status TorchSession::row(const TorchRow& row) {
  completions_ = completions_ || row.action == TorchAction::free_completed;
  if (const auto requested = std::exchange(just_requested_, std::nullopt)) {
    if (row.action == TorchAction::free_completed && row.address == requested->address) {
      run_.used();  // part of the free
      return {};
    }
    requested_.remove(requested->address);  // replaces an earlier free whose completion was lost
    requested_.add(requested->address, requested->entry);
  }
  switch (row.action) {
    case TorchAction::alloc:
      return alloc(row);
    case TorchAction::free_requested:
      return free_requested(row);
    case TorchAction::free_completed:
      return free_completed(row);
    case TorchAction::segment_alloc:
      return segment_begin(row, Kind::device);
    case TorchAction::segment_map:
      return segment_begin(row, Kind::physical);
    case TorchAction::segment_free:
      return segment_free(row);
    case TorchAction::segment_unmap:
      return segment_unmap(row);
    case TorchAction::oom:
      return oom(row);
    case TorchAction::snapshot:
    case TorchAction::user_defined:
      return mark(row);
  }
  return {};
}

Status TorchSession::finish() {
  if (const auto requested = std::exchange(just_requested_, std::nullopt)) {
    requested_.add(requested->address, requested->entry);
  }
  constexpr std::int32_t kNotReady = 600;  // CUDA_ERROR_NOT_READY, the answer of the event query
  const auto not_completed = completions_ ? requested_.all() : std::vector<LiveAllocation>();
  for (const auto& entry : not_completed) {
    auto made = common(Op::free);
    made.layer = Layer::backing;
    made.id = Id::of(entry.id);
    made.result = {.outcome = Outcome::error, .code = kNotReady};
    made.members = made.members | Members(Member::layer, Member::id, Member::result);
    if (numbers_.last_ns) {
      made.time_ns = *numbers_.last_ns;
      made.members.add(Member::time_ns);
    }
    if (auto given = run_.emit(made); !given) return given;
  }
  run_.note(not_completed.size(),
            "frees had not completed at the end: their memory was not free yet");
  run_.note(live_again_, "rows allocate at an address that is live");
  run_.note(other_size_, "rows free another size than was allocated");
  run_.note(delayed_,
            "frees completed later than they were asked for, as record_stream makes them");
  if (refused_with_room_ != 0) {
    run_.note(refused_with_room_, text::format("allocations failed with room on the device, {} "
                                               "or more: a limit was set elsewhere, "
                                               "as by a memory fraction",
                                               units::bytes(least_room_)));
  }
  return {};
}

Operation TorchSession::common(Op op) const {
  Operation made{.op = op};
  if (device_) {
    made.device = *device_;
    made.members.add(Member::device);
  }
  return made;
}

Operation TorchSession::common(const TorchRow& row, Op op) {
  Operation made = common(op);
  if (row.has_time) {
    made.time_ns = numbers_.since_start_ns(row.time_us);
    made.members.add(Member::time_ns);
  }
  add_site(made, row.site);
  if (!row.label.empty()) {
    made.label = row.label;
    made.members.add(Member::label);
  }
  if (!row.extension.empty()) {
    made.extension = row.extension;
    made.members.add(Member::extension);
  }
  return made;
}

void TorchSession::add_site(Operation& made, std::uint64_t site) {
  if (site == 0) return;
  made.site = Id::of(site);
  made.members.add(Member::site);
}

/// Turns `made` into an allocation with the next id.
void TorchSession::make_allocation(Operation& made, std::uint64_t address, std::uint64_t size,
                                   std::uint64_t stream) {
  made.id = Id::of(run_.next_id());
  made.size = size;
  made.addr = address;
  made.members = made.members | Members(Member::id, Member::size, Member::addr);
  stream_.put(made, stream);
}

Status TorchSession::live_before(const TorchMemory& memory) {
  if (!live_.add(memory.address, {.id = run_.id_to_come(), .size = memory.size})) return {};
  auto made = common(Op::memalloc);
  make_allocation(made, memory.address, memory.size, memory.stream);
  made.preexisting = true;
  made.members.add(Member::preexisting);
  add_site(made, memory.site);
  if (memory.granted != 0) {
    made.granted = memory.granted;
    made.members.add(Member::granted);
  }
  const auto id = made.id;
  if (auto given = run_.emit(made); !given || !memory.pending) return given;
  requested_.add(memory.address, *live_.remove(memory.address));
  auto freed = common(Op::free);
  freed.id = id;
  freed.members.add(Member::id);
  stream_.put(freed, memory.stream);
  mark_rowless(freed);
  return run_.emit(freed);
}

Status TorchSession::held_before(const TorchMemory& memory) {
  if (segments_.has(memory.address)) return {};
  const auto id = ++numbers_.segments;
  const auto name = text::format("s{}", id);
  auto made = common(Op::memalloc);
  make_segment(made, name, memory, memory.mapped ? Kind::physical : Kind::device);
  made.preexisting = true;
  made.members.add(Member::preexisting);
  add_site(made, memory.site);
  // The size of any other segment tells its pool.
  std::string members = memory.mapped && memory.small ? R"("x-segment_type":"small")" : "";
  if (!memory.pool.is_default()) {
    if (!members.empty()) members += ',';
    members += extensions_.emplace(id, memory.pool.member()).first->second;
  }
  if (!members.empty()) {
    made.extension = members;
    made.members.add(Member::extension);
  }
  segments_.add(memory.address, {.id = id, .size = memory.size});
  return run_.emit(made);
}

Status TorchSession::alloc(const TorchRow& row) {
  if (requested_.count() != 0)
    requested_.remove(row.address);  // its free completed, but the row for that was lost
  if (!live_.add(row.address, {.id = run_.id_to_come(), .size = row.size})) return again();
  auto made = common(row, Op::memalloc);
  make_allocation(made, row.address, row.size, row.stream);
  if (row.granted != 0) {
    made.granted = row.granted;
    made.members.add(Member::granted);
  }
  run_.used();
  return run_.emit(made);
}

Status TorchSession::free_requested(const TorchRow& row) {
  const auto ended = live_.remove(row.address);
  if (!ended) {
    run_.unmatched();
    return {};
  }
  other_size_ += ended->size != row.size ? 1 : 0;
  just_requested_ = Requested{.address = row.address, .entry = *ended};
  return end_of(row, *ended);
}

Status TorchSession::end_of(const TorchRow& row, const LiveAllocation& ended) {
  auto made = common(row, Op::free);
  made.id = Id::of(ended.id);
  made.members.add(Member::id);
  stream_.put(made, row.stream);
  run_.used();
  return run_.emit(made);
}

Status TorchSession::free_completed(const TorchRow& row) {
  const auto ended = requested_.remove(row.address);
  if (!ended) {
    if (const auto live = live_.remove(row.address)) return end_of(row, *live);
    run_.unmatched();
    return {};
  }
  ++delayed_;
  auto made = common(row, Op::free);
  made.layer = Layer::backing;
  made.id = Id::of(ended->id);
  made.members = made.members | Members(Member::layer, Member::id);
  stream_.put(made, row.stream);
  run_.used();
  return run_.emit(made);
}

Status TorchSession::segment_begin(const TorchRow& row, Kind kind) {
  if (segments_.has(row.address)) return again();
  run_.used();
  return hold(row, row.address, row.size, kind);
}

Status TorchSession::segment_free(const TorchRow& row) {
  const auto ended = segments_.remove(row.address);
  if (!ended) {
    run_.unmatched();
    return {};
  }
  run_.used();
  return release(row, ended->id);
}

/// The range may cover several segments, and parts of them. The rest of a part stays, as a segment
/// with its own name. The first operation stands for the row.
Status TorchSession::segment_unmap(const TorchRow& row) {
  const auto begin = row.address;
  const auto end = row.size > ~begin ? ~std::uint64_t{0} : begin + row.size;
  auto found = false;
  for (auto at = begin; at < end;) {
    auto located = segments_.containing(at);
    if (!located) {
      const auto next = segments_.live().lower_bound(at);
      if (next == segments_.live().end() || next->first >= end) break;
      located = AddressBook::Located{.address = next->first, .live = next->second};
    }
    const auto first = located->address, last = located->address + located->live.size;
    segments_.remove(first);
    if (auto given = release(row, located->live.id, !std::exchange(found, true)); !given)
      return given;
    if (first < begin) {
      if (auto given = keep_part(row, located->live.id, first, begin - first); !given) return given;
    }
    if (last > end) {
      if (auto given = keep_part(row, located->live.id, end, last - end); !given) return given;
    }
    at = std::max(last, at + 1);
  }
  if (found) {
    run_.used();
  } else {
    run_.unmatched();
  }
  return {};
}

Status TorchSession::oom(const TorchRow& row) {
  auto made = common(row, Op::memalloc);
  made.id = Id::of(run_.next_id());
  made.size = row.size;
  made.result.outcome = Outcome::oom;
  made.members = made.members | Members(Member::id, Member::size, Member::result);
  stream_.put(made, row.stream);
  std::string more(row.extension);
  if (row.has_address) {
    more += text::format("{}\"x-device_free\":{}", more.empty() ? "" : ",", row.address);
    made.extension = more;
    made.members.add(Member::extension);
    if (row.address >= row.size) {
      least_room_ = refused_with_room_ == 0 ? row.address : std::min(least_room_, row.address);
      ++refused_with_room_;
    }
  }
  run_.used();
  return run_.emit(made);
}

Status TorchSession::mark(const TorchRow& row) {
  auto made = common(row, Op::mark);
  const auto action = kTorchActionNames[static_cast<std::size_t>(row.action)];
  made.text = row.label.empty() ? action : row.label;
  made.members.add(Member::text);
  made.members.remove(Member::label);
  extension_.assign(row.extension).append(row.extension.empty() ? "" : ",");
  extension_ += text::format("\"x-action\":\"{}\"", action);
  if (row.size != 0) extension_ += text::format(",\"x-size\":{}", row.size);
  made.extension = extension_;
  made.members.add(Member::extension);
  run_.used();
  return run_.emit(made);
}

void TorchSession::make_segment(Operation& made, std::string_view name, const TorchMemory& memory,
                                Kind kind) {
  made.layer = Layer::backing;
  made.kind = kind;
  made.id = Id::of(name);
  made.size = memory.size;
  made.addr = memory.address;
  made.members = made.members | Members(Member::layer, Member::id, Member::size, Member::addr);
  if (kind != Kind::device) made.members.add(Member::kind);
  stream_.put(made, memory.stream);
}

Status TorchSession::hold(const TorchRow& row, std::uint64_t address, std::uint64_t size,
                          Kind kind) {
  if (!row.extension.empty()) extensions_[numbers_.segments + 1] = row.extension;
  return hold(common(row, Op::memalloc), address, size, row.stream, kind);
}

/// Gives the rest of a segment the "x-" members that the whole segment had.
Status TorchSession::keep_part(const TorchRow& row, std::uint64_t segment, std::uint64_t address,
                               std::uint64_t size) {
  auto made = common(row, Op::memalloc);
  made.members.remove(Member::extension);
  made.extension = {};
  if (const auto said = extensions_.find(segment); said != extensions_.end()) {
    made.extension = extensions_[numbers_.segments + 1] = said->second;
  }
  mark_rowless(made);
  return hold(made, address, size, row.stream, Kind::physical);
}

Status TorchSession::hold(Operation made, std::uint64_t address, std::uint64_t size,
                          std::uint64_t stream, Kind kind) {
  const auto id = ++numbers_.segments;
  const auto name = text::format("s{}", id);
  make_segment(made, name, {.address = address, .size = size, .stream = stream}, kind);
  segments_.add(address, {.id = id, .size = size});
  return run_.emit(made);
}

Status TorchSession::release(const TorchRow& row, std::uint64_t segment, bool has_row) {
  const auto name = text::format("s{}", segment);
  auto made = common(row, Op::free);
  made.layer = Layer::backing;
  made.id = Id::of(name);
  made.members = made.members | Members(Member::layer, Member::id);
  if (!has_row) mark_rowless(made);
  return run_.emit(made);
}

void TorchSession::mark_rowless(Operation& made) {
  extension_.assign(made.extension)
      .append(made.extension.empty() ? "" : ",")
      .append("\"x-no_row\":true");
  made.extension = extension_;
  made.members.add(Member::extension);
}

Status TorchSession::again() {
  ++live_again_;
  run_.duplicate();
  return {};
}

}  // namespace emm::trace
