#pragma once

#include <memory>
#include <type_traits>

namespace emm {
class MemoryManager;  // emm/memory_manager.hpp: only who derives from it or calls it needs it
}

/// How a std::unique_ptr ends a manager. A file that holds a manager and calls none of its methods
/// need not include memory_manager.hpp.
template <>
struct std::default_delete<emm::MemoryManager> {
  constexpr default_delete() noexcept = default;
  template <typename Derived,
            typename = std::enable_if_t<std::is_convertible_v<Derived*, emm::MemoryManager*>>>
  default_delete(const default_delete<Derived>&) noexcept {}

  void operator()(emm::MemoryManager* manager) const noexcept;
};
