#include "trial/fit_text.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/json_writer.hpp"
#include "inspect/columns.hpp"
#include "inspect/places.hpp"
#include "log/writer.hpp"

namespace emm::trial {
namespace {

using inspect::bytes_in_full;
using text::format;

std::string sizes(const std::vector<std::uint64_t>& capacities) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> words;
  for (const auto capacity : capacities) {
    if (words.size() == kShown) {
      words.push_back(format("and {} more", capacities.size() - kShown));
      break;
    }
    words.push_back(bytes_in_full(capacity));
  }
  return text::join(words);
}

std::string each_of(const FitShown& shown) {
  const auto devices = shown.trace.device_count();
  return devices > 1 ? format(" on each of {} devices", devices) : std::string();
}

/// The answer in a sentence or two.
std::string answer(const Fit& fit, const FitShown& shown) {
  if (!fit.capacity) {
    if (fit.interrupted) return format("Interrupted before {} was found to fit.", shown.manager);
    return format("The trace passes with {} at no capacity that was tried, {} of them up to {}.",
                  shown.manager, fit.trials.size(), units::bytes(kCapacityMost));
  }
  const auto capacity = *fit.capacity;
  const auto need = need_of(shown.needs);
  auto words = format("{} serves the trace with {}{}", shown.manager, bytes_in_full(capacity),
                      each_of(shown));
  words += fit.below ? ", and not with 2 MiB less." : ", the least that a device can have.";
  if (need == 0) return words + " The program asks for no device memory.";
  words += format(" The program itself needs {}", bytes_in_full(need));
  if (capacity > need) {
    const auto waste = capacity - need;
    words += format(", whoever serves it; the other {} ({} %) are the manager's waste.",
                    units::bytes(waste),
                    text::fixed(100 * static_cast<double>(waste) / static_cast<double>(need), 1));
  } else if (capacity == need) {
    words += ", so the manager wastes nothing.";
  } else {
    words +=
        " if all is served that the recording served; the manager declined or refused some of it.";
  }
  return words;
}

std::vector<std::vector<std::string>> rows(const Fit& fit) {
  std::vector<std::vector<std::string>> out;
  if (!fit.capacity) {
    for (auto trial = fit.trials.rbegin(); trial != fit.trials.rend(); ++trial) {
      if (!trial->second) {
        out.push_back({"fails", format("at {}", bytes_in_full(trial->first))});
        break;
      }
    }
    for (const auto& [capacity, passes] : fit.trials) {
      if (!passes) continue;
      out.push_back({"passes", format("at {}", bytes_in_full(capacity))});
      break;
    }
  } else {
    const auto& tried = fit.tried_below;
    out.push_back({"reserved", format("{} at most", bytes_in_full(fit.peak_reserved))});
    if (fit.refused + fit.served != 0) {
      out.push_back(
          {"refused", format("of the {} operations that the recording refused, {} fail here too",
                             fit.refused + fit.served, fit.refused)});
      if (fit.all_served) {
        out.push_back({"", format("all are served with {}", bytes_in_full(*fit.all_served))});
      }
    }
    if (!tried.empty()) {
      out.push_back({"below", format("{} further capacities tried, {} to {} bytes", tried.size(),
                                     text::grouped(tried.front()), text::grouped(tried.back()))});
      out.push_back({"", fit.passing_below.empty() ? std::string("the trace passes at none of them")
                                                   : format("the trace passes all the same at {}",
                                                            sizes(fit.passing_below))});
    }
  }
  out.push_back({"trials", format("{}", fit.trials.size())});
  return out;
}

}  // namespace

std::uint64_t need_of(const std::vector<inspect::Need>& needs) noexcept {
  std::uint64_t most = 0;
  for (const auto& need : needs) most = std::max(most, need.paged);
  return most;
}

std::string to_text(const Fit& fit, const FitShown& shown) {
  auto out = inspect::wrapped(answer(fit, shown), static_cast<std::size_t>(shown.width)) + '\n';
  out += inspect::columns("ll", rows(fit));
  out += inspect::to_text(shown.needs);
  if (fit.below && fit.below->first_failure) {
    const auto heading = fit.capacity ? format("\nWith 2 MiB less ({} bytes) it fails",
                                               text::grouped(*fit.capacity - kStep))
                                      : format("\nWith {} it fails", bytes_in_full(kCapacityMost));
    out += log::failure_to_text(heading, *fit.below->first_failure, shown.width, shown.all_frames);
    out.pop_back();
  }
  return out;
}

std::string to_json(const Fit& fit, const FitShown& shown) {
  std::string out;
  format::JsonWriter json(out, 2);
  const auto list = [&](std::string_view name, const std::vector<std::uint64_t>& capacities) {
    json.key(name).begin_array();
    for (const auto capacity : capacities) json.value(capacity);
    json.end_array();
  };
  json.begin_object().member("schema", "emmctl.fit/1").member("trace", shown.trace.source());
  json.member("manager", shown.manager).member("events", std::uint64_t{shown.trace.size()});
  json.member("devices", std::uint64_t{shown.trace.device_count()});
  json.member("complete", !fit.interrupted);
  const auto need = need_of(shown.needs);
  json.key("capacity_bytes");
  fit.capacity ? json.value(*fit.capacity) : json.null();
  json.member("need_bytes", need).key("waste_bytes");
  fit.capacity ? json.value(*fit.capacity - std::min(need, *fit.capacity)) : json.null();
  json.member("peak_reserved_bytes", fit.peak_reserved);
  json.member("refused", fit.refused).member("served", fit.served);
  json.key("all_served_bytes");
  fit.all_served ? json.value(*fit.all_served) : json.null();
  json.key("fails_at_bytes");
  fit.below ? json.value(fit.capacity ? *fit.capacity - kStep : kCapacityMost) : json.null();
  log::failure_to_json(json, "failure", fit.below ? fit.below->first_failure : std::nullopt);
  list("tried_below", fit.tried_below);
  list("passing_below", fit.passing_below);
  json.key("trials").begin_array();
  for (const auto& [capacity, passes] : fit.trials) {
    json.begin_object().member("capacity_bytes", capacity).member("passes", passes).end_object();
  }
  json.end_array().key("needs");
  inspect::to_json(json, shown.needs);
  json.end_object();
  return out + '\n';
}

}  // namespace emm::trial
