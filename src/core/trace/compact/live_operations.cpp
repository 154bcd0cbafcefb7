#include "trace/compact/live_operations.hpp"

#include <algorithm>

#include "trace/operation.hpp"

namespace emm::trace::compact {
namespace {

// The members that are kept of an operation that makes memory.
constexpr Members kKept(Member::op, Member::id, Member::process, Member::thread, Member::context,
                        Member::device, Member::layer, Member::stream, Member::site, Member::size,
                        Member::addr, Member::granted, Member::kind, Member::preexisting);
constexpr Members kPlace(Member::context, Member::device, Member::process);
constexpr Members kDefined(Member::op, Member::kind, Member::id, Member::name, Member::frames);

bool is_good(Outcome outcome) noexcept {
  return outcome == Outcome::none || outcome == Outcome::ok || outcome == Outcome::any;
}

}  // namespace

void LiveOperations::begin(const Header& header) { default_expect_ = header.default_expect; }

bool LiveOperations::worked(const Operation& operation) const noexcept {
  const auto recorded = operation.has(Member::result) ? operation.result.outcome : Outcome::none;
  if (recorded != Outcome::none) return is_good(recorded);
  const auto expected = operation.has(Member::expect) ? operation.expect.outcome : Outcome::none;
  return is_good(expected == Outcome::none ? default_expect_ : expected);
}

void LiveOperations::add(const Operation& operation) {
  switch (operation.op) {
    case Op::extension:
    case Op::end:
      return;
    case Op::define:
      if (operation.define_kind == DefineKind::site) define(operation);
      return;
    case Op::memalloc:
    case Op::memallocmanaged:
    case Op::memhostalloc:
    case Op::mempin:
      make(operation);
      break;
    case Op::free:
      end(operation);
      break;
    case Op::reset:
    case Op::context_destroy: {
      const bool backing = operation.has(Member::layer) && operation.layer == Layer::backing;
      if (backing || !worked(operation)) break;
      note_place(operation);
      if (several_places_) known_ = false;  // unknown which of them the reset ends
      end_all();
      break;
    }
    default:
      break;
  }
  ++events_;
}

void LiveOperations::make(const Operation& operation) {
  note_place(operation);
  if (!worked(operation)) return;
  if (ids_.find(operation.id) != LiveIds::kNone || ids_.was_used(operation.id)) {
    known_ = false;  // the trace is damaged; `check` reports the fault
    return;
  }
  std::uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(kept_.size());
    kept_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  auto& kept = kept_[slot];
  kept.born = events_ + 1;
  kept.members = operation.members & kKept;
  kept.op = operation.op;
  kept.kind = operation.kind;
  kept.layer = operation.layer;
  kept.preexisting = operation.preexisting;
  kept.device = operation.device;
  kept.id = operation.id;
  if (!operation.id.is_number()) {
    kept.id_text = std::make_unique<std::string>(operation.id.text);
    kept.id.text = *kept.id_text;
  }
  if (operation.has(Member::process)) kept.process = interned(operation.process);
  if (operation.has(Member::thread)) kept.thread = interned(operation.thread);
  if (operation.has(Member::context)) kept.context = interned(operation.context);
  if (operation.has(Member::stream)) kept.stream = interned(operation.stream);
  if (operation.has(Member::site)) kept.site = interned(operation.site);
  kept.size = operation.size;
  kept.addr = operation.addr;
  kept.granted = operation.granted;
  ids_.add(operation.id, slot);
}

void LiveOperations::end(const Operation& operation) {
  const auto slot = ids_.find(operation.id);
  const bool backing = operation.has(Member::layer) && operation.layer == Layer::backing;
  if (slot == LiveIds::kNone) {
    if (backing) completed_later_ = true;
    return;
  }
  auto& kept = kept_[slot];
  const bool of_backing = kept.members.has(Member::layer) && kept.layer == Layer::backing;
  if (backing && !of_backing) {
    completed_later_ = true;
    return;
  }
  ids_.remove(operation.id);
  kept.born = 0;
  kept.id_text.reset();
  free_.push_back(slot);
}

/// Ends what the program holds. A reset does not end what the manager holds.
void LiveOperations::end_all() {
  for (std::uint32_t slot = 1; slot < kept_.size(); ++slot) {
    auto& kept = kept_[slot];
    const bool backing = kept.members.has(Member::layer) && kept.layer == Layer::backing;
    if (kept.born == 0 || backing) continue;
    ids_.remove(kept.id);
    kept.born = 0;
    kept.id_text.reset();
    free_.push_back(slot);
  }
}

/// Notes whether all memory is in one context of one process. Otherwise it is unknown what a reset
/// ends.
void LiveOperations::note_place(const Operation& operation) {
  const auto members = operation.members & kPlace;
  if (!any_place_) {
    any_place_ = true;
    place_members_ = members;
    if (members.has(Member::context)) context_ = interned(operation.context);
    if (members.has(Member::process)) process_ = interned(operation.process);
    device_ = operation.device;
    return;
  }
  if (members.empty() && place_members_.empty()) return;
  const bool same = members == place_members_ &&
                    (!members.has(Member::context) || operation.context == context_) &&
                    (!members.has(Member::process) || operation.process == process_) &&
                    (!members.has(Member::device) || operation.device == device_);
  several_places_ = several_places_ || !same;
}

void LiveOperations::define(const Operation& operation) {
  auto& site = sites_.emplace_back();
  site.members = operation.members & kDefined;
  site.id = interned(operation.id);
  if (operation.has(Member::name)) site.name = operation.name;
  site.frames.assign(operation.frames.begin(), operation.frames.end());
}

Id LiveOperations::interned(const Id& id) {
  if (id.is_number()) return id;
  auto kept = id;
  kept.text = interned(id.text);
  return kept;
}

std::string_view LiveOperations::interned(std::string_view text) {
  return *texts_.emplace(text).first;
}

void LiveOperations::give(const Kept& kept, Operation& to) {
  to.members = kept.members;
  to.op = kept.op;
  to.kind = kept.kind;
  to.layer = kept.layer;
  to.preexisting = kept.preexisting;
  to.device = kept.device;
  to.id = kept.id;
  to.process = kept.process;
  to.thread = kept.thread;
  to.context = kept.context;
  to.stream = kept.stream;
  to.site = kept.site;
  to.size = kept.size;
  to.addr = kept.addr;
  to.granted = kept.granted;
}

std::vector<const LiveOperations::Kept*> LiveOperations::in_order() const {
  std::vector<const Kept*> out;
  for (const auto& kept : kept_) {
    if (kept.born != 0) out.push_back(&kept);
  }
  std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->born < b->born; });
  return out;
}

}  // namespace emm::trace::compact
