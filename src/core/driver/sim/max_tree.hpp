#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace emm::sim {

/// Gives the system the pages of a table back.
struct Unmapped {
  std::size_t bytes = 0;
  void operator()(void* table) const noexcept;
};

/// A value for each page, 0 at first. Finds the lowest page whose value is at least a given one, in
/// time logarithmic in the number of pages. It touches memory only where values have been set. One
/// thread at a time.
class MaxTree {
 public:
  explicit MaxTree(std::uint32_t pages);
  std::optional<std::uint32_t> find(std::uint16_t at_least) const noexcept;
  void set(std::uint32_t page, std::uint16_t value) noexcept;
  std::uint16_t max() const noexcept { return values_[1]; }

 private:
  std::uint32_t pages_;
  std::unique_ptr<std::uint16_t[], Unmapped> values_;
};

}  // namespace emm::sim
