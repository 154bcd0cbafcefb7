#pragma once

#include <cstdint>
#include <optional>

#include "driver/types.hpp"

/// The stack of contexts of each thread, on which cuCtxPushCurrent and cuCtxPopCurrent act. One
/// stack serves all devices of a platform, as CUDA's does: a context of device 1 covers one of
/// device 0.
///
/// The stacks are thread-local, so that they need no lock. A thread may outlive a platform and meet
/// a later one at the same address, so entries name their platform by a number that is used once in
/// a process. Entries of a platform that is gone stay below, and nothing finds them.
namespace emm::sim::thread_contexts {

/// Makes `context` current on this thread.
void push(std::uint64_t platform, ContextHandle context);
/// Takes the current context off, nothing where this thread has none.
std::optional<ContextHandle> pop(std::uint64_t platform);
std::uint64_t number_for_platform() noexcept;

}  // namespace emm::sim::thread_contexts
