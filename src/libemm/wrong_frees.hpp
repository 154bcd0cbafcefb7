#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emm::libemm {

/// A free by who does not have the memory.
struct WrongFree {
  enum class Kind : std::uint8_t {
    not_alive,  ///< Freed before, or never handed out.
    inside,     ///< An address inside of memory that is alive, and stays so.
    size,       ///< Of memory that has another size, and is freed.
  };
  Kind kind;
  std::string words;
};

/// How many of each kind there were. Any thread.
class WrongFrees {
 public:
  using Kind = WrongFree::Kind;

  /// Whether it is the first of its kind.
  bool add(Kind kind) noexcept { return counts_[static_cast<std::size_t>(kind)].fetch_add(1) == 0; }
  std::uint64_t count(Kind kind) const noexcept {
    return counts_[static_cast<std::size_t>(kind)].load();
  }

 private:
  std::array<std::atomic<std::uint64_t>, 3> counts_{};
};

}  // namespace emm::libemm
