#include "format/sparkline.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace emm::format {

std::string sparkline(const std::vector<std::uint64_t>& values, bool blocks, std::uint64_t full) {
  constexpr std::array<std::string_view, 9> kBlocks{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 9> kAscii{" ", ".", ":", "-", "=", "+", "*", "#", "@"};
  const auto most = full != 0        ? full
                    : values.empty() ? 0
                                     : *std::max_element(values.begin(), values.end());
  std::string out;
  for (const auto value : values) {
    // A value above 0 is always visible, and only the greatest is full.
    const auto level = most == 0 ? 0
                                 : static_cast<std::size_t>(static_cast<double>(value) /
                                                            static_cast<double>(most) * 8.0);
    const auto shown = value == 0 ? 0 : std::max<std::size_t>(level, 1);
    out += (blocks ? kBlocks : kAscii).at(shown);
  }
  return out;
}

}  // namespace emm::format
