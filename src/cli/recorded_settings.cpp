#include "cli/recorded_settings.hpp"

#include <algorithm>

#include "allocators/pytorch/program.hpp"
#include "base/text.hpp"
#include "cli/console.hpp"

namespace emm::cli {
namespace {

namespace pytorch = allocators::pytorch;

constexpr std::string_view kName = "pytorch";

std::string_view options_of(std::string_view spec) {
  return spec.size() > kName.size() ? spec.substr(kName.size() + 1) : std::string_view();
}

/// The settings that `spec` gives, over those of the recording.
pytorch::Settings settings_of(std::string_view spec, const pytorch::Recording& recording) {
  auto settings = recording.settings();
  auto options = Options::parse(options_of(spec));
  if (options && !read_options(*options, settings)) return recording.settings();
  return settings;
}

bool has_refusals(const pytorch::Recording& recording) {
  return std::any_of(recording.steps().begin(), recording.steps().end(),
                     [](const auto& step) { return step.kind == pytorch::Step::Kind::refused; });
}

}  // namespace

bool is_pytorch(std::string_view spec) noexcept {
  return spec == kName ||
         (spec.starts_with(kName) && spec.size() > kName.size() && spec[kName.size()] == ':');
}

std::string with_recorded_settings(Console& console, const std::string& spec,
                                   const pytorch::Recording& recording) {
  if (!recording.is_recording()) return spec;
  if (!recording.settings_fault().empty())
    console.say(
        text::format("the recording's settings are not all known: {}", recording.settings_fault()));
  auto given = Options::parse(options_of(spec));
  if (!given) return spec;
  if (has_refusals(recording) && !recording.settings().fraction && !given->has("fraction") &&
      !given->has("per_process_memory_fraction")) {
    console.say(
        "the recording has requests that were refused, and no snapshot has the memory fraction: "
        "where one was set, give fraction=...,total=...");
  }
  std::string merged = spec;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (given->has(name)) return;
    merged += text::format("{}{}={}", merged.size() == kName.size() ? ":" : ",", name, value);
  };
  for (const auto& [name, value] : named(recording.settings())) add(name, value);
  if (recording.settings().fraction && !given->has("per_process_memory_fraction"))
    add("fraction", text::format("{}", *recording.settings().fraction));
  if (recording.settings().total != 0 && recording.settings().fraction)
    add("total", text::format("{}", recording.settings().total));
  return merged;
}

std::optional<log::ModelAgreement> agreement(const std::string& spec,
                                             const pytorch::Recording& recording) {
  if (!recording.is_recording()) return std::nullopt;
  auto settings = settings_of(spec, recording);
  if (to_conf(settings) != to_conf(recording.settings())) return std::nullopt;
  const auto program = program_of(recording, settings);
  const auto& found = program.recorded;
  const auto free = free_run(program);
  const auto range = [](const pytorch::Range& of) {
    return log::ModelAgreement::Range{of.low, of.high};
  };
  return log::ModelAgreement{
      .segments = {found.segments.recorded, found.segments.as_recorded},
      .placements = {found.placements.recorded, found.placements.as_recorded},
      .releases = {found.releases.recorded, found.releases.as_recorded},
      .refusals = {found.refusals.recorded, found.refusals.as_recorded},
      .inferred_pools = found.inferred_pools,
      .peak_reserved = range(free.peak_reserved),
      .retries = range(free.retries),
      .ooms = range(free.ooms),
      .device_allocs = range(free.device_allocs),
      .device_frees = range(free.device_frees),
      .first_difference = found.misses.empty() ? std::string() : found.misses.front()};
}

}  // namespace emm::cli
