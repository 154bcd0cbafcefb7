#pragma once

#include <cstdint>
#include <string_view>

#include "allocators/pytorch/program.hpp"
#include "driver/call.hpp"

namespace emm::trial {

namespace pytorch = allocators::pytorch;

// Programs with one habit changed, so that a replay tells what the change is worth.

/// Keeps the calls up to an event. Drops refused requests, because serving them would take more
/// than was held.
pytorch::Program up_to(const pytorch::Program& program, std::uint64_t event);

inline constexpr std::string_view kNoWaiting = "streams that wait, in place of record_stream()";
/// Makes the frees that record_stream() delays happen at once.
pytorch::Program without_waiting(const pytorch::Program& program);

inline constexpr std::string_view kOnePool =
    "one private pool for all: torch.cuda.graph(pool=...), one MemPool";
/// Makes all private pools one, which is never dropped.
pytorch::Program with_one_pool(const pytorch::Program& program);

inline constexpr std::string_view kDropped =
    "del of the graphs and MemPools that are done, then torch.cuda.empty_cache()";
/// Drops each private pool before the event. What is live in one stays.
pytorch::Program with_pools_dropped(const pytorch::Program& program, std::uint64_t event);

inline constexpr std::string_view kPoolOfItsOwn =
    "torch.cuda.use_mem_pool() around what stays: a MemPool of its own";
/// Moves what the default pool has live at the event into a private pool.
pytorch::Program with_lasting_apart(const pytorch::Program& program, std::uint64_t event);

/// Answers whether the call is the request of that event.
constexpr bool asks_at(const pytorch::Call& call, std::uint64_t event) noexcept {
  using Kind = pytorch::Call::Kind;
  return call.event == event && (call.kind == Kind::alloc || call.kind == Kind::refused);
}
/// Calls empty_cache() before the event, or, if its request is in a private pool, before the
/// capture or the use_mem_pool() around it.
pytorch::Program with_empty_cache(const pytorch::Program& program, std::uint64_t event);
pytorch::Program with_empty_cache_at_end(const pytorch::Program& program, std::uint64_t event);

}  // namespace emm::trial
