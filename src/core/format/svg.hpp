#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::format {

struct Point {
  double x = 0, y = 0;
};

/// A self-contained SVG picture. Each call paints one shape over the earlier ones; the unit is
/// pixels from the upper left. The same calls give the same bytes on every machine.
class Svg {
 public:
  enum class Anchor : std::uint8_t { start, middle, end };
  struct Text {
    Anchor anchor = Anchor::start;
    double size = 12;
    std::string_view fill = "#333333";
    bool bold = false;
  };

  Svg(double width, double height, std::string_view title);

  /// A browser shows `tip`, if given, at the mouse.
  void rectangle(Point corner, double width, double height, std::string_view fill,
                 std::string_view tip = {});
  void polygon(const std::vector<Point>& points, std::string_view fill, std::string_view tip = {});
  void polyline(const std::vector<Point>& points, std::string_view stroke, double width);
  void line(Point from, Point to, std::string_view stroke, double width = 1,
            std::string_view dashes = {});
  void circle(Point center, double radius, std::string_view fill);
  void text(Point at, std::string_view words, const Text& how);
  /// Returns the whole picture. REQUIRES: nothing is drawn afterwards.
  std::string finish();

 private:
  void point(Point point);
  void close(std::string_view element, std::string_view tip);

  std::string out_;
};

/// Multiples of one power of two from 0 until past `max`, about six.
std::vector<std::uint64_t> binary_ticks(std::uint64_t max);
/// Multiples of 1, 2 or 5 times a power of ten from 0 up to `max`, about eight.
std::vector<std::uint64_t> decimal_ticks(std::uint64_t max);

}  // namespace emm::format
