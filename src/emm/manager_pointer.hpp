#pragma once

#include <memory>
#include <type_traits>

namespace emm {
class MemoryManager;  // emm/memory_manager.hpp: only who derives from it or calls it needs it
}

/// Ends a manager for who holds one and calls none of its methods.
template <>
struct std::default_delete<emm::MemoryManager> {
  constexpr default_delete() noexcept = default;
  template <typename Derived>
  requires std::is_convertible_v<Derived*, emm::MemoryManager*> default_delete(
      const default_delete<Derived>&)
  noexcept {}

  void operator()(emm::MemoryManager* manager) const noexcept;
};
