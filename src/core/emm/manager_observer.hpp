#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.hpp"

namespace emm {

enum class Call : std::uint8_t;  // driver/call.hpp

/// Decides the behaviour that the contract marks Q (a quirk of numba's code): standard does the
/// right thing, numba copies numba.
enum class Profile : std::uint8_t { standard, numba };

/// Hears what a manager does that no return value shows. Called on the thread that caused it, with
/// no lock of the manager held, so it may call the manager.
class ManagerObserver {
 public:
  virtual ~ManagerObserver() = default;
  /// A free was added to a queue of pending frees (PD-16). `size` is empty if it does not count.
  virtual void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
    (void)dtor, (void)size;
  }
  /// A queue of `count` frees with `bytes` counted bytes was flushed. Not called for an empty
  /// queue.
  virtual void flushed(std::size_t count, std::uint64_t bytes) noexcept {
    (void)count, (void)bytes;
  }
  /// A free failed, and no caller waits for the answer.
  virtual void free_failed(const Error& error) noexcept { (void)error; }
  /// A call without a return value went wrong: a manager in a shared object threw an exception, or
  /// wrote where it must not.
  virtual void call_failed(const Error& error) noexcept { (void)error; }
};

}  // namespace emm
