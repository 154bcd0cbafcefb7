#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver/types.hpp"

namespace emm {

/// Decides what the contract marks Q (a quirk of numba's code): standard does the right thing,
/// numba does as numba.
enum class Profile : std::uint8_t { standard, numba };

/// Told what a manager does that no return value shows. Called on the thread that caused it,
/// without the manager's locks held; must not call the manager.
class ManagerObserver {
 public:
  virtual ~ManagerObserver() = default;
  /// A free was put into a queue of pending ones (PD-16). `size` is empty where it is not counted.
  virtual void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
    (void)dtor, (void)size;
  }
  /// A queue was emptied: so many frees, so many counted bytes. Not called for an empty queue.
  virtual void flushed(std::size_t count, std::uint64_t bytes) noexcept {
    (void)count, (void)bytes;
  }
  /// A free failed where nobody waits for its answer.
  virtual void free_failed(const Error& error) noexcept { (void)error; }
  /// A call that has no answer went wrong: a manager in a shared object threw out of it, or wrote
  /// where it must not.
  virtual void call_failed(const Error& error) noexcept { (void)error; }
};

}  // namespace emm
