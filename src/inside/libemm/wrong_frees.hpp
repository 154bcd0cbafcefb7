#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emm::libemm {

/// A wrong free and its description.
struct WrongFree {
  enum class Kind : std::uint8_t {
    not_alive,  ///< The memory was freed before, or never handed out.
    inside,     ///< The address lies inside live memory, which stays live.
    size,       ///< The memory has another size. It is freed anyway.
  };
  Kind kind;
  std::string words;
};

/// Counts wrong frees by kind. Any thread.
class WrongFrees {
 public:
  using Kind = WrongFree::Kind;

  /// Counts one. Returns whether it is the first of its kind.
  bool add(Kind kind) noexcept { return counts_[static_cast<std::size_t>(kind)].fetch_add(1) == 0; }
  std::uint64_t count(Kind kind) const noexcept {
    return counts_[static_cast<std::size_t>(kind)].load();
  }

 private:
  std::array<std::atomic<std::uint64_t>, 3> counts_{};
};

}  // namespace emm::libemm
