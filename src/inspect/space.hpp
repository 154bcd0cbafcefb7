#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/lifetimes.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// Memory at its recorded address.
struct PlacedMemory {
  std::uint64_t address = 0, size = 0;  ///< Bytes granted, where the trace says so, else requested.
  AllocId id{};
  bool pending = false;  ///< Freed by its owner, and not free yet.
  bool mapped = false;   ///< Of backing memory: a piece of a range that is mapped in parts.
  bool operator==(const PlacedMemory&) const = default;
};

/// A part of the address space: a segment that the recorded manager held or, where the trace has
/// none, a run of blocks with no gap of kGapMax or more.
struct Region {
  std::uint64_t address = 0, size = 0;
  std::vector<PlacedMemory> blocks;  ///< By address; none overlap.
  std::uint64_t used = 0, pending = 0, free = 0,
                largest_free = 0;  ///< used + pending + free = size.
};

/// Device memory after an event, as the recording has its addresses.
struct Space {
  static constexpr std::uint64_t kGapMax = std::uint64_t{2} << 20;

  std::uint32_t event = 0;
  bool segments = false;        ///< The regions are segments of the recorded manager.
  std::vector<Region> regions;  ///< By address.
  std::uint64_t size = 0, used = 0, pending = 0, free = 0, largest_free = 0;  ///< In all regions.
  std::uint64_t elsewhere = 0,
                elsewhere_bytes = 0;  ///< Live, and without an address, or outside of every region.
  /// Of a trace that is not in memory: the names of its blocks, by id. Else empty, and the trace
  /// knows them.
  std::vector<std::string> names;
};

/// What is there at one moment, before it is a Space.
struct SpaceParts {
  std::vector<PlacedMemory> blocks, segments;
  std::uint64_t elsewhere = 0, elsewhere_bytes = 0;

  /// Adds the memory of an allocation of `live_bytes`, or of a segment. Was it placed?
  bool add(const PlacedMemory& memory, Lifetime::What what, std::uint64_t live_bytes);
  /// Nothing where nothing has an address. Once.
  std::optional<Space> joined(std::uint32_t event);
};

/// Nothing where the trace has no address of anything live then.
std::optional<Space> space_after(const Recording& recording, const Lifetimes& lifetimes,
                                 std::uint32_t event,
                                 std::optional<std::uint32_t> device = std::nullopt);

/// The places of at most `count` regions, the largest, by address: what is free in them matters as
/// much as what is used.
std::vector<std::size_t> largest(const Space& space, std::size_t count);

}  // namespace emm::inspect
