#include "emm/memory_statistics.hpp"

#include <array>

namespace emm {
namespace {

using Number = MemoryStatistics::Number;
using Count = MemoryStatistics::Count;

struct CountNames {
  Count MemoryStatistics::*count;
  std::array<std::string_view, 4> names;  ///< current, peak, allocated, freed
};

constexpr std::array kTorchCounts{
    CountNames{&MemoryStatistics::allocation,
               {"allocation.all.current", "allocation.all.peak", "allocation.all.allocated",
                "allocation.all.freed"}},
    CountNames{
        &MemoryStatistics::segment,
        {"segment.all.current", "segment.all.peak", "segment.all.allocated", "segment.all.freed"}},
    CountNames{
        &MemoryStatistics::active,
        {"active.all.current", "active.all.peak", "active.all.allocated", "active.all.freed"}},
    CountNames{&MemoryStatistics::inactive_split,
               {"inactive_split.all.current", "inactive_split.all.peak",
                "inactive_split.all.allocated", "inactive_split.all.freed"}},
    CountNames{&MemoryStatistics::allocated_bytes,
               {"allocated_bytes.all.current", "allocated_bytes.all.peak",
                "allocated_bytes.all.allocated", "allocated_bytes.all.freed"}},
    CountNames{&MemoryStatistics::reserved_bytes,
               {"reserved_bytes.all.current", "reserved_bytes.all.peak",
                "reserved_bytes.all.allocated", "reserved_bytes.all.freed"}},
    CountNames{&MemoryStatistics::active_bytes,
               {"active_bytes.all.current", "active_bytes.all.peak", "active_bytes.all.allocated",
                "active_bytes.all.freed"}},
    CountNames{&MemoryStatistics::inactive_split_bytes,
               {"inactive_split_bytes.all.current", "inactive_split_bytes.all.peak",
                "inactive_split_bytes.all.allocated", "inactive_split_bytes.all.freed"}},
    CountNames{&MemoryStatistics::requested_bytes,
               {"requested_bytes.all.current", "requested_bytes.all.peak",
                "requested_bytes.all.allocated", "requested_bytes.all.freed"}},
};

void add(NamedStatistics& to, std::string_view name, const Number& number) {
  if (number) to.push_back({name, *number});
}

}  // namespace

NamedStatistics torch_statistics(const MemoryStatistics& of) {
  NamedStatistics all;
  for (const auto& [member, names] : kTorchCounts) {
    const auto& count = of.*member;
    add(all, names[0], count.current);
    add(all, names[1], count.peak);
    add(all, names[2], count.allocated);
    add(all, names[3], count.freed);
  }
  add(all, "num_alloc_retries", of.num_alloc_retries);
  add(all, "num_ooms", of.num_ooms);
  add(all, "num_device_alloc", of.num_device_alloc);
  add(all, "num_device_free", of.num_device_free);
  return all;
}

NamedStatistics rmm_statistics(const MemoryStatistics& of) {
  NamedStatistics all;
  add(all, "current_bytes", of.requested_bytes.current);
  add(all, "current_count", of.allocation.current);
  add(all, "peak_bytes", of.requested_bytes.peak);
  add(all, "peak_count", of.allocation.peak);
  add(all, "total_bytes", of.requested_bytes.allocated);
  add(all, "total_count", of.allocation.allocated);
  return all;
}

NamedStatistics other_statistics(const MemoryStatistics& of) {
  NamedStatistics all;
  add(all, "largest_free_bytes", of.largest_free_bytes);
  add(all, "mapped_again", of.mapped_again);
  add(all, "metadata_bytes", of.metadata_bytes);
  add(all, "metadata_bytes_per_block", of.metadata_bytes_per_block);
  return all;
}

}  // namespace emm
