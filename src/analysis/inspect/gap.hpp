#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_writer.hpp"
#include "inspect/recording.hpp"
#include "inspect/report_parts.hpp"
#include "trace/lifetimes.hpp"

namespace emm::inspect {

/// Why the recorded manager held memory that was not live.
enum class Beyond : std::uint8_t {
  rounding,           ///< The rest of the unit to which a request was rounded up.
  unsplit_remainder,  ///< The rest of a block, too small to be a block of its own.
  waiting,            ///< Freed, but kept for work on another stream.
  free_private,       ///< Free, in the pool of a graph or of a MemPool.
  free_small,         ///< Free, among blocks for small requests.
  free_large,         ///< Free, among blocks for larger requests.
  free,               ///< Free, if the recording tells nothing of pools.
};
inline constexpr std::size_t kBeyondCauses = 7;  // as many as Beyond has
/// "rounding", "free in the small pool": the words of `emmctl explain`.
std::string_view name(Beyond cause) noexcept;

/// What a model of the recorded manager knows of a recording beyond its rows. If it is empty, a
/// block is what was granted, and all free memory is of one kind.
struct KnownBlocks {
  struct KnownBlock {
    std::uint64_t bytes = 0;    ///< 0: unknown.
    std::uint64_t rounded = 0;  ///< The request's bytes after rounding.
  };
  std::vector<KnownBlock> blocks;  ///< By AllocId, for the program's memory.
  std::vector<Beyond> stores;      ///< By AllocId, for segments and blocks: the kind of free bytes.
};

/// Signed, because blocks outside of every recorded segment make the free bytes negative.
using BeyondBytes = std::array<std::int64_t, kBeyondCauses>;
/// In the order of the trace's devices().
using BeyondByDevice = std::vector<BeyondBytes>;

struct Gap {
  struct Part {
    Beyond cause = Beyond::rounding;
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;  ///< 0: not counted.
    /// The site that asked for the block or, for free memory, for which the segment was taken. None
    /// if the recording does not tell.
    SiteId site{};
    std::uint32_t device = 0;
  };
  std::uint32_t event = 0;
  std::uint64_t reserved = 0, live = 0;  ///< Bytes after the event, of all devices.
  std::vector<Part> parts;               ///< The greatest first. They sum to reserved - live.
};

/// Walks through a recording, and knows after each event what the manager held beyond the live
/// bytes, by cause and device. The constructor's arguments must outlive it.
class GapWalk {
 public:
  GapWalk(const Recording& recording, const trace::Lifetimes& lifetimes, const KnownBlocks& known);

  /// Calls passed(event, BeyondByDevice) after each event.
  template <class Passed>
  void walk(const Passed& passed) {
    lifetimes_.walk([&](std::uint32_t, AllocId id) { begin(id); },
                    [&](std::uint32_t, AllocId id) { end(id); },
                    [&](std::uint32_t event) {
                      for (; late_ != later_.size() && later_[late_].first == event; ++late_)
                        end_wait(later_[late_].second);
                      passed(event, sums_);
                    });
  }

  KnownBlocks::KnownBlock block(AllocId id) const;
  Beyond store(AllocId id) const;
  /// Returns the index of the device of `id` in the trace's devices().
  std::size_t place(AllocId id) const;

 private:
  std::int64_t& of(AllocId id, Beyond cause) {
    return sums_[place(id)][static_cast<std::size_t>(cause)];
  }
  void add_inside(AllocId id, std::int64_t sign);
  void begin(AllocId id);
  void end(AllocId id);
  void end_wait(AllocId id);

  const Recording& recording_;
  const trace::Lifetimes& lifetimes_;
  const KnownBlocks& known_;
  BeyondByDevice sums_;
  std::vector<std::pair<std::uint32_t, AllocId>> later_;  // free only after the free, by event
  std::size_t late_ = 0;
};

/// Measures the gap after an event. Empty if the recording does not say what its manager held, or
/// not all of it, so that more is live than its segments hold. REQUIRES: there is such an event.
std::optional<Gap> gap_after(const Recording& recording, const trace::Lifetimes& lifetimes,
                             const KnownBlocks& known, std::uint32_t event);

/// Writes "free in the large pool, taken for train.py:13 step, device 1": the device if the trace
/// has several, and at most `width` characters of the site.
std::string words_of(const trace::Trace& trace, const Gap::Part& part, std::size_t width,
                     bool all_frames);
/// Writes a table of the greatest parts, for a person.
std::string to_text(const Recording& recording, const Gap& gap, const Shown& shown);
/// Writes into the open object.
void write_members(format::JsonWriter& json, const trace::Trace& trace, const Gap& gap);

}  // namespace emm::inspect
