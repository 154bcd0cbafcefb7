#pragma once

#include <atomic>
#include <cstdint>

namespace emm {

/// Tells a pointer whether its manager has reset or ended since the pointer was made.
///
/// A manager owns one Epoch; each pointer stores a Mark. reset() and the manager's end advance the
/// epoch, which makes every older mark stale for ever. The counter is never freed, so a mark may be
/// tested at any time, even after the manager's end. Any thread may call.
class Epoch {
 public:
  class Mark {
   public:
    Mark() = default;  ///< Marks a pointer that no manager can end; always current.
    // Copies word by word. A vector load of two words that have just been stored separately waits
    // until the store buffer drains, which takes longer than the rest of an allocation from a pool.
    Mark(const Mark& other) noexcept : counter_(other.counter_), at_(other.at_) {}
    Mark& operator=(const Mark& other) noexcept {
      counter_ = other.counter_;
      at_ = other.at_;
      return *this;
    }
    bool current() const noexcept {
      return counter_ == nullptr || counter_->load(std::memory_order_acquire) == at_;
    }
    /// Answers whether the manager that made the pointer still exists, even if it was reset.
    bool has_manager() const noexcept {
      return counter_ == nullptr ||
             counter_->load(std::memory_order_acquire) / kManager == at_ / kManager;
    }
    /// Answers whether a manager can end the pointer.
    bool bound() const noexcept { return counter_ != nullptr; }

   private:
    friend class Epoch;
    Mark(const std::atomic<std::uint64_t>* counter, std::uint64_t at) noexcept
        : counter_(counter), at_(at) {}
    const std::atomic<std::uint64_t>* counter_ = nullptr;
    std::uint64_t at_ = 0;
  };

  Epoch();
  ~Epoch();  ///< Makes every mark stale.
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  Mark mark() const noexcept { return {counter_, counter_->load(std::memory_order_relaxed)}; }
  void advance() noexcept { counter_->fetch_add(1, std::memory_order_acq_rel); }
  /// Ends the manager: every mark is then stale and has no manager.
  void end() noexcept {
    auto now = counter_->load(std::memory_order_relaxed);
    while (!counter_->compare_exchange_weak(now, (now / kManager + 1) * kManager,
                                            std::memory_order_acq_rel)) {
    }
  }

 private:
  /// The upper half of the counter counts managers, the lower half resets.
  static constexpr std::uint64_t kManager = std::uint64_t{1} << 32;
  std::atomic<std::uint64_t>* counter_;
};

}  // namespace emm
