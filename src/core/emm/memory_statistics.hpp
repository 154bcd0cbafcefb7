#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/named_statistic.hpp"

namespace emm {

/// A manager's statistics since it was made. This defines each figure. A figure that a manager does
/// not know is empty. A name that ends in `bytes` counts bytes; any other counts things. The
/// members and their JSON names are those of PyTorch's torch.cuda.memory_stats(), as far as it has
/// them.
///
/// Every device byte that a manager holds is reserved. A reserved byte is active or inactive. An
/// active byte is allocated or waits for a stream. An allocated byte was requested or is padding:
///
///     reserved  >=  active  >=  allocated  >=  requested
///
/// Other types have some of these figures under the same names: an arena counts pool::Statistics,
/// and MemoryMap says where the bytes lie. ManagerState has the current values that any manager
/// knows without counting. Its live_bytes is requested_bytes plus managed memory; its
/// reserved_bytes is Driver::held_bytes(), all that the context holds. log::Gauges has the same two
/// as the replay measures them.
struct MemoryStatistics {
  using Number = std::optional<std::uint64_t>;
  struct Count {
    Number current{};
    Number peak{};
    Number allocated{};  ///< The sum of all increases, ever.
    Number freed{};      ///< The sum of all decreases, ever.
  };
  Count allocation{};            ///< Allocated blocks.
  Count segment{};               ///< Reserved runs of addresses.
  Count active{};                ///< Blocks that are allocated, or freed and awaiting a stream.
  Count inactive_split{};        ///< Free blocks that cannot be released.
  Count allocated_bytes{};       ///< In allocated blocks, with padding.
  Count reserved_bytes{};        ///< Taken from the device and not released to it.
  Count active_bytes{};          ///< In blocks that are allocated, or freed and awaiting a stream.
  Count inactive_split_bytes{};  ///< In free blocks that cannot be released, because a part of the
                                 ///< memory is active.
  Count requested_bytes{};       ///< As callers requested.
  Number num_alloc_retries{};    ///< Requests before which idle memory was released.
  Number num_ooms{};             ///< Requests refused as out of memory.
  Number num_device_alloc{};     ///< Pieces that the device gave.
  Number num_device_free{};      ///< Pieces that were released to the device.

  // PyTorch has no such figures.
  Number largest_free_bytes{};        ///< The largest request that needs no memory from the device.
  Number times_aliased{};             ///< How often pieces are mapped in alias mappings.
  Number stream_waits{};              ///< Waits of a stream for a free on another stream.
  Number metadata_bytes{};            ///< Host memory of the manager's own tables.
  Number metadata_bytes_per_block{};  ///< The part that grows with blocks, divided by the peak of
                                      ///< allocation.
};

/// The known figures under the names of torch.cuda.memory_stats(): "allocated_bytes.all.peak".
NamedStatistics torch_statistics(const MemoryStatistics& of);
/// The requested bytes under the names of RMM's statistics_resource_adaptor: "peak_bytes".
NamedStatistics rmm_statistics(const MemoryStatistics& of);
/// The known figures that PyTorch and RMM do not have.
NamedStatistics other_statistics(const MemoryStatistics& of);

/// The reverse of torch_statistics() and other_statistics(). Ignores an unknown name.
void set_statistic(MemoryStatistics& of, std::string_view name, std::uint64_t value);

}  // namespace emm
