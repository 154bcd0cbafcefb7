#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emm/memory_map.hpp"
#include "log/summary.hpp"

namespace emm::cli {

/// The memory maps of a run's contexts.
class MemoryMaps {
 public:
  /// `map` is empty if the manager keeps none.
  void add(const log::ContextStatistics& statistics, std::uint32_t device,
           std::optional<MemoryMap> map);
  /// "emmctl.memory-map/1": one object with keys in a fixed order, then a newline.
  std::string to_json(const log::Summary& summary) const;
  /// Draws the segments as bars in one SVG, with the memory that is handed out, that waits for a
  /// stream, and that is free.
  std::string to_svg(const log::Summary& summary) const;

 private:
  struct ContextMap {
    log::ContextStatistics statistics;
    std::uint32_t device = 0;
    std::optional<MemoryMap> map;
  };
  std::vector<ContextMap> context_maps_;
};

}  // namespace emm::cli
