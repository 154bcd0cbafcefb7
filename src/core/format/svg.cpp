#include "format/svg.hpp"

#include <algorithm>
#include <bit>

#include "base/text.hpp"
#include "format/xml.hpp"

namespace emm::format {
namespace {

/// Formats with a tenth of a pixel, which is as fine as the eye sees.
std::string pixels(double value) {
  auto out = text::fixed(value, 1);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string escaped(std::string_view words) {
  return xml_escaped(text::printable(words, std::string::npos));
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title) {
  out_ = text::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "font-family=\"sans-serif\">\n<title>{}</title>\n",
      pixels(width), pixels(height), pixels(width), pixels(height), escaped(title));
  rectangle({}, width, height, "#ffffff");
}

void Svg::point(Point point) {
  out_ += pixels(point.x);
  out_ += ',';
  out_ += pixels(point.y);
  out_ += ' ';
}

void Svg::close(std::string_view element, std::string_view tip) {
  out_ += tip.empty() ? std::string("/>\n")
                      : text::format("><title>{}</title></{}>\n", escaped(tip), element);
}

void Svg::rectangle(Point corner, double width, double height, std::string_view fill,
                    std::string_view tip) {
  out_ += text::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"",
                       pixels(corner.x), pixels(corner.y), pixels(width), pixels(height), fill);
  close("rect", tip);
}

void Svg::polygon(const std::vector<Point>& points, std::string_view fill, std::string_view tip) {
  out_ += "<polygon points=\"";
  for (const auto& each : points) point(each);
  out_ += text::format("\" fill=\"{}\"", fill);
  close("polygon", tip);
}

void Svg::polyline(const std::vector<Point>& points, std::string_view stroke, double width) {
  out_ += "<polyline points=\"";
  for (const auto& each : points) point(each);
  out_ +=
      text::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>\n", stroke, pixels(width));
}

void Svg::line(Point from, Point to, std::string_view stroke, double width,
               std::string_view dashes) {
  out_ += text::format(
      "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{}\"",
      pixels(from.x), pixels(from.y), pixels(to.x), pixels(to.y), stroke, pixels(width));
  if (!dashes.empty()) out_ += text::format(" stroke-dasharray=\"{}\"", dashes);
  out_ += "/>\n";
}

void Svg::circle(Point center, double radius, std::string_view fill) {
  out_ += text::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", pixels(center.x),
                       pixels(center.y), pixels(radius), fill);
}

void Svg::text(Point at, std::string_view words, const Text& how) {
  constexpr std::string_view kAnchors[]{"start", "middle", "end"};
  out_ += text::format(
      "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\"{}>{}</text>\n",
      pixels(at.x), pixels(at.y), pixels(how.size), how.fill,
      kAnchors[static_cast<std::size_t>(how.anchor)], how.bold ? " font-weight=\"bold\"" : "",
      escaped(words));
}

std::string Svg::finish() {
  out_ += "</svg>\n";
  return std::move(out_);
}

std::vector<std::uint64_t> binary_ticks(std::uint64_t max) {
  constexpr std::uint64_t kSteps = 6;  // ticks of an axis, about
  const auto step = std::bit_ceil(std::max<std::uint64_t>(max / kSteps, 1));
  std::vector<std::uint64_t> out{0};
  while (out.back() < max && out.back() <= ~std::uint64_t{0} - step)
    out.push_back(out.back() + step);
  return out;
}

std::vector<std::uint64_t> decimal_ticks(std::uint64_t max) {
  constexpr std::uint64_t kSteps = 8;  // ticks of an axis, about
  std::uint64_t step = 1;
  for (std::uint64_t ten = 1; max / kSteps > step && ten < max; ten *= 10) {
    for (const std::uint64_t times : {1u, 2u, 5u}) {
      step = times * ten;
      if (max / kSteps <= step) break;
    }
  }
  std::vector<std::uint64_t> out;
  for (std::uint64_t at = 0; at <= max; at += step) out.push_back(at);
  return out;
}

}  // namespace emm::format
