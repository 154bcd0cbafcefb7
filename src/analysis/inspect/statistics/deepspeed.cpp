// The lines "MA 14.51 GB Max_MA 14.6 GB CA 15.2 GB Max_CA 16 GB" of DeepSpeed's see_memory_usage(),
// and its warnings of cache flushes, amid a log.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/units.hpp"
#include "inspect/statistics/torch_figures.hpp"

namespace emm::inspect {
namespace {

constexpr std::string_view kFlushes = " pytorch allocator cache flushes since last step";

/// The number behind `word`, in GB of 2^30 bytes, rounded to so many decimals.
std::optional<Stated> gb_after(std::string_view line, std::string_view word, double half_unit) {
  const auto at = line.find(word);
  if (at == line.npos) return std::nullopt;
  const auto rest = text::trim(line.substr(at + word.size()));
  const auto number = text::to_double(rest.substr(0, rest.find_first_not_of("0123456789.")));
  // DeepSpeed's GB, and more of them than a machine has.
  constexpr double kGb = 1024.0 * 1024.0 * 1024.0, kMost = 1e6;
  if (!number || *number < 0 || *number > kMost) return std::nullopt;
  return Stated{static_cast<std::uint64_t>(std::max(0.0, *number - half_unit) * kGb),
                static_cast<std::uint64_t>((*number + half_unit) * kGb)};
}

/// A line without the logger's "[time] [level] [file:line:function]".
std::string_view log_message(std::string_view line) {
  line = text::trim(line);
  while (line.starts_with('[')) {
    const auto end = line.find(']');
    if (end == line.npos) break;
    line = text::trim(line.substr(end + 1));
  }
  return line;
}

void raise_to(std::optional<Stated>& most, const std::optional<Stated>& by) {
  if (by && (!most || by->high > most->high)) most = by;
}

Result<Statistics> read_deepspeed(format::ByteSource& source) {
  Statistics out{.what = "a log of DeepSpeed: its MA and CA lines, rounded to 0.01 GB"};
  TorchFigures of;
  std::uint64_t samples = 0, flushes = 0, steps_with_flushes = 0;
  std::string before;
  format::LineReader lines(source);
  std::string_view line;
  auto more = lines.next(line);
  for (; more && *more; more = lines.next(line)) {
    if (const auto at = line.find(kFlushes); at != line.npos) {
      const auto words = line.substr(0, at);
      const auto begin = words.find_last_not_of("0123456789");
      flushes += text::to_u64(words.substr(begin == words.npos ? 0 : begin + 1)).value_or(0);
      ++steps_with_flushes;
    }
    const auto at = line.find("MA ");
    const auto max = line.find("Max_MA ");
    if (at == line.npos || max == line.npos || at > max) {
      if (!text::trim(line).empty()) before = log_message(line);
      continue;
    }
    // Half of the last digit that DeepSpeed prints, in GB.
    constexpr double kHundredth = 0.005, kWhole = 0.5;
    const auto whole = line.substr(max);
    of.allocated = gb_after(line, "MA ", kHundredth);
    raise_to(of.allocated_peak, gb_after(whole, "Max_MA ", kHundredth));
    const auto cached = whole.find(" CA ");
    of.reserved =
        cached == whole.npos ? std::nullopt : gb_after(whole.substr(cached), " CA ", kHundredth);
    raise_to(of.reserved_peak, gb_after(whole, "Max_CA ", kWhole));
    if (of.allocated && of.reserved) {
      const auto gap = minus(*of.reserved, *of.allocated);
      out.rows.push_back(
          {.name = before, .bytes = gap.low + (gap.high - gap.low) / 2, .count = ++samples});
    }
  }
  if (!more) return std::move(more).error();
  add_torch_figures(out, of);
  out.groups.back().name = samples == 0 ? "" : text::format("the last of {} lines", samples);
  if (flushes != 0) {
    out.reading.push_back(text::format(
        "The cache was flushed {} times, in {} steps. Each time a request found no room, and "
        "PyTorch gave back all free segments. Each flush stops the device; memory is short or "
        "fragmented.",
        text::grouped(flushes), text::grouped(steps_with_flushes)));
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  out.rows_title = "Reserved and not allocated at most, by line (count: its number) and message";
  out.unknown.emplace_back("what the gap is made of: DeepSpeed's lines have no more");
  add_torch_limits(out);
  return out;
}

int sniff_deepspeed(std::string_view prefix) {
  if (prefix.find("Max_MA ") != prefix.npos && prefix.find("Max_CA ") != prefix.npos) return 70;
  return prefix.find(kFlushes) != prefix.npos ? 65 : 0;
}

}  // namespace
}  // namespace emm::inspect

namespace emm {

extern constinit const inspect::StatisticsReader deepspeed_statistics{
    .name = "deepspeed",
    .summary = "DeepSpeed's lines of MA, Max_MA, CA and Max_CA, and its warnings of cache flushes",
    .is_amid_text = true,
    .sniff = inspect::sniff_deepspeed,
    .read = inspect::read_deepspeed,
};

}  // namespace emm
