#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/holding.hpp"
#include "inspect/recording.hpp"

namespace emm::inspect {

/// "6.08 GiB (6,523,619,160 bytes)"; below a KiB "512 bytes".
std::string bytes_in_full(std::uint64_t bytes);
/// "1 segment", "1,204 segments".
std::string counted(std::uint64_t count, std::string_view what);
/// "after event 1,204 (line 1,206, 1.20 ms)", with what the trace has of it.
std::string place_of(const trace::Trace& trace, std::uint32_t event);

/// The frames of a site that tell a reader most: from the innermost one of the program's own on, at most `count`.
/// Python's before others, those outside of installed packages before those inside.
std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site, std::size_t count);
/// The part of a stack that those two use, at most `count` frames: the innermost one of Python, and from the program's own
/// on.
std::vector<std::string_view> telling_part(std::span<const std::string_view> frames, std::size_t count);
/// The first of them and what it called innermost, at most `width` characters: "train.py:13 step, in adam.py:178 step";
/// "(no call site)".
std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width);

/// Lists of what is held, the `count` greatest, as tables, with what is left out added up.
std::string sites_table(const trace::Trace& trace, const BySite& sites, std::size_t count, std::size_t frames);
std::string sizes_table(const BySize& sizes, std::size_t count);

}  // namespace emm::inspect
