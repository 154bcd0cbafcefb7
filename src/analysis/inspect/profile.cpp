#include "inspect/profile.hpp"

#include <algorithm>

#include "trace/header.hpp"

namespace emm::inspect {

HeldMemory held_after(const trace::Lifetimes& lifetimes, std::uint32_t event,
                      std::optional<std::uint32_t> device) {
  event = std::max(event, static_cast<std::uint32_t>(lifetimes.trace().first_moment()));
  HeldMemorySum sum;
  for (const auto& lifetime : lifetimes.all()) {
    const bool counts = lifetime.what == trace::Lifetime::MemoryKind::device &&
                        (!device || lifetimes.device(lifetime) == *device);
    if (counts && lifetime.live_at(event)) sum.add(lifetime.size, lifetime.site);
  }
  return sum.sum();
}

void leave_out_unknown(const trace::Header& header, Profile& out) {
  const auto curve = trace::curve_of(header);
  if (curve == trace::Curve::none) return;
  out.lifetime_events = out.lifetime_ns = {};
  if (curve == trace::Curve::blocks) return;
  out.sizes = {};
  out.size_classes.clear();
  for (auto* held : {&out.at_peak, &out.leaked, &out.preexisting_at_end}) held->by_size.clear();
}

}  // namespace emm::inspect
