#pragma once

#include <cstdint>
#include <optional>

#include "driver/types.hpp"

/// The stack of contexts that each thread has, one for all devices of a platform: what
/// cuCtxPushCurrent and cuCtxPopCurrent act on. A platform is known by its number, never given
/// twice in a process.
namespace emm::sim::thread_contexts {

void push(std::uint64_t platform, ContextHandle context);
std::optional<ContextHandle> pop(std::uint64_t platform);
std::uint64_t number_for_platform() noexcept;

}  // namespace emm::sim::thread_contexts
