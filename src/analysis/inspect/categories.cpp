#include "inspect/categories.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "trace/extensions.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using trace::Op;

/// The text of a JSON string without escapes; empty for any other value.
std::string_view unquoted(std::string_view value) {
  const bool plain = value.size() > 2 && value.starts_with('"') && value.ends_with('"') &&
                     value.find('\\') == value.npos;
  return plain ? value.substr(1, value.size() - 2) : std::string_view();
}

}  // namespace

std::optional<std::uint8_t> Categories::number_of(std::string_view name) {
  constexpr std::size_t kMost = 255;
  if (name.empty()) return std::nullopt;
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end() && names_.size() == kMost) return std::nullopt;
  const auto number = static_cast<std::uint8_t>(found - names_.begin());
  if (found == names_.end()) names_.emplace_back(name);
  return number;
}

void Categories::take(const trace::Operation& operation, std::uint32_t event,
                      std::optional<AllocId> id) {
  if (operation.op == Op::extension) {
    if (operation.extension != "x-category") return;
    const auto bytes = text::to_u64(trace::extension(operation.text, "bytes"));
    const auto from = number_of(unquoted(trace::extension(operation.text, "from")));
    const auto to = number_of(unquoted(trace::extension(operation.text, "to")));
    if (!bytes || !from || !to) return;
    steps_.push_back({.event = event, .category = *from, .begins = false, .bytes = *bytes});
    steps_.push_back({.event = event, .category = *to, .begins = true, .bytes = *bytes});
    return;
  }
  if (!id || operation.layer == trace::Layer::backing) return;
  const auto number = number_of(unquoted(trace::extension(operation.extension, "x-category")));
  if (!number) return;
  const bool begins = trace::asks_for_device_memory(operation.op);
  if (!begins && operation.op != Op::free) return;
  const auto at = index(*id);
  if (begins) {
    if (sizes_.size() <= at) sizes_.resize(at + 1);
    sizes_[at] = operation.size;
  }
  const auto bytes = at < sizes_.size() ? sizes_[at] : 0;
  steps_.push_back({.event = event, .category = *number, .begins = begins, .bytes = bytes});
}

std::vector<CategoryUse> Categories::use(std::uint32_t peak_event, std::size_t events) const {
  constexpr std::size_t kParts = 64;
  std::vector<CategoryUse> all(names_.size());
  std::vector<std::uint64_t> live(names_.size());
  const auto parts = std::min(events, kParts);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].name = names_[i];
    all[i].over_events.resize(parts);
  }
  std::size_t at = 0;
  for (std::size_t event = 0; event <= events && (event < events || at < steps_.size()); ++event) {
    const bool passes_peak = event > peak_event;
    if (passes_peak && event == std::size_t{peak_event} + 1) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i].at_peak = live[i];
    }
    for (; at < steps_.size() && steps_[at].event == event; ++at) {
      const auto& step = steps_[at];
      auto& bytes = live[step.category];
      bytes = step.begins ? bytes + step.bytes : bytes - std::min(bytes, step.bytes);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (live[i] > all[i].peak) {
        all[i].peak = live[i];
        all[i].peak_event =
            static_cast<std::uint32_t>(std::min(event, events == 0 ? 0 : events - 1));
      }
      if (event < events) {
        auto& most = all[i].over_events[event * parts / events];
        most = std::max(most, live[i]);
      }
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::size_t{peak_event} + 1 >= events) all[i].at_peak = live[i];
    all[i].at_end = live[i];
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.at_peak > b.at_peak; });
  return all;
}

}  // namespace emm::inspect
