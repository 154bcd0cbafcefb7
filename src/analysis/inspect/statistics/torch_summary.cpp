// The text of torch.cuda.memory_summary(): a table for each device, in units that it rounds down
// to.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "inspect/statistics/torch_figures.hpp"

namespace emm::inspect {
namespace {

constexpr std::string_view kTitle = "CUDA memory summary, device ID ";

/// "9354 MB": PyTorch divides by 1024 and drops the rest, so the value may be up to a unit more.
std::optional<Stated> summary_bytes(std::string_view cell) {
  constexpr std::string_view kPrefixes = "BKMGTP";
  cell = text::trim(cell);
  const auto digits = cell.substr(0, cell.find_first_not_of("0123456789"));
  const auto number = text::to_u64(digits);
  const auto unit = text::trim(cell.substr(digits.size()));
  if (!number || digits.size() > 7 || unit.empty()) return std::nullopt;
  const auto power = kPrefixes.find(unit.front());
  if (power == kPrefixes.npos) return std::nullopt;
  const auto one = std::uint64_t{1} << (10 * power);
  if (*number > (~std::uint64_t{0} >> 1) / one) return std::nullopt;
  return Stated{*number * one, *number * one + one - 1};
}

std::optional<std::uint64_t> count_after(std::string_view line, std::string_view words) {
  const auto at = line.find(words);
  if (at == line.npos) return std::nullopt;
  auto rest = text::trim(line.substr(at + words.size()));
  return text::to_u64(rest.substr(0, rest.find_first_not_of("0123456789")));
}

std::vector<std::string_view> summary_cells(std::string_view line) {
  std::vector<std::string_view> cells;
  line = text::trim(line);
  // A launcher may have put its words, and a bar of its own, in front.
  auto begin = line.find('|');
  while (begin != line.npos && text::trim(line.substr(begin + 1)).starts_with('|'))
    begin = line.find('|', begin + 1);
  if (begin == line.npos) return cells;
  for (line.remove_prefix(begin + 1); !line.empty();) {
    const auto end = line.find('|');
    cells.push_back(text::trim(line.substr(0, end)));
    if (end == line.npos) break;
    line.remove_prefix(end + 1);
  }
  return cells;
}

Result<Statistics> read_summary(format::ByteSource& source) {
  Statistics out{.what = "torch.cuda.memory_summary(), whose figures are rounded down"};
  std::vector<TorchFigures> devices;
  format::LineReader lines(source);
  std::string_view line;
  auto more = lines.next(line);
  for (; more && *more; more = lines.next(line)) {
    if (const auto title = line.find(kTitle); title != line.npos) {
      const auto number = count_after(line, kTitle);
      devices.push_back({.device = number ? text::format("device {}", *number) : ""});
      continue;
    }
    if (devices.empty()) continue;
    auto& device = devices.back();
    if (const auto ooms = count_after(line, "CUDA OOMs:")) device.ooms = ooms;
    if (const auto retries = count_after(line, "cudaMalloc retries:")) device.retries = retries;
    const auto cells = summary_cells(line);
    if (cells.size() < 3) continue;
    const auto put = [&](std::optional<Stated>& now, std::optional<Stated>* peak) {
      now = summary_bytes(cells[1]);
      if (peak != nullptr) *peak = summary_bytes(cells[2]);
    };
    // Rows of the pools ("from large pool") follow each of these, and are parts of it.
    if (cells[0] == "Allocated memory") put(device.allocated, &device.allocated_peak);
    if (cells[0] == "GPU reserved memory") put(device.reserved, &device.reserved_peak);
    if (cells[0] == "Active memory") put(device.active, nullptr);
    if (cells[0] == "Requested memory") put(device.requested, nullptr);
    if (cells[0] == "Non-releasable memory") put(device.stuck, nullptr);
    if (cells[0] == "GPU reserved segments") device.segments = text::to_u64(cells[1]);
  }
  if (!more) return std::move(more).error();
  for (const auto& device : devices) add_torch_figures(out, device);
  add_torch_limits(out);
  return out;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader torch_summary_statistics{
    .name = "torch-summary",
    .summary = "torch.cuda.memory_summary(), amid any text",
    .is_amid_text = true,
    .sniff =
        [](std::string_view prefix) {
          return prefix.find(inspect::kTitle) != prefix.npos ? 90 : 0;
        },
    .read = inspect::read_summary,
};

}  // namespace emm
