#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/recording.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// Memory at its recorded address.
struct PlacedMemory {
  std::uint64_t address = 0, size = 0;  ///< Bytes granted if the trace says so, else requested.
  AllocId id{};
  bool pending = false;  ///< Freed by its owner, but not free yet.
  bool mapped = false;   ///< For backing memory: a piece of a range that is mapped in parts.
  bool operator==(const PlacedMemory&) const = default;
};

/// A part of the address space: a segment of the recorded manager or, if the trace has no segments,
/// a run of blocks without a gap of kGapMax or more.
struct Region {
  std::uint64_t address = 0, size = 0;
  std::vector<PlacedMemory> blocks;  ///< By address; none overlap.
  std::uint64_t used = 0, pending = 0, free = 0,
                largest_free = 0;  ///< used + pending + free = size.
};

/// Device memory after an event, at its recorded addresses.
struct AddressSpace {
  // Bytes: memory that is nearer than a page to the next is of one region.
  static constexpr std::uint64_t kGapMax = std::uint64_t{2} << 20;

  std::uint32_t event = 0;
  bool segments = false;        ///< The regions are segments of the recorded manager.
  std::vector<Region> regions;  ///< By address.
  std::uint64_t size = 0, used = 0, pending = 0, free = 0, largest_free = 0;  ///< In all regions.
  std::uint64_t elsewhere = 0,
                elsewhere_bytes = 0;  ///< Live, but without an address or outside of every region.
  /// The names of the blocks by id, if the trace is not in memory. Otherwise empty: the trace has
  /// them.
  std::vector<std::string> names;
};

/// The memory at one moment, of which an AddressSpace is made.
struct AddressSpaceParts {
  std::vector<PlacedMemory> blocks, segments;
  std::uint64_t elsewhere = 0, elsewhere_bytes = 0;

  /// Adds the memory of an allocation of `live_bytes`, or of a segment. Returns whether it was
  /// placed.
  bool add(const PlacedMemory& memory, trace::Lifetime::MemoryKind what, std::uint64_t live_bytes);
  /// Makes the AddressSpace; empty if nothing has an address. To be called once.
  std::optional<AddressSpace> joined(std::uint32_t event);
};

/// Returns the space after an event. Empty if the trace has no address of anything live then.
std::optional<AddressSpace> address_space_after(const Recording& recording,
                                                const trace::Lifetimes& lifetimes,
                                                std::uint32_t event,
                                                std::optional<std::uint32_t> device = std::nullopt);

/// Returns the indices of at most `count` regions, the largest, by address. Free bytes of a region
/// count as much as used ones.
std::vector<std::size_t> largest(const AddressSpace& space, std::size_t count);

}  // namespace emm::inspect
