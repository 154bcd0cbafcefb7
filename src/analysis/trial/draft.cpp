#include "trial/draft.hpp"

#include <numeric>

#include "trace/event.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trial {
namespace {

using trace::Event;
using trace::Id;
using trace::Member;
using trace::Op;
namespace flag = trace::event_flag;

bool names_memory(Op op) noexcept {
  return gives_memory_an_id(op) || op == Op::free || op == Op::get_ipc_handle ||
         op == Op::close_ipc_handle || op == Op::record_stream;
}

/// Keeps sets of numbers, which can be joined (union-find).
class Joined {
 public:
  explicit Joined(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  std::uint32_t find(std::uint32_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  void join(std::uint32_t one, std::uint32_t other) { parent_[find(other)] = find(one); }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace

EventParts::EventParts(const trace::Trace& trace) : of(trace.size()) {
  // Numbers go to allocations first, then to handles, to streams, and to other events.
  const auto allocs = static_cast<std::uint32_t>(trace.alloc_count());
  std::uint32_t handles = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].detail != 0) handles = std::max(handles, trace.detail(trace[i]).handle);
  }
  const auto first_stream = allocs + handles + 1;
  auto next = first_stream + static_cast<std::uint32_t>(trace.streams().size());
  Joined joined(next + trace.size());
  std::vector<std::vector<std::uint32_t>> guards(trace.contexts().size());
  std::vector<std::uint32_t> number(trace.size());
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const auto& event = trace[i];
    if (names_memory(event.op)) {
      number[i] = static_cast<std::uint32_t>(event.id);
      const auto& detail = trace.detail(event);
      if (detail.handle != 0) joined.join(number[i], allocs + detail.handle);
      if (detail.has_same_as) joined.join(number[i], static_cast<std::uint32_t>(detail.same_as));
    } else if (event.op == Op::stream_create || event.op == Op::stream_destroy) {
      number[i] = first_stream + static_cast<std::uint32_t>(event.stream);
    } else {
      number[i] = next++;
    }
    auto& open = guards[index(event.context)];
    if (event.op == Op::defer_cleanup) open.push_back(number[i]);
    if (event.op == Op::end_defer_cleanup && !open.empty()) {
      joined.join(open.back(), number[i]);
      open.pop_back();
    }
  }
  std::vector<std::uint32_t> dense(next, ~0u);
  for (std::size_t i = 0; i < trace.size(); ++i) {
    auto& part = dense[joined.find(number[i])];
    if (part == ~0u) part = count++;
    of[i] = part;
  }
}

Draft whole(const trace::Trace& trace, const EventParts& parts) {
  Draft draft;
  draft.steps.reserve(trace.size());
  for (std::uint32_t i = 0; i < trace.size(); ++i) {
    draft.steps.push_back(
        {.event = i, .part = parts.of[i], .size = trace[i].size, .whole = trace[i].size});
  }
  draft.plain_stream.resize(trace.streams().size());
  return draft;
}

DraftBuilder::DraftBuilder(const trace::Trace& of)
    : of_(of), numbers_(of.alloc_count()), stamps_(of.alloc_count()) {}

std::uint64_t DraftBuilder::number(AllocId id) {
  if (!known(id)) {
    stamps_[index(id)] = stamp_;
    numbers_[index(id)] = next_++;
  }
  return numbers_[index(id)];
}

void DraftBuilder::put_detail(trace::Operation& operation, const Event& event) {
  const auto& detail = of_.detail(event);
  const auto say = [&](Member member) { operation.members.add(member); };
  if (detail.expect != trace::Expect{} || detail.has_same_as) {
    say(Member::expect);
    const auto outcome = operation.expect.outcome;
    operation.expect = detail.expect;
    operation.expect.outcome = outcome;
    operation.expect.has_same_as = detail.has_same_as;
    if (detail.has_same_as) operation.expect.same_as = Id::of(number(detail.same_as));
  }
  if (detail.handle != 0) say(Member::handle), operation.handle = Id::of(detail.handle);
  if (detail.buffer != 0) say(Member::buffer), operation.buffer = Id::of(detail.buffer);
  if (detail.record != 0) say(Member::record), operation.record = Id::of(detail.record);
  if (detail.process != 0) {
    say(Member::process);
    operation.process = Id::of(std::uint64_t{detail.process});
  }
  if (detail.offset != 0) say(Member::offset), operation.offset = detail.offset;
  if (detail.page_offset != 0) say(Member::page_offset), operation.page_offset = detail.page_offset;
  if (detail.align != 0) say(Member::align), operation.align = detail.align;
  if (detail.count != 0) say(Member::count), operation.count = detail.count;
  if (detail.bytes != 0) say(Member::bytes), operation.bytes = detail.bytes;
  if (detail.write) say(Member::write), operation.write = true;
}

/// Returns false if nothing is left of the event.
bool DraftBuilder::put(trace::Operation& operation, const Step& step, const Draft& draft) {
  const auto& event = of_[step.event];
  const auto say = [&](Member member) { operation.members.add(member); };
  operation.op = event.op;
  const auto& context = of_.contexts()[index(event.context)];
  say(Member::device), operation.device = context.device;
  if (!context.name.empty()) {
    say(Member::context), operation.context = Id::of(std::string_view(context.name));
  }
  if (!draft.one_thread) {
    say(Member::thread), operation.thread = Id::of(std::uint64_t{index(event.thread)});
  }
  if (names_memory(event.op)) say(Member::id), operation.id = Id::of(number(event.id));
  if (gives_memory_an_id(event.op) && event.op != Op::open_ipc_handle) {
    say(Member::size), operation.size = step.size;
  }
  const std::string_view stream = of_.streams()[index(event.stream)];
  if (event.op == Op::stream_create) {
    say(Member::id), operation.id = Id::of(stream);
  } else if (event.stream != StreamId{} && !draft.plain_stream[index(event.stream)]) {
    say(Member::stream), operation.stream = Id::of(stream);
  }
  if (event.recorded() != trace::Outcome::none) {
    say(Member::result), operation.result.outcome = event.recorded();
  }
  if (event.expected() != trace::Outcome::none) {
    say(Member::expect), operation.expect.outcome = event.expected();
  }
  if (event.has(flag::backing)) say(Member::layer), operation.layer = trace::Layer::backing;
  if (event.op != Op::mark) {
    const auto flagged = [&](std::uint8_t bit, Member member, bool& field) {
      if (event.has(bit)) say(member), field = true;
    };
    flagged(flag::mapped, Member::mapped, operation.mapped);
    flagged(flag::portable, Member::portable, operation.portable);
    flagged(flag::wc, Member::wc, operation.wc);
    flagged(flag::read_only, Member::read_only, operation.read_only);
    flagged(flag::preexisting, Member::preexisting, operation.preexisting);
    if (event.has(flag::attach_host)) say(Member::attach), operation.attach_global = false;
  }
  if (event.detail != 0) put_detail(operation, event);
  if (event.op != Op::use) return true;

  uses_.clear();
  for (const auto id : of_.detail(event).uses) {
    if (known(id)) uses_.push_back(Id::of(number(id)));
  }
  say(Member::ids), operation.ids = uses_;
  return !uses_.empty();
}

Status DraftBuilder::put_block(trace::Trace& to, const ExtraBlock& block, Op op) const {
  // The block is on the device of the next request.
  std::size_t at = block.from;
  while (at < of_.size() && of_[at].op != Op::memalloc) ++at;
  const auto& context = of_.contexts()[at < of_.size() ? index(of_[at].context) : 0];
  trace::Operation operation;
  operation.op = op;
  const auto say = [&](Member member) { operation.members.add(member); };
  say(Member::device), operation.device = context.device;
  if (!context.name.empty()) {
    say(Member::context), operation.context = Id::of(std::string_view(context.name));
  }
  say(Member::id), operation.id = Id::of(std::uint64_t{of_.alloc_count()});  // No other id has it.
  if (op == Op::memalloc) say(Member::size), operation.size = block.size;
  return to.on_operation(operation);
}

Result<trace::Trace> DraftBuilder::build(const Draft& draft) {
  ++stamp_;
  next_ = 0;
  trace::Trace built;
  built.set_source(of_.source());
  trace::Header header;
  header.default_process = "0";  // Processes keep their numbers; the original's own is 0.
  if (auto begun = built.on_header(header); !begun) return begun.error();
  auto is_asked = false, is_freed = false;
  for (std::size_t i = 0; i < draft.steps.size(); ++i) {
    if (const auto& block = draft.block) {
      const auto event = draft.steps[i].event;
      if (!is_asked && event >= block->from) {
        if (auto put = put_block(built, *block, Op::memalloc); !put) return put.error();
        is_asked = true;
      }
      if (!is_freed && event >= block->to) {
        if (auto put = put_block(built, *block, Op::free); !put) return put.error();
        is_freed = true;
      }
    }
    trace::Operation operation;
    operation.line = static_cast<std::uint32_t>(i + 1);
    if (!put(operation, draft.steps[i], draft)) continue;
    if (auto taken = built.on_operation(operation); !taken) return taken.error();
  }
  if (auto done = built.finish(); !done) return done.error();
  return built;
}

}  // namespace emm::trial
