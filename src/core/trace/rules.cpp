#include <array>

#include "base/text.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using enum Member;

// Any operation may have these.
constexpr Members kCommon(seq, enter, exit, time_ns, duration_ns, process, thread, context, device,
                          layer, api, parent, site, label, result, expect, extension);
constexpr Members kNone;
constexpr Members kAllocation(id, size);
constexpr Members kPool(release_threshold, max_size, keep);

// In the order of Op.
constexpr std::array<OpRule, kOpCount> kRules{{
    /* initialize */ {kNone, kNone},
    /* memalloc */ {kAllocation, Members(kind, align, granted, stream, pool, addr, preexisting)},
    /* memallocmanaged */
    {kAllocation, Members(attach, align, granted, stream, pool, addr, preexisting)},
    /* memhostalloc */ {kAllocation, Members(mapped, portable, wc, addr, preexisting)},
    /* mempin */
    {kAllocation,
     Members(buffer, offset, page_offset, mapped, portable, read_only, io, addr, preexisting)},
    /* free */ {Members(id), Members(stream, cause)},
    /* get_ipc_handle */ {Members(id, handle), Members(offset, size)},
    /* open_ipc_handle */ {Members(id, handle), Members(size, addr)},
    /* close_ipc_handle */ {Members(id), kNone},
    /* get_memory_info */ {kNone, Members(free, total)},
    /* defer_cleanup */ {kNone, Members(scope)},
    /* end_defer_cleanup */ {kNone, Members(scope)},
    /* reset */ {kNone, kNone},
    /* context_create */ {kNone, kNone},
    /* context_destroy */ {kNone, kNone},
    /* thread_begin */ {kNone, kNone},
    /* thread_end */ {kNone, kNone},
    /* device_sync */ {kNone, kNone},
    /* stream_create */ {Members(id), Members(blocking, priority)},
    /* stream_destroy */ {Members(stream), kNone},
    /* stream_sync */ {Members(stream), kNone},
    /* event_record */ {Members(record), Members(stream)},
    /* stream_wait */ {Members(record), Members(stream)},
    /* event_sync */ {Members(record), Members(stream)},
    /* use */ {Members(ids), Members(stream, write)},
    /* record_stream */ {Members(id, stream), kNone},
    /* pool_create */ {Members(pool), kPool},
    /* pool_destroy */ {Members(pool), kPool},
    /* pool_trim */ {Members(pool), kPool},
    /* graph_begin */ {Members(graph), Members(stream)},
    /* graph_end */ {Members(graph), Members(stream)},
    /* graph_launch */ {Members(graph), Members(stream)},
    /* host_function */ {kNone, Members(stream)},
    /* address_reserve */ {Members(range, size), Members(align, addr)},
    /* address_free */ {Members(range), kNone},
    /* mem_map */ {Members(id, range), Members(offset, size)},
    /* mem_unmap */ {Members(id, range), Members(offset, size)},
    /* peer_enable */ {Members(peer), kNone},
    /* peer_disable */ {Members(peer), kNone},
    /* flush */ {Members(count, bytes), kNone},
    /* define */ {Members(kind, id), Members(name, frames)},
    /* mark */ {Members(text), Members(phase)},
    /* gap */ {kNone, Members(lost, reason)},
    /* end */ {kNone, Members(events, lost, live, live_bytes)},
    /* x-... */ {kNone, kNone},
}};

}  // namespace

std::string_view name(Member member) noexcept {
  return kMemberNames[static_cast<std::size_t>(member)];
}

const OpRule& rule(Op op) noexcept { return kRules[static_cast<std::size_t>(op)]; }

Members common_members() noexcept { return kCommon; }

Id Id::of(std::string_view name) noexcept {
  const bool canonical =
      name == "0" || (!name.starts_with('0') && name.find_first_not_of("0123456789") == name.npos);
  if (canonical) {
    if (const auto number = text::to_u64(name)) return of(*number);
  }
  return {.text = name};
}

}  // namespace emm::trace
