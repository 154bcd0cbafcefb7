#pragma once

#include <cstdint>
#include <optional>

namespace emm::allocators {

/// Supplies a modelled pool with memory: from the driver, or as made-up addresses. Sizes and
/// addresses are in bytes. The caller chooses the numbers that name streams. Not safe for several
/// threads.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Does what cudaMalloc does. Returns nothing where the device has no room.
  virtual std::optional<std::uint64_t> allocate(std::uint64_t size) = 0;
  virtual void free(std::uint64_t address, std::uint64_t size) = 0;
  /// Reserves a range of addresses, to be mapped in parts. Returns nothing if no range is free.
  virtual std::optional<std::uint64_t> reserve(std::uint64_t size) = 0;
  virtual void release(std::uint64_t address, std::uint64_t size) = 0;
  /// Maps memory in pieces of `granule` bytes. `granule` divides `size`. Returns false if the
  /// device has no room.
  virtual bool map(std::uint64_t address, std::uint64_t size, std::uint64_t granule) = 0;
  virtual void unmap(std::uint64_t address, std::uint64_t size, std::uint64_t granule) = 0;
  /// Waits until the streams have done the work that deferred frees wait for.
  virtual void synchronize() {}
  /// These do what cudaStreamSynchronize and cudaDeviceSynchronize do.
  virtual void synchronize_stream([[maybe_unused]] std::uint64_t stream) {}
  virtual void synchronize_device() {}
  /// Notes that memory which was requested on `asked_on` was freed on `stream`. Both streams may
  /// still use it, and a later order() waits for both.
  virtual void freed([[maybe_unused]] std::uint64_t stream,
                     [[maybe_unused]] std::uint64_t asked_on) {}
  /// Makes later work on `stream` wait for the work that preceded the last freed() on `freed_on`.
  virtual void order([[maybe_unused]] std::uint64_t stream,
                     [[maybe_unused]] std::uint64_t freed_on) {}
};

}  // namespace emm::allocators
