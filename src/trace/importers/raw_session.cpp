#include "trace/importers/raw_session.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace emm::trace {

using record::Call;
using record::Record;

namespace {

constexpr std::uint8_t kNoDevice = 255;

Outcome outcome_of(std::int32_t code) noexcept {
  switch (code) {
    case 0:
      return Outcome::ok;
    case 2:
      return Outcome::oom;
    case 1:
      return Outcome::invalid;
    case 801:
      return Outcome::unsupported;
    default:
      return Outcome::error;
  }
}

/// As a trace may hold it: UTF-8 without what a terminal obeys.
std::string shown(std::string_view frame) {
  std::string made;
  while (!frame.empty()) {
    const auto size = text::utf8_length(frame);
    const bool is_fine = size != 0 && !text::is_hidden(frame);
    made += is_fine ? frame.substr(0, size) : std::string_view("?");
    frame.remove_prefix(size != 0 ? size : 1);
  }
  return made;
}

/// A native frame has its function as the linker knows it.
std::string readable(const std::string& frame) {
  constexpr std::string_view kMangled = ":0 _Z";
  const auto at = frame.find(kMangled);
  if (at == frame.npos) return frame;
  const auto begin = at + 3;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(frame.c_str() + begin, nullptr, nullptr, &status), std::free);
  return status == 0 && name != nullptr ? frame.substr(0, begin) + name.get() : frame;
}

}  // namespace

RawSession::RawSession(ImportRun& run, const record::FileHeader& header, const RawSites& sites)
    : run_(run), header_(header), sites_(sites), generations_(record::kContextsMost + 1) {
  const auto ticks = header.later_ticks - header.start_ticks;
  const auto ns = header.later_ns - header.start_ns;
  if (header.later_ticks > header.start_ticks && header.later_ns > header.start_ns)
    ns_per_tick_ = static_cast<double>(ns) / static_cast<double>(ticks);
  several_contexts_ = header.contexts[1].handle != 0;
}

std::uint64_t RawSession::ns_of(std::uint64_t ticks) const noexcept {
  constexpr double kMost = 9e15;  // a hundred days; a damaged file says anything
  const auto ns = static_cast<double>(ticks) * ns_per_tick_;
  return ns < kMost ? static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(kMost);
}

Operation RawSession::common(const Record& record, Op op) {
  Operation made{.op = op, .members = Members(Member::time_ns, Member::duration_ns)};
  const auto since = record.ticks > header_.start_ticks ? record.ticks - header_.start_ticks : 0;
  made.time_ns = ns_of(since);
  made.duration_ns = ns_of(record.duration);
  if ((record.flags & record::record_flag::unmeasured) != 0)
    made.members.remove(Member::duration_ns);
  if (thread_ != default_thread_) {
    made.thread = Id::of(thread_);
    made.members.add(Member::thread);
  }
  if (site_ != 0) {
    made.site = Id::of(site_);
    made.members.add(Member::site);
  }
  put_place(made, record.context, record.device);
  if (places_ != nullptr) put_beneath(made, record);
  return made;
}

void RawSession::put_beneath(Operation& operation, const Record& record) const {
  operation.seq = record.seq;
  operation.members.add(Member::seq);
  switch (operation.op) {  // order and places are the program's own
    case Op::stream_create:
    case Op::stream_destroy:
    case Op::stream_sync:
    case Op::device_sync:
    case Op::event_record:
    case Op::stream_wait:
    case Op::event_sync:
    case Op::graph_begin:
    case Op::graph_end:
    case Op::graph_launch:
    case Op::host_function:
    case Op::peer_enable:
    case Op::peer_disable:
    case Op::extension:
      break;
    default:
      operation.layer = Layer::backing;
      operation.members.add(Member::layer);
  }
  if (const auto place = places_->find(request_); place != places_->end()) {
    operation.parent = place->second;
    operation.members.add(Member::parent);
  }
}

Status RawSession::define_site(std::uint32_t number) {
  site_ = 0;
  if (number == 0) return {};
  const auto stack = sites_.stacks.find(number);
  if (stack == sites_.stacks.end()) return {};
  site_ = number;
  if (!defined_.insert(number).second) return {};
  std::vector<std::string> frames;
  for (const auto frame : stack->second) {
    const auto text = sites_.texts.find(frame);
    frames.push_back(text != sites_.texts.end() ? readable(shown(text->second)) : "??:0 ??");
  }
  const std::vector<std::string_view> views(frames.begin(), frames.end());
  Operation made{.op = Op::define, .members = Members(Member::kind, Member::id, Member::frames)};
  made.define_kind = DefineKind::site;
  made.id = Id::of(number);
  made.frames = views;
  return run_.emit(made);
}

void RawSession::put_place(Operation& operation, std::uint8_t context, std::uint8_t device) {
  if (context != 0 && context <= record::kContextsMost) {
    device = static_cast<std::uint8_t>(
        std::min<std::uint64_t>(header_.contexts[context - 1].device, kNoDevice));
  }
  if (device != kNoDevice && (device != 0 || several_contexts_)) {
    operation.device = device;
    operation.members.add(Member::device);
  }
  if (context == 0 || context > record::kContextsMost) return;
  const auto generation = generations_[context];
  if (!several_contexts_ && generation == 0) return;
  context_text_ = generation == 0 ? text::format("c{}", context)
                                  : text::format("c{}.{}", context, generation + 1);
  operation.context = Id::of(std::string_view(context_text_));
  operation.members.add(Member::context);
}

std::string RawSession::stream_name(std::uint64_t handle) {
  if (handle == 1) return "legacy";
  if (handle == 2) return "per_thread";
  const auto [known, added] = streams_.try_emplace(handle, stream_count_ + 1);
  if (added) ++stream_count_;
  if (places_ != nullptr) return text::hex(handle);  // as the frameworks' hooks name it
  return text::format("s{}", known->second);
}

void RawSession::put_stream(Operation& operation, const Record& record) {
  if (record.stream == 0) return;
  stream_text_ = stream_name(record.stream);
  operation.stream = Id::of(std::string_view(stream_text_));
  operation.members.add(Member::stream);
}

void RawSession::put_result(Operation& operation, const Record& record) const {
  if (record.result == 0) return;
  operation.result = {.outcome = outcome_of(record.result), .code = record.result, .name = {}};
  operation.members.add(Member::result);
}

void RawSession::put_preexisting(Operation& operation, const Record& record) const {
  if ((record.flags & record::record_flag::preexisting) == 0 || window_ > 1) return;
  operation.preexisting = true;
  operation.members.add(Member::preexisting);
}

Status RawSession::emit(Operation& operation) {
  run_.used();
  return run_.emit(operation);
}

Status RawSession::extension(const Record& record, std::string_view name, std::string members) {
  auto made = common(record, Op::extension);
  members_ = text::format("\"time_ns\":{},\"thread\":{}", made.time_ns, thread_);
  if (record.result != 0) members_ += text::format(",\"code\":{}", record.result);
  if (!members.empty()) members_ += "," + members;
  Operation given{.op = Op::extension, .members = Members(Member::extension)};
  given.extension = name;
  given.text = members_;
  run_.other();
  return run_.emit(given);
}

Status RawSession::refused(const Record& record, std::string_view name) {
  ++failed_;
  return extension(record, "x-failed",
                   text::format("\"api\":\"{}\",\"addr\":\"{}\"", name, text::hex(record.address)));
}

Status RawSession::gap(std::uint64_t lost, int reason) {
  Operation made{.op = Op::gap, .members = Members(Member::lost, Member::reason)};
  made.lost = lost;
  made.reason = reason != 0 ? std::string_view(std::strerror(reason)) : "no room";
  return run_.emit(made);
}

Status RawSession::allocate(const Record& record, Op op, Book& book, std::string_view api) {
  if (record.result == 0 && is_captured(record) && record.call == Call::mem_alloc_async) {
    return extension(
        record, "x-captured_alloc",
        text::format("\"size\":{},\"addr\":\"{}\"", record.size, text::hex(record.address)));
  }
  auto made = common(record, op);
  made.id = Id::of(run_.next_id());
  made.size = record.size;
  made.api = api;
  made.members = made.members | Members(Member::id, Member::size, Member::api);
  put_result(made, record);
  put_preexisting(made, record);
  if (record.result == 0) {
    made.addr = record.address;
    made.members.add(Member::addr);
    const Live live{.id = made.id.number,
                    .size = record.size,
                    .context = record.context,
                    .device = record.device,
                    .managed = op == Op::memallocmanaged};
    if (const auto former = book.find(record.address); former != book.end()) {
      // Its free was made and is not here: it had not returned when the program was killed, or was
      // lost.
      ++live_again_;
      auto ended = common(record, Op::free);
      ended.members = ended.members.without(Members(Member::context, Member::device));
      put_place(ended, former->second.context, former->second.device);
      ended.id = Id::of(former->second.id);
      ended.extension = "\"x-no_row\":true";
      ended.members = ended.members | Members(Member::id, Member::extension);
      if (auto given = run_.emit(ended); !given) return given;
      put_place(made, record.context, record.device);
      book.erase(former);
    }
    book.emplace(record.address, live);
  }
  if (record.call == Call::mem_alloc_async) {
    put_stream(made, record);
    if (record.extra != 0 && default_pools_.count(record.extra) == 0) {
      const auto known = pools_.try_emplace(record.extra, pool_count_ + 1);
      if (known.second) ++pool_count_;
      pool_text_ = text::format("p{}", known.first->second);
      made.pool = Id::of(std::string_view(pool_text_));
      made.members.add(Member::pool);
    }
  } else if (record.call == Call::array_create) {
    made.kind = Kind::array;
    made.members.add(Member::kind);
  } else if (op == Op::memallocmanaged) {
    made.attach_global = (record.extra & 1) != 0;
    made.members.add(Member::attach);
  } else if (op == Op::memhostalloc) {
    made.portable = (record.extra & 1) != 0;
    made.mapped = (record.extra & 2) != 0;
    made.wc = (record.extra & 4) != 0;
    made.members = made.members | Members(Member::mapped, Member::portable, Member::wc);
  } else if (op == Op::mempin) {
    constexpr std::uint64_t kPageBytes = 4096;
    const auto buffer = buffers_.emplace(record.address, buffers_.size() + 1).first->second;
    buffer_text_ = text::format("b{}", buffer);
    made.buffer = Id::of(std::string_view(buffer_text_));
    made.page_offset = static_cast<std::uint32_t>(record.address % kPageBytes);
    made.portable = (record.extra & 1) != 0;
    made.mapped = (record.extra & 2) != 0;
    made.io = (record.extra & 4) != 0;
    made.read_only = (record.extra & 8) != 0;
    made.members = made.members | Members(Member::buffer, Member::page_offset, Member::mapped,
                                          Member::portable, Member::read_only, Member::io);
  }
  return emit(made);
}

Status RawSession::free(const Record& record, Book& book, std::string_view api) {
  if (record.result != 0) return refused(record, api);
  if (record.address == 0) {
    run_.other();
    return {};
  }
  if (record.call == Call::mem_free_async && is_captured(record)) {
    return extension(record, "x-captured_free",
                     text::format("\"addr\":\"{}\"", text::hex(record.address)));
  }
  const auto found = book.find(record.address);
  if (found == book.end()) {
    run_.unmatched();
    return {};
  }
  auto made = common(record, Op::free);
  made.members = made.members.without(Members(Member::context, Member::device));
  put_place(made, found->second.context, found->second.device);
  made.id = Id::of(found->second.id);
  made.api = api;
  made.members = made.members | Members(Member::id, Member::api);
  if (record.call == Call::mem_free_async) put_stream(made, record);
  book.erase(found);
  return emit(made);
}

Status RawSession::pool_operation(const Record& record, Op op) {
  if (record.result != 0) return refused(record, name(op));
  if (default_pools_.count(record.address) != 0) {
    return extension(record, "x-default_pool_trim", text::format("\"keep\":{}", record.size));
  }
  const auto known = pools_.try_emplace(record.address, pool_count_ + 1);
  if (known.second) ++pool_count_;
  pool_text_ = text::format("p{}", known.first->second);
  auto made = common(record, op);
  made.pool = Id::of(std::string_view(pool_text_));
  made.members.add(Member::pool);
  if (op == Op::pool_create && record.size != 0) {
    made.max_size = record.size;
    made.members.add(Member::max_size);
  } else if (op == Op::pool_trim) {
    made.keep = record.size;
    made.members.add(Member::keep);
  } else if (op == Op::pool_destroy) {
    pools_.erase(known.first);
  }
  return emit(made);
}

Status RawSession::stream_operation(const Record& record, Op op) {
  if (record.result != 0) return refused(record, name(op));
  auto made = common(record, op);
  if (op == Op::device_sync) return emit(made);
  if (op == Op::stream_create) {
    streams_[record.stream] = ++stream_count_;
    stream_text_ = stream_name(record.stream);
    made.id = Id::of(std::string_view(stream_text_));
    made.blocking = (record.extra & 1) == 0;
    made.priority = static_cast<std::int32_t>(static_cast<std::int64_t>(record.size));
    made.members = made.members | Members(Member::id, Member::blocking);
    if (made.priority != 0) made.members.add(Member::priority);
    return emit(made);
  }
  stream_text_ = record.stream == 0 ? "legacy" : stream_name(record.stream);
  made.stream = Id::of(std::string_view(stream_text_));
  made.members.add(Member::stream);
  if (op == Op::stream_destroy) streams_.erase(record.stream);
  return emit(made);
}

Status RawSession::event_operation(const Record& record) {
  if (record.result != 0) return refused(record, "event");
  const auto event = record.address;
  if (record.call == Call::event_record && is_captured(record)) {
    captured_events_.insert(event);
    capturing_events_[event] = capturing_[record.stream];
    run_.other();
    return {};
  }
  if (record.call == Call::stream_wait_event && captured_events_.count(event) != 0) {
    capturing_.try_emplace(record.stream, capturing_events_[event]);
    run_.other();
    return {};
  }
  if (record.call == Call::event_record) {
    captured_events_.erase(event);
    events_[event] = ++record_count_;
  }
  const auto known = events_.find(event);
  if (known == events_.end()) {  // nothing was recorded: nothing is waited for
    run_.other();
    return {};
  }
  auto made = common(record, record.call == Call::event_record        ? Op::event_record
                             : record.call == Call::stream_wait_event ? Op::stream_wait
                                                                      : Op::event_sync);
  made.record = Id::of(known->second);
  made.members.add(Member::record);
  if (record.call != Call::event_synchronize) put_stream(made, record);
  return emit(made);
}

Status RawSession::export_handle(const Record& record) {
  if (record.result != 0) return refused(record, "cuIpcGetMemHandle");
  auto after = device_memory_.upper_bound(record.address);
  const auto outside = [&] {
    if (after == device_memory_.begin()) return true;
    --after;
    return record.address - after->first >= std::max<std::uint64_t>(after->second.size, 1);
  }();
  if (outside) {
    run_.unmatched();
    return {};
  }
  auto made = common(record, Op::get_ipc_handle);
  handle_text_ = text::format("h{}", text::hex(record.extra));
  made.id = Id::of(after->second.id);
  made.handle = Id::of(std::string_view(handle_text_));
  made.members = made.members | Members(Member::id, Member::handle);
  return emit(made);
}

Status RawSession::create_physical(const Record& record) {
  auto made = common(record, Op::memalloc);
  made.id = Id::of(run_.next_id());
  made.size = record.size;
  made.kind = Kind::physical;
  made.api = "cuMemCreate";
  made.members = made.members | Members(Member::id, Member::size, Member::kind, Member::api);
  put_result(made, record);
  put_preexisting(made, record);
  if (record.result == 0) {
    physical_[record.address] = {.live = {.id = made.id.number,
                                          .size = record.size,
                                          .context = record.context,
                                          .device = record.device}};
  }
  return emit(made);
}

/// A handle or a mapping of physical memory has ended: the last one ends the memory.
Status RawSession::end_physical(const Record& record, std::uint64_t handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end()) {
    run_.unmatched();
    return {};
  }
  if (found->second.mappings != 0 || found->second.handles != 0) {
    run_.other();
    return {};
  }
  auto made = common(record, Op::free);
  made.members = made.members.without(Members(Member::context, Member::device));
  put_place(made, found->second.live.context, found->second.live.device);
  made.id = Id::of(found->second.live.id);
  made.api = record.call == Call::mem_unmap ? "cuMemUnmap" : "cuMemRelease";
  made.members = made.members | Members(Member::id, Member::api);
  physical_.erase(found);
  return emit(made);
}

Status RawSession::reserve(const Record& record) {
  if (record.result != 0) return refused(record, "cuMemAddressReserve");
  auto made = common(record, Op::address_reserve);
  ranges_[record.address] = {.number = ++range_count_, .size = record.size};
  range_text_ = text::format("r{}", range_count_);
  made.range = Id::of(std::string_view(range_text_));
  made.size = record.size;
  made.addr = record.address;
  made.members = made.members | Members(Member::range, Member::size, Member::addr);
  if (record.extra != 0) {
    made.align = record.extra;
    made.members.add(Member::align);
  }
  return emit(made);
}

bool RawSession::put_range(Operation& operation, std::uint64_t address) {
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin()) return false;
  --found;
  const auto offset = address - found->first;
  if (offset >= found->second.size) return false;
  range_text_ = text::format("r{}", found->second.number);
  operation.range = Id::of(std::string_view(range_text_));
  operation.offset = offset;
  operation.members = operation.members | Members(Member::range, Member::offset);
  return true;
}

Status RawSession::map(const Record& record) {
  if (record.result != 0) return refused(record, "cuMemMap");
  mappings_[record.address] = {.size = record.size, .handle = record.stream};
  const auto found = physical_.find(record.stream);
  if (found == physical_.end()) {  // another process's memory
    run_.other();
    return {};
  }
  ++found->second.mappings;
  auto made = common(record, Op::mem_map);
  made.id = Id::of(found->second.live.id);
  made.size = record.size;
  made.members = made.members | Members(Member::id, Member::size);
  if (!put_range(made, record.address)) {
    run_.other();
    return {};
  }
  return emit(made);
}

/// A range that is unmapped may hold several mappings: an operation each, of which the first stands
/// for the row.
Status RawSession::unmap(const Record& record) {
  if (record.result != 0) return refused(record, "cuMemUnmap");
  bool any = false;
  const auto give = [&](Operation& made) -> Status {
    if (std::exchange(any, true)) {
      made.extension = "\"x-no_row\":true";
      made.members.add(Member::extension);
    }
    return run_.emit(made);
  };
  for (auto at = mappings_.lower_bound(record.address);
       at != mappings_.end() && at->first - record.address < record.size;) {
    const auto [address, mapping] = *at;
    at = mappings_.erase(at);
    const auto found = physical_.find(mapping.handle);
    if (found == physical_.end()) continue;
    auto& physical = found->second;
    if (physical.mappings != 0) --physical.mappings;
    auto made = common(record, Op::mem_unmap);
    made.members = made.members.without(Members(Member::context, Member::device));
    put_place(made, physical.live.context, physical.live.device);
    auto freed = made;
    made.id = Id::of(physical.live.id);
    made.size = mapping.size;
    made.members = made.members | Members(Member::id, Member::size);
    if (put_range(made, address)) {
      if (auto given = give(made); !given) return given;
    }
    if (physical.mappings != 0 || physical.handles != 0) continue;
    freed.op = Op::free;
    freed.id = made.id;
    freed.api = "cuMemUnmap";
    freed.members = freed.members | Members(Member::id, Member::api);
    physical_.erase(found);
    if (auto given = give(freed); !given) return given;
  }
  any ? run_.used() : run_.other();
  return {};
}

Status RawSession::graph_operation(const Record& record, Op op, std::uint64_t graph) {
  auto made = common(record, op);
  put_stream(made, record);
  graph_text_ = text::format("g{}", graph);
  made.graph = Id::of(std::string_view(graph_text_));
  made.members.add(Member::graph);
  return emit(made);
}

Status RawSession::peer_operation(const Record& record, Op op) {
  if (record.result != 0) return refused(record, "cuCtxEnablePeerAccess");
  auto made = common(record, op);
  made.peer = record.stream;
  made.members.add(Member::peer);
  return emit(made);
}

std::uint8_t RawSession::primary_context(std::uint64_t device) const {
  for (std::size_t i = 0; i < record::kContextsMost; ++i) {
    const auto& known = header_.contexts[i];
    if (known.handle != 0 && known.device == device) return static_cast<std::uint8_t>(i + 1);
  }
  return 0;
}

/// A reset, or the end of a context: all of its memory has ended.
Status RawSession::end_context(const Record& record, Op op, std::uint8_t context) {
  if (context == 0 || context > record::kContextsMost) {  // nobody used it
    run_.other();
    return {};
  }
  const auto device = static_cast<std::uint8_t>(header_.contexts[context - 1].device);
  // A trace names no more than 256 contexts. A program that makes hundreds of them resets one.
  constexpr std::uint64_t kNamed = 40;
  auto made = common(record, ended_contexts_ < kNamed ? op : Op::reset);
  made.members = made.members.without(Members(Member::context, Member::device));
  put_place(made, context, device);
  const auto end_all = [&](Book& book) {
    for (auto at = book.begin(); at != book.end();) {
      const bool ends = at->second.context == context;
      at = ends ? book.erase(at) : std::next(at);
    }
  };
  end_all(device_memory_);
  end_all(host_memory_);
  end_all(registered_);
  for (auto at = physical_.begin(); at != physical_.end();) {
    const bool ends = at->second.live.context == context;
    at = ends ? physical_.erase(at) : std::next(at);
  }
  if (auto given = emit(made); !given) return given;
  if (made.op == Op::context_destroy) {
    ++generations_[context];
    ++ended_contexts_;
  }
  return {};
}

Status RawSession::begin_window(const Record& record) {
  run_.other();
  window_ = record.address;
  if (window_ < 2) return {};
  const auto end = [&](Op op, const Live* live, std::uint64_t number) {
    auto made = common(record, op);
    made.extension = "\"x-no_row\":true";
    made.members.add(Member::extension);
    if (live != nullptr) {
      made.members = made.members.without(Members(Member::context, Member::device));
      put_place(made, live->context, live->device);
      made.id = Id::of(live->id);
      made.members.add(Member::id);
    } else {
      range_text_ = text::format("r{}", number);
      made.range = Id::of(std::string_view(range_text_));
      made.members.add(Member::range);
    }
    return run_.emit(made);
  };
  Operation off{.op = Op::gap, .members = Members(Member::reason)};
  off.reason = "recording was off";
  if (auto given = run_.emit(off); !given) return given;
  for (auto* const book : {&device_memory_, &host_memory_, &registered_}) {
    for (const auto& [address, live] : *book) {
      if (auto given = end(Op::free, &live, 0); !given) return given;
    }
    book->clear();
  }
  for (const auto& [address, mapping] : mappings_) {
    const auto physical = physical_.find(mapping.handle);
    auto made = common(record, Op::mem_unmap);
    if (physical == physical_.end() || !put_range(made, address)) continue;
    made.extension = "\"x-no_row\":true";
    made.id = Id::of(physical->second.live.id);
    made.size = mapping.size;
    made.members = made.members | Members(Member::id, Member::size, Member::extension);
    if (auto given = run_.emit(made); !given) return given;
  }
  for (const auto& [handle, physical] : physical_) {
    if (auto given = end(Op::free, &physical.live, 0); !given) return given;
  }
  physical_.clear();
  mappings_.clear();
  for (const auto& [address, range] : ranges_) {
    if (auto given = end(Op::address_free, nullptr, range.number); !given) return given;
  }
  ranges_.clear();
  return {};
}

Status RawSession::take(const RawCall& call) {
  const auto& record = call.record;
  thread_ = call.thread;
  request_ = call.request;
  if (!std::exchange(any_, true)) default_thread_ = thread_;
  if (auto defined = define_site(call.site); !defined) return defined;
  const bool failed = record.result != 0;
  switch (record.call) {
    case Call::mem_alloc:
      return allocate(record, Op::memalloc, device_memory_, "cuMemAlloc");
    case Call::mem_alloc_pitch:
      return allocate(record, Op::memalloc, device_memory_, "cuMemAllocPitch");
    case Call::mem_alloc_managed:
      return allocate(record, Op::memallocmanaged, device_memory_, "cuMemAllocManaged");
    case Call::mem_free:
      return free(record, device_memory_, "cuMemFree");
    case Call::mem_host_alloc:
      return allocate(record, Op::memhostalloc, host_memory_, "cuMemHostAlloc");
    case Call::mem_free_host:
      return free(record, host_memory_, "cuMemFreeHost");
    case Call::mem_host_register:
      return allocate(record, Op::mempin, registered_, "cuMemHostRegister");
    case Call::mem_host_unregister:
      return free(record, registered_, "cuMemHostUnregister");
    case Call::array_create:
      return allocate(record, Op::memalloc, device_memory_, "cuArrayCreate");
    case Call::array_destroy:
      return free(record, device_memory_, "cuArrayDestroy");
    case Call::mem_alloc_async:
      return allocate(record, Op::memalloc, device_memory_,
                      record.extra != 0 ? "cuMemAllocFromPoolAsync" : "cuMemAllocAsync");
    case Call::mem_free_async:
      return free(record, device_memory_, "cuMemFreeAsync");

    case Call::pool_create:
      if (!failed) pools_.erase(record.address);
      return pool_operation(record, Op::pool_create);
    case Call::pool_destroy:
      return pool_operation(record, Op::pool_destroy);
    case Call::pool_trim:
      return pool_operation(record, Op::pool_trim);
    case Call::device_get_pool:
      if (!failed && record.extra == 1) default_pools_.insert(record.address);
      run_.other();
      return {};
    case Call::pool_set_attribute:
      return extension(
          record, "x-pool_set_attribute",
          text::format("\"attribute\":{},\"value\":\"{}\"", record.extra, text::hex(record.size)));

    case Call::mem_create:
      return create_physical(record);
    case Call::mem_release: {
      if (failed) return refused(record, "cuMemRelease");
      const auto found = physical_.find(record.address);
      if (found != physical_.end() && found->second.handles != 0) --found->second.handles;
      return end_physical(record, record.address);
    }
    case Call::mem_retain_handle:
      if (const auto found = physical_.find(record.address); !failed && found != physical_.end())
        ++found->second.handles;
      run_.other();
      return {};
    case Call::mem_map:
      return map(record);
    case Call::mem_unmap:
      return unmap(record);

    case Call::ipc_get_mem_handle:
      return export_handle(record);
    case Call::ipc_open_mem_handle:
      return extension(record, "x-open_ipc_handle",
                       text::format("\"handle\":\"h{}\",\"addr\":\"{}\"", text::hex(record.extra),
                                    text::hex(record.address)));
    case Call::ipc_close_mem_handle:
      return extension(record, "x-close_ipc_handle",
                       text::format("\"addr\":\"{}\"", text::hex(record.address)));
    case Call::peer_enable:
      return peer_operation(record, Op::peer_enable);
    case Call::peer_disable:
      return peer_operation(record, Op::peer_disable);

    case Call::stream_create:
      return stream_operation(record, Op::stream_create);
    case Call::stream_destroy:
      return stream_operation(record, Op::stream_destroy);
    case Call::stream_synchronize:
      return stream_operation(record, Op::stream_sync);
    case Call::ctx_synchronize:
      return stream_operation(record, Op::device_sync);
    case Call::event_record:
    case Call::stream_wait_event:
    case Call::event_synchronize:
      return event_operation(record);
    case Call::event_destroy:
      if (!failed) events_.erase(record.address);
      run_.other();
      return {};

    case Call::capture_begin:
      if (failed) return refused(record, "cuStreamBeginCapture");
      capturing_[record.stream] = record.stream;
      graph_of_[record.stream] = ++graph_count_;
      return graph_operation(record, Op::graph_begin, graph_count_);
    case Call::capture_end: {
      for (auto at = capturing_.begin(); at != capturing_.end();) {
        at = at->second == record.stream ? capturing_.erase(at) : std::next(at);
      }
      if (failed) return refused(record, "cuStreamEndCapture");
      const auto begun = graph_of_.find(record.stream);
      const auto graph = begun != graph_of_.end() ? begun->second : ++graph_count_;
      graphs_[record.address] = graph;
      return graph_operation(record, Op::graph_end, graph);
    }
    case Call::graph_instantiate: {
      if (failed) return refused(record, "cuGraphInstantiate");
      const auto known = graphs_.find(record.extra);
      executables_[record.address] = known != graphs_.end() ? known->second : 0;
      run_.other();
      return {};
    }
    case Call::graph_launch: {
      if (failed) return refused(record, "cuGraphLaunch");
      auto& graph = executables_[record.address];
      if (graph == 0) graph = ++graph_count_;  // built without a capture
      return graph_operation(record, Op::graph_launch, graph);
    }
    case Call::graph_add_alloc:
    case Call::graph_add_free:
      return extension(
          record, "x-graph_node",
          text::format("\"size\":{},\"addr\":\"{}\"", record.size, text::hex(record.address)));
    case Call::host_function: {
      if (failed) return refused(record, "cuLaunchHostFunc");
      auto made = common(record, Op::host_function);
      put_stream(made, record);
      return emit(made);
    }
    case Call::kernels:
      return extension(
          record, "x-kernels",
          text::format("\"stream\":\"{}\",\"count\":{}",
                       record.stream == 0 ? "legacy" : stream_name(record.stream), record.size));

    case Call::ctx_retain:
      if (!failed) ++retained_[record.stream];
      run_.other();
      return {};
    case Call::ctx_release: {
      auto& held = retained_[record.stream];
      if (failed || held == 0 || --held != 0) {
        run_.other();
        return {};
      }
      return end_context(record, Op::context_destroy, primary_context(record.stream));
    }
    case Call::ctx_reset:
      if (failed) return refused(record, "cuDevicePrimaryCtxReset");
      return end_context(record, Op::reset, primary_context(record.stream));
    case Call::ctx_destroy:
      if (failed) return refused(record, "cuCtxDestroy");
      return end_context(record, Op::context_destroy, static_cast<std::uint8_t>(record.extra));

    case Call::mem_get_info: {
      auto made = common(record, Op::get_memory_info);
      put_result(made, record);
      if (!failed) {
        made.free = record.address;
        made.total = record.size;
        made.members = made.members | Members(Member::free, Member::total);
      }
      return emit(made);
    }

    case Call::mem_address_reserve:
      return reserve(record);
    case Call::mem_address_free: {
      if (failed) return refused(record, "cuMemAddressFree");
      auto made = common(record, Op::address_free);
      const bool known = put_range(made, record.address);
      ranges_.erase(record.address);
      if (!known) {
        run_.unmatched();
        return {};
      }
      made.members.remove(Member::offset);
      return emit(made);
    }
    case Call::mem_set_access:
    case Call::mem_export:
    case Call::mem_import:
    case Call::device_set_pool:
    case Call::event_create:
    case Call::graph_exec_destroy:
    case Call::graph_destroy:
    case Call::ctx_create:
    case Call::module_load:
    case Call::module_unload:
      run_.other();
      return {};
    case Call::window:
      return begin_window(record);
    case Call::none:
    case Call::thread:
    case Call::frame_text:
    case Call::stack:
    case Call::about:
    case Call::count_:
      break;
  }
  ++unknown_calls_;
  run_.other();
  return {};
}

Result<ImportCounts> RawSession::finish(std::uint64_t lost) {
  run_.note(live_again_, "allocations are at an address whose free is not in the recording");
  run_.note(failed_, "calls that release or order failed; they are kept as x- operations");
  run_.note(unknown_calls_, "records are of a later version, and are left out");
  std::uint64_t live = physical_.size();
  ByteSum bytes;
  for (const auto* book : {&device_memory_, &host_memory_, &registered_}) {
    live += book->size();
    for (const auto& [address, one] : *book) bytes.add(one.size);
  }
  for (const auto& [handle, one] : physical_) bytes.add(one.live.size);
  return run_.finish(live, bytes, lost);
}

}  // namespace emm::trace
