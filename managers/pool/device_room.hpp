#pragma once

#include <cstdint>

#include "driver/driver.hpp"
#include "managers/pool/backing.hpp"

namespace emm::pool {

/// Keeps an arena from asking the driver for memory that it is known not to have. A refusal takes
/// long, and so does making handles until the device is full and then undoing that.
///
/// Behind the arena's lock.
class DeviceRoom {
 public:
  DeviceRoom(Driver& driver, Backing& backing) noexcept : driver_(driver), backing_(backing) {}

  /// Begins another request. It forgets what was refused before, since other processes may have
  /// released memory meanwhile.
  void begin_request() noexcept { refused_ = kNothing; }
  /// May the driver be asked for `bytes` in so many pieces? Error out_of_memory where `max` or what
  /// this request knows of the device forbids it.
  Status may_ask(std::uint64_t bytes, std::size_t pieces) noexcept;
  /// Notes what the driver answered when it was asked for `bytes`, and returns that.
  Status note(std::uint64_t bytes, Status answer) noexcept;

 private:
  static constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  bool ask_what_is_free() noexcept;

  Driver& driver_;
  Backing& backing_;
  std::uint64_t refused_ = kNothing;  ///< The device has less: the current request found out.
  std::uint64_t free_ = 0;  ///< Bytes free at the last look, less what the device gave since.
};

}  // namespace emm::pool
