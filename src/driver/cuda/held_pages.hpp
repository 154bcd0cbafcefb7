#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace emm {

/// The 2 MiB pages that a context's allocations take, from their addresses and sizes: small ones
/// share a page, larger have pages of their own (measured on an H200). What cuMemGetInfo would
/// show, without its cost of microseconds. Any thread may call.
class HeldPages {
 public:
  void add(std::uint64_t address, std::uint64_t size);
  /// The size that add() was given; 0 of an address that is not held.
  std::uint64_t remove(std::uint64_t address) noexcept;
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> sizes_;  // by address
  std::unordered_map<std::uint64_t, std::uint64_t>
      sharers_;  // by page: how many small allocations it holds
  std::uint64_t pages_ = 0;
};

}  // namespace emm
