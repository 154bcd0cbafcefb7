#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counted.hpp"
#include "format/json_writer.hpp"
#include "inspect/held_memory.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// How much to show of each list.
struct Shown {
  std::size_t top = 10;
  std::size_t frames = 3;
  bool all_frames = false;  ///< Show whole call stacks, as recorded.
  bool blocks = false;      ///< Curves may be drawn in Unicode's block elements.
};

/// Writes "6.08 GiB (6,523,619,160 bytes)"; below a KiB "512 bytes".
std::string bytes_in_full(std::uint64_t bytes);
/// Writes three digits; where they do not tell it from `other`, what it is more or less than that.
std::string size_beside(std::uint64_t bytes, std::uint64_t other);
/// Writes a time, or "-" where it is not known.
std::string time_or_dash(const std::optional<std::uint64_t>& ns);
/// Writes like size_beside() how much is needed, rounded up.
std::string need_beside(std::uint64_t bytes, std::uint64_t other);
using text::counted;
/// Writes "after event 1,204 (line 1,206, 1.20 ms)": the line and the time if the trace has them.
std::string place_of(const trace::Trace& trace, std::uint32_t event);

/// Returns the shown frames of a site (trace::CallSites chooses them), at most `shown.frames`, or
/// all frames as recorded.
std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site, const Shown& shown);
/// Returns the part of a stack by which sites are shown, at most `count` frames: the innermost
/// frame of Python, and the shown frames.
std::vector<std::string_view> telling_part(std::span<const std::string_view> frames,
                                           std::size_t count);
/// Answers whether any call site is known.
bool sited(const BySite& sites);
/// Names a site by its first shown frame and the innermost frame that this called: "train.py:13
/// step, in adam.py:178 step"; or "(no call site)". At most `width` characters.
std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width,
                      bool all_frames = false);

/// Sites that are shown alike.
struct ShownSite {
  std::uint64_t bytes = 0, count = 0;
  SiteId site{};  ///< The one with most bytes.
};
struct ShownSites {
  std::vector<ShownSite> all;         ///< By bytes, the most first.
  std::vector<std::uint32_t> places;  ///< For each site that was given, its index in `all`.
};
ShownSites shown_sites(const trace::Trace& trace, const BySite& sites, const Shown& shown);

/// Writes a member: an array of at most `most` sites, each with its bytes, its count, "call_site",
/// the first shown frame or null, and "frames", all frames.
void sites_to_json(format::JsonWriter& json, std::string_view name, const trace::Trace& trace,
                   const BySite& sites, std::size_t most);
/// Returns the first elements, at most `most`.
template <class T>
std::span<const T> first_of(const std::vector<T>& all, std::size_t most) {
  return std::span(all).first(std::min(all.size(), most));
}

/// Write what is held as tables: the `shown.top` greatest entries, and the sum of the others.
std::string sites_table(const trace::Trace& trace, const BySite& sites, const Shown& shown);
std::string sizes_table(const BySize& sizes, std::size_t count);

}  // namespace emm::inspect
