#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/members.hpp"
#include "fleet/rank.hpp"
#include "format/brief.hpp"

namespace emm::fleet {

/// Where two ranks part: the first request of one that the other does not make near that place.
/// Swapped neighbours do not part them, nor does the end of the shorter recording.
struct Parting {
  std::size_t rank = 0, other = 0;  ///< Indices in Comparison::ranks.
  std::optional<Request> here, there;
  std::uint64_t alike = 0;  ///< Number of requests before it.
};

/// Why the tightest rank's device holds more.
enum class Reason : std::uint8_t {
  nothing,  ///< It holds as much as the others do.
  live,     ///< What the program had live.
  idle,     ///< What its manager held besides.
  outside,  ///< What others on the device held, such as libraries and contexts.
};
std::string_view name(Reason reason) noexcept;

/// What a rank has at its peak beyond the others, from one call site, or from one call site and
/// with one size.
struct Excess {
  std::uint32_t site = 0;
  std::uint64_t size = 0;                            ///< 0 if of several sizes.
  std::uint64_t count = 0, bytes = 0;                ///< What this rank has.
  std::uint64_t others_count = 0, others_bytes = 0;  ///< The median of the others.
  std::uint64_t more() const noexcept { return bytes - others_bytes; }
};
EMM_MEMBERS_OF(Excess, size, count, bytes, others_count, others_bytes)

/// The rank has as many allocations at the peak as the others, but larger ones: longer sequences, a
/// larger batch or a larger part.
struct Larger {
  std::uint64_t allocations = 0, others_allocations = 0;  ///< At the peak; the others' median.
  std::uint64_t own_sizes = 0;     ///< Those whose size no other rank requests.
  std::uint64_t bytes = 0;         ///< Their bytes.
  std::uint64_t others_bytes = 0;  ///< Likewise for the others, each at its own peak; their median.
};
EMM_MEMBERS_OF(Larger, allocations, others_allocations, own_sizes, bytes, others_bytes)

/// The rank has more live than the others only in small parts of the recording.
struct Spike {
  std::size_t parts = 0;        ///< How many of Rank::kParts.
  std::uint64_t elsewhere = 0;  ///< The most that it has live in the other parts.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> events;  ///< First and last of each stretch.
};

/// What several ranks of one run have in common, and what tells them apart.
struct Comparison {
  std::string name;
  std::vector<Rank> ranks;                    ///< Read or not.
  std::vector<std::uint64_t> missing;         ///< Ranks without a file.
  std::vector<std::string> missing_places{};  ///< Likewise, as labels such as "1/3".
  std::optional<std::size_t> tightest;        ///< Empty if no rank was read.
  std::vector<std::size_t> as_tight;          ///< Others that hold as much.
  std::optional<std::size_t> next;            ///< The next after these.
  bool by_room = false;  ///< The tightest is the one with least room; else the one that holds most.
  Reason reason = Reason::nothing;
  std::uint64_t reason_bytes = 0;  ///< What it has for that reason beyond the median of the others.
  Reason also = Reason::nothing;   ///< A second reason.
  std::uint64_t also_bytes = 0;
  std::uint64_t median_used = 0;  ///< The others' median.
  std::vector<Excess> sites;      ///< By call site, most first.
  std::vector<Excess> keys;       ///< By call site and size.
  std::vector<Excess> grown;      ///< Likewise, of what the manager took from the device.
  std::optional<Larger> larger;
  std::optional<Spike> spike;
  std::vector<std::optional<Parting>> partings;  ///< Where each rank parts from the tightest.
  std::optional<Parting> parting;                ///< From the rank that is most like the tightest.
  std::vector<std::vector<std::size_t>> alike;   ///< Ranks with the same requests to the end.
  std::uint64_t even = 0;  ///< What each device would hold if all held as much.

  bool is_whole() const noexcept;
};

Comparison compare(std::string name, std::vector<Rank> ranks, std::vector<std::uint64_t> missing);

struct RanksShown {
  std::size_t top = 10;
};
/// Says in one breath which rank is the tightest, and why.
format::Brief brief(const std::vector<Comparison>& runs, const Sites& sites);
std::string to_text(const Comparison& comparison, const Sites& sites, const RanksShown& shown);
/// Says which rank is the tightest in several sets of recordings, such as several steps.
std::string tightest_of(const std::vector<const Comparison*>& sets, const Sites& sites);
/// "emmctl.ranks/1", of all sets.
std::string to_json(const std::vector<Comparison>& sets, const Sites& sites,
                    const RanksShown& shown);

}  // namespace emm::fleet
