#pragma once

#include <cstdint>
#include <utility>

namespace emm {

/// Defers cleanup while it lives; each manager defines what that means (DFR-5). Guards nest:
/// cleanup may resume when the last guard ends, but that alone flushes nothing (PD-14). Move-only.
/// It may outlive a reset, but not the manager.
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

  /// Answers whether it defers anything.
  bool is_active() const noexcept { return leave_ != nullptr; }
  void end() noexcept {
    if (leave_ != nullptr) std::exchange(leave_, nullptr)(self_);
  }
  /// Makes its end do nothing, because the manager ends first.
  void abandon() noexcept { leave_ = nullptr; }

 private:
  Leave leave_ = nullptr;
  void* self_ = nullptr;
};

}  // namespace emm
