#pragma once

#include <cstdint>

#include "driver/driver.hpp"
#include "managers/pool/backing.hpp"

namespace emm::pool {

/// Keeps an arena from asking the driver for memory that the device is known to lack. A refusal
/// takes long, and so does creating handles until the device is full and undoing that.
///
/// Guarded by the arena's lock.
class DeviceRoom {
 public:
  DeviceRoom(Driver& driver, Backing& backing) noexcept : driver_(driver), backing_(backing) {}

  /// Begins another request, and forgets earlier refusals: other processes may have released memory
  /// since.
  void begin_request() noexcept { refused_ = kNothing; }
  /// Answers whether to ask the driver for `bytes` in `pieces` pieces. Error out_of_memory if they
  /// exceed `max` or what this request knows of the device.
  Status may_ask(std::uint64_t bytes, std::size_t pieces) noexcept;
  /// Notes what the driver answered when it was asked for `bytes`, and returns that.
  Status note(std::uint64_t bytes, Status answer) noexcept;

 private:
  // The device was not asked, or has room.
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  bool ask_what_is_free() noexcept;

  Driver& driver_;
  Backing& backing_;
  std::uint64_t refused_ = kNothing;  ///< The current request found that the device has less.
  std::uint64_t free_ = 0;  ///< Free bytes at the last look, less what the driver gave since.
};

}  // namespace emm::pool
