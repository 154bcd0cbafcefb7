#include "format/bfc_dump.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/text.hpp"

namespace emm::format {
namespace {

using BfcWhat = BfcLine::Meaning;

std::string_view bfc_after(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + word.size());
}

/// The number at the beginning, after spaces; commas may group its digits, as in the statistics of
/// newer versions.
std::optional<std::uint64_t> bfc_number(std::string_view text) {
  text = text::trim(text);
  std::string digits;
  for (const auto c : text) {
    if (c == ',') continue;
    if (c < '0' || c > '9') break;
    digits += c;
  }
  return text::to_u64(digits);
}

std::optional<std::uint64_t> bfc_address(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto* const end = text.data() + std::min(text.size(), text.find(' '));
  const auto read = std::from_chars(text.data(), end, value, 16);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

std::optional<BfcLine> bfc_chunk(std::string_view text) {
  BfcLine line{.what = BfcWhat::chunk};
  if (text.starts_with("Free")) {
    line.is_free = true;
  } else if (!text.starts_with("InUse") && !text.starts_with("Chunk")) {
    return std::nullopt;
  }
  const auto where = bfc_after(text, " at ");
  const auto size = bfc_number(bfc_after(where, " of size "));
  const auto at = bfc_address(where);
  if (!at || !size || *size == 0) return std::nullopt;
  line.address = *at;
  line.size = *size;
  return line;
}

std::optional<BfcLine> bfc_request(std::string_view text) {
  const auto asked = bfc_after(text, "ran out of memory trying to allocate ");
  if (asked.empty()) return std::nullopt;
  BfcLine line{.what = BfcWhat::request};
  line.printed = asked.substr(0, asked.find_first_not_of("0123456789.KMGTiB"));
  while (line.printed.ends_with('.')) line.printed.remove_suffix(1);
  line.size = bfc_number(bfc_after(asked, "(rounded to ")).value_or(0);
  if (line.size == 0 && line.printed.find_first_not_of("0123456789") == std::string_view::npos)
    line.size = bfc_number(line.printed).value_or(0);
  const auto name = bfc_after(text, "Allocator (");
  line.allocator = name.substr(0, name.find(')'));
  return line;
}

}  // namespace

std::optional<BfcLine> parse_bfc_line(std::string_view text) {
  if (auto found = bfc_chunk(text)) return found;
  if (auto found = bfc_request(text)) return found;
  struct Word {
    std::string_view begins;
    BfcWhat what;
  };
  for (const auto& [begins, what] :
       {Word{"Next region of size ", BfcWhat::region}, Word{"Limit:", BfcWhat::limit},
        Word{"InUse:", BfcWhat::in_use}, Word{"MaxInUse:", BfcWhat::peak}}) {
    if (!text.starts_with(begins)) continue;
    const auto size = bfc_number(text.substr(begins.size()));
    return size ? std::optional(BfcLine{.what = what, .size = *size}) : std::nullopt;
  }
  for (const std::string_view begins :
       {"Bin (", "Bin for ", "Stats:", "NumAllocs:", "MaxAllocSize:", "Reserved:", "PeakReserved:",
        "LargestFreeBlock:", "BFCAllocator dump", "Current allocation summary", "Sum Total of",
        "Summary of in-use", "total_region_allocated_bytes_:", "Overall chunks summary",
        "TotalAllocated:", "NumReserves:", "NumArenaExtensions:", "NumArenaShrinkages:"}) {
    if (text.starts_with(begins)) return BfcLine{};
  }
  return std::nullopt;
}

}  // namespace emm::format
