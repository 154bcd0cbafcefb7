#include "trace/importers/torch_session.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace emm::trace {

Status TorchSession::row(const TorchRow& row) {
  if (const auto requested = std::exchange(just_requested_, std::nullopt)) {
    if (row.action == TorchAction::free_completed && row.address == requested->address) {
      run_.used();  // part of the free
      return {};
    }
    requested_.remove(requested->address);  // one whose end was lost
    requested_.add(requested->address, requested->entry);
  }
  switch (row.action) {
    case TorchAction::alloc: return alloc(row);
    case TorchAction::free_requested: return free_requested(row);
    case TorchAction::free_completed: return free_completed(row);
    case TorchAction::segment_alloc: return segment_begin(row, Kind::device);
    case TorchAction::segment_map: return segment_begin(row, Kind::physical);
    case TorchAction::segment_free: return segment_free(row);
    case TorchAction::segment_unmap: return segment_unmap(row);
    case TorchAction::oom: return oom(row);
    case TorchAction::snapshot: return snapshot(row);
  }
  return {};
}

void TorchSession::finish() {
  run_.note(live_again_, "rows allocate at an address that is live");
  run_.note(other_size_, "rows free another size than was allocated");
  run_.note(delayed_, "frees completed later than they were asked for, as record_stream makes them");
  if (refused_with_room_ != 0) {
    run_.note(refused_with_room_,
              text::format("allocations failed with room on the device, {} bytes or more: a limit was set elsewhere, "
                           "as by a memory fraction",
                           least_room_));
  }
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
  if (row.site != 0) {
    made.site = Id::of(row.site);
    made.members.add(Member::site);
  }
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

/// Of the next id.
void TorchSession::make_allocation(Operation& made, std::uint64_t address, std::uint64_t size, std::uint64_t stream) {
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
  if (memory.granted != 0) {
    made.granted = memory.granted;
    made.members.add(Member::granted);
  }
  return run_.emit(made);
}

Status TorchSession::held_before(const TorchMemory& memory) {
  if (segments_.has(memory.address)) return {};
  const auto id = ++numbers_.segments;
  const auto name = text::format("s{}", id);
  auto made = common(Op::memalloc);
  make_segment(made, name, memory, memory.mapped ? Kind::physical : Kind::device);
  made.preexisting = true;
  made.members.add(Member::preexisting);
  segments_.add(memory.address, {.id = id, .size = memory.size});
  return run_.emit(made);
}

Status TorchSession::alloc(const TorchRow& row) {
  if (!live_.add(row.address, {.id = run_.id_to_come(), .size = row.size})) return again();
  auto made = common(row, Op::memalloc);
  make_allocation(made, row.address, row.size, row.stream);
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

Status TorchSession::end_of(const TorchRow& row, const LiveTable::Entry& ended) {
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
  return give_back(row, ended->id);
}

/// The range may cover several that were mapped, and parts of them: what is left of a part stays, under a name
/// of its own.
Status TorchSession::segment_unmap(const TorchRow& row) {
  const auto begin = row.address;
  const auto end = row.size > ~begin ? ~std::uint64_t{0} : begin + row.size;
  auto found = false;
  for (auto at = begin; at < end;) {
    auto place = segments_.containing(at);
    if (!place) {
      const auto next = segments_.live().lower_bound(at);
      if (next == segments_.live().end() || next->first >= end) break;
      place = AddressBook::Place{.address = next->first, .entry = next->second};
    }
    found = true;
    const auto first = place->address, last = place->address + place->entry.size;
    segments_.remove(first);
    if (auto given = give_back(row, place->entry.id); !given) return given;
    if (first < begin) {
      if (auto given = hold(row, first, begin - first, Kind::physical); !given) return given;
    }
    if (last > end) {
      if (auto given = hold(row, end, last - end, Kind::physical); !given) return given;
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

Status TorchSession::snapshot(const TorchRow& row) {
  auto made = common(row, Op::mark);
  made.text = "snapshot";
  made.members.add(Member::text);
  run_.used();
  return run_.emit(made);
}

void TorchSession::make_segment(Operation& made, std::string_view name, const TorchMemory& memory, Kind kind) {
  made.layer = Layer::backing;
  made.kind = kind;
  made.id = Id::of(name);
  made.size = memory.size;
  made.addr = memory.address;
  made.members = made.members | Members(Member::layer, Member::id, Member::size, Member::addr);
  if (kind != Kind::device) made.members.add(Member::kind);
  stream_.put(made, memory.stream);
}

Status TorchSession::hold(const TorchRow& row, std::uint64_t address, std::uint64_t size, Kind kind) {
  const auto id = ++numbers_.segments;
  const auto name = text::format("s{}", id);
  auto made = common(row, Op::memalloc);
  make_segment(made, name, {.address = address, .size = size, .stream = row.stream}, kind);
  segments_.add(address, {.id = id, .size = size});
  return run_.emit(made);
}

Status TorchSession::give_back(const TorchRow& row, std::uint64_t segment) {
  const auto name = text::format("s{}", segment);
  auto made = common(row, Op::free);
  made.layer = Layer::backing;
  made.id = Id::of(name);
  made.members = made.members | Members(Member::layer, Member::id);
  return run_.emit(made);
}

Status TorchSession::again() {
  ++live_again_;
  run_.duplicate();
  return {};
}

}  // namespace emm::trace
