#include "inspect/beside.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"

namespace emm::inspect {
namespace {

using MemoryKind = trace::Lifetime::MemoryKind;

// Seconds: time zones lie a multiple of a quarter of an hour apart, and at most 14 hours from UTC.
constexpr std::int64_t kQuarter = 15 * 60, kFarthest = 14 * 3600, kMsPerNs = 1'000'000;

/// What the allocator held on one device from each time on.
struct Curve {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  // time_ns, bytes

  /// The least and the most from one time to another.
  Stated over(std::uint64_t from, std::uint64_t to) const {
    auto at = std::upper_bound(steps.begin(), steps.end(), std::pair(from, ~std::uint64_t{0}));
    const auto begin = at == steps.begin() ? 0 : std::prev(at)->second;
    Stated range = Stated::exactly(begin);
    for (; at != steps.end() && at->first <= to; ++at) {
      range.low = std::min(range.low, at->second);
      range.high = std::max(range.high, at->second);
    }
    return range;
  }
};

std::map<std::uint32_t, Curve> curves_of(const trace::Lifetimes& lifetimes, MemoryKind what) {
  std::map<std::uint32_t, Curve> curves;
  std::map<std::uint32_t, std::uint64_t> held;
  const auto& trace = lifetimes.trace();
  const auto change = [&](std::uint32_t event, AllocId id, bool begins) {
    const auto& each = lifetimes[id];
    if (each.what != what) return;
    const auto device = lifetimes.device(each);
    auto& bytes = held[device];
    bytes = begins ? bytes + each.size : bytes - std::min(bytes, each.size);
    // What existed before the first row was there all the time.
    const auto time = event < trace.beginning() ? 0 : trace[event].time_ns;
    auto& steps = curves[device].steps;
    if (!steps.empty() && steps.back().first >= time)
      steps.back().second = bytes;
    else
      steps.emplace_back(time, bytes);
  };
  lifetimes.walk([&](std::uint32_t event, AllocId id) { change(event, id, true); },
                 [&](std::uint32_t event, AllocId id) { change(event, id, false); },
                 [](std::uint32_t) {});
  return curves;
}

struct Series {
  std::string name;
  std::optional<std::uint32_t> device;
  std::vector<const SmiRow*> rows;
};
std::vector<Series> series_of(const std::vector<SmiRow>& rows) {
  std::vector<Series> all;
  std::map<std::string_view, std::size_t> places;
  for (const auto& row : rows) {
    if (!row.used) continue;
    const auto [at, is_new] = places.try_emplace(row.series, all.size());
    if (is_new) all.push_back({.name = row.series, .device = row.device, .rows = {}});
    all[at->second].rows.push_back(&row);
  }
  return all;
}

/// A recording with its wall clock.
struct Timed {
  std::map<std::uint32_t, Curve> curves;
  std::int64_t start_ns = 0;
  std::uint64_t last_ns = 0;
};

/// The samples that fall into the recording, if the file's clock is so far east of UTC.
std::vector<Beside::Sample> samples_of(const Series& series, const Curve& curve, const Timed& timed,
                                       std::int64_t zone) {
  std::vector<Beside::Sample> samples;
  const auto time_of = [&](const SmiRow& row) {
    return (*row.time_ms - zone * 1000) * kMsPerNs - timed.start_ns;
  };
  for (std::size_t i = 0; i < series.rows.size(); ++i) {
    const auto& row = *series.rows[i];
    if (!row.time_ms) continue;
    const auto time = time_of(row);
    if (time < 0 || static_cast<std::uint64_t>(time) > timed.last_ns) continue;
    auto next = static_cast<std::int64_t>(timed.last_ns);
    if (i + 1 < series.rows.size() && series.rows[i + 1]->time_ms)
      next = std::max(time, time_of(*series.rows[i + 1]));
    const auto held =
        curve.over(static_cast<std::uint64_t>(time), static_cast<std::uint64_t>(next));
    samples.push_back({.time_ns = static_cast<std::uint64_t>(time),
                       .used = *row.used,
                       .held = held,
                       .outside = minus(*row.used, held)});
  }
  return samples;
}

std::vector<Beside::Pair> pairs_of(const std::vector<Series>& all, const Timed& timed,
                                   std::int64_t zone) {
  std::vector<Beside::Pair> pairs;
  for (const auto& series : all) {
    for (const auto& [device, curve] : timed.curves) {
      if (series.device && *series.device != device) continue;
      Beside::Pair pair{.series = series.name, .device = device, .samples = {}};
      pair.samples = samples_of(series, curve, timed, zone);
      pair.is_possible =
          !pair.samples.empty() &&
          std::none_of(pair.samples.begin(), pair.samples.end(),
                       [](const Beside::Sample& each) { return each.used.high < each.held.low; });
      if (!pair.samples.empty()) pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

bool any_possible(const std::vector<Beside::Pair>& pairs) {
  return std::any_of(pairs.begin(), pairs.end(), [](const auto& each) { return each.is_possible; });
}

std::string zone_words(std::int64_t seconds) {
  if (seconds == 0) return "UTC";
  const auto minutes = std::abs(seconds) / 60;
  return text::format("UTC{}{}:{}{}", seconds < 0 ? "-" : "+", minutes / 60, minutes % 60 / 10,
                      minutes % 10);
}

/// Matches the two clocks, or says why not.
void match(Beside& out, const std::vector<Series>& all, const Timed& timed, bool has_clock,
           std::int64_t zone_here) {
  const bool has_times = std::any_of(all.begin(), all.end(), [](const Series& each) {
    return std::any_of(each.rows.begin(), each.rows.end(),
                       [](const SmiRow* row) { return row->time_ms.has_value(); });
  });
  if (!has_clock || !has_times) {
    out.unmatched = !has_clock ? "the recording does not tell the time of day"
                               : "the file has no timestamps: nvidia-smi writes them with "
                                 "--query-gpu=timestamp,...";
    return;
  }
  std::vector<std::int64_t> zones;
  if (any_possible(pairs_of(all, timed, zone_here))) {
    zones = {zone_here};
  } else {
    for (auto zone = -kFarthest; zone <= kFarthest; zone += kQuarter) {
      if (any_possible(pairs_of(all, timed, zone))) zones.push_back(zone);
    }
  }
  if (zones.empty()) {
    out.unmatched =
        "no sample falls into the recording and counts as much as it held, in no time zone";
  } else if (zones.size() > 1) {
    out.unmatched = text::format(
        "the file does not tell its time zone, and several fit: {} of them, from {} to {}; TZ=ZONE "
        "in front of emmctl gives it",
        zones.size(), zone_words(zones.front()), zone_words(zones.back()));
  } else {
    out.zone_seconds = zones.front();
    out.pairs = pairs_of(all, timed, zones.front());
  }
}

std::string range_words(Stated range) {
  const auto low = units::short_bytes(range.low), high = units::short_bytes(range.high);
  return low == high ? low : low + " to " + high;
}

void put(format::JsonWriter& json, std::string_view name, Stated range) {
  json.member(text::format("{}_low_bytes", name), range.low);
  json.member(text::format("{}_high_bytes", name), range.high);
}

/// At most `most` of the samples: the first, the last, the one with most outside, and others
/// evenly.
std::vector<std::size_t> shown_of(const std::vector<Beside::Sample>& samples, std::size_t most) {
  std::vector<std::size_t> shown;
  const auto count = std::min(samples.size(), std::max<std::size_t>(most, 3));
  for (std::size_t i = 0; i < count; ++i)
    shown.push_back(count == 1 ? 0 : i * (samples.size() - 1) / (count - 1));
  const auto peak =
      static_cast<std::size_t>(std::max_element(samples.begin(), samples.end(),
                                                [](const auto& a, const auto& b) {
                                                  return a.outside.high < b.outside.high;
                                                }) -
                               samples.begin());
  if (!std::binary_search(shown.begin(), shown.end(), peak))
    shown.insert(std::lower_bound(shown.begin(), shown.end(), peak), peak);
  return shown;
}

}  // namespace

Beside beside(const trace::Lifetimes& lifetimes, const std::vector<SmiRow>& rows,
              const SmiFile& file, std::int64_t zone_seconds) {
  Beside out{.of_processes = file.of_processes, .pairs = {}};
  const auto& trace = lifetimes.trace();
  Timed timed{.curves = curves_of(lifetimes, MemoryKind::backing)};
  out.of_reserved = !timed.curves.empty();
  if (!out.of_reserved) timed.curves = curves_of(lifetimes, MemoryKind::device);
  timed.start_ns = static_cast<std::int64_t>(trace.header().clock_start_realtime_ns);
  for (std::size_t event = 0; event < trace.size(); ++event)
    timed.last_ns = std::max(timed.last_ns, trace[event].time_ns);
  const auto all = series_of(rows);
  // A snapshot whose rows tell the time of a boot, and not of day, begins in 1970.
  constexpr std::int64_t kYear2000Ns = 946'684'800'000'000'000;
  match(out, all, timed, timed.start_ns > kYear2000Ns && timed.last_ns != 0, zone_seconds);
  if (!out.unmatched.empty() && all.size() == 1 && timed.curves.size() == 1) {
    std::uint64_t used = 0, held = 0;
    for (const auto* row : all.front().rows) used = std::max(used, row->used->low);
    for (const auto& [time, bytes] : timed.curves.begin()->second.steps)
      held = std::max(held, bytes);
    out.outside_least = used - std::min(used, held);
  }
  return out;
}

std::string to_text(const Beside& beside, const std::string& file, std::size_t top) {
  constexpr std::size_t kWidth = 80;  // columns of prose
  const std::string_view held = beside.of_reserved ? "reserved" : "live";
  auto out = text::format("\nOutside of the allocator, by {}\n", format::file_name(file));
  if (!beside.unmatched.empty()) {
    out += format::wrapped("Over time it is unknown: " + beside.unmatched + ".", kWidth);
    if (beside.outside_least)
      out += format::wrapped(
          text::format("When most is used, at least {} lie outside: the most used less the peak of "
                       "what was {}.",
                       units::bytes(*beside.outside_least), held),
          kWidth);
    return out;
  }
  std::size_t impossible = 0;
  for (const auto& pair : beside.pairs) {
    if (!pair.is_possible) {
      ++impossible;
      continue;
    }
    out += format::wrapped(
        text::format("{}, beside device {}: {} samples while it was recorded.{}",
                     text::printable(pair.series, kWidth), pair.device,
                     text::grouped(pair.samples.size()),
                     beside.of_processes ? "" : " What other processes hold is in it, too."),
        kWidth);
    std::vector<std::vector<std::string>> lines{{"at", "used", std::string(held), "outside"}};
    for (const auto i : shown_of(pair.samples, top)) {
      const auto& each = pair.samples[i];
      lines.push_back({units::ns(static_cast<double>(each.time_ns)), range_words(each.used),
                       range_words(each.held), range_words(each.outside)});
    }
    out += format::columns("rrrr", lines);
  }
  if (impossible != 0)
    out += format::wrapped(
        text::format("Left out, as it counts less than the program held: {} other series.",
                     impossible),
        kWidth);
  return out + format::wrapped(
                   text::format("nvidia-smi's clock is taken as {}. It rounds to whole MiB, and "
                                "counts at some moment between two samples, so figures are ranges.",
                                zone_words(*beside.zone_seconds)),
                   kWidth);
}

std::string to_json(const Beside& beside, const std::string& file) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("file", file).member("of_processes", beside.of_processes);
  json.member("held_is", beside.of_reserved ? "reserved" : "live");
  json.member("zone_seconds", beside.zone_seconds);
  json.member_or_null("unmatched", !beside.unmatched.empty(), beside.unmatched);
  json.member("outside_least_bytes", beside.outside_least);
  json.objects("series", beside.pairs, [&](const Beside::Pair& pair) {
    json.member("name", pair.series).member("device", pair.device);
    json.member("possible", pair.is_possible);
    json.objects("samples", pair.samples, [&](const Beside::Sample& each) {
      json.member("time_ns", each.time_ns);
      put(json, "used", each.used);
      put(json, "held", each.held);
      put(json, "outside", each.outside);
    });
  });
  json.end_object();
  return out;
}

}  // namespace emm::inspect
