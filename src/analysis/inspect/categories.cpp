#include "inspect/categories.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "trace/extensions.hpp"
#include "trace/operation.hpp"

namespace emm::inspect {
namespace {

using trace::Member;
using trace::Op;

constexpr std::uint64_t kParts = 64;  // of the recording, for a category's course

/// The text of a JSON string without escapes; empty for any other value.
std::string_view unquoted(std::string_view value) {
  const bool plain = value.size() > 2 && value.starts_with('"') && value.ends_with('"') &&
                     value.find('\\') == value.npos;
  return plain ? value.substr(1, value.size() - 2) : std::string_view();
}

}  // namespace

std::uint8_t CategoryReader::number_of(std::string_view name) {
  if (name.empty()) return kNone;
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end() && names_.size() == kNone) return kNone;
  const auto number = static_cast<std::uint8_t>(found - names_.begin());
  if (found == names_.end()) names_.emplace_back(name);
  return number;
}

std::span<const CategoryStep> CategoryReader::take(const trace::Operation& operation,
                                                   std::uint32_t event, std::optional<AllocId> id) {
  if (operation.op == Op::extension) {
    if (operation.extension != "x-category") return {};
    const auto bytes = text::to_u64(trace::extension(operation.text, "bytes"));
    const auto from = number_of(unquoted(trace::extension(operation.text, "from")));
    const auto to = number_of(unquoted(trace::extension(operation.text, "to")));
    if (!bytes || from == kNone || to == kNone) return {};
    const auto after = event == 0 ? 0 : event - 1;
    steps_[0] = {.event = after, .category = from, .begins = false, .bytes = *bytes};
    steps_[1] = {.event = after, .category = to, .begins = true, .bytes = *bytes};
    return steps_;
  }
  if (!id || operation.layer == trace::Layer::backing) return {};
  const bool begins = trace::asks_for_device_memory(operation.op);
  if (!begins && operation.op != Op::free) return {};
  auto number = operation.has(Member::extension)
                    ? number_of(unquoted(trace::extension(operation.extension, "x-category")))
                    : kNone;
  const auto at = index(*id);
  if (begins) {
    if (memory_.size() <= at) memory_.resize(at + 1);
    memory_[at] = {.bytes = operation.size, .category = number};
  }
  if (at >= memory_.size()) return {};
  // A free that names a category takes the bytes from there: another may have passed them on.
  if (number == kNone) number = memory_[at].category;
  if (number == kNone) return {};
  steps_[0] = {.event = event, .category = number, .begins = begins, .bytes = memory_[at].bytes};
  if (!begins) memory_[at] = {};
  return std::span(steps_).first(1);
}

CategorySums::CategorySums(std::uint32_t first_moment, std::uint32_t peak_event,
                           std::uint64_t events)
    : first_(first_moment), peak_event_(peak_event), events_(events) {}

/// Notes that a category has what it has after the events from `from` up to `to`, inclusive.
void CategorySums::note(std::size_t category, std::uint64_t from, std::uint64_t to) {
  const auto live = live_[category];
  auto& use = uses_[category];
  if (live > use.peak) {
    use.peak = live;
    use.peak_event = static_cast<std::uint32_t>(from);
  }
  const auto moments = events_ - first_;
  const auto parts = std::min(moments, kParts);
  use.over_events.resize(static_cast<std::size_t>(parts));
  const auto part = [&](std::uint64_t moment) {
    return static_cast<std::size_t>((moment - first_) * parts / moments);
  };
  for (auto at = part(from); at <= part(to); ++at)
    use.over_events[at] = std::max(use.over_events[at], live);
}

/// The events from `at_` up to `event`, exclusive, change nothing more.
void CategorySums::hold_until(std::uint64_t event) {
  const auto from = std::max(at_, first_);
  at_ = event;
  if (event <= from) return;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    note(i, from, event - 1);
    if (from <= peak_event_ && peak_event_ < event) uses_[i].at_peak = live_[i];
  }
}

void CategorySums::take(const CategoryStep& step) {
  // What follows the last event is counted to it.
  const auto event = std::min<std::uint64_t>(step.event, events_ == 0 ? 0 : events_ - 1);
  if (event > at_) hold_until(event);
  if (live_.size() <= step.category) {
    live_.resize(std::size_t{step.category} + 1);
    uses_.resize(live_.size());
  }
  auto& bytes = live_[step.category];
  bytes = step.begins ? bytes + step.bytes : bytes - std::min(bytes, step.bytes);
  // Bytes may leave again before the next event.
  if (event >= first_ && event < events_) note(step.category, event, event);
}

std::vector<CategoryUse> CategorySums::finish(const std::vector<std::string>& names) {
  live_.resize(names.size());
  uses_.resize(names.size());
  hold_until(events_);
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    uses_[i].name = names[i];
    uses_[i].at_end = live_[i];
  }
  std::stable_sort(uses_.begin(), uses_.end(),
                   [](const auto& a, const auto& b) { return a.at_peak > b.at_peak; });
  return std::move(uses_);
}

void Categories::take(const trace::Operation& operation, std::uint32_t event,
                      std::optional<AllocId> id) {
  const auto steps = reader_.take(operation, event, id);
  steps_.insert(steps_.end(), steps.begin(), steps.end());
}

std::vector<CategoryUse> Categories::use(std::uint32_t first_moment, std::uint32_t peak_event,
                                         std::uint64_t events) const {
  CategorySums sums(first_moment, peak_event, events);
  for (const auto& step : steps_) sums.take(step);
  return sums.finish(names());
}

}  // namespace emm::inspect
