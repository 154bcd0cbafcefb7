#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/json_writer.hpp"
#include "inspect/holding.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// How much of each list to show.
struct Shown {
  std::size_t top = 10;
  std::size_t frames = 3;
  bool all_frames = false;  ///< Call stacks whole, as recorded.
  bool blocks = false;      ///< Curves may be drawn in Unicode's block elements.
};

/// "6.08 GiB (6,523,619,160 bytes)"; below a KiB "512 bytes".
std::string bytes_in_full(std::uint64_t bytes);
/// "1 segment", "1,204 segments".
std::string counted(std::uint64_t count, std::string_view what);
/// "after event 1,204 (line 1,206, 1.20 ms)", with what the trace has of it.
std::string place_of(const trace::Trace& trace, std::uint32_t event);

/// The frames of a site that are shown (trace::CallSites says which), at most `shown.frames`, or
/// all as recorded.
std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site, const Shown& shown);
/// The part of a stack that sites are shown by, at most `count` frames: the innermost one of
/// Python, and those that are shown.
std::vector<std::string_view> telling_part(std::span<const std::string_view> frames,
                                           std::size_t count);
/// The first frame that is shown and what it called innermost, at most `width` characters:
/// "train.py:13 step, in adam.py:178 step"; "(no call site)".
std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width,
                      bool all_frames = false);

/// Sites that are shown alike, as one.
struct ShownSite {
  std::uint64_t bytes = 0, count = 0;
  SiteId site{};  ///< That of them with most bytes.
};
struct ShownSites {
  std::vector<ShownSite> all;         ///< By bytes, the most first.
  std::vector<std::uint32_t> places;  ///< For each site that was given, its index in `all`.
};
ShownSites shown_sites(const trace::Trace& trace, const BySite& sites, const Shown& shown);

/// Writes members of an open object: "call_site", the frame that is shown first, null without; and
/// "frames", all.
void site_to_json(format::JsonWriter& json, const trace::Trace& trace, SiteId site);

/// Lists of what is held, the greatest `shown.top`, as tables, with what is left out added up.
std::string sites_table(const trace::Trace& trace, const BySite& sites, const Shown& shown);
std::string sizes_table(const BySize& sizes, std::size_t count);

}  // namespace emm::inspect
