#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "replay/engine.hpp"

namespace emm::replay {

/// The header of ReplayOptions::kept, before the run itself and two summaries: one is whole while
/// the other is written, whenever the process ends.
struct Kept {
  enum class Phase : std::uint32_t { none, running, over };
  std::atomic<Phase> phase{Phase::none};
  std::atomic<std::uint32_t> current{0};  ///< Which summary is whole.
  std::array<std::uint64_t, 2> sizes{};

  static constexpr std::size_t kRunBytes = std::size_t{256} << 10;  ///< For each of header and run.
  static constexpr std::size_t kSummaryBytes = (kKeptBytes - 2 * kRunBytes) / 2;
  static std::size_t summary_at(std::uint32_t which) noexcept {
    return 2 * kRunBytes + which * kSummaryBytes;
  }
};

/// Keeps a summary where another process sees it. Does nothing where `kept` is empty.
void keep_summary(std::span<std::byte> kept, Kept::Phase phase, const log::Summary& summary);

}  // namespace emm::replay
