// nvidia-smi --query-compute-apps and --query-gpu with --format=csv, once or with -l over time.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics.hpp"

namespace emm::inspect {
namespace {

constexpr std::uint64_t kSmiUnit = std::uint64_t{1} << 20;

std::vector<std::string> csv_cells(std::string_view line) {
  std::vector<std::string> cells;
  for (;;) {
    const auto end = line.find(',');
    cells.emplace_back(text::trim(line.substr(0, end)));
    if (end == line.npos) return cells;
    line.remove_prefix(end + 1);
  }
}

/// "17500 MiB", or "17500" of --format=csv,nounits. nvidia-smi rounds to whole MiB.
std::optional<Stated> mib_of(std::string_view cell) {
  const auto digits = cell.substr(0, cell.find_first_not_of("0123456789"));
  const auto number = text::to_u64(digits);
  if (!number || *number > (~std::uint64_t{0} >> 22)) return std::nullopt;
  return Stated{*number == 0 ? 0 : (*number - 1) * kSmiUnit, (*number + 1) * kSmiUnit};
}

struct SmiColumns {
  std::optional<std::size_t> gpu, pid, name, used, total, free, time;
};

std::optional<SmiColumns> smi_columns(std::string_view line) {
  SmiColumns at;
  const auto cells = csv_cells(line);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string_view cell = cells[i];
    const auto is = [&](std::string_view word) { return cell.starts_with(word); };
    if (is("memory.used") || is("used_gpu_memory") || is("used_memory")) at.used = i;
    if (is("memory.total")) at.total = i;
    if (is("memory.free")) at.free = i;
    if (is("index") ||
        ((is("gpu_uuid") || is("uuid") || is("gpu_bus_id") || is("pci.bus_id")) && !at.gpu))
      at.gpu = i;
    if (is("pid")) at.pid = i;
    if (is("process_name") || (is("name") && !at.name)) at.name = i;
    if (is("timestamp")) at.time = i;
  }
  return at.used ? std::optional(at) : std::nullopt;
}

/// What one GPU, or one process on it, has over time.
struct SmiSeries {
  std::uint64_t samples = 0, unknown = 0;
  std::optional<Stated> least, most, last, total;
};

Result<Statistics> read_smi(format::ByteSource& source) {
  std::map<std::string, SmiSeries> all;
  std::optional<SmiColumns> at;
  format::LineReader lines(source);
  std::string_view line;
  std::uint64_t cut = 0;
  std::string first_time, last_time;
  auto more = lines.next(line);
  for (; more && *more; more = lines.next(line)) {
    if (text::trim(line).empty()) continue;
    if (const auto header = smi_columns(line)) {
      at = header;
      continue;
    }
    if (!at) continue;
    const auto cells = csv_cells(line);
    const auto cell = [&](std::optional<std::size_t> column) -> std::string_view {
      return column && *column < cells.size() ? std::string_view(cells[*column])
                                              : std::string_view();
    };
    if (*at->used >= cells.size()) {
      ++cut;
      continue;
    }
    std::string name;
    if (!cell(at->gpu).empty()) name = text::format("GPU {}", cell(at->gpu));
    if (at->pid)
      name +=
          text::format("{}process {} {}", name.empty() ? "" : ", ", cell(at->pid), cell(at->name));
    if (name.empty()) name = std::string(cell(at->name));
    if (!cell(at->time).empty()) {
      if (first_time.empty()) first_time = cell(at->time);
      last_time = cell(at->time);
    }
    auto& series = all[name];
    ++series.samples;
    if (const auto total = mib_of(cell(at->total))) series.total = total;
    const auto used = mib_of(cell(at->used));
    if (!used) {
      ++series.unknown;
      continue;
    }
    series.last = used;
    if (!series.least || used->low < series.least->low) series.least = used;
    if (!series.most || used->high > series.most->high) series.most = used;
  }
  if (!more) return std::move(more).error();

  Statistics out{.what = "nvidia-smi: what the driver counts, in whole MiB"};
  const bool of_processes = at && at->pid;
  if (!first_time.empty() && first_time != last_time)
    out.what += text::format(", from {} to {}", first_time, last_time);
  for (const auto& [name, series] : all) {
    FigureGroup group{.name = name, .figures = {}};
    group.figures.push_back({.name = "used at last", .value = series.last});
    group.figures.push_back({.name = "least used", .value = series.least});
    group.figures.push_back({.name = "most used", .value = series.most});
    if (series.total) group.figures.push_back({.name = "of the device", .value = series.total});
    group.figures.push_back(
        {.name = "samples", .value = Stated::exactly(series.samples), .unit = Figure::Unit::count});
    if (series.unknown != 0) {
      group.figures.push_back({.name = "samples without a value",
                               .value = Stated::exactly(series.unknown),
                               .unit = Figure::Unit::count});
    }
    out.groups.push_back(std::move(group));
    if (series.most) out.rows.push_back({name, series.most->high, series.samples});
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  out.rows_title = "Used at most (count: samples)";
  out.reading.push_back(
      of_processes
          ? "A process's figure is all that it holds on the device: the CUDA context, what its "
            "allocator reserved, and what libraries took past it."
          : "A device's figure is what all processes hold on it and what the driver keeps, and "
            "not what is live.");
  if (cut != 0) out.unknown.push_back(text::format("{} rows: they are cut", cut));
  out.unknown.emplace_back(
      "how much of it an allocator has reserved, and how much of that is live: what lies outside "
      "of the allocator is the most used less its peak reserved at the same time");
  out.unknown.emplace_back("what happened between two samples");
  if (!of_processes) out.unknown.emplace_back("which process holds it");
  out.next.emplace_back(
      of_processes ? "emmctl inspect RECORDING: its peak reserved, to subtract from the most used"
                   : "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,"
                     "used_memory --format=csv -lms 100 > apps.csv");
  return out;
}

int sniff_smi(std::string_view prefix) {
  const auto line = prefix.substr(0, prefix.find('\n'));
  return line.find(',') != line.npos && smi_columns(line) &&
                 (line.find("MiB") != line.npos || line.find("memory") != line.npos)
             ? 80
             : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader nvidia_smi_statistics{
    .name = "nvidia-smi",
    .summary = "nvidia-smi --query-gpu or --query-compute-apps with --format=csv",
    .sniff = inspect::sniff_smi,
    .read = inspect::read_smi,
};

}  // namespace emm
