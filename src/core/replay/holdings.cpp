#include "replay/holdings.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace emm::replay {
namespace {

constexpr std::size_t kHolders = 10;  // that a report names

struct Holder {
  std::uint64_t size;
  std::uint32_t id;
  std::uint64_t order = 0;  ///< The order in which memory was made.
};

bool makes_what_is_held(const trace::Event& event) noexcept {
  using trace::Op;
  return names_memory(event.op) && event.op != Op::free && event.op != Op::get_ipc_handle &&
         event.op != Op::close_ipc_handle && !event.has(trace::event_flag::backing);
}

}  // namespace

HostRange range_of(const HostMemory& memory) {
  return std::visit([](const auto& of) { return HostRange{of.host_pointer(), of.size()}; }, memory);
}

std::string describe(const trace::Trace& trace, const Live& live) {
  return text::format("{} ({} bytes at {})", trace.name(live.id), live.size,
                      text::hex(live.memory.device_pointer().value));
}

std::vector<log::Holder> Holdings::biggest(const ReplayState& state) const {
  const auto& trace = state.trace;
  std::vector<Holder> held;
  // While threads run, entries change and cannot be read. The trace says the same of each held id.
  for (std::size_t at = 0; state.threads_running && at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (!asks_for_device_memory(event.op) || event.has(trace::event_flag::backing)) continue;
    const bool reset =
        index(event.context) < reset_at.size() && at < reset_at[index(event.context)];
    if (!reset && live.slot(event.id) != LiveSet::kNone) {
      held.push_back({.size = event.size, .id = static_cast<std::uint32_t>(event.id)});
    }
  }
  for (const auto slot : state.threads_running ? std::vector<std::uint32_t>() : live.by_id()) {
    if (live[slot].ended) continue;
    held.push_back({.size = live[slot].size, .id = static_cast<std::uint32_t>(live[slot].id)});
  }
  for (const auto& [id, host] : hosts) {
    if (!host.ended) held.push_back({.size = host.size, .id = id});
  }
  for (const auto& [id, import] : imports) held.push_back({.size = import.size, .id = id});
  for (auto& one :
       held) {  // a window reuses ids; a whole trace numbers them in the order of events
    const auto made = trace.made(AllocId{one.id});
    one.order = made ? made->event : one.id;
  }
  const auto count = std::min(held.size(), kHolders);
  std::partial_sort(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(count), held.end(),
                    [](const Holder& a, const Holder& b) {
                      return a.size != b.size ? a.size > b.size : a.order < b.order;
                    });
  held.resize(count);

  // Searches the trace for the lines that made them, so that entries need not store these.
  std::vector<log::Holder> holders;
  for (const auto& one : held) {
    holders.push_back(
        {.id = trace.name(AllocId{one.id}), .size = one.size, .line = 0, .frames = {}});
  }
  auto missing = count;
  for (std::size_t i = 0; i < count && trace.is_window(); ++i, --missing) {
    const auto made = trace.made(AllocId{held[i].id});
    holders[i].line = made->line;
    holders[i].frames = trace.site_frames(made->site);
  }
  for (auto at = std::min<std::size_t>(state.at + 1, trace.size()); at > 0 && missing > 0; --at) {
    const auto& event = trace[at - 1];
    if (!makes_what_is_held(event)) continue;
    const auto found = std::find_if(held.begin(), held.end(),
                                    [&](const Holder& one) { return AllocId{one.id} == event.id; });
    if (found == held.end()) continue;
    auto& holder = holders[static_cast<std::size_t>(found - held.begin())];
    holder.line = event.line;
    holder.frames = trace.site_frames(event.site);
    --missing;
  }
  return holders;
}

}  // namespace emm::replay
