#pragma once

#include <cstddef>
#include <cstdint>

/// Identities of things in a trace and in a run. Each is counted from 0 without gaps in the order
/// of first appearance, so that it indexes a table. trace::Trace has the names from the file.
namespace emm {

enum class AllocId : std::uint32_t {};  ///< One allocation, pin or import; never reused.
enum class ThreadId : std::uint16_t {};
enum class StreamId : std::uint16_t {};  ///< 0 is the default stream.
enum class ContextId : std::uint8_t {};
enum class PrivatePool : std::uint32_t {};  ///< A pool of a CUDA graph or a MemPool; 0 is none.
enum class SiteId : std::uint32_t {};       ///< A call site; 0 is "not known".

template <class Id>
constexpr auto index(Id id) noexcept {
  return static_cast<std::size_t>(id);
}

}  // namespace emm
