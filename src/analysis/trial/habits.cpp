#include "trial/habits.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

namespace emm::trial {

using pytorch::Call;

pytorch::Program up_to(const pytorch::Program& program, std::uint64_t event) {
  auto part = program;
  std::erase_if(part.calls, [&](const Call& call) {
    return call.event > event || call.kind == Call::Kind::refused;
  });
  return part;
}

pytorch::Program without_waiting(const pytorch::Program& program) {
  auto made = program;
  std::erase_if(made.calls, [](const Call& call) { return call.kind == Call::Kind::complete; });
  for (auto& call : made.calls) {
    if (call.kind == Call::Kind::free_later) call.kind = Call::Kind::free;
  }
  return made;
}

pytorch::Program with_one_pool(const pytorch::Program& program) {
  auto made = program;
  std::erase_if(made.calls, [](const Call& call) {
    return call.kind == Call::Kind::unused || call.kind == Call::Kind::drop;
  });
  std::optional<pytorch::PoolId> first;
  for (auto& call : made.calls) {
    if (call.pool.is_default()) continue;
    if (!first) first = call.pool;
    call.pool = *first;
  }
  return made;
}

pytorch::Program with_pools_dropped(const pytorch::Program& program, std::uint64_t event) {
  auto made = program;
  std::set<pytorch::PoolId> pools;
  for (const auto& call : made.calls) {
    if (call.event < event && !call.pool.is_default()) pools.insert(call.pool);
  }
  const auto at = std::find_if(made.calls.begin(), made.calls.end(),
                               [&](const Call& call) { return call.event >= event; });
  std::vector<Call> drops;
  for (const auto& id : pools)
    drops.push_back({.kind = Call::Kind::drop, .pool = id, .event = event});
  made.calls.insert(at, drops.begin(), drops.end());
  return made;
}

pytorch::Program with_lasting_apart(const pytorch::Program& program, std::uint64_t event) {
  constexpr pytorch::PoolId kApart{~std::uint64_t{0}, 0};  // a pool that no program has
  std::vector<bool> stays(program.allocations, true);
  for (const auto& call : program.calls) {
    if (call.event > event) break;
    if (call.kind == Call::Kind::free || call.kind == Call::Kind::free_later)
      stays[call.allocation] = false;
  }
  auto made = program;
  for (auto& call : made.calls) {
    if (call.kind == Call::Kind::alloc && call.event < event && call.pool.is_default() &&
        stays[call.allocation])
      call.pool = kApart;
  }
  return made;
}

pytorch::Program with_empty_cache(const pytorch::Program& program, std::uint64_t event) {
  auto made = program;
  auto& calls = made.calls;
  auto at = std::find_if(calls.begin(), calls.end(),
                         [&](const Call& call) { return asks_at(call, event); });
  if (at == calls.end()) return made;
  if (!at->pool.is_default()) {  // In a capture, empty_cache() cannot be called.
    const auto pool = at->pool;
    const auto other = std::find_if(
        std::make_reverse_iterator(at), calls.rend(),
        [&](const Call& call) { return call.kind == Call::Kind::alloc && call.pool != pool; });
    at = other.base();
  }
  calls.insert(at, {.kind = Call::Kind::empty_cache, .event = at->event});
  return made;
}

pytorch::Program with_empty_cache_at_end(const pytorch::Program& program, std::uint64_t event) {
  auto made = program;
  made.calls.push_back({.kind = Call::Kind::empty_cache, .event = event});
  return made;
}

}  // namespace emm::trial
