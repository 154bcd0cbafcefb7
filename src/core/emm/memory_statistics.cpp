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

struct NumberName {
  Number MemoryStatistics::*number;
  std::string_view name;
};

constexpr std::array kTorchNumbers{
    NumberName{&MemoryStatistics::num_alloc_retries, "num_alloc_retries"},
    NumberName{&MemoryStatistics::num_ooms, "num_ooms"},
    NumberName{&MemoryStatistics::num_device_alloc, "num_device_alloc"},
    NumberName{&MemoryStatistics::num_device_free, "num_device_free"},
};

constexpr std::array kOtherNumbers{
    NumberName{&MemoryStatistics::largest_free_bytes, "largest_free_bytes"},
    NumberName{&MemoryStatistics::times_aliased, "mapped_again"},
    NumberName{&MemoryStatistics::stream_waits, "stream_waits"},
    NumberName{&MemoryStatistics::metadata_bytes, "metadata_bytes"},
    NumberName{&MemoryStatistics::metadata_bytes_per_block, "metadata_bytes_per_block"},
};

constexpr std::array kMembers{&Count::current, &Count::peak, &Count::allocated, &Count::freed};

void add(NamedStatistics& to, std::string_view name, const Number& number) {
  if (number) to.push_back({name, *number});
}

}  // namespace

NamedStatistics torch_statistics(const MemoryStatistics& of) {
  NamedStatistics all;
  for (const auto& [count, names] : kTorchCounts) {
    for (std::size_t at = 0; at < names.size(); ++at) add(all, names[at], of.*count.*kMembers[at]);
  }
  for (const auto& [number, name] : kTorchNumbers) add(all, name, of.*number);
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
  for (const auto& [number, name] : kOtherNumbers) add(all, name, of.*number);
  return all;
}

void set_statistic(MemoryStatistics& of, std::string_view name, std::uint64_t value) {
  for (const auto& [count, names] : kTorchCounts) {
    for (std::size_t at = 0; at < names.size(); ++at) {
      if (names[at] == name) of.*count.*kMembers[at] = value;
    }
  }
  const auto look = [&](const auto& numbers) {
    for (const auto& [number, known] : numbers) {
      if (known == name) of.*number = value;
    }
  };
  look(kTorchNumbers);
  look(kOtherNumbers);
}

}  // namespace emm
