#include "inspect/statistics/torch_figures.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"

namespace emm::inspect {
namespace {

std::string shown_stated(Stated range) {
  const auto low = units::short_bytes(range.low), high = units::short_bytes(range.high);
  return low == high ? low : text::format("{} to {}", low, high);
}

}  // namespace

void add_torch_figures(Statistics& to, const TorchFigures& of) {
  FigureGroup group{.name = of.device, .figures = {}};
  const auto add = [&](std::string name, std::optional<Stated> value) {
    group.figures.push_back({.name = std::move(name), .value = value});
  };
  const auto count = [&](std::string name, std::optional<std::uint64_t> value) {
    group.figures.push_back({.name = std::move(name),
                             .value = value ? std::optional(Stated::exactly(*value)) : std::nullopt,
                             .unit = Figure::Unit::count});
  };
  std::optional<Stated> gap, returnable, waiting, rounding;
  if (of.reserved && of.allocated) gap = minus(*of.reserved, *of.allocated);
  if (of.active && of.allocated) waiting = minus(*of.active, *of.allocated);
  if (of.reserved && of.stuck && (of.active || of.allocated))
    returnable = minus(minus(*of.reserved, of.active ? *of.active : *of.allocated), *of.stuck);
  // Without the active bytes, what waits for streams may be a part of what seems returnable.
  if (returnable && !of.active) returnable->low = 0;
  if (of.allocated && of.requested) rounding = minus(*of.allocated, *of.requested);
  add("reserved", of.reserved);
  add("allocated", of.allocated);
  add("gap: reserved, not allocated", gap);
  add("  stuck in partly used segments", of.stuck);
  add("  kept for other streams", waiting);
  add("  returnable: in free segments", returnable);
  add("of the allocated: rounding", rounding);
  add("peak allocated", of.allocated_peak);
  add("peak reserved", of.reserved_peak);
  count("requests that failed", of.ooms);
  count("times the cache was given back", of.retries);
  if (of.segments) count("segments", of.segments);

  const auto whose = of.device.empty() ? std::string() : " of " + of.device;
  if (!gap) {
    to.reading.push_back(text::format("What is reserved{} or allocated is unknown.", whose));
  } else if (!of.stuck) {
    to.reading.push_back(text::format(
        "{} are reserved{} and not allocated. What that gap is made of is unknown: it is stuck in "
        "partly used segments, kept for streams, or returnable.",
        shown_stated(*gap), whose));
  } else {
    // A gap whose other parts may all be nothing, by the digits that the file has.
    const auto other = returnable ? returnable->high : gap->high;
    const auto late = waiting ? waiting->high : 0;
    // Bytes: a segment of PyTorch's, its smallest.
    constexpr std::uint64_t kSmall = std::uint64_t{2} << 20;
    const bool all = gap->high > kSmall && other <= kSmall && late <= kSmall;
    to.reading.push_back(
        all ? text::format("{} are reserved{} and not allocated. All of that gap is in partly used "
                           "segments, which PyTorch cannot return.",
                           shown_stated(*gap), whose)
            : text::format(
                  "{} are reserved{} and not allocated: {} are stuck in partly used segments, and "
                  "{} lie in free segments, which PyTorch returns before a request fails.",
                  shown_stated(*gap), whose, shown_stated(*of.stuck), shown_stated(*returnable)));
    if (of.stuck->low > kSmall && of.stuck->low >= gap->low / 2) {
      to.reading.emplace_back(
          "Most of the gap is fragmentation: settings of the allocator may lower it, such as "
          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. How much, only a recording tells.");
    }
  }
  if (of.ooms.value_or(0) + of.retries.value_or(0) > 0) {
    to.reading.push_back(text::format(
        "Requests failed for want of memory: {}. The allocator gave its free segments back and "
        "tried again: {}. Each such time stops the device.",
        of.ooms ? text::grouped(*of.ooms) : "unknown",
        of.retries ? text::grouped(*of.retries) : "unknown"));
  }
  to.groups.push_back(std::move(group));
}

void add_torch_limits(Statistics& to) {
  to.unknown.emplace_back("which code holds the memory, and when the peaks were");
  to.unknown.emplace_back("the largest request that would be served, and which setting helps");
  to.unknown.emplace_back("what lies outside of PyTorch: the context, libraries, other processes");
  to.next.emplace_back(
      "torch.cuda.memory._record_memory_history() before the work, "
      "torch.cuda.memory._dump_snapshot(\"run.pickle\") after it");
  to.next.emplace_back("emmctl explain run.pickle; emmctl tune run.pickle");
}

}  // namespace emm::inspect
