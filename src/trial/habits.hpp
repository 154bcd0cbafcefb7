#pragma once

#include <cstdint>
#include <string_view>

#include "allocators/pytorch/program.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;

// Programs that do one thing in another way, for a replay to say what that would change.

/// The calls up to an event. What was refused is left out: to serve it would take more than was
/// held.
pytorch::Program up_to(const pytorch::Program& program, std::uint64_t event);

inline constexpr std::string_view kNoWaiting = "streams that wait, in place of record_stream()";
/// What record_stream() delays happens at once.
pytorch::Program without_waiting(const pytorch::Program& program);

inline constexpr std::string_view kOnePool =
    "one private pool for all: torch.cuda.graph(pool=...), one MemPool";
/// All private pools are one, which is never dropped.
pytorch::Program with_one_pool(const pytorch::Program& program);

inline constexpr std::string_view kDropped =
    "del of the graphs and MemPools that are done, then torch.cuda.empty_cache()";
/// In front of the event each private pool is given up; what is live in one stays.
pytorch::Program with_pools_dropped(const pytorch::Program& program, std::uint64_t event);

inline constexpr std::string_view kPoolOfItsOwn =
    "torch.cuda.use_mem_pool() around what stays: a MemPool of its own";
/// What the default pool has live at the event is asked of a private pool.
pytorch::Program with_lasting_apart(const pytorch::Program& program, std::uint64_t event);

/// Is the call the request of that event?
constexpr bool asks_at(const pytorch::Call& call, std::uint64_t event) noexcept {
  using Kind = pytorch::Call::Kind;
  return call.event == event && (call.kind == Kind::alloc || call.kind == Kind::refused);
}
/// empty_cache() in front of the event; where its request is of a private pool, in front of the
/// capture or the use_mem_pool() that it is in.
pytorch::Program with_empty_cache(const pytorch::Program& program, std::uint64_t event);
pytorch::Program with_empty_cache_at_end(const pytorch::Program& program, std::uint64_t event);

}  // namespace emm::trial
