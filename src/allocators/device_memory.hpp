#pragma once

#include <cstdint>
#include <optional>

namespace emm::allocators {

/// Where the memory of a modelled pool comes from: the driver, or addresses that are made up.
/// Sizes and addresses in bytes; a stream is named by a number of the caller's. Not safe for
/// several threads.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// cudaMalloc; nothing where the device has no room.
  virtual std::optional<std::uint64_t> allocate(std::uint64_t size) = 0;
  virtual void free(std::uint64_t address, std::uint64_t size) = 0;
  /// A range of addresses for memory that is mapped in parts; nothing where there is none.
  virtual std::optional<std::uint64_t> reserve(std::uint64_t size) = 0;
  virtual void release(std::uint64_t address, std::uint64_t size) = 0;
  /// False where the device has no room. `granule` divides the size.
  virtual bool map(std::uint64_t address, std::uint64_t size, std::uint64_t granule) = 0;
  virtual void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t granule) = 0;
  /// Waits for what streams still do with memory whose free waits.
  virtual void synchronize() {}
  /// cudaStreamSynchronize, cudaDeviceSynchronize.
  virtual void synchronize_stream([[maybe_unused]] std::uint64_t stream) {}
  virtual void synchronize_device() {}
  /// Something was freed on `stream`, which may still be in use on the stream that it was asked
  /// for: order() is to wait for what both have to do.
  virtual void freed([[maybe_unused]] std::uint64_t stream,
                     [[maybe_unused]] std::uint64_t asked_on) {}
  /// Later work on `stream` waits for what `freed_on` had to do at its last freed().
  virtual void order([[maybe_unused]] std::uint64_t stream,
                     [[maybe_unused]] std::uint64_t freed_on) {}
};

}  // namespace emm::allocators
