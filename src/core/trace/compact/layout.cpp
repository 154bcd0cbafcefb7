#include "trace/compact/layout.hpp"

#include <bit>

#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm::trace::compact {
namespace {

bool names_memory(Op op) noexcept {
  return op == Op::free || op == Op::get_ipc_handle || op == Op::close_ipc_handle ||
         op == Op::record_stream || op == Op::mem_map || op == Op::mem_unmap;
}

// The numbers are in files, so enumerators are only ever added at the end.
static_assert(static_cast<int>(Outcome::any) == 6 && static_cast<int>(Cause::exit) == 4 &&
              static_cast<int>(Kind::physical) == 2 && static_cast<int>(Layer::backing) == 1 &&
              static_cast<int>(Phase::end) == 2 && static_cast<int>(DefineKind::context) == 3);

template <class Names>
constexpr std::uint32_t last_of(const Names& names) noexcept {
  return static_cast<std::uint32_t>(names.size() - 1);
}

void add_special(std::vector<ColumnField>& to, Op op, Member member) {
  switch (member) {
    case Member::device:
      to.push_back({.part = ColumnKind::small, .member = member, .greatest = kDeviceMax});
      return;
    case Member::page_offset:
      to.push_back({.part = ColumnKind::small, .member = member, .greatest = kPageOffsetMax});
      return;
    case Member::layer:
      to.push_back({.part = ColumnKind::choice,
                    .member = member,
                    .least = static_cast<std::uint8_t>(op == Op::flush ? 1 : 0),
                    .greatest = last_of(kLayerNames)});
      return;
    case Member::kind:
      to.push_back(
          {.part = ColumnKind::choice,
           .member = member,
           .greatest = op == Op::define ? last_of(kDefineKindNames) : last_of(kKindNames)});
      return;
    case Member::attach:
      to.push_back({.part = ColumnKind::flag, .member = member});
      return;
    case Member::cause:
      to.push_back({.part = ColumnKind::choice,
                    .member = member,
                    .least = 1,
                    .greatest = last_of(kCauseNames)});
      return;
    case Member::phase:
      to.push_back(
          {.part = ColumnKind::choice, .member = member, .greatest = last_of(kPhaseNames)});
      return;
    case Member::priority:
      to.push_back({.part = ColumnKind::integer, .member = member});
      return;
    case Member::result:
      to.push_back({.part = ColumnKind::choice,
                    .member = member,
                    .least = 1,
                    .greatest = last_of(kOutcomeNames)});
      to.push_back({.part = ColumnKind::integer, .member = member, .nth = 1});
      to.push_back({.part = ColumnKind::text, .member = member, .nth = 2});
      return;
    case Member::expect:
      to.push_back(
          {.part = ColumnKind::choice, .member = member, .greatest = last_of(kOutcomeNames)});
      to.push_back({.part = ColumnKind::number, .member = member, .nth = 1});
      to.push_back({.part = ColumnKind::distinct, .member = member, .nth = 2, .greatest = 3});
      to.push_back({.part = ColumnKind::number, .member = member, .nth = 3});
      to.push_back({.part = ColumnKind::number, .member = member, .nth = 4});
      to.push_back({.part = ColumnKind::id, .member = member, .nth = 5});
      return;
    case Member::ids:
      to.push_back({.part = ColumnKind::ids, .member = member});
      to.push_back({.part = ColumnKind::ended, .member = member, .nth = 1});
      return;
    case Member::frames:
      to.push_back({.part = ColumnKind::frames, .member = member});
      to.push_back({.part = ColumnKind::text, .member = member, .nth = 1});
      return;
    case Member::extension:
      to.push_back({.part = ColumnKind::json, .member = member});
      return;
    default:
      return;
  }
}

void add(std::vector<ColumnField>& to, Op op, Member member) {
  switch (member) {
    case Member::seq:
      to.push_back({.part = ColumnKind::seq, .member = member});
      return;
    case Member::enter:
      to.push_back({.part = ColumnKind::enter, .member = member});
      return;
    case Member::exit:
      to.push_back({.part = ColumnKind::exit, .member = member});
      return;
    case Member::time_ns:
      to.push_back({.part = ColumnKind::time, .member = member});
      return;
    case Member::parent:
      to.push_back({.part = ColumnKind::parent, .member = member});
      return;
    case Member::id:
      to.push_back({.part = gives_memory_an_id(op) ? ColumnKind::made
                            : names_memory(op)     ? ColumnKind::ended
                                                   : ColumnKind::id,
                    .member = member});
      return;
    default:
      break;
  }
  switch (field(member).type) {
    case FieldType::bytes:
    case FieldType::count:
    case FieldType::nanoseconds:
    case FieldType::address:
      to.push_back({.part = ColumnKind::number, .member = member});
      return;
    case FieldType::flag:
      to.push_back({.part = ColumnKind::flag, .member = member});
      return;
    case FieldType::text:
      to.push_back({.part = ColumnKind::text, .member = member});
      return;
    case FieldType::id:
      to.push_back({.part = ColumnKind::id, .member = member});
      return;
    case FieldType::special:
      add_special(to, op, member);
      return;
  }
}

}  // namespace

std::vector<ColumnField> places(Op op, Members members) {
  std::vector<ColumnField> all;
  if (op == Op::extension) {
    all.push_back({.part = ColumnKind::text, .member = Member::op});
    all.push_back({.part = ColumnKind::json, .member = Member::text});
    return all;
  }
  for (auto left = members.bits(); left != 0; left &= left - 1) {
    add(all, op, static_cast<Member>(std::countr_zero(left)));
  }
  return all;
}

}  // namespace emm::trace::compact
