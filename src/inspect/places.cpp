#include "inspect/places.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/columns.hpp"

namespace emm::inspect {
namespace {

constexpr std::size_t kFrameWidth = 76;

/// The end of a path says more than its beginning.
std::string shortened(const std::string& frame, std::size_t width) {
  if (frame.size() <= width) return frame;
  const auto place = std::min(frame.find(' '), frame.size());
  if (frame.size() - place + 20 > width) return frame.substr(0, width - 3) + "...";  // the name is what is long
  return "..." + frame.substr(frame.size() - (width - 3));
}

bool is_python(std::string_view frame) { return frame.find(".py:") != frame.npos; }

/// Which frame is the innermost of the program's own: Python's before others, those outside of installed packages before
/// those inside. 0 where there are none.
template <class Frames>
std::size_t own_frame(const Frames& frames) {
  const auto own = [](std::string_view frame) {
    return is_python(frame) && frame.find("-packages/") == frame.npos && frame.find("/lib/python") == frame.npos;
  };
  auto from = std::find_if(frames.begin(), frames.end(), own);
  if (from == frames.end()) from = std::find_if(frames.begin(), frames.end(), is_python);
  return from == frames.end() ? 0 : static_cast<std::size_t>(from - frames.begin());
}

template <class Key, class Named>
std::vector<std::vector<std::string>> rows_of(const std::vector<Group<Key>>& groups, std::size_t count, const Named& named) {
  std::vector<std::vector<std::string>> rows;
  std::uint64_t left = 0, left_bytes = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i >= count) {
      left += groups[i].count;
      left_bytes += groups[i].bytes;
      continue;
    }
    named(groups[i], rows);
  }
  if (groups.size() > count) {
    rows.push_back({units::bytes(left_bytes), text::grouped(left), text::format("... and {} more", groups.size() - count)});
  }
  return rows;
}

}  // namespace

std::string bytes_in_full(std::uint64_t bytes) {
  if (bytes < 1024) return text::format("{} bytes", bytes);
  return text::format("{} ({} bytes)", units::bytes(bytes), text::grouped(bytes));
}

std::string counted(std::uint64_t count, std::string_view what) {
  return text::format("{} {}{}", text::grouped(count), what, count == 1 ? "" : "s");
}

std::string place_of(const trace::Trace& trace, std::uint32_t event) {
  auto out = text::format("after event {}", text::grouped(event));
  if (event >= trace.size()) return out;
  std::vector<std::string> more;
  if (trace[event].line != 0) more.push_back(text::format("line {}", text::grouped(trace[event].line)));
  if (trace[event].time_ns != 0) more.push_back(units::ns(static_cast<double>(trace[event].time_ns)));
  if (!more.empty()) out += text::format(" ({})", text::join(more));
  return out;
}

std::vector<std::string> telling_frames(const trace::Trace& trace, SiteId site, std::size_t count) {
  const auto& frames = trace.site_frames(site);
  const auto from = own_frame(frames);
  const auto left = frames.size() - from;
  const auto begin = frames.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(std::min(count, left))};
}

std::vector<std::string_view> telling_part(std::span<const std::string_view> frames, std::size_t count) {
  const auto own = own_frame(frames);
  const auto inner = static_cast<std::size_t>(std::find_if(frames.begin(), frames.end(), is_python) - frames.begin());
  std::vector<std::string_view> part;
  if (inner < own) part.push_back(frames[inner]);
  for (auto i = own; i < frames.size() && part.size() < count; ++i) part.push_back(frames[i]);
  return part;
}

std::string site_name(const trace::Trace& trace, SiteId site, std::size_t width) {
  const auto& frames = trace.site_frames(site);
  if (frames.empty()) return "(no call site)";
  const auto own = own_frame(frames);
  auto inner = static_cast<std::size_t>(std::find_if(frames.begin(), frames.end(), is_python) - frames.begin());
  if (inner == frames.size()) inner = 0;
  if (inner >= own) return shortened(frames[own], width);
  const auto& frame = frames[inner];
  const auto path = frame.substr(0, frame.find(' '));
  const auto slash = path.rfind('/');
  return shortened(text::format("{}, in {}", shortened(frames[own], width / 2), frame.substr(slash == std::string::npos ? 0 : slash + 1)),
                   width);
}

std::string sites_table(const trace::Trace& trace, const BySite& sites, std::size_t count, std::size_t frames) {
  return columns("rrl", rows_of(sites, count, [&](const auto& group, auto& rows) {
    rows.push_back({units::bytes(group.bytes), text::grouped(group.count), site_name(trace, group.key, kFrameWidth)});
    const auto more = telling_frames(trace, group.key, frames);
    for (std::size_t i = 1; i < more.size(); ++i) rows.push_back({"", "", "  " + shortened(more[i], kFrameWidth - 2)});
  }));
}

std::string sizes_table(const BySize& sizes, std::size_t count) {
  return columns("rrl", rows_of(sizes, count, [](const auto& group, auto& rows) {
    rows.push_back({units::bytes(group.bytes), text::grouped(group.count), text::format("of {} bytes", text::grouped(group.key))});
  }));
}

}  // namespace emm::inspect
