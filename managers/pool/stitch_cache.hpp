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

/// A second range of addresses for spans, one behind the other. A stitched block lies across some
/// of them.
///
/// While stitching is frequent, the pool begins a mapping at the first span's own address: that
/// span and the spans that follow it by address are mapped only once, and are *at home* in the
/// mapping. The other spans are mapped a second time, behind them.
struct AliasMapping {
  DevicePtr base{};
  std::vector<std::uint32_t> spans{};  ///< Two or more.
  std::uint64_t size = 0;              ///< Bytes of all spans.
  std::uint64_t middle = 0;            ///< Bytes of the spans between the first and the last.
  std::uint64_t home = 0;              ///< Bytes of the spans that are at home.
  std::uint32_t at_home = 0;           ///< The number of first spans that are at home.
  std::uint32_t grown = 0;             ///< The number of spans that were made for this mapping.
  std::uint64_t generation = 0;        ///< The generation that used it last.

  /// A mapping of `spans`. Those with an index from `first_new` on were made for it.
  static AliasMapping of(std::vector<std::uint32_t> spans, const SpanList& list,
                         std::uint32_t first_new);
  /// Begins the mapping at its first span. This span and those that follow it by address are at
  /// home.
  void begin_at_home(const SpanList& list);
  /// The spans that are not at home: they are mapped a second time here.
  std::span<const std::uint32_t> aliased() const noexcept {
    return std::span(spans).subspan(at_home);
  }
  DevicePtr aliased_address() const noexcept { return base + home; }
};

/// A part of a stitched block: a run of the arena's addresses, and the free block that held the run
/// when the part was found. When the part is taken, a block behind that one may hold it.
struct StitchedPart {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint32_t block = kNone;
};

/// How stitching served a request. The same request in the same state is served the same way again.
struct StitchRecord {
  std::uint64_t wanted = 0;
  std::uint32_t mapping = kNone;    ///< kNone: no mapping held it, and the arena grew.
  std::uint32_t active_before = 0;  ///< The number of active spans when the request came.
  std::uint32_t active_needed = 0;  ///< The number of spans that had to be active to serve it.
  DevicePtr address{};
};

/// Which inactive spans a mapping may have.
enum class Inactive : std::uint8_t {
  as_grown,  ///< Only spans that were made for it: the requests that made it have come again.
  any,
};

/// Answers whether `mapping` can hold a block of `wanted` bytes. The first span must be free at its
/// end, the last one at its start, and the spans between them wholly. The spans between alone must
/// not suffice. Inactive spans must be the next to become active. A block takes at least `granule`
/// bytes of each span.
bool holds(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
           const SpanEnds& ends, std::uint64_t granule, Inactive inactive) noexcept;

/// Places a block of `wanted` bytes in a mapping that holds it and whose spans are active. Returns
/// its address, and writes its parts. If only one of the outer spans is wholly free, the block
/// takes as much as it can from the other, so that the free one keeps the most.
DevicePtr place_in(const AliasMapping& mapping, std::uint64_t wanted, const SpanList& spans,
                   const SpanEnds& ends, std::uint64_t granule, std::vector<StitchedPart>& parts);

/// The alias mappings of an arena, and what the last generation stitched. Knows no driver.
///
/// A mapping stays when its stitched block is freed. The oldest mapping that can hold a later
/// request serves it, because that one was made when the same requests came before. So a program
/// that repeats itself soon maps nothing. The history saves the scan of free blocks, too: as long
/// as each request and state equals the last generation's, it replays what that generation did.
class StitchCache {
 public:
  // Mappings
  const std::vector<AliasMapping>& mappings() const noexcept { return mappings_; }
  const AliasMapping& operator[](std::uint32_t mapping) const noexcept {
    return mappings_[mapping];
  }
  /// The sum of the span counts of all mappings.
  std::size_t mapped_spans() const noexcept;
  std::uint32_t add(AliasMapping mapping) {
    mappings_.push_back(std::move(mapping));
    return static_cast<std::uint32_t>(mappings_.size() - 1);
  }
  /// The oldest mapping that holds `wanted` bytes; kNone if none does.
  std::uint32_t find(std::uint64_t wanted, const SpanList& spans, const SpanEnds& ends,
                     std::uint64_t granule, Inactive inactive) const noexcept;
  /// Notes that `generation` uses the mapping. Returns the number of its spans at the first use in
  /// that generation, and 0 later.
  std::uint64_t use_in(std::uint64_t generation, std::uint32_t mapping) noexcept;

  // History
  /// The last generation's next record, if it is a stitched block for the same request in the same
  /// state; else null.
  const StitchRecord* expected(std::uint64_t wanted, std::uint32_t active) const noexcept {
    const auto* next = next_of_last(wanted, active);
    return next != nullptr && next->mapping != kNone ? next : nullptr;
  }
  std::span<const StitchedPart> expected_parts() const noexcept;
  /// Answers whether the last generation found no mapping here and grew.
  bool expects_growth(std::uint64_t wanted, std::uint32_t active) const noexcept {
    const auto* next = next_of_last(wanted, active);
    return next != nullptr && next->mapping == kNone;
  }
  void remember(const StitchRecord& record, std::span<const StitchedPart> parts);
  void begin_generation() noexcept;
  /// Answers whether this generation stitched anything.
  bool has_stitched() const noexcept { return !now_.parts.empty(); }

  /// Takes out the mappings that have a span of `gone`, and forgets the history. The caller unmaps
  /// them.
  std::vector<AliasMapping> take_mappings_of(const std::vector<std::uint32_t>& gone,
                                             std::size_t span_count);
  /// Forgets what the last generations stitched; keeps the mappings.
  void forget_history() noexcept {
    last_ = {};
    now_ = {};
  }
  /// Takes over the new indexes that SpanList::erase() or deactivate() returned.
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
  /// The last generation's next record, if it has this request and state.
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
