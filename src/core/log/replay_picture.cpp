#include "log/replay_picture.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/svg.hpp"

namespace emm::log {
namespace {

using format::Point;
using format::Svg;
using Anchor = Svg::Anchor;

// The picture is drawn in these SVG units.
constexpr double kWidth = 1100, kLeft = 84, kRight = 24, kTop = 78, kHeight = 340,
                 kBottom = kTop + kHeight, kPlotWidth = kWidth - kLeft - kRight, kLegend = 18,
                 kBelow = 76;
constexpr std::string_view kLive = "#9ecae1", kReserved = "#222222", kGrid = "#e4e4e4",
                           kMark = "#d62728", kQuiet = "#666666", kRecorded = "#8c6d31";

/// Converts bytes and events to pixels.
struct Scale {
  std::uint64_t events = 1, top = 1;
  double x(double event) const {
    return kLeft + kPlotWidth * event / static_cast<double>(std::max<std::uint64_t>(events, 1));
  }
  double y(std::uint64_t bytes) const {
    return kBottom - kHeight * static_cast<double>(bytes) / static_cast<double>(top);
  }
};

template <class Bytes>
std::vector<Point> steps(const std::vector<log::CoursePoint>& course, const Scale& scale,
                         const Bytes& bytes) {
  std::vector<Point> out;
  const auto width = kPlotWidth / static_cast<double>(std::max<std::size_t>(course.size(), 1));
  for (std::size_t i = 0; i < course.size(); ++i) {
    const auto left = kLeft + width * static_cast<double>(i);
    out.push_back({left, scale.y(bytes(course[i]))});
    out.push_back({left + width, scale.y(bytes(course[i]))});
  }
  return out;
}

void draw_axes(Svg& svg, const Scale& scale, const std::vector<std::uint64_t>& ticks,
               const trace::Trace& trace) {
  for (const auto bytes : ticks) {
    svg.line({kLeft, scale.y(bytes)}, {kWidth - kRight, scale.y(bytes)}, kGrid);
    svg.text({kLeft - 8, scale.y(bytes) + 4}, units::round_bytes(bytes), {.anchor = Anchor::end});
  }
  const bool has_times = trace.size() > 0 && trace[trace.size() - 1].time_ns != 0;
  for (const auto event : format::decimal_ticks(scale.events)) {
    const auto x = scale.x(static_cast<double>(event));
    svg.line({x, kBottom}, {x, kBottom + 5}, kReserved);
    svg.text({x, kBottom + 19}, text::grouped(event), {.anchor = Anchor::middle});
    if (has_times && event < trace.size()) {
      svg.text({x, kBottom + 33}, units::ns(static_cast<double>(trace[event].time_ns)),
               {.anchor = Anchor::middle, .size = 11, .fill = kQuiet});
    }
  }
  svg.text({kLeft + kPlotWidth / 2, kBottom + 51}, has_times ? "event, and its time" : "event",
           {.anchor = Anchor::middle});
}

void draw_limit(Svg& svg, const Scale& scale, std::uint64_t bytes, std::string_view what,
                std::string_view colour) {
  if (bytes == 0 || bytes > scale.top) return;
  svg.line({kLeft, scale.y(bytes)}, {kWidth - kRight, scale.y(bytes)}, colour, 1.5, "8 4");
  svg.text({kWidth - kRight, scale.y(bytes) - 6}, text::format("{} {}", what, units::bytes(bytes)),
           {.anchor = Anchor::end, .fill = colour, .bold = true});
}

void draw_failure(Svg& svg, const Scale& scale, const log::Summary& summary) {
  if (!summary.first_failure) return;
  const auto& failure = *summary.first_failure;
  const auto x = scale.x(static_cast<double>(failure.event) + 0.5);
  svg.line({x, kTop}, {x, kBottom}, kMark, 1);
  svg.polygon({{x - 6, kTop - 10}, {x + 6, kTop - 10}, {x, kTop}}, kMark, "the first failure");
  const bool right = x < kLeft + kPlotWidth / 2;
  svg.text({right ? x + 10 : x - 10, kTop - 2},
           text::format("event {}: {} of {} failed", text::grouped(failure.event),
                        trace::name(failure.op), units::bytes(failure.size)),
           {.anchor = right ? Anchor::start : Anchor::end, .fill = kMark, .bold = true});
}

}  // namespace

std::string replay_picture(const log::Summary& summary, const trace::Trace& trace,
                           std::uint64_t capacity, std::uint64_t recorded) {
  const auto& course = summary.course;
  std::uint64_t most = 1;
  for (const auto& point : course) most = std::max({most, point.live, point.reserved});
  // A limit far above the curves would flatten them, so it is left out.
  for (const auto limit : {capacity, recorded}) {
    if (limit != 0 && limit / 3 <= most) most = std::max(most, limit);
  }
  const auto ticks = format::binary_ticks(most);
  const Scale scale{.events = trace.size(), .top = ticks.back()};
  const auto title = text::format("{} on {}", summary.trace, summary.manager);
  Svg svg(kWidth, kBottom + kBelow + 2 * kLegend + 10, title);
  svg.text({kLeft, 26}, title, {.size = 16, .bold = true});
  svg.text({kLeft, 46},
           text::format("peak live {}, peak reserved {}, {} failures; {}",
                        units::bytes(summary.pass.peak_live_bytes),
                        units::bytes(summary.pass.peak_reserved_bytes),
                        text::grouped(summary.pass.failures), summary.device),
           {.fill = kQuiet});
  draw_axes(svg, scale, ticks, trace);
  auto area = steps(course, scale, [](const log::CoursePoint& point) { return point.live; });
  area.push_back({kWidth - kRight, kBottom});
  area.push_back({kLeft, kBottom});
  svg.polygon(area, kLive, "live");
  svg.polyline(steps(course, scale, [](const log::CoursePoint& point) { return point.reserved; }),
               kReserved, 1.5);
  svg.line({kLeft, kBottom}, {kWidth - kRight, kBottom}, kReserved);
  svg.line({kLeft, kTop}, {kLeft, kBottom}, kReserved);
  draw_limit(svg, scale, capacity, "capacity", kMark);
  draw_limit(svg, scale, recorded, "the recorded manager's peak", kRecorded);
  draw_failure(svg, scale, summary);
  auto y = kBottom + kBelow;
  svg.line({kLeft, y - 4}, {kLeft + 14, y - 4}, kReserved, 2);
  svg.text({kLeft + 22, y}, text::format("reserved by {}", summary.manager), {});
  y += kLegend;
  svg.rectangle({kLeft, y - 11}, 14, 13, kLive);
  svg.text({kLeft + 22, y}, "live", {});
  return svg.finish();
}

}  // namespace emm::log
