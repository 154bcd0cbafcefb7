#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/rank.hpp"

namespace emm::fleet {

/// Where two ranks part: the first request of one that the other does not make about then. Neither
/// a swap of neighbours parts them, nor the end of the shorter recording.
struct Parting {
  std::size_t rank = 0, other = 0;  ///< Places in Comparison::ranks.
  std::optional<Request> here, there;
  std::uint64_t alike = 0;  ///< Requests before it.
};

/// What makes the tightest rank's device hold more.
enum class Reason : std::uint8_t {
  nothing,  ///< It holds as much as the others do.
  live,     ///< What the program had live.
  idle,     ///< What its manager held beside that.
  outside,  ///< What others on the device held, as libraries and contexts.
};
std::string_view name(Reason reason) noexcept;

/// What a rank has at its peak and the others have not, of one call site and size, or of one call
/// site.
struct Excess {
  std::uint32_t site = 0;
  std::uint64_t size = 0;                            ///< 0: of several sizes.
  std::uint64_t count = 0, bytes = 0;                ///< Of the rank.
  std::uint64_t others_count = 0, others_bytes = 0;  ///< The median of the others.
  std::uint64_t more() const noexcept { return bytes - others_bytes; }
};

/// As many allocations at the peak as the others have, and larger ones: longer sequences, a larger
/// batch or a larger part.
struct Larger {
  std::uint64_t allocations = 0, others_allocations = 0;  ///< At the peak; the others' median.
  std::uint64_t own_sizes = 0;     ///< Those of them that have a size which no other rank asks for.
  std::uint64_t bytes = 0;         ///< Of these.
  std::uint64_t others_bytes = 0;  ///< The same of the others, each at its own peak; their median.
};

/// It has more live than the others in small parts of the recording alone.
struct Spike {
  std::size_t parts = 0;        ///< Of Rank::kParts.
  std::uint64_t elsewhere = 0;  ///< What it has live at most in the other parts.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> events;  ///< From and to which it is so.
};

/// What several ranks of one run have in common and what tells them apart.
struct Comparison {
  std::string name;
  std::vector<Rank> ranks;                    ///< Those that were read and those that were not.
  std::vector<std::uint64_t> missing;         ///< Ranks without a file.
  std::vector<std::string> missing_places{};  ///< The same of labels as "1/3".
  std::optional<std::size_t> tightest;        ///< Empty where no rank was read.
  std::vector<std::size_t> as_tight;          ///< Others that hold as much.
  std::optional<std::size_t> next;            ///< The one after it, or after those.
  bool by_room = false;  ///< The tightest is that with least room; else that which holds most.
  Reason reason = Reason::nothing;
  std::uint64_t reason_bytes = 0;  ///< Of that, more than the median of the others.
  Reason also = Reason::nothing;   ///< What makes it hold more besides.
  std::uint64_t also_bytes = 0;
  std::uint64_t median_used = 0;  ///< Of the others.
  std::vector<Excess> sites;      ///< By call site, most first.
  std::vector<Excess> keys;       ///< By call site and size.
  std::vector<Excess> grown;      ///< The same of what the manager took from the device.
  std::optional<Larger> larger;
  std::optional<Spike> spike;
  std::vector<std::optional<Parting>> partings;  ///< Of each rank from the tightest.
  std::optional<Parting> parting;                ///< From the rank that is most like it.
  std::vector<std::vector<std::size_t>> alike;   ///< Ranks that ask for the same to the end.
  std::uint64_t even = 0;  ///< What each device would hold if all held the same.

  bool is_whole() const noexcept;
};

Comparison compare(std::string name, std::vector<Rank> ranks, std::vector<std::uint64_t> missing);

struct RanksShown {
  std::size_t top = 10;
};
std::string to_text(const Comparison& comparison, const Sites& sites, const RanksShown& shown);
/// Says which rank is the tightest in each of several sets of recordings, as of several steps.
std::string tightest_of(const std::vector<const Comparison*>& sets, const Sites& sites);
/// "emmctl.ranks/1", of all sets.
std::string to_json(const std::vector<Comparison>& sets, const Sites& sites,
                    const RanksShown& shown);

}  // namespace emm::fleet
