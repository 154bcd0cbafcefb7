#pragma once

#include <atomic>
#include <cstdint>

namespace emm {

/// Tells a pointer whether its manager has reset or ended since the pointer was made.
///
/// A manager owns one Epoch; each pointer remembers a Mark. reset() and the manager's end advance
/// the epoch, and every older mark is then stale, for ever. The counter itself is never freed, so a
/// mark may be asked at any time, also after the manager is gone. Any thread may ask.
class Epoch {
 public:
  class Mark {
   public:
    Mark() = default;  ///< Marks a pointer that no manager can end; always current.
    // Word by word: what has just been written as two words and is read as one vector waits for the
    // store buffer to drain, longer than an allocation from a pool takes otherwise.
    Mark(const Mark& other) noexcept : counter_(other.counter_), at_(other.at_) {}
    Mark& operator=(const Mark& other) noexcept {
      counter_ = other.counter_;
      at_ = other.at_;
      return *this;
    }
    bool current() const noexcept {
      return counter_ == nullptr || counter_->load(std::memory_order_acquire) == at_;
    }
    /// The manager that the pointer was made by has not ended, whether or not it was reset.
    bool has_manager() const noexcept {
      return counter_ == nullptr ||
             counter_->load(std::memory_order_acquire) / kManager == at_ / kManager;
    }
    /// Some manager can end this.
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
  /// The manager ends: every mark is stale, and has no manager.
  void end() noexcept {
    auto now = counter_->load(std::memory_order_relaxed);
    while (!counter_->compare_exchange_weak(now, (now / kManager + 1) * kManager,
                                            std::memory_order_acq_rel)) {
    }
  }

 private:
  /// The counter holds the number of the manager in its upper half, that of the reset in the lower.
  static constexpr std::uint64_t kManager = std::uint64_t{1} << 32;
  std::atomic<std::uint64_t>* counter_;
};

}  // namespace emm
