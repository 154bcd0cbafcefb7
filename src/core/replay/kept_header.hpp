#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "replay/engine.hpp"

namespace emm::replay {

/// The header of ReplayOptions::kept. Behind it come the run and two summaries: one is complete
/// while the other is written, so the process may end at any time.
struct KeptHeader {
  enum class Phase : std::uint32_t { none, running, over };
  std::atomic<Phase> phase{Phase::none};
  std::atomic<std::uint32_t> current{0};  ///< The index of the complete summary.
  std::array<std::uint64_t, 2> sizes{};

  static constexpr std::size_t kRunBytes = std::size_t{256}
                                           << 10;  ///< For the header, and again for the run.
  // Two, so that a whole one stays while the other is written.
  static constexpr std::size_t kSummaryBytes = (kKeptBytes - 2 * kRunBytes) / 2;
  static std::size_t summary_at(std::uint32_t which) noexcept {
    return 2 * kRunBytes + which * kSummaryBytes;
  }
};

/// Stores a summary where another process can read it. Does nothing if `kept` is empty.
void keep_summary(std::span<std::byte> kept, KeptHeader::Phase phase, const log::Summary& summary);

}  // namespace emm::replay
