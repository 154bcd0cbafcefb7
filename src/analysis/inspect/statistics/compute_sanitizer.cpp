// The leaks that compute-sanitizer --leak-check full reports, amid what the program prints.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics.hpp"

namespace emm::inspect {
namespace {

constexpr std::string_view kSanitizerMark = "=========";

/// Digits with commas: "1,024".
std::optional<std::uint64_t> grouped_number(std::string_view words) {
  std::string digits;
  for (const char c : words) {
    if (c >= '0' && c <= '9') {
      digits += c;
    } else if (c != ',') {
      break;
    }
  }
  return text::to_u64(digits);
}

/// Is the frame CUDA's, and not of the program?
bool is_cuda_frame(std::string_view frame) {
  for (const std::string_view word :
       {"libcuda.so", "libcudart", "cudaMalloc", "cudaHostAlloc", "cuMem", "libsanitizer",
        "libc.so", "__libc_start", "ld-linux"}) {
    if (frame.find(word) != frame.npos) return true;
  }
  return frame.starts_with("[0x") || frame.empty();
}

/// "main in leak.cu:12 [0x9ab]" without the address, which differs between runs.
std::string_view frame_words(std::string_view frame) {
  const auto at = frame.rfind(" [0x");
  return text::trim(at == frame.npos ? frame : frame.substr(0, at));
}

Result<Statistics> read_leaks(format::ByteSource& source) {
  Statistics out{.what = "the leak report of compute-sanitizer"};
  std::map<std::string, StatisticsRow> by_site;
  std::optional<std::uint64_t> leaked, stated_bytes, stated_count;
  std::string site, any_frame, frame;
  std::uint64_t bytes = 0, count = 0;
  // A frame's library may stand on the line after it; the frame counts once that is known.
  const auto close_frame = [&] {
    if (any_frame.empty()) any_frame = frame_words(frame);
    if (site.empty() && !is_cuda_frame(frame)) site = frame_words(frame);
    frame.clear();
  };
  const auto close = [&] {
    if (!frame.empty()) close_frame();
    if (!leaked) return;
    const auto name = !site.empty() ? site : any_frame.empty() ? "no call stack" : any_frame;
    auto& row = by_site[name];
    row.name = name;
    row.bytes += *leaked;
    ++row.count;
    bytes += *leaked;
    ++count;
    leaked.reset();
    site.clear();
    any_frame.clear();
  };
  format::LineReader lines(source);
  std::string_view line;
  auto more = lines.next(line);
  for (; more && *more; more = lines.next(line)) {
    const auto mark = line.find(kSanitizerMark);
    if (mark == line.npos) continue;
    const auto words = text::trim(line.substr(mark + kSanitizerMark.size()));
    if (words.starts_with("Leaked ")) {
      close();
      leaked = grouped_number(words.substr(7)).value_or(0);
    } else if (words.starts_with("LEAK SUMMARY:")) {
      close();
      stated_bytes = grouped_number(text::trim(words.substr(13)));
      const auto in = words.find("leaked in ");
      if (in != words.npos) stated_count = grouped_number(words.substr(in + 10));
    } else if (words.starts_with("Host Frame:")) {
      if (!frame.empty()) close_frame();
      frame = text::trim(words.substr(11));
    } else if (words.starts_with("in ") && !frame.empty()) {
      const auto place = text::trim(words.substr(3));
      if (is_cuda_frame(place)) {
        frame.insert(0, "[0x");  // CUDA's own
      } else if (frame.find(" in ") == frame.npos && frame.starts_with("[")) {
        frame = place;
      }
    } else if (words.empty() || words.starts_with("ERROR SUMMARY")) {
      close();
    }
  }
  close();
  if (!more) return std::move(more).error();
  for (auto& [name, row] : by_site) out.rows.push_back(std::move(row));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  out.rows_title = "Leaked, by call site";
  FigureGroup group;
  const auto add = [&](std::string name, std::optional<std::uint64_t> value, Figure::Unit unit) {
    group.figures.push_back({.name = std::move(name),
                             .value = value ? std::optional(Stated::exactly(*value)) : std::nullopt,
                             .unit = unit});
  };
  add("leaked, by the entries", bytes, Figure::Unit::bytes);
  add("allocations", count, Figure::Unit::count);
  add("leaked, by the summary", stated_bytes, Figure::Unit::bytes);
  add("allocations, by the summary", stated_count, Figure::Unit::count);
  out.groups.push_back(std::move(group));
  out.reading.push_back(text::format("{} in {} allocations were not freed when the context ended.",
                                     units::short_bytes(bytes), text::grouped(count)));
  if (stated_bytes && *stated_bytes != bytes) {
    out.reading.push_back(
        text::format("The summary states {}: the report does not have all entries.",
                     units::short_bytes(*stated_bytes)));
  }
  if (!stated_bytes) out.unknown.emplace_back("whether the report is whole: it has no summary");
  out.unknown.emplace_back("when the memory was allocated, and what was live beside it");
  out.next.emplace_back("emmctl record -o run.jsonl -- PROGRAM; emmctl inspect run.jsonl");
  return out;
}

int sniff_leaks(std::string_view prefix) {
  if (prefix.find(kSanitizerMark) == prefix.npos) return 0;
  const auto has = [&](std::string_view words) { return prefix.find(words) != prefix.npos; };
  if (has("========= Leaked ") || has("========= LEAK SUMMARY")) return 85;
  return has("========= COMPUTE-SANITIZER") ? 60 : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader compute_sanitizer_statistics{
    .name = "compute-sanitizer",
    .summary = "the report of compute-sanitizer --leak-check full",
    .sniff = inspect::sniff_leaks,
    .read = inspect::read_leaks,
};

}  // namespace emm
