#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace emm {

/// Counts the 2 MiB pages of a context's allocations from their addresses and sizes: small
/// allocations share pages, larger ones do not (measured on an H200). This is what cuMemGetInfo
/// would show, without the microseconds of that call. Any thread may call.
class HeldPages {
 public:
  void add(std::uint64_t address, std::uint64_t size);
  /// Returns the size that add() got; 0 if the address is unknown.
  std::uint64_t remove(std::uint64_t address) noexcept;
  void clear() noexcept;
  std::uint64_t bytes() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint64_t> sizes_;  // by address
  std::unordered_map<std::uint64_t, std::uint64_t>
      sharers_;  // the number of small allocations of each page
  std::uint64_t pages_ = 0;
};

}  // namespace emm
