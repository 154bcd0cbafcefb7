#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace emm {

/// Counts the 2 MiB pages that a context's allocations take, from their addresses and sizes: small
/// ones share a page, larger ones have pages of their own (measured on an H200). It answers what
/// cuMemGetInfo would show, without the microseconds of that call. Any thread may call.
class HeldPages {
 public:
  void add(std::uint64_t address, std::uint64_t size);
  /// Answers the size that add() was given, 0 where the address is not held.
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
