#include "trial/gap_remedies.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/text_format.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "trial/habits.hpp"

namespace emm::trial {
namespace {

using inspect::Beyond;
using pytorch::Settings;

class RemedyTrials {
 public:
  RemedyTrials(const pytorch::Program& program, const std::atomic<bool>* interrupted,
               GapRemedies& found)
      : program_(program), interrupted_(interrupted), found_(found) {
    const auto today = outcome(program.settings, program);
    found_.reserved = today.reserved;  // The recording tells when today's frees completed.
    found_.lateness = lateness_of(program);
    found_.device_calls = today.device_calls;
  }

  /// Tries several settings, and adds the one that reserves least.
  void settings(Beyond cause, const std::vector<Settings>& some) {
    std::optional<GapRemedy> best;
    for (const auto& each : some) {
      if (each == program_.settings) continue;
      auto tried = outcome(each, program_);
      tried.cause = cause;
      tried.how = how_of(each);
      if (!best || key(tried) < key(*best)) best = std::move(tried);
    }
    if (best) add(std::move(*best));
  }
  void habit(Beyond cause, std::string how, const pytorch::Program& program) {
    auto tried = outcome(program_.settings, program);
    tried.cause = cause;
    tried.how = std::move(how);
    add(std::move(tried));
  }

 private:
  GapRemedy outcome(const Settings& settings, const pytorch::Program& program) {
    GapRemedy tried;
    tried.reserved = found_.reserved;
    tried.range = {.low = tried.reserved, .high = tried.reserved};
    if (interrupted_ != nullptr && interrupted_->load(std::memory_order_relaxed)) {
      found_.interrupted = true;
      return tried;
    }
    const pytorch::RunOptions options{.settings = settings};
    const auto outcome = run(program, options);
    // A setting with which a request fails does not help.
    if (!outcome.fails_at) {
      tried.reserved = outcome.reserved;
      tried.range = reserved_after(as_late(program), options, outcome);
    }
    tried.device_calls = outcome.counts.device_allocs + outcome.counts.device_frees;
    return tried;
  }
  void add(GapRemedy remedy) {
    if (remedy.range.low < found_.reserved) found_.remedies.push_back(std::move(remedy));
  }
  /// The one that holds least as recorded is the best, then the one that holds least at most.
  static std::pair<std::uint64_t, std::uint64_t> key(const GapRemedy& one) {
    return {one.reserved, one.range.high};
  }

  const pytorch::Program& program_;
  const std::atomic<bool>* interrupted_;
  GapRemedies& found_;
};

/// Returns the recording's settings with one change.
template <class Change>
Settings changed(const pytorch::Program& program, const Change& change) {
  auto settings = program.settings;
  change(settings);
  return settings;
}

std::vector<Settings> against_free_memory(const pytorch::Program& program) {
  std::vector<Settings> some{
      changed(program, [](Settings& to) { to.expandable_segments = !to.expandable_segments; })};
  constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;
  for (const auto split : {32, 64, 128, 256}) {
    some.push_back(changed(program, [&](Settings& to) {
      to.max_split_size = static_cast<std::uint64_t>(split) * kMebi;
    }));
  }
  some.push_back(changed(program, [](Settings& to) { to.max_split_size = pytorch::kNoLimit; }));
  for (const std::uint64_t divisions : {0, 4, 8}) {
    some.push_back(
        changed(program, [&](Settings& to) { to.roundup_power2_divisions.fill(divisions); }));
  }
  return some;
}

}  // namespace

namespace {

/// Tries the remedies for the causes on device `only`, or on every device if it is empty.
GapRemedies of_device(const pytorch::Program& program, const inspect::Gap& gap,
                      std::optional<std::uint32_t> only, const std::atomic<bool>* interrupted) {
  GapRemedies found;
  const auto part = up_to(program, gap.event);
  std::array<bool, inspect::kBeyondCauses> seen{};
  RemedyTrials trials(part, interrupted, found);
  for (const auto& each : gap.parts) {  // The greatest come first.
    if (only && each.device != *only) continue;
    auto& told = seen[static_cast<std::size_t>(each.cause)];
    if (std::exchange(told, true)) continue;
    switch (each.cause) {
      case Beyond::rounding:
        trials.settings(each.cause,
                        {changed(part, [](Settings& to) { to.roundup_power2_divisions.fill(0); })});
        break;
      case Beyond::unsplit_remainder:
        trials.settings(
            each.cause,
            {changed(part, [](Settings& to) { to.expandable_segments = true; }),
             changed(part, [](Settings& to) { to.max_split_size = pytorch::kNoLimit; })});
        break;
      case Beyond::waiting:
        trials.habit(each.cause, std::string(kNoWaiting), without_waiting(part));
        break;
      case Beyond::free_private:
        trials.habit(each.cause, std::string(kOnePool), with_one_pool(part));
        break;
      case Beyond::free_small:
      case Beyond::free_large:
      case Beyond::free:
        trials.settings(each.cause, against_free_memory(part));
        trials.habit(each.cause, "torch.cuda.empty_cache() then",
                     with_empty_cache_at_end(part, gap.event));
        break;
    }
  }
  return found;
}

}  // namespace

GapRemedies gap_remedies(const std::vector<DeviceProgram>& programs, const inspect::Gap& gap,
                         const std::atomic<bool>* interrupted) {
  GapRemedies all;
  all.event = gap.event;
  std::vector<GapRemedies> found;
  for (const auto& [device, program] : programs) {
    const auto only = programs.size() > 1 ? std::optional(device) : std::nullopt;
    auto& one = found.emplace_back(of_device(program, gap, only, interrupted));
    all.reserved += one.reserved;
    all.device_calls += one.device_calls;
    all.interrupted = all.interrupted || one.interrupted;
    if (one.lateness.longest_requests > all.lateness.longest_requests) all.lateness = one.lateness;
  }
  for (std::size_t i = 0; i < programs.size(); ++i) {
    for (auto& each : found[i].remedies) {
      each.device = programs[i].device;
      // The other devices stay as they are today.
      const auto others = all.reserved - found[i].reserved;
      each.reserved += others;
      each.range.low += others;
      each.range.high += others;
      each.device_calls += all.device_calls - found[i].device_calls;
      all.remedies.push_back(std::move(each));
    }
  }
  return all;
}

namespace {

/// "-12.00 MiB" or, of a range, "-12.00 to -4.00 MiB"; "+" is more than today.
std::string saved_words(const GapRemedies& remedies, const GapRemedy& one) {
  const auto signed_words = [&](std::uint64_t held) {
    if (held == remedies.reserved) return std::string("0");
    return held < remedies.reserved ? "-" + units::bytes(remedies.reserved - held)
                                    : "+" + units::bytes(held - remedies.reserved);
  };
  auto best = signed_words(one.range.low);
  const auto worst = signed_words(one.range.high);
  return best == worst ? best : best + " to " + worst;
}

}  // namespace

std::string to_text(const GapRemedies& remedies, const inspect::Gap& gap, std::size_t width) {
  if (gap.parts.empty()) return {};
  const auto has_several = std::any_of(
      gap.parts.begin(), gap.parts.end(),
      [&](const inspect::Gap::Part& part) { return part.device != gap.parts.front().device; });
  const auto words = [&](const inspect::Gap::Part& part) {
    return has_several ? text::format("{}, device {}", inspect::name(part.cause), part.device)
                       : std::string(inspect::name(part.cause));
  };
  auto out = std::string("\nWhat would lower it, each tried by a replay up to then\n");
  std::vector<std::vector<std::string>> rows;
  std::set<std::pair<inspect::Beyond, std::uint32_t>> seen;
  bool any_range = false;
  for (const auto& part : gap.parts) {
    if (!seen.insert({part.cause, part.device}).second) continue;
    bool any = false;
    for (const auto& each : remedies.remedies) {
      if (each.cause != part.cause || (has_several && each.device != part.device)) continue;
      rows.push_back({any ? std::string() : words(part), saved_words(remedies, each), each.how});
      any_range = any_range || each.range.is_range();
      any = true;
    }
    if (!any) rows.push_back({words(part), "", "nothing that was tried"});
  }
  out += format::columns("lrl", rows);
  if (any_range) out += "\n" + format::wrapped(why_range(remedies.lateness), width);
  return out;
}

std::string to_json(const GapRemedies& remedies) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("event", remedies.event).member("reserved_bytes", remedies.reserved);
  json.member("device_calls", remedies.device_calls);
  json.member("late_frees", remedies.lateness);
  json.objects("remedies", remedies.remedies, [&](const GapRemedy& each) {
    json.member("cause", each.cause).member("how", each.how).member("device", each.device);
    json.member("reserved_bytes", each.reserved).member("reserved_low_bytes", each.range.low);
    json.member("reserved_high_bytes", each.range.high);
    json.member("saved_bytes", remedies.reserved - std::min(remedies.reserved, each.reserved));
    json.member("device_calls", each.device_calls);
  });
  json.end_object();
  return out;
}

}  // namespace emm::trial
