#include "inspect/live_walk.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.hpp"
#include "inspect/extension_members.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using trace::Op;
using MemoryKind = trace::Lifetime::MemoryKind;
namespace event_flag = trace::event_flag;

}  // namespace

LiveWalk::LiveWalk(std::string source, std::vector<Visitor*> visitors)
    : Walk(read_), visitors_(std::move(visitors)), all_(1) {
  read_.set_source(std::move(source));
  read_.keep_window(0);
  std::copy_if(visitors_.begin(), visitors_.end(), std::back_inserter(listeners_),
               [](const Visitor* visitor) { return visitor->listens(); });
}

void LiveWalk::begin_in_the_middle() {
  in_the_middle_ = true;
  read_.set_fault_handler([](std::uint32_t, const Error&, std::string_view) {});
}

Status LiveWalk::on_operation(const trace::Operation& operation) {
  has_seqs_ = has_seqs_ || operation.has(Member::seq);
  if (auto taken = read_.on_operation(operation); !taken) {
    // The trace may be right once it is sorted by seq, but that needs it in memory.
    needs_memory_ = needs_memory_ || (has_seqs_ && taken.error().code == Errc::parse_error);
    return taken;
  }
  if (operation.op == Op::define || operation.op == Op::end) return {};
  const auto& event = read_.last_event();
  event_ = &event;
  operation_ = &operation;
  for (auto* visitor : listeners_) visitor->told(*this, events_, operation);
  if (operation.op == Op::extension) return {};
  const bool backing = event.has(event_flag::backing);
  if (!has_begun_ && !read_.is_in_beginning()) begin_recording();
  if (events_ == trace::kNever - 1) {
    return Error{.code = Errc::not_supported,
                 .message = text::format("{}: more than {} events: expected fewer", read_.source(),
                                         text::grouped(trace::kNever - 1))};
  }
  switch (event.op) {
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
    case Op::open_ipc_handle:
      if (has_begun_ && event.has(event_flag::preexisting) && !in_the_middle_) {
        needs_memory_ = true;  // it was live at all events until now
        return Error{.code = Errc::not_supported,
                     .message = text::format("{}:{}: memory from before the recording",
                                             read_.source(), event.line)};
      }
      begin(operation, event);
      if (auto summed = add_up(event, all_[index(event.id)].size); !summed) return summed;
      break;
    case Op::free:
    case Op::close_ipc_handle: {
      auto& memory = all_[index(event.id)];
      if (backing && memory.what != MemoryKind::backing) {
        // This row says that the memory of an earlier free was kept, which was unknown at that
        // free. The walk's caller then reads the trace into memory, and nobody sees this error.
        needs_memory_ = true;
        return Error{.code = Errc::not_supported,
                     .message = text::format("{}:{}: a free that completed after it was asked for",
                                             read_.source(), event.line)};
      }
      if (memory.is_live()) end(memory);
      break;
    }
    case Op::reset:
    case Op::context_destroy:
      if (backing || !trace::worked(event)) break;
      for (auto& memory : all_) {
        const bool there = memory.is_live() && memory.what != MemoryKind::backing &&
                           memory.context == event.context &&
                           memory.process == read_.detail(event).process;
        if (there) end(memory);
      }
      break;
    case Op::flush:
      if (auto summed = add_up(event, read_.detail(event).bytes); !summed) return summed;
      break;
    default:
      break;
  }
  if (!has_begun_ && read_.first_moment() == events_)
    first_moment_place_ = {.line = event.line, .time_ns = event.time_ns};
  memory_ = &all_[index(event.id) < all_.size() ? index(event.id) : 0];
  for (auto* visitor : visitors_) visitor->passed(*this, events_);
  ++events_;
  return {};
}

Status LiveWalk::finish() {
  if (!has_begun_) begin_recording();
  return read_.finish();
}

void LiveWalk::begin_recording() {
  has_begun_ = true;
  for (auto* visitor : visitors_)
    visitor->recording_begins(*this, static_cast<std::uint32_t>(read_.first_moment()));
}

void LiveWalk::begin(const trace::Operation& operation, const trace::Event& event) {
  const auto place = index(event.id);
  if (all_.size() <= place) all_.resize(place + 1);
  const auto what = trace::what_of(event);
  auto& memory = all_[place];
  memory = {.size = what == MemoryKind::nothing ? 0 : event.size,
            .time_ns = event.time_ns,
            .address = operation.has(Member::addr) ? operation.addr : 0,
            .granted = operation.has(Member::granted) ? operation.granted : 0,
            .birth = events_,
            .process = read_.detail(event).process,
            .site = event.site,
            .thread = event.thread,
            .stream = event.stream,
            .context = event.context,
            .what = what,
            .preexisting = event.has(event_flag::preexisting),
            .mapped = operation.has(Member::kind) && operation.kind == trace::Kind::physical};
  if (what == MemoryKind::nothing) return;
  for (auto* visitor : visitors_) visitor->began(*this, events_, memory);
}

void LiveWalk::end(LiveMemory& memory) {
  memory.over = true;
  memory.gone = events_;
  for (auto* visitor : visitors_) visitor->ended(*this, events_, memory);
}

bool LiveWalk::has_row() const {
  return !operation_->has(Member::extension) || !says(operation_->extension, "x-no_row");
}

std::optional<std::uint64_t> LiveWalk::device_free() const {
  const bool tells = operation_->has(Member::extension) && operation_->has(Member::result);
  if (!tells || operation_->result.outcome != trace::Outcome::oom) return std::nullopt;
  return number_of(operation_->extension, "x-device_free");
}

void LiveWalk::each_live(const std::function<void(const LiveMemory&)>& each) const {
  for (const auto& memory : all_) {
    if (memory.is_live()) each(memory);
  }
}

std::optional<AddressSpace> LiveWalk::space(std::uint32_t event,
                                            std::optional<std::uint32_t> device) const {
  std::vector<const LiveMemory*> there;
  for (const auto& memory : all_) {
    const bool placed = memory.is_device() || memory.what == MemoryKind::backing;
    if (placed && memory.is_live() && (!device || this->device(memory) == *device))
      there.push_back(&memory);
  }
  std::sort(there.begin(), there.end(),
            [](const auto* a, const auto* b) { return a->birth < b->birth; });
  AddressSpaceParts parts;
  std::vector<std::string> names;
  for (const auto* memory : there) {
    const bool added = parts.add({.address = memory->address,
                                  .size = std::max(memory->granted, memory->size),
                                  .id = static_cast<AllocId>(names.size()),
                                  .mapped = memory->mapped},
                                 memory->what, memory->size);
    if (added) names.push_back(trace().name(static_cast<AllocId>(memory - all_.data())));
  }
  auto space = parts.joined(event);
  if (space) space->names = std::move(names);
  return space;
}

/// Counts the requested bytes. The visitors add sizes without a check.
Status LiveWalk::add_up(const trace::Event& event, std::uint64_t bytes) {
  sum_.add(bytes);
  if (!sum_.exceeds()) return {};
  return fail(Errc::parse_error,
              "{}:{}: 2^64 bytes or more were asked for up to here: expected sizes that a device "
              "could have",
              read_.source(), event.line);
}

}  // namespace emm::inspect
