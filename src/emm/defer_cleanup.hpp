#pragma once

#include <cstdint>
#include <utility>

namespace emm {

/// While one lives, cleanup is deferred; what that means is each manager's to say (DFR-5). Guards
/// nest: cleanup may resume when the last one dies, and nothing is flushed by that alone (PD-14).
/// Move-only; may outlive a reset, not the manager.
class DeferCleanup {
 public:
  using Leave = void (*)(void* self) noexcept;

  DeferCleanup() = default;  ///< Defers nothing.
  DeferCleanup(Leave leave, void* self) noexcept : leave_(leave), self_(self) {}
  DeferCleanup(DeferCleanup&& other) noexcept
      : leave_(std::exchange(other.leave_, nullptr)), self_(other.self_) {}
  DeferCleanup& operator=(DeferCleanup&& other) noexcept {
    if (this != &other) {
      end();
      leave_ = std::exchange(other.leave_, nullptr);
      self_ = other.self_;
    }
    return *this;
  }
  ~DeferCleanup() { end(); }

  /// Whether it defers anything, as far as the manager told.
  bool is_active() const noexcept { return leave_ != nullptr; }
  void end() noexcept {
    if (leave_ != nullptr) std::exchange(leave_, nullptr)(self_);
  }

 private:
  Leave leave_ = nullptr;
  void* self_ = nullptr;
};

}  // namespace emm
