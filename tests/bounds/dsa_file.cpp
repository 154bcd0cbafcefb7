#include "dsa_file.hpp"

#include <zlib.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "base/text.hpp"

namespace emm::bounds {

std::string extra_traces() {
  const char* named = std::getenv("EMM_EXTRA_TRACES");
  return named != nullptr ? named : EMM_EXTRA_TRACES;
}

std::optional<std::vector<Buffer>> read_dsa_file(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::nullopt;
  std::vector<Buffer> buffers;
  std::array<char, 512> line;
  std::uint64_t inclusive = 0;
  while (gzgets(file, line.data(), static_cast<int>(line.size())) != nullptr) {
    std::string_view rest = text::trim(line.data());
    std::array<std::uint64_t, 4> fields{};
    bool numbers = true;
    for (auto& field : fields) {
      const auto comma = rest.find(',');
      const auto number = text::to_u64(rest.substr(0, comma));
      numbers = numbers && number;
      field = number.value_or(0);
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    }
    if (!numbers) {
      inclusive = std::string_view(line.data()).find("start") != std::string_view::npos ? 1 : 0;
      continue;
    }
    buffers.push_back(
        {.lower = fields[1], .upper = fields[2] + inclusive, .size = fields[3], .alignment = 1});
  }
  gzclose(file);
  return buffers;
}

}  // namespace emm::bounds
