#pragma once

#include <cstdint>
#include <optional>

#include "driver/types.hpp"

/// Each thread's stack of contexts, for cuCtxPushCurrent and cuCtxPopCurrent. One stack serves all
/// devices of a platform, as in CUDA: a context of device 1 covers one of device 0.
///
/// The stacks are thread-local, so they need no lock. A thread may outlive a platform and meet a
/// later one at the same address, so entries name their platform by a number that the process uses
/// once. Entries of a dead platform stay on the stack, and nothing finds them.
namespace emm::sim::thread_contexts {

/// Makes `context` current on this thread.
void push(std::uint64_t platform, ContextHandle context);
/// Pops the current context. Empty if this thread has none.
std::optional<ContextHandle> pop(std::uint64_t platform);
std::uint64_t number_for_platform() noexcept;

}  // namespace emm::sim::thread_contexts
