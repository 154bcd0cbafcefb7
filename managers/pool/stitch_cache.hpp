#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "driver/types.hpp"
#include "managers/pool/block_map.hpp"
#include "managers/pool/span_ends.hpp"
#include "managers/pool/span_list.hpp"

namespace emm::pool {

/// Spans mapped a second time, one behind the other: a stitched block lies across some of them.
///
/// While stitching is frequent, the pool maps new spans once only, in front of the others: they are
/// then at home in the mapping.
struct AliasMapping {
  DevicePtr base{};
  std::vector<std::uint32_t> spans{};  ///< Two or more.
  std::uint64_t size = 0;              ///< Bytes of all spans,
  std::uint64_t middle = 0;            ///< of those between the first and the last,
  std::uint64_t home = 0;              ///< and of those that are at home,
  std::uint32_t at_home = 0;           ///< which are the first so many.
  std::uint32_t grown = 0;             ///< How many of them the arena grew by for it.
  std::uint64_t generation = 0;        ///< Which generation used it last.

  /// The sums, of `spans` in this order. Those from index `first_new` on are new.
  static AliasMapping of(std::vector<std::uint32_t> spans, const SpanList& list,
                         std::uint32_t first_new);
  /// Says that the spans which lie one behind the other from the first on are at home.
  void begin_at_home(const SpanList& list);
  /// What is mapped besides.
  std::span<const std::uint32_t> aliased() const noexcept {
    return std::span(spans).subspan(at_home);
  }
  DevicePtr aliased_address() const noexcept { return base + home; }
};

/// A run of addresses in the arena that a stitched block consists of, and a block that was free
/// there: the block, or one behind it, still holds the run when it is taken.
struct StitchedPart {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint32_t block = kNone;
};

/// How a request was served: the same request in the same state is served so again.
struct StitchRecord {
  std::uint64_t wanted = 0;
  std::uint32_t mapping = kNone;    ///< kNone: no mapping held it, and the arena grew.
  std::uint32_t active_before = 0;  ///< How many spans were active,
  std::uint32_t active_needed = 0;  ///< and how many had to be.
  DevicePtr address{};
};

/// Which spans a mapping may need that are inactive.
enum class Inactive : std::uint8_t {
  as_grown,  ///< Only those that the arena grew by for it: so they return when the same requests
             ///< do.
  any,
};

/// Does `mapping` hold a block of `wanted` bytes? Its first span must be free at its end, its last
/// one at its start, and those between whole; they must not hold it by themselves, and the inactive
/// ones must be next. `granule` is the smallest part that a block has of a span.
bool holds(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
           const SpanEnds& ends, std::uint64_t granule, Inactive inactive) noexcept;

/// Places a block of `wanted` bytes in a mapping that holds it and whose spans are active. Returns
/// its address, and writes its parts. Of the first and the last span, the one that is not whole is
/// used up first, so that a whole span stays as whole as it can.
DevicePtr place_in(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
                   const SpanEnds& ends, std::uint64_t granule, std::vector<StitchedPart>& parts);

/// The alias mappings of an arena, and what the last generation stitched. Knows no driver.
///
/// A mapping stays when its stitched block is freed, and the oldest that holds a later request
/// serves it: the one that was made when the same requests came before. So a program that repeats
/// itself soon maps nothing. The history goes further: it replays the last generation without a
/// scan of what is free, as long as each request and state is the one that came before.
class StitchCache {
 public:
  // Mappings
  const std::vector<AliasMapping>& mappings() const noexcept { return mappings_; }
  const AliasMapping& operator[](std::uint32_t mapping) const noexcept {
    return mappings_[mapping];
  }
  /// How many spans all mappings are of, together.
  std::size_t mapped_spans() const noexcept;
  std::uint32_t add(AliasMapping mapping) {
    mappings_.push_back(std::move(mapping));
    return static_cast<std::uint32_t>(mappings_.size() - 1);
  }
  /// The oldest that holds `wanted`; kNone where none does.
  std::uint32_t find(std::uint64_t wanted, const SpanList& spans, const SpanEnds& ends,
                     std::uint64_t granule, Inactive inactive) const noexcept;
  /// Notes that `generation` uses the mapping. Returns its spans, if for the first time; else 0.
  std::uint64_t use_in(std::uint64_t generation, std::uint32_t mapping) noexcept;

  // History
  /// The next stitched block of the last generation, if that was for as much in the same state.
  const StitchRecord* expected(std::uint64_t wanted, std::uint32_t active) const noexcept {
    const auto* next = next_of_last(wanted, active);
    return next != nullptr && next->mapping != kNone ? next : nullptr;
  }
  std::span<const StitchedPart> expected_parts() const noexcept;
  /// The last generation looked for a mapping in vain here, and grew.
  bool expects_growth(std::uint64_t wanted, std::uint32_t active) const noexcept {
    const auto* next = next_of_last(wanted, active);
    return next != nullptr && next->mapping == kNone;
  }
  void remember(const StitchRecord& record, std::span<const StitchedPart> parts);
  void begin_generation() noexcept;
  /// Did this generation stitch anything?
  bool has_stitched() const noexcept { return !now_.parts.empty(); }

  /// Takes out the mappings of spans that are gone, which the caller unmaps. Forgets the history.
  std::vector<AliasMapping> take_mappings_of(const std::vector<std::uint32_t>& gone,
                                             std::size_t span_count);
  /// After SpanList::erase().
  void rename_spans(const std::vector<std::uint32_t>& new_index) noexcept;

  std::uint64_t metadata_bytes() const noexcept;

 private:
  struct History {
    std::vector<StitchRecord> records;
    std::vector<std::uint32_t> parts_end;  ///< For each record, the index behind its last part.
    std::vector<StitchedPart> parts;
    void clear() noexcept {
      records.clear();
      parts_end.clear();
      parts.clear();
    }
    std::uint64_t metadata_bytes() const noexcept;
  };
  /// The next record of the last generation, if its request and state are these.
  const StitchRecord* next_of_last(std::uint64_t wanted, std::uint32_t active) const noexcept {
    const auto at = now_.records.size();
    if (at >= last_.records.size()) return nullptr;
    const auto& next = last_.records[at];
    return next.wanted == wanted && next.active_before == active ? &next : nullptr;
  }

  std::vector<AliasMapping> mappings_;  ///< In the order in which they were made.
  History last_;
  History now_;
};

}  // namespace emm::pool
