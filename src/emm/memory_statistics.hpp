#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace emm {

/// How much memory a manager holds, and of what, since it was made. Each figure is defined here and
/// nowhere else. What a manager does not know is empty. A name that ends in `bytes` counts bytes,
/// any other a number of things. The members and their JSON names are those of PyTorch's
/// torch.cuda.memory_stats() as far as it has them.
///
/// Every device byte that a manager holds is reserved; a reserved byte is active or inactive; an
/// active one is allocated or waits for a stream; an allocated one was requested or is padding:
///
///     reserved  >=  active  >=  allocated  >=  requested
///
/// Other types show some of these figures, under the same names: pool::Statistics is what an arena
/// counts on its way, MemoryMap says where the bytes lie. ManagerState has the current values that
/// any manager knows without counting: live_bytes is requested_bytes with managed memory added,
/// and reserved_bytes is Driver::held_bytes(): what the context holds, whoever asked for it.
/// log::Gauges has the same two as the replay measures them.
struct MemoryStatistics {
  using Number = std::optional<std::uint64_t>;
  struct Count {
    Number current{};
    Number peak{};
    Number allocated{};  ///< The sum of all increases, ever.
    Number freed{};      ///< The sum of all decreases, ever.
  };
  Count allocation{};            ///< Blocks that are handed out.
  Count segment{};               ///< Runs of addresses that are reserved.
  Count active{};                ///< Blocks that are handed out, or freed and awaiting a stream.
  Count inactive_split{};        ///< Free blocks that cannot be released.
  Count allocated_bytes{};       ///< In blocks that are handed out, padding included.
  Count reserved_bytes{};        ///< Taken from the device and not released to it.
  Count active_bytes{};          ///< In blocks that are handed out, or freed and awaiting a stream.
  Count inactive_split_bytes{};  ///< Free, in memory that cannot be released because a part of it
                                 ///< is active.
  Count requested_bytes{};       ///< As the callers asked for them.
  Number num_alloc_retries{};    ///< Requests before which idle memory was released.
  Number num_ooms{};             ///< Requests refused as out of memory.
  Number num_device_alloc{};     ///< Pieces that the device gave.
  Number num_device_free{};      ///< Pieces that were released to it.

  // PyTorch has no such figures.
  Number largest_free_bytes{};  ///< The largest request that needs nothing of the device.
  Number times_aliased{};       ///< How often pieces are mapped in alias mappings.
  Number stream_waits{};        ///< How often a stream was made to wait for a free on another.
  Number metadata_bytes{};      ///< Host memory that the manager's own tables take.
  Number metadata_bytes_per_block{};  ///< What grows with blocks, by the peak of allocation.
};

/// A figure and its name.
struct NamedStatistic {
  std::string_view name;
  std::uint64_t value = 0;
  bool operator==(const NamedStatistic&) const = default;
};
using NamedStatistics = std::vector<NamedStatistic>;

/// The known figures under the names of torch.cuda.memory_stats(): "allocated_bytes.all.peak".
NamedStatistics torch_statistics(const MemoryStatistics& of);
/// The requested bytes under the names of RMM's statistics_resource_adaptor: "peak_bytes".
NamedStatistics rmm_statistics(const MemoryStatistics& of);
/// The known figures that neither has.
NamedStatistics other_statistics(const MemoryStatistics& of);

/// The reverse of torch_statistics() and other_statistics(). Ignores a name that is not known.
void set_statistic(MemoryStatistics& of, std::string_view name, std::uint64_t value);

}  // namespace emm
