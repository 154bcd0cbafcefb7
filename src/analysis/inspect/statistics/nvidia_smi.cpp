// nvidia-smi --query-compute-apps and --query-gpu with --format=csv, once or with -l over time.
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics.hpp"
#include "inspect/statistics/smi_rows.hpp"

namespace emm::inspect {
namespace {

constexpr std::uint64_t kSmiUnit = std::uint64_t{1} << 20;  // "MiB", as nvidia-smi prints it
constexpr std::uint32_t kGpusMost = 4096;                   // A greater number is not a GPU's.

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

/// "2026/03/01 10:00:00.000"
std::optional<std::int64_t> civil_ms(std::string_view text) {
  constexpr std::size_t kParts = 7;  // from the year to the millisecond
  std::array<std::int64_t, kParts> parts{};
  std::size_t part = 0;
  for (std::size_t at = 0; at < text.size() && part < kParts; ++part) {
    const auto digits = std::min(text.find_first_not_of("0123456789", at), text.size());
    const auto number = text::to_u64(text.substr(at, digits - at));
    if (!number || *number > 9999) return std::nullopt;
    parts[part] = static_cast<std::int64_t>(*number);
    at = digits + 1;
  }
  if (part + 1 < kParts) return std::nullopt;
  const std::chrono::year_month_day day{std::chrono::year(static_cast<int>(parts[0])),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2]))};
  if (!day.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return (((days * 24 + parts[3]) * 60 + parts[4]) * 60 + parts[5]) * 1000 + parts[6];
}

/// What a cell of a row can be, by how nvidia-smi writes it.
enum class SmiCell { time, gpu, mib, number, unknown, percent, watts, model, text };

SmiCell cell_kind(std::string_view cell) {
  constexpr std::array<std::string_view, 7> kModels{
      "NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "TITAN ", "GRID ", "Graphics Device"};
  const auto rest = cell.substr(std::min(cell.find_first_not_of("0123456789"), cell.size()));
  if (cell.starts_with("GPU-") || cell.starts_with("MIG-")) return SmiCell::gpu;
  if (cell.size() == 16 && cell[8] == ':' && cell[11] == ':' && cell[14] == '.')
    return SmiCell::gpu;
  if (rest.size() < cell.size()) {
    if (rest.empty()) return SmiCell::number;
    if (rest == " MiB") return SmiCell::mib;
    if (rest == " %") return SmiCell::percent;
    if (rest.ends_with(" W")) return SmiCell::watts;
    if (civil_ms(cell)) return SmiCell::time;
  }
  if (cell.starts_with('[') && (cell.starts_with("[N/A") || cell.starts_with("[Not Supp")))
    return SmiCell::unknown;
  for (const auto model : kModels) {
    if (cell.starts_with(model)) return SmiCell::model;
  }
  return SmiCell::text;
}

/// A row of a file that was written with --format=csv,noheader. Of a process, what the columns are
/// can be told by the order of their kinds; of a GPU it cannot: the used memory looks like the
/// free.
struct SmiHeadless {
  std::optional<SmiColumns> at{};  ///< The columns of a process.
  std::string header{};            ///< For a GPU: the line that most likely is missing.
};

SmiHeadless smi_headless(std::string_view line) {
  SmiHeadless found;
  const auto cells = csv_cells(line);
  std::vector<SmiCell> kinds;
  for (const auto& cell : cells) kinds.push_back(cell_kind(cell));
  // nvidia-smi writes a blank after each comma.
  if (cells.size() > 1 && line.find(", ") == line.npos) return found;

  SmiColumns at{};
  std::size_t i = 0;
  for (; i < kinds.size() &&
         (kinds[i] == SmiCell::time || kinds[i] == SmiCell::gpu || kinds[i] == SmiCell::model);
       ++i) {
    (kinds[i] == SmiCell::time ? at.time : at.gpu) = i;
  }
  constexpr std::uint64_t kIndexMost = 256;  // A larger number is not the index of one.
  const auto left = kinds.size() - i;
  const auto holds = [&](std::size_t column) {
    return kinds[column] == SmiCell::mib || kinds[column] == SmiCell::unknown;
  };
  if (left == 3 && kinds[i] == SmiCell::number && kinds[i + 1] == SmiCell::text &&
      (holds(i + 2) || kinds[i + 2] == SmiCell::number)) {
    at.pid = i;
    at.name = i + 1;
    at.used = i + 2;
  } else if (left == 2 && kinds[i] == SmiCell::number && holds(i + 1) &&
             text::to_u64(cells[i]).value_or(0) >= kIndexMost) {
    at.pid = i;
    at.used = i + 1;
  }
  if (at.used) {
    found.at = at;
    return found;
  }

  const auto has = [&](SmiCell kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (!has(SmiCell::mib) && !(has(SmiCell::time) && has(SmiCell::number))) return found;
  // Without units a number before the others is the GPU's, and the others are memory.
  const bool has_units = has(SmiCell::mib);
  std::vector<std::size_t> sizes;
  std::vector<std::string> names(cells.size());
  for (std::size_t column = 0; column < cells.size(); ++column) {
    const auto value = [&] { return text::to_u64(cells[column]).value_or(kIndexMost); };
    switch (kinds[column]) {
      case SmiCell::time:
        names[column] = "timestamp";
        break;
      case SmiCell::gpu:
        names[column] = cells[column][3] == '-' ? "uuid" : "pci.bus_id";
        break;
      case SmiCell::model:
        names[column] = "name";
        break;
      case SmiCell::percent:
        names[column] = "utilization.gpu [%]";
        break;
      case SmiCell::watts:
        names[column] = "power.draw [W]";
        break;
      case SmiCell::mib:
        sizes.push_back(column);
        break;
      case SmiCell::number:
        if (value() < kIndexMost && std::find(names.begin(), names.end(), "index") == names.end())
          names[column] = "index";
        else if (!has_units)
          sizes.push_back(column);
        break;
      case SmiCell::unknown:
      case SmiCell::text:
        break;
    }
    if (names[column].empty()) names[column] = "?";
  }
  if (sizes.empty()) return found;
  const auto size_of = [&](std::size_t column) {
    const std::string_view cell = cells[column];
    return text::to_u64(cell.substr(0, cell.find(' '))).value_or(0);
  };
  if (sizes.size() > 1) {
    const auto total = std::max_element(sizes.begin(), sizes.end(),
                                        [&](auto a, auto b) { return size_of(a) < size_of(b); });
    names[*total] = "memory.total [MiB]";
    sizes.erase(total);
  }
  names[sizes.front()] = "memory.used [MiB]";
  if (sizes.size() > 1) names[sizes[1]] = "memory.free [MiB]";
  for (const auto& name : names) found.header += (found.header.empty() ? "" : ", ") + name;
  return found;
}

/// The tables that nvidia-smi prints without options. A GPU has two lines, of which the second has
/// its memory; each process has one.
class SmiTable {
 public:
  std::optional<SmiRow> take(std::string_view line) {
    line = text::trim(line);
    if (!line.starts_with('|')) return std::nullopt;
    line.remove_prefix(1);
    if (line.find("Process name") != line.npos) in_processes_ = true;
    const auto first = text::trim(line);
    const auto number = text::to_u64(
        first.substr(0, std::min(first.find_first_not_of("0123456789"), first.size())));
    if (in_processes_) return number ? process(*number, first) : std::nullopt;
    if (number && *number < kGpusMost) gpu_ = static_cast<std::uint32_t>(*number);
    return gpu_ ? memory(line) : std::nullopt;
  }

 private:
  /// "| N/A   35C    P0    120W / 700W |   70312MiB /  81559MiB |"
  std::optional<SmiRow> memory(std::string_view line) const {
    const auto slash = line.find("MiB /");
    if (slash == line.npos) return std::nullopt;
    const auto before = line.substr(0, slash);
    SmiRow row{.series = text::format("GPU {}", *gpu_), .device = gpu_};
    row.used = mib_of(text::trim(before.substr(before.find_last_of(" |") + 1)));
    row.total = mib_of(text::trim(line.substr(slash + 5)));
    return row;
  }
  /// "|    0   N/A  N/A    1234      C   python    70300MiB |", and before 2020 without the two
  /// N/A.
  static std::optional<SmiRow> process(std::uint64_t gpu, std::string_view line) {
    line = text::trim(line.substr(0, line.rfind('|')));
    const auto last = line.rfind(' ');
    if (last == line.npos || gpu >= kGpusMost) return std::nullopt;
    SmiRow row{.device = static_cast<std::uint32_t>(gpu)};
    row.used = line.ends_with("MiB") ? mib_of(line.substr(last + 1)) : std::nullopt;
    std::vector<std::string_view> words;
    for (auto rest = line.substr(0, last); !(rest = text::trim(rest)).empty();) {
      const auto end = std::min(rest.find(' '), rest.size());
      words.push_back(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    for (std::size_t i = 1; i + 2 < words.size(); ++i) {
      if (words[i].find_first_not_of("0123456789") != words[i].npos) continue;
      row.series = text::format("GPU {}, process {} {}", gpu, words[i], words.back());
      return row;
    }
    return std::nullopt;
  }

  std::optional<std::uint32_t> gpu_;
  bool in_processes_ = false;
};

constexpr std::string_view kSmiTable = "| NVIDIA-SMI ";

/// What one GPU, or one process on it, has over time.
struct SmiSeries {
  std::uint64_t samples = 0, unknown = 0;
  std::optional<Stated> least, most, last, total;
};

}  // namespace

Result<SmiFile> each_smi_row(format::ByteSource& source,
                             const std::function<void(const SmiRow&)>& each) {
  SmiFile file;
  std::optional<SmiColumns> at;
  std::optional<SmiTable> table;
  format::LineReader lines(source);
  std::string_view line;
  bool is_first = true;
  auto more = lines.next(line);
  for (; more && *more; more = lines.next(line)) {
    if (text::trim(line).empty()) continue;
    if (line.find(kSmiTable) != line.npos) table.emplace();
    if (table) {
      if (const auto row = table->take(line)) each(*row);
      continue;
    }
    if (const auto header = smi_columns(line)) {
      is_first = false;
      at = header;
      file.of_processes = at->pid.has_value();
      continue;
    }
    if (std::exchange(is_first, false)) {
      auto headless = smi_headless(text::trim(line));
      if (!headless.header.empty()) {
        return fail(
            Errc::usage,
            "{}: nvidia-smi's CSV without its header line: which column is used memory, "
            "and which free, is not told. Put a line with their names first, such as \"{}\"",
            source.name(), headless.header);
      }
      at = headless.at;
      file.of_processes = at.has_value();
    }
    if (!at) continue;
    const auto cells = csv_cells(line);
    const auto cell = [&](std::optional<std::size_t> column) -> std::string_view {
      return column && *column < cells.size() ? std::string_view(cells[*column])
                                              : std::string_view();
    };
    if (*at->used >= cells.size()) {
      ++file.cut;
      continue;
    }
    SmiRow row;
    if (!cell(at->gpu).empty()) row.series = text::format("GPU {}", cell(at->gpu));
    if (const auto number = text::to_u64(cell(at->gpu)); number && *number < kGpusMost)
      row.device = static_cast<std::uint32_t>(*number);
    if (at->pid)
      row.series += text::format("{}process {}{}{}", row.series.empty() ? "" : ", ", cell(at->pid),
                                 at->name ? " " : "", cell(at->name));
    if (row.series.empty()) row.series = std::string(at->name ? cell(at->name) : "GPU");
    row.time = cell(at->time);
    row.time_ms = civil_ms(row.time);
    row.used = mib_of(cell(at->used));
    row.total = mib_of(cell(at->total));
    each(row);
  }
  if (!more) return std::move(more).error();
  return file;
}

namespace {

Result<Statistics> read_smi(format::ByteSource& source) {
  std::map<std::string, SmiSeries> all;
  std::string first_time, last_time;
  const auto file = each_smi_row(source, [&](const SmiRow& row) {
    if (!row.time.empty()) {
      if (first_time.empty()) first_time = row.time;
      last_time = row.time;
    }
    auto& series = all[row.series];
    ++series.samples;
    if (row.total) series.total = row.total;
    if (!row.used) {
      ++series.unknown;
      return;
    }
    series.last = row.used;
    if (!series.least || row.used->low < series.least->low) series.least = row.used;
    if (!series.most || row.used->high > series.most->high) series.most = row.used;
  });
  if (!file) return file.error();

  Statistics out{.what = "nvidia-smi: what the driver counts, in whole MiB"};
  const bool of_processes = file->of_processes;
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
    // As nvidia-smi states it.
    if (series.most) out.rows.push_back({name, series.most->high - kSmiUnit, series.samples});
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
  if (file->cut != 0) out.unknown.push_back(text::format("{} rows: they are cut", file->cut));
  out.unknown.emplace_back(
      "how much of it an allocator has reserved, and how much of that is live: what lies outside "
      "of the allocator is the most used less its peak reserved at the same time. With a "
      "recording, "
      "`emmctl inspect RECORDING --beside` this file says that over time");
  out.unknown.emplace_back("what happened between two samples");
  if (!of_processes) out.unknown.emplace_back("which process holds it");
  out.next.emplace_back(
      of_processes
          ? "emmctl inspect RECORDING --beside THIS_FILE: what lies outside of its allocator"
          : "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,"
            "used_memory --format=csv -lms 100 > apps.csv");
  return out;
}

int sniff_smi(std::string_view prefix) {
  if (prefix.find(kSmiTable) != prefix.npos) return 80;
  const auto line = text::trim(prefix.substr(0, prefix.find('\n')));
  if (const auto headless = smi_headless(line); headless.at || !headless.header.empty()) return 70;
  return (line.find(',') != line.npos || line == "memory.used [MiB]") && smi_columns(line) &&
                 (line.find("MiB") != line.npos || line.find("memory") != line.npos)
             ? 80
             : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader nvidia_smi_statistics{
    .name = "nvidia-smi",
    .summary = "nvidia-smi's tables, or --query-gpu or --query-compute-apps with --format=csv",
    .is_amid_text = true,
    .sniff = inspect::sniff_smi,
    .read = inspect::read_smi,
};

}  // namespace emm
