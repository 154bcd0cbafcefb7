#include "exchange/importers/raw_session.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "base/utf8.hpp"
#include "trace/operation.hpp"

namespace emm::trace {

using record::Call;
using record::CallRecord;

namespace {

constexpr std::uint8_t kNoDevice = 255;  // as the recorder writes it
/// CallRecord::extra of the calls that get and set a device's pool.
constexpr std::uint64_t kDefaultOfDevice = 1, kOfHost = 2;

/// A row of passed_on.def.
struct PassedOn {
  enum class Kind : std::uint8_t { none, number, hex, handle, new_pool, pool, pool_device, stream };
  struct MemberRow {
    Kind kind = Kind::none;
    std::string_view name{};
    std::uint64_t CallRecord::*part = nullptr;
  };
  static constexpr std::size_t kMembersMost = 4;  // of a row of passed_on.def

  Call call;
  std::string_view name;
  MemberRow members[kMembersMost];
};
constexpr PassedOn kPassedOn[] = {
#define NUMBER(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::number, name, &CallRecord::from }
#define HEX(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::hex, name, &CallRecord::from }
#define HANDLE(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::handle, name, &CallRecord::from }
#define NEW_POOL(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::new_pool, name, &CallRecord::from }
#define POOL(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::pool, name, &CallRecord::from }
#define POOL_DEVICE(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::pool_device, name, &CallRecord::from }
#define STREAM(name, from) \
  PassedOn::MemberRow { PassedOn::Kind::stream, name, &CallRecord::from }
#define EMM_PASSED_ON(call, name, ...) {Call::call, name, {__VA_ARGS__}},
#include "raw/passed_on.def"
#undef EMM_PASSED_ON
#undef STREAM
#undef POOL_DEVICE
#undef POOL
#undef NEW_POOL
#undef HANDLE
#undef HEX
#undef NUMBER
};

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

/// Returns the frame as a trace may hold it: valid UTF-8 without characters that control a
/// terminal.
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

/// Builds the JSON text of an operation's "x-" members.
class MemberText {
 public:
  MemberText& number(std::string_view name, std::uint64_t value) {
    constexpr std::uint64_t kMost =
        (std::uint64_t{1} << 53) - 1;  // the format writes greater numbers as strings
    return value > kMost ? hex(name, value) : put(name, text::format("{}", value));
  }
  MemberText& hex(std::string_view name, std::uint64_t value) {
    return put(name, text::format("\"{}\"", text::hex(value)));
  }
  MemberText& word(std::string_view name, std::string_view value) {
    return put(name, text::format("\"{}\"", value));
  }
  operator std::string() const { return text_; }

 private:
  MemberText& put(std::string_view name, const std::string& value) {
    text_ += text::format("{}\"{}\":{}", text_.empty() ? "" : ",", name, value);
    return *this;
  }
  std::string text_;
};

/// Demangles the function name of a native frame.
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
  constexpr double kMost = 9e15;  // a hundred days, since a damaged file may have any value
  const auto ns = static_cast<double>(ticks) * ns_per_tick_;
  return ns < kMost ? static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(kMost);
}

Operation RawSession::common(const CallRecord& record, Op op) {
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

void RawSession::put_beneath(Operation& operation, const CallRecord& record) const {
  operation.seq = record.seq;
  operation.members.add(Member::seq);
  switch (operation.op) {  // order and places are those of the program's own operations
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

void RawSession::move_to(Operation& operation, Place place) {
  operation.members = operation.members.without(Members(Member::context, Member::device));
  put_place(operation, place.context, place.device);
}

RawSession::Place RawSession::place_on(const CallRecord& record, std::uint64_t device) const {
  if (device == device_of(record) || device >= kNoDevice) return {record.context, record.device};
  return {.device = static_cast<std::uint8_t>(device)};  // in none of the process's contexts
}

std::string RawSession::stream_name(std::uint64_t handle) {
  if (handle == 1) return "legacy";
  if (handle == 2) return "per_thread";
  if (places_ != nullptr) return text::hex(handle);  // as the frameworks' hooks name it
  const auto known = streams_.find(handle);
  return text::format("s{}", known != streams_.end() ? known->second : number_stream(handle));
}

std::uint64_t RawSession::number_stream(std::uint64_t handle) {
  // A trace names at most 65,535 streams. A program that makes more of them in its life does not
  // have them at once.
  constexpr std::uint64_t kNamed = 60'000;
  auto& number = streams_[handle];
  if (stream_count_ < kNamed || ended_streams_.empty()) return number = ++stream_count_;
  number = ended_streams_.front();
  ended_streams_.pop_front();
  return number;
}

void RawSession::put_stream(Operation& operation, const CallRecord& record) {
  if (record.stream == 0) return;
  stream_text_ = stream_name(record.stream);
  operation.stream = Id::of(std::string_view(stream_text_));
  operation.members.add(Member::stream);
}

void RawSession::put_result(Operation& operation, const CallRecord& record) const {
  if (record.result == 0) return;
  operation.result = {.outcome = outcome_of(record.result), .code = record.result, .name = {}};
  operation.members.add(Member::result);
}

void RawSession::put_preexisting(Operation& operation, const CallRecord& record) const {
  if ((record.flags & record::record_flag::preexisting) == 0 || window_ > 1) return;
  operation.preexisting = true;
  operation.members.add(Member::preexisting);
}

Status RawSession::emit(Operation& operation) {
  run_.used();
  return run_.emit(operation);
}

Status RawSession::extension(const CallRecord& record, std::string_view name, std::string members) {
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

std::string RawSession::stream_or_legacy(std::uint64_t handle) {
  return handle == 0 ? "legacy" : stream_name(handle);
}

std::string RawSession::pool_name(std::uint64_t pool) {
  if (pool == 0 || default_pools_.count(pool) != 0) return "default";
  const auto known = pools_.try_emplace(pool, pool_count_ + 1);
  if (known.second) ++pool_count_;
  return text::format("p{}", known.first->second);
}

std::uint64_t RawSession::device_of(const CallRecord& record) const {
  if (record.context != 0 && record.context <= record::kContextsMost)
    return header_.contexts[record.context - 1].device;
  return record.device != kNoDevice ? record.device : 0;
}

/// What a call that is passed on changes for the calls after it: memory, handles and events of
/// others end without an operation of ours.
void RawSession::note_foreign(const CallRecord& record) {
  const auto address = record.address;
  switch (record.call) {
    case Call::pool_import:
      pools_.erase(address);
      break;
    case Call::pool_import_pointer:
    case Call::external_map_buffer:
    case Call::external_map_array:
      foreign_memory_.insert(address);
      break;
    case Call::mem_import:
      if (const auto own = physical_.find(address); own != physical_.end()) {
        ++own->second.handles;
      } else {
        ++foreign_handles_[address];
      }
      break;
    case Call::multicast_create:
      foreign_handles_[address] = 1;
      break;
    case Call::ipc_open_event_handle:
      foreign_events_.insert(address);
      break;
    default:
      break;
  }
}

/// Keeps a call for which the trace format has no operation, with its facts, and its code if it
/// failed.
Status RawSession::keep(const CallRecord& record) {
  const auto row = std::find_if(std::begin(kPassedOn), std::end(kPassedOn),
                                [&](const PassedOn& one) { return one.call == record.call; });
  if (row == std::end(kPassedOn)) return leave_out();
  const bool worked = record.result == 0;
  if (worked) note_foreign(record);
  MemberText say;
  const auto made = common(record, Op::extension);
  if (made.has(Member::device)) say.number("device", made.device);
  for (const auto& member : row->members) {
    const auto value = member.part != nullptr ? record.*member.part : 0;
    switch (member.kind) {
      case PassedOn::Kind::none:
        break;
      case PassedOn::Kind::number:
        say.number(member.name, value);
        break;
      case PassedOn::Kind::hex:
        say.hex(member.name, value);
        break;
      case PassedOn::Kind::handle:
        say.word(member.name, text::format("h{}", text::hex(value)));
        break;
      case PassedOn::Kind::new_pool:
        if (worked) say.word(member.name, pool_name(value));
        break;
      case PassedOn::Kind::pool:
        say.word(member.name, pool_name(value));
        break;
      case PassedOn::Kind::pool_device:
        if (const auto of = default_pools_.find(value); of != default_pools_.end())
          say.number(member.name, of->second);
        break;
      case PassedOn::Kind::stream:
        say.word(member.name, stream_or_legacy(value));
        break;
    }
  }
  const bool of_host = record.call == Call::device_set_pool && record.extra == kOfHost;
  return extension(record, of_host ? "x-host_set_pool" : row->name, say);
}

/// Counts a call that the trace needs no operation for.
Status RawSession::pass_over() {
  run_.other();
  return {};
}

/// Counts a record that this version does not know.
Status RawSession::leave_out() {
  ++unknown_calls_;
  return pass_over();
}

Status RawSession::refused(const CallRecord& record, std::string_view name) {
  ++failed_;
  const auto about = record.address != 0 ? record.address : record.stream;
  return extension(record, "x-failed",
                   text::format("\"api\":\"{}\",\"addr\":\"{}\"", name, text::hex(about)));
}

Status RawSession::gap(std::uint64_t lost, std::string_view reason) {
  Operation made{.op = Op::gap, .members = Members(Member::lost, Member::reason)};
  made.lost = lost;
  made.reason = reason;
  return run_.emit(made);
}

/// The address of the live memory that [address, address + size) overlaps; `address` if there is
/// none.
std::uint64_t RawSession::begin_of_overlapped(const Book& book, std::uint64_t address,
                                              std::uint64_t size) {
  const auto next = book.upper_bound(address);
  if (next != book.begin()) {
    const auto& [begin, live] = *std::prev(next);
    if (address - begin < live.size) return begin;
  }
  return next != book.end() && next->first - address < size ? next->first : address;
}

Status RawSession::allocate(const CallRecord& record, Op op, Book& book, std::string_view api) {
  if (record.result == 0 && is_captured(record) && record.call == Call::mem_alloc_async) {
    return extension(
        record, "x-captured_alloc",
        text::format("\"size\":{},\"addr\":\"{}\"", record.size, text::hex(record.address)));
  }
  auto made = common(record, op);
  std::uint64_t pool = 0;
  Place place{record.context, record.device};
  if (record.call == Call::mem_alloc_async) {
    pool = record.extra;
    if (pool == 0) {
      const auto current = current_pools_.find(device_of(record));
      if (current != current_pools_.end()) pool = current->second;
    }
    if (host_pools_.count(pool) != 0) {  // the host's, which counts on no device
      if (record.result == 0) foreign_memory_.insert(record.address);
      return extension(record, "x-host_pool_alloc",
                       MemberText()
                           .word("pool", pool_name(pool))
                           .number("size", record.size)
                           .hex("addr", record.address)
                           .word("stream", stream_or_legacy(record.stream)));
    }
    if (const auto on = pool_devices_.find(pool); on != pool_devices_.end())
      place = place_on(record, on->second);
    move_to(made, place);
  }
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
                    .context = place.context,
                    .device = place.device,
                    .managed = op == Op::memallocmanaged};
    if (const auto former = book.find(record.address); former != book.end()) {
      // The free of the former memory is missing: it had not returned when the program was killed,
      // or its record was lost.
      ++live_again_;
      auto ended = common(record, Op::free);
      move_to(ended, {former->second.context, former->second.device});
      ended.id = Id::of(former->second.id);
      ended.extension = "\"x-no_row\":true";
      ended.members = ended.members | Members(Member::id, Member::extension);
      if (auto given = run_.emit(ended); !given) return given;
      move_to(made, place);
      book.erase(former);
    }
    book.emplace(record.address, live);
  }
  if (record.call == Call::mem_alloc_async) {
    put_stream(made, record);
    if (pool != 0 && default_pools_.count(pool) == 0) {
      pool_text_ = pool_name(pool);
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
    constexpr std::uint64_t kPageBytes = 4096;  // page-locked memory lies in the pages of the host
    // What was refused because other registered memory has it lies in the buffer of that memory, so
    // that a replay refuses it too.
    constexpr std::int32_t kAlreadyRegistered = 712;
    const auto base = record.result == kAlreadyRegistered
                          ? begin_of_overlapped(registered_, record.address, record.size)
                          : record.address;
    const auto buffer = buffers_.emplace(base, buffers_.size() + 1).first->second;
    buffer_text_ = text::format("b{}", buffer);
    made.buffer = Id::of(std::string_view(buffer_text_));
    if (base < record.address) {
      made.offset = record.address - base;
      made.members.add(Member::offset);
    }
    // Nothing lies before a buffer, so what began there begins with the buffer.
    made.page_offset = static_cast<std::uint32_t>(std::max(base, record.address) % kPageBytes);
    made.portable = (record.extra & 1) != 0;
    made.mapped = (record.extra & 2) != 0;
    made.io = (record.extra & 4) != 0;
    made.read_only = (record.extra & 8) != 0;
    made.members = made.members | Members(Member::buffer, Member::page_offset, Member::mapped,
                                          Member::portable, Member::read_only, Member::io);
  }
  return emit(made);
}

Status RawSession::free(const CallRecord& record, Book& book, std::string_view api) {
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
    if (&book == &device_memory_ && foreign_memory_.erase(record.address) != 0) return keep(record);
    run_.unmatched();
    return {};
  }
  auto made = common(record, Op::free);
  move_to(made, {found->second.context, found->second.device});
  made.id = Id::of(found->second.id);
  made.api = api;
  made.members = made.members | Members(Member::id, Member::api);
  if (record.call == Call::mem_free_async) put_stream(made, record);
  book.erase(found);
  return emit(made);
}

Status RawSession::pool_operation(const CallRecord& record, Op op) {
  if (record.result != 0) {
    return refused(record, op == Op::pool_create    ? "cuMemPoolCreate"
                           : op == Op::pool_destroy ? "cuMemPoolDestroy"
                                                    : "cuMemPoolTrimTo");
  }
  if (const auto found = default_pools_.find(record.address); found != default_pools_.end()) {
    return extension(record, "x-default_pool_trim",
                     MemberText().number("keep", record.size).number("on_device", found->second));
  }
  pool_text_ = pool_name(record.address);
  if (op == Op::pool_create && record.stream == record::kHost) host_pools_.insert(record.address);
  if (host_pools_.count(record.address) != 0) {
    MemberText say;
    say.word("pool", pool_text_);
    if (op == Op::pool_create && record.size != 0) say.number("max_size", record.size);
    if (op == Op::pool_trim) say.number("keep", record.size);
    if (op == Op::pool_destroy) {
      pools_.erase(record.address);
      host_pools_.erase(record.address);
    }
    return extension(record,
                     op == Op::pool_create    ? "x-host_pool_create"
                     : op == Op::pool_destroy ? "x-host_pool_destroy"
                                              : "x-host_pool_trim",
                     say);
  }
  if (op == Op::pool_create) pool_devices_[record.address] = record.stream;
  auto made = common(record, op);
  if (const auto on = pool_devices_.find(record.address); on != pool_devices_.end())
    move_to(made, place_on(record, on->second));
  made.pool = Id::of(std::string_view(pool_text_));
  made.members.add(Member::pool);
  if (op == Op::pool_create && record.size != 0) {
    made.max_size = record.size;
    made.members.add(Member::max_size);
  } else if (op == Op::pool_trim) {
    made.keep = record.size;
    made.members.add(Member::keep);
  } else if (op == Op::pool_destroy) {
    pools_.erase(record.address);
    pool_devices_.erase(record.address);
    std::erase_if(current_pools_, [&](const auto& one) { return one.second == record.address; });
  }
  return emit(made);
}

Status RawSession::stream_operation(const CallRecord& record, Op op) {
  if (record.result != 0) {
    return refused(record, op == Op::stream_create    ? "cuStreamCreate"
                           : op == Op::stream_destroy ? "cuStreamDestroy"
                           : op == Op::stream_sync    ? "cuStreamSynchronize"
                                                      : "cuCtxSynchronize");
  }
  auto made = common(record, op);
  if (op == Op::device_sync) return emit(made);
  if (op == Op::stream_create) {
    (void)number_stream(record.stream);
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
  if (const auto known = streams_.find(record.stream);
      op == Op::stream_destroy && known != streams_.end()) {
    ended_streams_.push_back(known->second);
    streams_.erase(known);
  }
  return emit(made);
}

Status RawSession::event_operation(const CallRecord& record) {
  if (record.result != 0) {
    return refused(record, record.call == Call::event_record        ? "cuEventRecord"
                           : record.call == Call::stream_wait_event ? "cuStreamWaitEvent"
                                                                    : "cuEventSynchronize");
  }
  const auto event = record.address;
  if (record.call == Call::event_record && is_captured(record)) {
    captured_events_.insert(event);
    capturing_events_[event] = capturing_[lane_of(record)];
    run_.other();
    return {};
  }
  if (record.call == Call::stream_wait_event && captured_events_.count(event) != 0) {
    capturing_.try_emplace(lane_of(record), capturing_events_[event]);
    run_.other();
    return {};
  }
  if (record.call == Call::event_record) {
    captured_events_.erase(event);
    events_[event] = ++record_count_;
  }
  const auto known = events_.find(event);
  if (known == events_.end()) {
    if (foreign_events_.count(event) != 0) return keep(record);
    // Nothing was recorded on the event, so nothing waits.
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

Status RawSession::export_handle(const CallRecord& record) {
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

Status RawSession::create_physical(const CallRecord& record) {
  if (record.stream >= kNoDevice) {  // the host's, which counts on no device
    if (record.result == 0) foreign_handles_[record.address] = 1;
    return extension(record, "x-mem_create",
                     MemberText().hex("memory", record.address).number("size", record.size));
  }
  auto made = common(record, Op::memalloc);
  const auto place = place_on(record, record.stream);
  move_to(made, place);
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
                                          .context = place.context,
                                          .device = place.device}};
  }
  return emit(made);
}

/// Ends a handle or a mapping of physical memory. The last of them ends the memory.
Status RawSession::end_physical(const CallRecord& record, std::uint64_t handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end()) {
    if (const auto foreign = foreign_handles_.find(handle); foreign != foreign_handles_.end()) {
      if (--foreign->second == 0) foreign_handles_.erase(foreign);
      return keep(record);
    }
    run_.unmatched();
    return {};
  }
  if (found->second.mappings != 0 || found->second.handles != 0) {
    run_.other();
    return {};
  }
  auto made = common(record, Op::free);
  move_to(made, {found->second.live.context, found->second.live.device});
  made.id = Id::of(found->second.live.id);
  made.api = record.call == Call::mem_unmap ? "cuMemUnmap" : "cuMemRelease";
  made.members = made.members | Members(Member::id, Member::api);
  physical_.erase(found);
  return emit(made);
}

Status RawSession::reserve(const CallRecord& record) {
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

Status RawSession::map(const CallRecord& record) {
  if (record.result != 0) return refused(record, "cuMemMap");
  mappings_[record.address] = {.size = record.size, .handle = record.stream};
  const auto found = physical_.find(record.stream);
  if (found == physical_.end()) return keep(record);  // memory of another process, or a multicast
  ++found->second.mappings;
  auto made = common(record, Op::mem_map);
  move_to(made, {found->second.live.context, found->second.live.device});
  made.id = Id::of(found->second.live.id);
  made.size = record.size;
  made.members = made.members | Members(Member::id, Member::size);
  if (!put_range(made, record.address)) {
    run_.other();
    return {};
  }
  return emit(made);
}

/// An unmapped range may hold several mappings. Each becomes an operation; the first one stands for
/// the row.
Status RawSession::unmap(const CallRecord& record) {
  if (record.result != 0) return refused(record, "cuMemUnmap");
  bool any = false, foreign = false;
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
    if (found == physical_.end()) {
      foreign = true;
      continue;
    }
    auto& physical = found->second;
    if (physical.mappings != 0) --physical.mappings;
    auto made = common(record, Op::mem_unmap);
    move_to(made, {physical.live.context, physical.live.device});
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
  if (!any && foreign) return keep(record);
  any ? run_.used() : run_.other();
  return {};
}

Status RawSession::graph_operation(const CallRecord& record, Op op, std::uint64_t graph) {
  auto made = common(record, op);
  put_stream(made, record);
  graph_text_ = text::format("g{}", graph);
  made.graph = Id::of(std::string_view(graph_text_));
  made.members.add(Member::graph);
  return emit(made);
}

Status RawSession::peer_operation(const CallRecord& record, Op op) {
  if (record.result != 0) return refused(record, "cuCtxEnablePeerAccess");
  auto made = common(record, op);
  made.peer = record.stream;
  made.members.add(Member::peer);
  return emit(made);
}

std::uint8_t RawSession::primary_context(std::uint64_t device) const {
  // Where nobody was seen to retain it, it is the device's context that the program did not create.
  const auto primary = primaries_.find(device);
  for (std::size_t i = 0; i < record::kContextsMost; ++i) {
    const auto& known = header_.contexts[i];
    if (known.handle == 0 || known.device != device) continue;
    const bool is_it = primary != primaries_.end() ? known.handle == primary->second
                                                   : created_.count(known.handle) == 0;
    if (is_it) return static_cast<std::uint8_t>(i + 1);
  }
  return 0;  // no call was made in it
}

/// Handles a reset or the end of a context, which ends all memory of the context.
Status RawSession::end_context(const CallRecord& record, Op op, std::uint8_t context) {
  if (context == 0 || context > record::kContextsMost) {  // no operation used the context
    run_.other();
    return {};
  }
  const auto device = static_cast<std::uint8_t>(header_.contexts[context - 1].device);
  // A trace can name 256 contexts. If a program makes hundreds, the later ones count as resets of
  // one.
  constexpr std::uint64_t kNamed = 40;
  auto made = common(record, ended_contexts_ < kNamed ? op : Op::reset);
  move_to(made, {context, device});
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

Status RawSession::begin_window(const CallRecord& record) {
  run_.other();
  window_ = record.address;
  retained_.clear();  // the records that follow list it again
  if (window_ < 2) return {};
  const auto end = [&](Op op, const Live* live, std::uint64_t number) {
    auto made = common(record, op);
    made.extension = "\"x-no_row\":true";
    made.members.add(Member::extension);
    if (live != nullptr) {
      move_to(made, {live->context, live->device});
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

/// Memory that a call gives or takes back, and how much there is.
std::optional<Status> RawSession::take_memory(const CallRecord& record) {
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
    default:
      return std::nullopt;
  }
}

/// Pools of stream-ordered memory.
std::optional<Status> RawSession::take_pool(const CallRecord& record) {
  const bool failed = record.result != 0;
  switch (record.call) {
    case Call::pool_create:
      if (!failed) pools_.erase(record.address);
      return pool_operation(record, Op::pool_create);
    case Call::pool_destroy:
      return pool_operation(record, Op::pool_destroy);
    case Call::pool_trim:
      return pool_operation(record, Op::pool_trim);
    case Call::device_get_pool:
      // The current pool of a device is its default pool until the program sets another.
      if (!failed && (record.extra == kDefaultOfDevice ||
                      (record.extra == 0 && current_pools_.count(record.stream) == 0 &&
                       pools_.count(record.address) == 0)))
        default_pools_[record.address] = record.stream;
      if (!failed && record.extra == kOfHost) host_pools_.insert(record.address);
      return pass_over();
    case Call::device_set_pool:
      if (!failed && record.extra != kOfHost) current_pools_[record.stream] = record.address;
      return keep(record);
    default:
      return std::nullopt;
  }
}

/// Physical memory, address ranges, and mappings of one to the other.
std::optional<Status> RawSession::take_physical(const CallRecord& record) {
  const bool failed = record.result != 0;
  switch (record.call) {
    case Call::mem_create:
      return create_physical(record);
    case Call::mem_release: {
      if (failed) return refused(record, "cuMemRelease");
      const auto found = physical_.find(record.address);
      if (found != physical_.end() && found->second.handles != 0) --found->second.handles;
      return end_physical(record, record.address);
    }
    case Call::mem_retain_handle:
      if (const auto found = physical_.find(record.address); !failed && found != physical_.end()) {
        ++found->second.handles;
      } else if (!failed) {
        ++foreign_handles_[record.address];
      }
      return pass_over();
    case Call::mem_map:
      return map(record);
    case Call::mem_unmap:
      return unmap(record);
    case Call::mem_address_reserve:
      return reserve(record);
    case Call::mem_address_free: {
      if (failed) return refused(record, "cuMemAddressFree");
      auto made = common(record, Op::address_free);
      const bool known = put_range(made, record.address);
      ranges_.erase(record.address);
      if (!known) {
        run_.unmatched();
        return Status();
      }
      made.members.remove(Member::offset);
      return emit(made);
    }
    default:
      return std::nullopt;
  }
}

/// Streams, events, host functions and kernels: what orders work.
std::optional<Status> RawSession::take_stream_order(const CallRecord& record) {
  const bool failed = record.result != 0;
  switch (record.call) {
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
      if (!failed) {
        events_.erase(record.address);
        foreign_events_.erase(record.address);
      }
      return pass_over();
    case Call::event_create:
      return pass_over();
    case Call::host_function: {
      if (failed) return refused(record, "cuLaunchHostFunc");
      auto made = common(record, Op::host_function);
      put_stream(made, record);
      return emit(made);
    }
    case Call::kernels:
      return extension(record, "x-kernels",
                       text::format("\"stream\":\"{}\",\"count\":{}",
                                    stream_or_legacy(record.stream), record.size));
    default:
      return std::nullopt;
  }
}

/// Captures and graphs.
std::optional<Status> RawSession::take_graph(const CallRecord& record) {
  const bool failed = record.result != 0;
  switch (record.call) {
    case Call::capture_begin:
      if (failed) return refused(record, "cuStreamBeginCapture");
      capturing_[lane_of(record)] = lane_of(record);
      graph_of_[lane_of(record)] = ++graph_count_;
      return graph_operation(record, Op::graph_begin, graph_count_);
    case Call::capture_end: {
      for (auto at = capturing_.begin(); at != capturing_.end();) {
        at = at->second == lane_of(record) ? capturing_.erase(at) : std::next(at);
      }
      if (failed) return refused(record, "cuStreamEndCapture");
      const auto begun = graph_of_.find(lane_of(record));
      const auto graph = begun != graph_of_.end() ? begun->second : ++graph_count_;
      graphs_[record.address] = graph;
      return graph_operation(record, Op::graph_end, graph);
    }
    case Call::graph_instantiate: {
      if (failed) return refused(record, "cuGraphInstantiate");
      const auto known = graphs_.find(record.extra);
      executables_[record.address] = known != graphs_.end() ? known->second : 0;
      return pass_over();
    }
    case Call::graph_launch: {
      if (failed) return refused(record, "cuGraphLaunch");
      auto& graph = executables_[record.address];
      if (graph == 0) graph = ++graph_count_;  // built without a capture
      return graph_operation(record, Op::graph_launch, graph);
    }
    case Call::graph_add_alloc:
    case Call::graph_add_free:
    case Call::graph_add_node: {
      constexpr std::uint64_t kAllocation = 10, kFree = 11;  // CUgraphNodeType
      if (record.call == Call::graph_add_node && record.stream != kAllocation &&
          record.stream != kFree) {
        return pass_over();
      }
      return extension(
          record, "x-graph_node",
          text::format("\"size\":{},\"addr\":\"{}\"", record.size, text::hex(record.address)));
    }
    case Call::graph_destroy:
      if (!failed) graphs_.erase(record.address);
      return pass_over();
    case Call::graph_exec_destroy:
      if (!failed) executables_.erase(record.address);
      return pass_over();
    default:
      return std::nullopt;
  }
}

/// Contexts, and what one device or process opens to another.
std::optional<Status> RawSession::take_context(const CallRecord& record) {
  const bool failed = record.result != 0;
  switch (record.call) {
    case Call::ctx_retain:
      if (!failed) {
        ++retained_[record.stream];
        primaries_[record.stream] = record.address;
      }
      return pass_over();
    case Call::ctx_release: {
      auto& held = retained_[record.stream];
      if (failed || held == 0 || --held != 0) {
        return pass_over();
      }
      return end_context(record, Op::context_destroy, primary_context(record.stream));
    }
    case Call::ctx_reset:
      if (failed) return refused(record, "cuDevicePrimaryCtxReset");
      return end_context(record, Op::reset, primary_context(record.stream));
    case Call::ctx_destroy:
      if (failed) return refused(record, "cuCtxDestroy");
      return end_context(record, Op::context_destroy, static_cast<std::uint8_t>(record.extra));

    case Call::ctx_create:
      if (!failed) created_.insert(record.address);
      return keep(record);
    case Call::ctx_attach:
      if (!failed) ++attached_[record.address];
      return keep(record);
    case Call::ctx_detach: {
      if (failed) return refused(record, "cuCtxDetach");
      const auto attached = attached_.find(record.address);
      if (attached == attached_.end())
        return end_context(record, Op::context_destroy, static_cast<std::uint8_t>(record.extra));
      if (--attached->second == 0) attached_.erase(attached);
      return keep(record);
    }
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
    default:
      return std::nullopt;
  }
}

Status RawSession::take(const RawCall& call) {
  const auto& record = call.record;
  thread_ = call.thread;
  request_ = call.request;
  if (!std::exchange(any_, true)) default_thread_ = thread_;
  if (auto defined = define_site(call.site); !defined) return defined;
  if (record.call == Call::window) return begin_window(record);
  if (record.call == Call::preview_108 || record.call == Call::preview_109) return pass_over();
  // `keep` takes what has no state but a row in passed_on.def.
  for (const auto step :
       {&RawSession::take_memory, &RawSession::take_stream_order, &RawSession::take_graph,
        &RawSession::take_physical, &RawSession::take_pool, &RawSession::take_context}) {
    if (auto taken = (this->*step)(record)) return *std::move(taken);
  }
  return keep(record);
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
