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
  /// `map` is nothing of a manager that keeps none.
  void add(const log::Statistics& statistics, std::uint32_t device, std::optional<MemoryMap> map);
  /// "emmctl.memory-map/1": one object, keys in a fixed order, a final newline.
  std::string to_json(const log::Summary& summary) const;
  /// The same segments as bars, in one SVG: what is handed out, what waits for a stream, what is
  /// free.
  std::string to_svg(const log::Summary& summary) const;

 private:
  struct ContextMap {
    log::Statistics statistics;
    std::uint32_t device = 0;
    std::optional<MemoryMap> map;
  };
  std::vector<ContextMap> context_maps_;
};

}  // namespace emm::cli
