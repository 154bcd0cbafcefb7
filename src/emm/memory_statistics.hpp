#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace emm {

/// What a manager counts of the memory that it hands out with memalloc, since it was made. The
/// members have the names of PyTorch's torch.cuda.memory_stats(), where "allocated" is ever; what
/// is not known is empty. Bytes where the name says so, else how many.
struct MemoryStatistics {
  using Number = std::optional<std::uint64_t>;
  struct Count {
    Number current{};
    Number peak{};
    Number allocated{};  ///< Ever added.
    Number freed{};      ///< Ever taken away.
  };
  Count allocation{};       ///< Memory that is handed out.
  Count segment{};          ///< Runs of addresses held from the device.
  Count active{};           ///< Blocks that are handed out, or freed and waiting for a stream.
  Count inactive_split{};   ///< Free blocks that cannot go back to the device.
  Count allocated_bytes{};  ///< Of the blocks that are handed out.
  Count reserved_bytes{};   ///< Held from the device.
  Count active_bytes{};
  Count inactive_split_bytes{};  ///< Free, in memory that cannot go back to the device because a
                                 ///< part is active.
  Count requested_bytes{};       ///< As asked for.
  Number num_alloc_retries{};    ///< Requests for which idle memory was given back first.
  Number num_ooms{};             ///< Requests refused as out of memory.
  Number num_device_alloc{};     ///< Pieces that the device gave,
  Number num_device_free{};      ///< and those that it has back.

  // Not PyTorch's
  Number largest_free_bytes{};  ///< The largest block that could be handed out without the device.
  Number mapped_again{};    ///< How many times pieces are mapped besides where they are at home.
  Number metadata_bytes{};  ///< Of the host's memory, apart from the memory itself.
  Number metadata_bytes_per_block{};  ///< What grows with the blocks, by the peak of allocation.
};

/// A statistic and what it is called.
struct NamedStatistic {
  std::string_view name;
  std::uint64_t value = 0;
  bool operator==(const NamedStatistic&) const = default;
};
using NamedStatistics = std::vector<NamedStatistic>;

/// Those that are known, as torch.cuda.memory_stats() calls them: "allocated_bytes.all.peak".
NamedStatistics torch_statistics(const MemoryStatistics& of);
/// As RMM's statistics_resource_adaptor calls them: "peak_bytes", of what was requested.
NamedStatistics rmm_statistics(const MemoryStatistics& of);
/// Those that neither has.
NamedStatistics other_statistics(const MemoryStatistics& of);

/// The reverse of torch_statistics() and other_statistics(). Nothing where the name is not known.
void set_statistic(MemoryStatistics& of, std::string_view name, std::uint64_t value);

}  // namespace emm
