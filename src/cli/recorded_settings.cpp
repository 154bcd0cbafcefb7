#include "cli/recorded_settings.hpp"

#include <algorithm>

#include "allocators/pytorch/program.hpp"
#include "base/text_format.hpp"
#include "base/units.hpp"
#include "cli/console.hpp"
#include "emm/manager_entry.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::cli {
namespace {

namespace pytorch = allocators::pytorch;

constexpr std::string_view kName = "pytorch";

std::string_view name_of(std::string_view spec) { return spec.substr(0, spec.find(':')); }
std::string_view options_of(std::string_view spec) {
  const auto name = name_of(spec);
  return spec.size() > name.size() ? spec.substr(name.size() + 1) : std::string_view();
}

bool has_limit(const Options& options) {
  return options.has("fraction") || options.has("per_process_memory_fraction") ||
         options.has("total") || options.has("limit");
}

bool has_refusals(const pytorch::Recording& recording) {
  return std::any_of(recording.steps().begin(), recording.steps().end(),
                     [](const auto& step) { return step.kind == pytorch::Step::Kind::refused; });
}

/// May the recording have been made under the limit of `given`? Another one is asked about, and
/// does not tell what the recorded allocator did.
bool may_be_recorded(const pytorch::Settings& given, const pytorch::Recording& recording) {
  const auto& own = recording.settings();
  if (own.limit() == given.limit()) return true;
  if (own.limit() != pytorch::kNoLimit && !recording.limit_is_inferred()) return false;
  const auto inferred = pytorch::inferred_limit(recording);
  return !inferred ||
         (inferred->range.least <= given.limit() && given.limit() < inferred->range.below);
}

}  // namespace

pytorch::Settings settings_of(std::string_view spec, const pytorch::Recording& recording) {
  auto settings = recording.settings();
  auto options = Options::parse(options_of(spec));
  if (options && recording.limit_is_inferred() && has_limit(*options)) settings.drop_limit();
  if (options && pytorch::has_conf(*options)) settings.drop_conf();
  if (options && !read_options(*options, settings)) return recording.settings();
  return settings;
}

pytorch::Program program_under(const pytorch::Settings& given,
                               const pytorch::Recording& recording) {
  auto program =
      program_of(recording, may_be_recorded(given, recording) ? given : recording.settings());
  program.settings = given;
  return program;
}

bool is_pytorch(std::string_view spec) noexcept { return name_of(spec) == kName; }

void say_inferred_limit(Console& console, const pytorch::Recording& recording) {
  if (!recording.limit_is_inferred()) return;
  console.say(text::format(
      "the snapshot has no memory fraction: when garbage was collected tells a limit of about {}",
      units::bytes(recording.settings().limit())));
}

void say_limit_of_refusals(Console& console, const pytorch::Recording& recording,
                           std::string_view how) {
  const auto& settings = recording.settings();
  if (!has_refusals(recording) || settings.fraction || settings.limit() != pytorch::kNoLimit)
    return;
  const auto range = limit_of_refusals(recording, settings);
  if (!range) {
    console.say(
        text::format("the recording has requests that were refused, and no snapshot has the memory "
                     "fraction: where one was set, give {}",
                     how));
    return;
  }
  const auto least = units::short_bytes(range->least), below = units::short_bytes(range->below);
  console.say(text::format(
      "no snapshot has the memory fraction: what was served and refused tells a limit of {}. Give "
      "what was set: {}",
      least == below ? "about " + least : text::format("{} to {}", least, below), how));
}

std::string with_recorded_settings(Console& console, const std::string& spec,
                                   const pytorch::Recording& recording, InferredLimitUse inferred) {
  if (!recording.is_recording()) return spec;
  if (!recording.settings_fault().empty())
    console.say(
        text::format("the recording's settings are not all known: {}", recording.settings_fault()));
  auto given = Options::parse(options_of(spec));
  if (!given) return spec;
  if (!given->has("fraction") && !given->has("per_process_memory_fraction") && !given->has("limit"))
    say_limit_of_refusals(console, recording, "fraction=... and total=..., or limit=...");
  std::string merged = spec;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (given->has(name)) return;
    merged += text::format("{}{}={}", merged.size() == kName.size() ? ":" : ",", name, value);
  };
  auto kept = recording.settings();
  if (pytorch::has_conf(*given)) kept.drop_conf();
  for (const auto& [name, value] : named(kept)) add(name, value);
  if (recording.limit_is_inferred() && has_limit(*given)) return merged;
  say_inferred_limit(console, recording);
  const auto& settings = recording.settings();
  if (recording.limit_is_inferred()) {
    if (inferred == InferredLimitUse::is_the_capacity) {
      add("fraction", "1");
    } else {
      add("limit", text::format("{}", settings.limit()));
    }
    return merged;
  }
  if (!settings.fraction || given->has("limit")) return merged;
  if (!given->has("per_process_memory_fraction"))
    add("fraction", text::format("{}", *settings.fraction));
  if (settings.total != 0) add("total", text::format("{}", settings.total));
  return merged;
}

namespace {

/// Are the settings of `spec` those of the recording? The limit does not count, since no snapshot
/// has it.
bool has_own_settings(const std::string& spec, const pytorch::Recording& recording) {
  return to_conf(settings_of(spec, recording)) == to_conf(recording.settings());
}

log::ModelAgreement agreement_of(const pytorch::Program& program,
                                 std::optional<pytorch::LimitRange> limit) {
  const auto& found = program.recorded;
  const auto free = free_run(program, limit);
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

/// Widens the ranges of `agreement` to include those of `other`.
void widen(log::ModelAgreement& agreement, const log::ModelAgreement& other) {
  using Range = log::ModelAgreement::Range;
  const auto take = [](Range& range, const Range& more) {
    range = {.low = std::min(range.low, more.low), .high = std::max(range.high, more.high)};
  };
  take(agreement.peak_reserved, other.peak_reserved);
  take(agreement.retries, other.retries);
  take(agreement.ooms, other.ooms);
  take(agreement.device_allocs, other.device_allocs);
  take(agreement.device_frees, other.device_frees);
}

std::string with_limit(const std::string& spec, const allocators::CupyRecording& recording) {
  auto given = Options::parse(options_of(spec));
  std::string merged = spec;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (given && given->has(name)) return;
    merged += text::format("{}{}={}", options_of(merged).empty() ? ":" : ",", name, value);
  };
  const auto& settings = recording.settings();
  if (settings.limit != 0) add("limit", text::format("{}", settings.limit));
  if (settings.flushes_too_large) add("version", "13");
  return merged;
}

std::optional<log::ModelAgreement> agreement_of(const std::string& spec,
                                                const allocators::CupyRecording& recording) {
  using allocators::Addresses;
  if (!recording.is_recording() || spec != with_limit("cupy", recording)) return std::nullopt;
  const auto& settings = recording.settings();
  const auto found = check_one_step(recording, settings);
  log::ModelAgreement agreement;
  agreement.segments = {found.segments.recorded, found.segments.as_recorded};
  agreement.placements = {found.placements.recorded, found.placements.as_recorded};
  agreement.refusals = {found.refusals.recorded, found.refusals.as_recorded};
  agreement.ties = found.ties;
  agreement.unknown = found.unknown;
  agreement.inferred_flushes = found.flushes.size();
  if (!found.misses.empty()) agreement.first_difference = found.misses.front();
  for (const auto addresses :
       {Addresses::recorded, Addresses::first_fit, Addresses::ascending, Addresses::descending}) {
    const auto counts = free_run(recording, settings, found, addresses);
    const auto count = [&](log::ModelAgreement::Range& range, std::uint64_t value) {
      const bool is_first = addresses == Addresses::recorded;
      range.low = is_first ? value : std::min(range.low, value);
      range.high = is_first ? value : std::max(range.high, value);
    };
    count(agreement.peak_reserved, counts.peak_reserved);
    count(agreement.retries, counts.retries);
    count(agreement.ooms, counts.ooms);
    count(agreement.device_allocs, counts.device_allocs);
    count(agreement.device_frees, counts.device_frees);
  }
  return agreement;
}

}  // namespace

ModelRecording::ModelRecording(std::string_view spec)
    : library_(find_entry(spec) == nullptr ? Library::none
               : name_of(spec) == kName    ? Library::pytorch
               : name_of(spec) == "cupy"   ? Library::cupy
                                           : Library::none) {}

trace::OperationSink* ModelRecording::sink() noexcept {
  if (library_ == Library::pytorch) return &pytorch_;
  return library_ == Library::cupy ? &cupy_ : nullptr;
}

Status ModelRecording::on_header(const trace::Header& header) {
  return sink() == nullptr ? Status() : sink()->on_header(header);
}
Status ModelRecording::on_operation(const trace::Operation& operation) {
  return sink() == nullptr ? Status() : sink()->on_operation(operation);
}
Status ModelRecording::finish() { return sink() == nullptr ? Status() : sink()->finish(); }

std::string ModelRecording::with_settings(Console& console, const std::string& spec,
                                          InferredLimitUse inferred) const {
  if (library_ == Library::pytorch)
    return with_recorded_settings(console, spec, pytorch_, inferred);
  return library_ == Library::cupy && cupy_.is_recording() ? with_limit(spec, cupy_) : spec;
}

std::vector<std::string> ModelRecording::not_followed() const {
  std::vector<std::string> found;
  if (library_ != Library::pytorch) return found;
  if (pytorch_.is_recording() && pytorch_.other_devices() != 0)
    found.push_back(text::format(
        "of {} devices, device {} is compared with the recording: it has most of the rows",
        pytorch_.other_devices() + 1, pytorch_.device()));
  return found;
}

const pytorch::Program& ModelRecording::program(const std::string& spec) const {
  if (!program_) {
    const auto own = has_own_settings(spec, pytorch_);
    program_ = program_under(own ? settings_of(spec, pytorch_) : pytorch_.settings(), pytorch_);
  }
  return *program_;
}

trace::PoolSteps ModelRecording::pool_steps(const std::string& spec) const {
  if (library_ != Library::pytorch || !pytorch_.is_recording()) return {};
  return pool_steps_of(program(spec), pytorch_.device());
}

std::optional<log::ModelAgreement> ModelRecording::agreement(const std::string& spec) const {
  if (library_ == Library::pytorch) {
    if (!pytorch_.is_recording() || !has_own_settings(spec, pytorch_)) return std::nullopt;
    auto settings = settings_of(spec, pytorch_);
    if (settings.fraction || settings.limit() != pytorch::kNoLimit) {
      auto agreement = agreement_of(program(spec), {});
      if (const auto inferred = pytorch::inferred_limit(pytorch_);
          inferred && settings.limit() == pytorch_.settings().limit())
        agreement.inferred_limit = {.least = inferred->range.least,
                                    .below = inferred->range.below,
                                    .by = name(inferred->by)};
      return agreement;
    }
    const auto limit = limit_of_refusals(pytorch_, settings);
    const auto possible = limit ? limit : limit_of_releases(pytorch_, settings);
    if (!possible) return agreement_of(program(spec), {});
    // The recording had a limit, or may have had one, but the replay has none.
    settings.known_limit = possible->below - 1;
    auto limited = agreement_of(program_of(pytorch_, settings), possible);
    const auto by = limit ? pytorch::LimitBy::refusals : pytorch::LimitBy::releases;
    limited.inferred_limit = {.least = possible->least, .below = possible->below, .by = name(by)};
    if (limit) return limited;
    auto agreement = agreement_of(program(spec), {});
    widen(agreement, limited);
    agreement.inferred_limit = limited.inferred_limit;
    return agreement;
  }
  return library_ == Library::cupy ? agreement_of(spec, cupy_) : std::nullopt;
}

const pytorch::Recording* ModelRecording::pytorch() const noexcept {
  return library_ == Library::pytorch && pytorch_.is_recording() ? &pytorch_ : nullptr;
}

}  // namespace emm::cli
