#include "exchange/exporters/torch_pickle.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

constexpr std::uint64_t kRounding = 512;  // bytes: PyTorch's kMinBlockSize
// Bytes: PyTorch's kSmallBuffer and kLargeBuffer.
constexpr std::uint64_t kSmallSegment = std::uint64_t{2} << 20,
                        kLargeGranule = std::uint64_t{20} << 20;
constexpr std::uint64_t kFirstAddress = std::uint64_t{1}
                                        << 44;  // no driver was seen to place memory here
// A device has less than the 48 TiB between them.
constexpr std::uint64_t kLastAddress = std::uint64_t{1} << 46;
constexpr std::uint64_t kStartUs =
    1'700'000'000'000'000;              // for a trace that does not say when it began
constexpr std::uint64_t kBatch = 1000;  // elements per APPENDS, as in Python's pickler

constexpr std::array<std::string_view, 10> kActions{
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
    "snapshot",     "user_defined"};

/// A size or an address, rounded up. The largest ones are rounded down, which cannot overflow.
constexpr std::uint64_t round_up(std::uint64_t size) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max() / kRounding;
  const auto units = size / kRounding + (size % kRounding != 0 ? 1 : 0);
  return std::clamp<std::uint64_t>(units, 1, kMost) * kRounding;
}

/// The lowest address from `from` on with `size` bytes before `to` where nothing is live. Looks at
/// each live allocation once, whatever their sizes are.
std::optional<std::uint64_t> lowest_hole(const AddressBook& book, std::uint64_t from,
                                         std::uint64_t to, std::uint64_t size) {
  auto at = from;
  if (const auto there = book.containing(at)) at = round_up(there->address + there->live.size);
  const auto& all = book.live();
  for (auto next = all.lower_bound(at);; ++next) {
    const auto end = next == all.end() ? to : std::min(next->first, to);
    if (at < end && end - at >= size) return at;
    if (next == all.end() || next->first >= to) return std::nullopt;
    at = round_up(next->first + next->second.size);
  }
}

std::string text_of(const Id& id) {
  return id.is_number() ? text::format("{}", id.number) : std::string(id.text);
}

bool refused_outcome(Outcome said) {
  return said != Outcome::none && said != Outcome::ok && said != Outcome::any;
}

}  // namespace

TorchPickleWriter::TorchPickleWriter(format::ByteSink& out, const TorchFrames& frames)
    : pickle_(out),
      frames_(frames),
      random_(frames.seed),
      start_us_(kStartUs),
      next_address_(kFirstAddress),
      made_up_stacks_(frames.own ? 0 : frames.stacks),
      made_up_frames_(frames.frames) {
  streams_.push_back(0);
  contexts_.emplace_back();
}

Status TorchPickleWriter::on_header(const Header& header) {
  source_options_ = header.source_options;
  default_context_ = header.default_context;
  default_process_ = header.default_process;
  default_device_ =
      header.default_device < 0 ? 0 : static_cast<std::uint32_t>(header.default_device);
  default_expect_ = header.default_expect;
  level_ = header.level;
  marks_device_ = header.devices.size() == 1 ? header.devices.front().id : default_device_;
  if (header.has_clock && header.clock_start_realtime_ns != 0)
    start_us_ = header.clock_start_realtime_ns / 1000;
  return {};
}

Status TorchPickleWriter::on_operation(const Operation& operation) {
  if (operation.op == Op::extension) {
    ++left_out_;
    return {};
  }
  const auto said = said_by(operation);
  const auto backing = operation.layer == Layer::backing;
  const auto makes = asks_for_device_memory(operation.op);
  if (makes) return backing ? hold(operation, said) : make(operation, said);
  if (operation.op == Op::free) {
    end(operation, said);
  } else if ((operation.op == Op::reset || operation.op == Op::context_destroy) && !backing) {
    if (!refused_outcome(operation.result.outcome)) end_context(operation);
  } else if (operation.op == Op::define && operation.define_kind == DefineKind::site) {
    define(operation);
  } else if (operation.op == Op::mark) {
    mark(operation, said);
  } else if (operation.op == Op::gap) {
    overflowed_ = true;
  } else if (operation.op != Op::end) {
    ++left_out_;
  }
  return {};
}

/// Reads the "x-" members in which the torch importers keep facts about rows.
TorchPickleWriter::ExtensionFields TorchPickleWriter::said_by(const Operation& operation) const {
  ExtensionFields said;
  if (operation.has(Member::label)) said.more.label = operation.label;
  if (!operation.has(Member::extension)) return said;
  const auto members = format::parse_json(text::format("{}{}}", "{", operation.extension));
  if (!members) return said;
  for (const auto& [name, at, value] : members->members) {
    if (name == "x-no_row") said.no_row = value.as_bool().value_or(false);
    if (name == "x-compile_context") said.more.compile_context = value.as_string().value_or("");
    if (name == "x-action") said.action = value.as_string().value_or("");
    if (name == "x-size") said.size = value.as_u64().value_or(0);
    if (name == "x-device_free") {
      said.device_free = value.as_u64().value_or(0);
      said.has_device_free = true;
    }
    if (name == "x-pool_id" && value.elements.size() == 2) {
      said.more.has_pool = true;
      for (std::size_t i = 0; i < 2; ++i)
        said.more.pool[i] = value.elements[i].as_u64().value_or(0);
    }
  }
  return said;
}

std::uint32_t TorchPickleWriter::keep(const RareFields& more) {
  if (more.label.empty() && more.compile_context.empty() && !more.has_pool) return 0;
  auto key = text::format("{}\n{}\n", more.label, more.compile_context);
  if (more.has_pool) key += text::format("{},{}", more.pool[0], more.pool[1]);
  const auto [at, added] =
      more_places_.try_emplace(std::move(key), static_cast<std::uint32_t>(more_.size()));
  if (added) more_.push_back(more);
  return at->second;
}

std::uint32_t TorchPickleWriter::context_of(const Operation& operation) {
  const auto named =
      operation.has(Member::context) || operation.has(Member::process) || !default_context_.empty();
  auto key =
      named ? text::format(
                  "{}\n{}",
                  operation.has(Member::process) ? text_of(operation.process) : default_process_,
                  operation.has(Member::context) ? text_of(operation.context) : default_context_)
            : std::string();
  if (key.empty() || key.ends_with('\n')) {
    const auto device = operation.has(Member::device) ? operation.device : default_device_;
    if (key.empty() && device == default_device_) {
      contexts_[0].device = device;
      return 0;
    }
    key += text::format("on {}", device);
  }
  const auto [at, added] =
      context_places_.try_emplace(std::move(key), static_cast<std::uint32_t>(contexts_.size()));
  if (added) contexts_.push_back({.device = default_device_, .born = {}});
  if (operation.has(Member::device)) contexts_[at->second].device = operation.device;
  return at->second;
}

std::uint8_t TorchPickleWriter::device_of(const Operation& operation) {
  const auto device =
      operation.has(Member::device) ? operation.device : contexts_[context_of(operation)].device;
  devices_ = std::max(devices_, device + 1);
  return static_cast<std::uint8_t>(device);
}

std::uint32_t TorchPickleWriter::stream_of(const Operation& operation) {
  if (!operation.has(Member::stream)) return 0;
  const auto found = stream_names_.find_or_add(operation.stream);
  if (found.added) {
    const auto& id = operation.stream;
    const auto handle = text::to_u64(text_of(id));
    streams_.push_back(id.text == "legacy"       ? 1
                       : id.text == "per_thread" ? 2
                                                 : handle.value_or(streams_.size()));
  }
  return found.index + 1;
}

std::uint32_t TorchPickleWriter::site_of(const Operation& operation) {
  if (!operation.has(Member::site)) return 0;
  const auto found = site_names_.find_or_add(operation.site);
  if (found.added) sites_.emplace_back();
  return found.index + 1;
}

void TorchPickleWriter::define(const Operation& operation) {
  const auto found = site_names_.find_or_add(operation.id);
  if (found.added) sites_.emplace_back();
  auto& stack = sites_[found.index] = {};
  for (const auto frame : operation.frames) site_frames_.add(stack, frame);
  if (stack.count == 0 && operation.has(Member::name)) site_frames_.add(stack, operation.name);
}

TorchPickleWriter::TraceRow TorchPickleWriter::row_of(const Operation& operation, Action action,
                                                      std::uint8_t device) {
  TraceRow row{.stream = stream_of(operation),
               .site = site_of(operation),
               .action = action,
               .device = device};
  row.has_time = operation.has(Member::time_ns);
  if (row.has_time) row.time_us = start_us_ + operation.time_ns / 1000;
  timed_ = timed_ || row.has_time;
  return row;
}

void TorchPickleWriter::add(const TraceRow& row) { rows_.push_back(row); }

/// Chooses an address for the allocation where nothing else is live. Nothing if 64 bits have none.
std::optional<std::uint64_t> TorchPickleWriter::place(const Operation& operation,
                                                      std::uint8_t device) {
  auto& book = live_[device];
  const LiveAllocation entry{.id = 0, .size = operation.size};
  const auto recorded = operation.has(Member::addr) ? operation.addr : 0;
  if (recorded != 0 && recorded <= ~operation.size && book.add(recorded, entry)) return recorded;
  if (operation.layer != Layer::backing) {
    if (const auto hole = hole_in_segments(device, operation.size); hole && book.add(*hole, entry))
      return *hole;
  }
  const auto size = round_up(operation.size);
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  auto address = lowest_hole(book, next_address_, kLastAddress, size);
  if (!address) address = lowest_hole(book, kFirstAddress, kLastAddress, size);
  if (address) {
    next_address_ = *address + size;
  } else {
    address = lowest_hole(book, kLastAddress, kMost, size);
    if (!address) address = lowest_hole(book, kRounding, kMost, size);
  }
  if (!address || !book.add(*address, entry)) return std::nullopt;
  return address;
}

/// The lowest hole in the recorded segments that fits an allocation without an address.
std::optional<std::uint64_t> TorchPickleWriter::hole_in_segments(std::uint8_t device,
                                                                 std::uint64_t size) const {
  const auto held = held_.find(device);
  const auto live = live_.find(device);
  if (held == held_.end() || live == live_.end()) return std::nullopt;
  const auto free = held->second.bytes().value() -
                    std::min(held->second.bytes().value(), live->second.bytes().value());
  if (free < size) return std::nullopt;  // avoids a search that must fail
  for (const auto& [address, segment] : held->second.live()) {
    const auto end = address + segment.size;
    auto at = address;
    const auto& blocks = live->second.live();
    for (auto block = blocks.lower_bound(address); block != blocks.end() && block->first < end;
         ++block) {
      if (block->first - at >= size && block->first > at) return at;
      at = std::max(at, block->first + round_up(block->second.size));
    }
    if (at < end && end - at >= size) return at;
  }
  return std::nullopt;
}

/// Do the segments cover the range? An allocation may span several adjacent mapped ranges.
bool TorchPickleWriter::lies_in_segments(std::uint8_t device, std::uint64_t address,
                                         std::uint64_t size) const {
  const auto held = held_.find(device);
  if (held == held_.end()) return false;
  const auto end = address + size;
  for (auto at = address; at < end;) {
    const auto segment = held->second.containing(at);
    if (!segment || segment->address + segment->live.size <= at) return false;
    at = segment->address + segment->live.size;
  }
  return true;
}

Error TorchPickleWriter::no_address(const Operation& operation) const {
  return fail(Errc::parse_error,
              "line {}: no address is left for {} bytes: expected memory within 64 bits",
              operation.line, operation.size);
}

Status TorchPickleWriter::make(const Operation& operation, const ExtensionFields& said) {
  auto outcome = operation.result.outcome != Outcome::none ? operation.result.outcome
                                                           : operation.expect.outcome;
  if (outcome == Outcome::none) outcome = default_expect_;
  if (outcome == Outcome::oom) {
    refused(operation, said);
    return {};
  }
  if (refused_outcome(outcome)) {
    ++left_out_;
    return {};
  }
  if (operation.size == 0) {
    ++no_bytes_;
    return {};
  }
  managed_ += operation.op == Op::memallocmanaged ? 1 : 0;
  const auto found = ids_.find_or_add(operation.id);
  if (!found.added) return {};  // a second allocation of the id, which no sound trace has
  const auto device = device_of(operation);
  const auto address = place(operation, device);
  if (!address) return no_address(operation);
  Memory memory{.address = *address, .size = operation.size, .device = device};
  made_up_ += operation.has(Member::addr) && operation.addr == memory.address ? 0 : 1;
  if (operation.has(Member::granted)) memory.granted = operation.granted;
  memory.stream = stream_of(operation);
  memory.site = site_of(operation);
  memory.more = keep(said.more);
  memory.state = Memory::State::live;
  memory.alone = !lies_in_segments(device, memory.address, memory.size);
  alone_ += memory.alone ? 1 : 0;
  memory_.push_back(memory);
  contexts_[context_of(operation)].born.push_back(found.index);
  if (operation.has(Member::preexisting) && operation.preexisting) return {};
  auto row = row_of(operation, Action::alloc, device);
  row.address = memory.address;
  row.size = memory.size;
  row.more = memory.more;
  row.alone = memory.alone;
  add(row);
  return {};
}

void TorchPickleWriter::refused(const Operation& operation, const ExtensionFields& said) {
  auto row = row_of(operation, Action::oom, device_of(operation));
  row.size = operation.size;
  row.has_address = said.has_device_free;
  row.address = said.device_free;
  row.more = keep(said.more);
  add(row);
}

Status TorchPickleWriter::hold(const Operation& operation, const ExtensionFields& said) {
  const auto found = ids_.find_or_add(operation.id);
  if (!found.added) return {};
  const auto device = device_of(operation);
  Memory memory{.address = operation.has(Member::addr) ? operation.addr : 0,
                .size = operation.size,
                .device = device};
  memory.backing = true;
  memory.mapped = operation.has(Member::kind) && operation.kind == Kind::physical;
  memory.stream = stream_of(operation);
  memory.site = site_of(operation);
  memory.more = keep(said.more);
  auto& book = held_[device];
  const LiveAllocation entry{.id = found.index, .size = memory.size};
  if (memory.address == 0 || memory.address > ~memory.size || !book.add(memory.address, entry)) {
    const auto address = place(operation, device);  // where nothing else is
    if (!address) return no_address(operation);
    memory.address = *address;
    live_[device].remove(memory.address);
    book.add(memory.address, entry);
  }
  memory.state = Memory::State::live;
  memory_.push_back(memory);
  if (said.no_row) {  // The rest of a partly unmapped range: the range of the unmap row excludes
                      // it.
    if (auto& last = last_unmap_[device]; last != 0) {
      auto& unmap = rows_[last - 1];
      if (memory.address <= unmap.address) {
        const auto part = std::min(unmap.size, memory.address + memory.size - unmap.address);
        unmap.address += part;
        unmap.size -= part;
      } else {
        unmap.size = std::min(unmap.size, memory.address - unmap.address);
      }
    }
    return {};
  }
  if (operation.has(Member::preexisting) && operation.preexisting) return {};
  auto row = row_of(operation, memory.mapped ? Action::segment_map : Action::segment_alloc, device);
  row.address = memory.address;
  row.size = memory.size;
  row.more = memory.more;
  add(row);
  return {};
}

void TorchPickleWriter::end(const Operation& operation, const ExtensionFields& said) {
  const auto found = ids_.find_or_add(operation.id);
  if (found.added) {  // its allocation was not written
    memory_.push_back({});
    ++left_out_;
    return;
  }
  auto& memory = memory_[found.index];
  if (memory.backing) {
    if (memory.state == Memory::State::live) release(operation, memory, said);
  } else if (operation.layer != Layer::backing) {
    if (memory.state == Memory::State::live)
      request_end(operation, found.index, !said.no_row, keep(said.more));
  } else if (memory.state == Memory::State::ended && memory.row != 0) {
    memory.state = Memory::State::pending;
    rows_[memory.row - 1].completes = false;
    memory.row = 0;
    if (!refused_outcome(operation.result.outcome)) complete(operation, memory, keep(said.more));
  } else if (memory.state == Memory::State::pending && !refused_outcome(operation.result.outcome)) {
    complete(operation, memory, keep(said.more));
  }
}

/// Assumes that the free completed at once, until the backing layer shows otherwise.
void TorchPickleWriter::request_end(const Operation& operation, std::uint32_t which, bool has_row,
                                    std::uint32_t more) {
  auto& memory = memory_[which];
  live_[memory.device].remove(memory.address);
  memory.state = has_row ? Memory::State::ended : Memory::State::pending;
  if (!has_row) return;
  auto row = row_of(operation, Action::free_requested, memory.device);
  row.address = memory.address;
  row.size = memory.size;
  row.more = more;
  row.completes = true;
  row.alone = memory.alone;
  add(row);
  memory.row = static_cast<std::uint32_t>(rows_.size());
}

void TorchPickleWriter::complete(const Operation& operation, Memory& memory, std::uint32_t more) {
  auto row = row_of(operation, Action::free_completed, memory.device);
  row.address = memory.address;
  row.size = memory.size;
  row.more = more;
  row.alone = memory.alone;
  add(row);
  memory.state = Memory::State::ended;
}

void TorchPickleWriter::release(const Operation& operation, Memory& memory,
                                const ExtensionFields& said) {
  memory.state = Memory::State::ended;
  held_[memory.device].remove(memory.address);
  auto& last = last_unmap_[memory.device];
  if (said.no_row) {  // the range of the unmap row includes this one
    if (last == 0) return;
    auto& unmap = rows_[last - 1];
    unmap.size = std::max(unmap.address + unmap.size, memory.address + memory.size) - unmap.address;
    return;
  }
  auto row = row_of(operation, memory.mapped ? Action::segment_unmap : Action::segment_free,
                    memory.device);
  row.address = memory.address;
  row.size = memory.size;
  row.stream = memory.stream;
  row.more = memory.more;
  add(row);
  last = rows_.size();
}

void TorchPickleWriter::end_context(const Operation& operation) {
  for (const auto which : std::exchange(contexts_[context_of(operation)].born, {})) {
    if (memory_[which].state != Memory::State::live) continue;
    ++by_reset_;
    request_end(operation, which, true, 0);
  }
}

void TorchPickleWriter::mark(const Operation& operation, const ExtensionFields& said) {
  if (!said.action.empty()) {
    const auto is_snapshot = said.action == kActions[static_cast<std::size_t>(Action::snapshot)];
    auto row = row_of(operation, is_snapshot ? Action::snapshot : Action::user_defined,
                      device_of(operation));
    row.size = said.size;
    auto more = said.more;
    if (!is_snapshot) more.label = operation.text;
    row.more = keep(more);
    add(row);
    return;
  }
  if (!operation.has(Member::time_ns)) {
    ++untimed_marks_;
    return;
  }
  constexpr std::array<std::string_view, 3> kStages{"INSTANT", "START", "END"};
  const auto phase = operation.has(Member::phase) ? operation.phase : Phase::instant;
  annotations_.push_back(
      {.time_us = start_us_ + operation.time_ns / 1000,
       .device = operation.has(Member::device) ? operation.device : marks_device_,
       .stage = kStages[static_cast<std::size_t>(phase)],
       .name = std::string(operation.text)});
}

Status TorchPickleWriter::finish() {
  devices_ = std::max(devices_, std::uint32_t{1});
  pickle_.dict();
  pickle_.mark();
  if (auto put = put_segments(); !put) return put;
  pickle_.text("device_traces");
  pickle_.list();
  pickle_.mark();
  for (std::uint32_t device = 0; device < devices_; ++device) {
    if (auto put = put_rows(static_cast<std::uint8_t>(device)); !put) return put;
  }
  pickle_.appends();
  put_settings();
  if (auto put = put_annotations(); !put) return put;
  pickle_.setitems();
  note(left_out_, "operations have no place in the format: left out");
  note(no_bytes_, "allocations of 0 bytes are left out");
  note(untimed_marks_, "marks have no time: left out");
  note(managed_,
       "allocations are of managed memory, which the format does not tell from device memory");
  note(by_reset_,
       "allocations are ended by a reset or their context's end: written as freed there");
  if (!timed_ && devices_ > 1)
    note(rows_.size(), "operations have no times: their order stands for microseconds");
  const auto synthetic = level_ == Level::synthetic;  // no manager ever placed its allocations
  if (!synthetic)
    note(made_up_, "allocations have no address of their own in the trace: theirs are made up");
  if (!synthetic && level_ != Level::driver && level_ != Level::runtime) {
    note(alone_,
         "allocations lie in no segment that the trace has: each gets one of its own, exactly as "
         "large; what "
         "their manager held for them is not known");
  }
  return pickle_.end();
}

Status TorchPickleWriter::batch() {
  if (++batch_ == kBatch) {
    pickle_.appends();
    pickle_.mark();
    batch_ = 0;
  }
  return pickle_.flush_some();
}

Status TorchPickleWriter::put_rows(std::uint8_t device) {
  pickle_.list();
  pickle_.mark();
  batch_ = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto& row = rows_[i];
    if (row.device != device) continue;
    if (row.action == Action::alloc && row.alone) {
      if (auto put = put_row(row, Action::segment_alloc, i); !put) return put;
    }
    if (auto put = put_row(row, row.action, i); !put) return put;
    const auto completes = row.action == Action::free_requested && row.completes;
    if (completes) {
      if (auto put = put_row(row, Action::free_completed, i); !put) return put;
    }
    if (row.alone && (completes || row.action == Action::free_completed)) {
      if (auto put = put_row(row, Action::segment_free, i); !put) return put;
    }
  }
  pickle_.appends();
  return {};
}

Status TorchPickleWriter::put_row(const TraceRow& row, Action action, std::uint64_t order) {
  const auto& more = more_[row.more];
  pickle_.dict();
  pickle_.mark();
  pickle_.member("action", kActions[static_cast<std::size_t>(action)]);
  if (row.has_address) {
    pickle_.member(action == Action::oom ? "device_free" : "addr", row.address);
  } else {
    pickle_.text("device_free");
    pickle_.negative(-1);  // unknown; the viewer requires a number
  }
  pickle_.member("size", row.size);
  pickle_.member("stream", streams_[row.stream]);
  if (row.has_time) {
    pickle_.member("time_us", row.time_us);
  } else if (!timed_ && devices_ > 1) {  // otherwise nothing orders the rows of several devices
    pickle_.member("time_us", start_us_ + order);
  }
  const std::string_view context = more.compile_context;
  pickle_.member("compile_context", context.empty() ? std::string_view("N/A") : context);
  pickle_.member("user_metadata", std::string_view(more.label));
  if (more.has_pool) {
    pickle_.text("pool_id");
    put_pool(more);
  }
  pickle_.text("frames");
  if (row.site == 0 && frames_.stacks + (frames_.own ? 1 : 0) != 0 && action == Action::alloc) {
    put_made_up_stack();
  } else {
    put_stack(row.site);
  }
  pickle_.setitems();
  ++rows_written_;
  return batch();
}

void TorchPickleWriter::put_pool(const RareFields& more) {
  pickle_.number(more.pool[0]);
  pickle_.number(more.pool[1]);
  pickle_.pair();
}

void TorchPickleWriter::put_stack(std::uint32_t site) {
  if (site == 0 || sites_[site - 1].count == 0) {
    if (no_frames_ != 0) return pickle_.again(no_frames_ - 1);
    no_frames_ = pickle_.list() + 1;
    return;
  }
  stacks_.resize(sites_.size());
  if (stacks_[site - 1] != 0) return pickle_.again(stacks_[site - 1] - 1);
  stacks_[site - 1] = pickle_.list() + 1;
  pickle_.mark();
  const auto& stack = sites_[site - 1];
  for (std::uint32_t i = 0; i < stack.count; ++i) {
    // formats of frames: "model.py:88 forward", "my model.py:88 forward", "?? main"
    const auto frame = site_frames_.frame(stack, i);
    const auto digit = [&](std::size_t at) {
      return at < frame.size() && frame[at] >= '0' && frame[at] <= '9';
    };
    auto colon = frame.find(':');
    auto space = frame.find(' ');
    std::uint64_t line = 0;
    for (; colon != frame.npos; colon = frame.find(':', colon + 1)) {
      auto after = colon + 1;
      while (digit(after)) ++after;
      if (after == colon + 1 || (after != frame.size() && frame[after] != ' ')) continue;
      line = text::to_u64(frame.substr(colon + 1, after - colon - 1)).value_or(0);
      if (line == 0) continue;
      space = after;
      break;
    }
    space = std::min(space, frame.size());
    pickle_.dict();
    put_frame(frame.substr(0, line != 0 ? colon : space), line,
              frame.substr(std::min(space + 1, frame.size())));
  }
  pickle_.appends();
}

void TorchPickleWriter::put_made_up_stack() {
  const auto stack = frames_.stacks == 0 ? stacks_made_++ : random_.below(frames_.stacks);
  if (frames_.own) {
    pickle_.list();
  } else {
    auto& written = made_up_stacks_[stack];
    if (written != 0) return pickle_.again(written - 1);
    written = pickle_.list() + 1;
  }
  Prng of_stack(frames_.seed ^ (stack + 1)
                                   << 20);  // gives the same frames whenever the stack is written
  pickle_.mark();
  for (std::uint64_t i = 0; i < frames_.depth; ++i) {
    if (frames_.frames == 0) {
      put_made_up_frame(stack * frames_.depth + i);
      continue;
    }
    const auto number = of_stack.below(frames_.frames);
    if (made_up_frames_[number] != 0) {
      pickle_.again(made_up_frames_[number] - 1);
    } else {
      put_made_up_frame(number);
    }
  }
  pickle_.appends();
}

void TorchPickleWriter::put_made_up_frame(std::uint64_t number) {
  const auto memo = pickle_.dict();
  if (number < made_up_frames_.size()) made_up_frames_[number] = memo + 1;
  put_frame(text::format("/opt/model/layer_{}.py", number % 100), 1 + number % 5000,
            text::format("forward_{}", number));
}

/// Writes the members of the dict that was just begun.
void TorchPickleWriter::put_frame(std::string_view file, std::uint64_t line,
                                  std::string_view name) {
  pickle_.mark();
  pickle_.text("name");
  pickle_.text_once(name);
  pickle_.member("filename", file);
  pickle_.member("line", line);
  pickle_.setitems();
}

/// Writes each segment with its blocks. Adjacent mapped ranges become one segment, as in PyTorch.
Status TorchPickleWriter::put_segments() {
  pickle_.text("segments");
  pickle_.list();
  pickle_.mark();
  batch_ = 0;
  for (std::uint32_t device = 0; device < devices_; ++device) {
    std::vector<Memory> blocks;
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const auto& memory = memory_[i];
      if (memory.device != device || memory.state == Memory::State::none ||
          memory.state == Memory::State::ended)
        continue;
      if (!memory.backing) blocks.push_back(memory);
      if (memory.backing || memory.alone) segments.push_back({.memory = memory});
    }
    const auto by_address = [](const Memory& a, const Memory& b) { return a.address < b.address; };
    std::sort(blocks.begin(), blocks.end(), by_address);
    std::sort(segments.begin(), segments.end(),
              [&](const auto& a, const auto& b) { return by_address(a.memory, b.memory); });
    std::vector<Segment> merged;
    for (auto& each : segments) {
      auto& memory = each.memory;
      if (!memory.backing) memory.size = std::max(memory.size, memory.granted);
      each.small = memory.mapped ? memory.size % kLargeGranule != 0 : memory.size <= kSmallSegment;
      if (!merged.empty() && memory.mapped) {
        auto& last = merged.back();
        if (last.memory.mapped && last.memory.stream == memory.stream &&
            last.memory.more == memory.more &&
            last.memory.address + last.memory.size == memory.address) {
          last.memory.size += memory.size;
          last.small = last.small || each.small;
          continue;
        }
      }
      merged.push_back(each);
    }
    auto block = blocks.cbegin();
    for (const auto& segment : merged) {
      if (auto put = put_segment(segment, block, blocks.cend()); !put) return put;
    }
  }
  pickle_.appends();
  return {};
}

Status TorchPickleWriter::put_segment(const Segment& segment,
                                      std::vector<Memory>::const_iterator& block,
                                      std::vector<Memory>::const_iterator last) {
  const auto& memory = segment.memory;
  const auto end = memory.address + memory.size;
  struct SegmentBlock {
    const Memory* block;
    std::uint64_t size;
  };
  std::vector<SegmentBlock> parts;
  std::uint64_t allocated = 0, active = 0, requested = 0;
  for (; block != last && block->address < end; ++block) {
    if (block->address < memory.address)
      continue;  // in no segment; a recording has no such allocation
    const auto next = block + 1 == last ? end : std::min(end, (block + 1)->address);
    const auto wanted = block->granted != 0 ? block->granted
                        : memory.alone      ? block->size
                                            : round_up(block->size);
    const auto size = std::min(wanted, next - block->address);
    parts.push_back({.block = &*block, .size = size});
    active += size;
    requested += block->size;
    if (block->state == Memory::State::live) allocated += size;
  }
  const auto& more = more_[memory.backing ? memory.more : 0];
  pickle_.dict();
  pickle_.mark();
  pickle_.member("device", memory.device);
  pickle_.member("address", memory.address);
  pickle_.member("total_size", memory.size);
  pickle_.member("allocated_size", allocated);
  pickle_.member("active_size", active);
  pickle_.member("requested_size", requested);
  pickle_.member("stream", streams_[memory.stream]);
  pickle_.member("segment_type", std::string_view(segment.small ? "small" : "large"));
  pickle_.text("segment_pool_id");
  put_pool(more);
  pickle_.member("is_expandable", memory.mapped);
  pickle_.text("frames");
  put_stack(memory.site);
  pickle_.text("blocks");
  pickle_.list();
  pickle_.mark();
  auto at = memory.address;
  for (const auto& part : parts) {
    const auto& its = *part.block;
    if (its.address > at) put_block(at, its.address - at, 0, "inactive", 0);
    put_block(its.address, part.size, its.size,
              its.state == Memory::State::live ? "active_allocated" : "active_pending_free",
              its.site);
    at = its.address + part.size;
  }
  if (at < end) put_block(at, end - at, 0, "inactive", 0);
  pickle_.appends();
  pickle_.setitems();
  return batch();
}

void TorchPickleWriter::put_block(std::uint64_t address, std::uint64_t size,
                                  std::uint64_t requested, std::string_view state,
                                  std::uint32_t site) {
  pickle_.dict();
  pickle_.mark();
  pickle_.member("address", address);
  pickle_.member("size", size);
  pickle_.member("requested_size", requested);
  pickle_.member("state", state);
  pickle_.text("frames");
  put_stack(site);
  pickle_.setitems();
}

/// Writes the settings of the original snapshot, or else PyTorch's defaults.
void TorchPickleWriter::put_settings() {
  pickle_.text("allocator_settings");
  if (!source_options_.empty()) {
    const auto options = format::parse_json(source_options_);
    const auto* const settings = options ? options->find("allocator_settings") : nullptr;
    if (settings != nullptr && settings->type == format::JsonValue::Type::object)
      return put_json(*settings);
  }
  pickle_.dict();
  pickle_.mark();
  pickle_.member("PYTORCH_CUDA_ALLOC_CONF", std::string_view());
  pickle_.text("max_split_size");
  pickle_.negative(-1);
  pickle_.text("garbage_collection_threshold");
  pickle_.real(0);
  pickle_.member("expandable_segments", false);
  if (overflowed_) pickle_.member("trace_alloc_overflowed", true);
  pickle_.setitems();
}

void TorchPickleWriter::put_json(const format::JsonValue& value) {
  switch (value.type) {
    case format::JsonValue::Type::null:
      pickle_.none();
      break;
    case format::JsonValue::Type::boolean:
      pickle_.truth(*value.as_bool());
      break;
    case format::JsonValue::Type::string:
      pickle_.text(*value.as_string());
      break;
    case format::JsonValue::Type::number:
      if (const auto number = value.as_u64()) {
        pickle_.number(*number);
      } else if (const auto negative = value.as_i64();
                 negative && *negative >= -(std::int64_t{1} << 31)) {
        pickle_.negative(static_cast<std::int32_t>(*negative));
      } else {
        pickle_.real(value.as_double().value_or(0));
      }
      break;
    case format::JsonValue::Type::array:
      pickle_.list();
      pickle_.mark();
      for (const auto& element : value.elements) put_json(element);
      pickle_.appends();
      break;
    case format::JsonValue::Type::object:
      pickle_.dict();
      pickle_.mark();
      for (const auto& [key, at, member] : value.members) {
        pickle_.text(key);
        if (key == "garbage_collection_threshold" && member.as_double()) {
          pickle_.real(*member.as_double());
        } else {
          put_json(member);
        }
      }
      pickle_.setitems();
      break;
  }
}

Status TorchPickleWriter::put_annotations() {
  pickle_.text("external_annotations");
  pickle_.list();
  pickle_.mark();
  batch_ = 0;
  for (const auto& each : annotations_) {
    pickle_.dict();
    pickle_.mark();
    pickle_.member("stage", each.stage);
    pickle_.member("name", std::string_view(each.name));
    pickle_.member("device", each.device);
    pickle_.member("time_us", each.time_us);
    pickle_.setitems();
    if (auto put = batch(); !put) return put;
  }
  pickle_.appends();
  return {};
}

}  // namespace emm::trace

namespace emm {

extern constinit const trace::Exporter torch_pickle_exporter{
    .name = "torch-pickle",
    .summary = "a PyTorch snapshot, for its memory viewer: device memory, by device",
    .extensions = {".pickle", ".pkl"},
    .open = trace::open_export<trace::TorchPickleWriter>,
};

}  // namespace emm
