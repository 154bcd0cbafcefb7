#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.hpp"
#include "base/units.hpp"
#include "fleet/diff.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"

namespace emm::fleet {
namespace {

/// How a count of bytes is written: units::bytes() or units::short_bytes().
using Bytes = std::string (*)(std::uint64_t);

std::string signed_bytes(std::int64_t bytes, Bytes write = units::bytes) {
  return (bytes < 0 ? "-" : "+") + write(static_cast<std::uint64_t>(std::llabs(bytes)));
}

std::string times_words(double times) { return text::fixed(times, 2) + " times"; }

/// Writes "2.00 times as large", and of a small difference "0.03 % larger".
std::string size_words(double times) {
  const auto percent = 100 * (times - 1);
  constexpr double kSmall = 10;  // percent: from there on a ratio reads better
  if (std::abs(percent) >= kSmall) return times_words(times) + " as large";
  return text::format("{} % {}", text::fixed(std::abs(percent), std::abs(percent) < 0.1 ? 4 : 2),
                      percent < 0 ? "smaller" : "larger");
}

std::string ratio(std::uint64_t b, std::uint64_t a) {
  return a == 0 ? std::string("-")
                : text::fixed(static_cast<double>(b) / static_cast<double>(a), 3);
}

/// Names the call site, or counts several: "2 call sites, most at ...".
std::string where(const Finding& finding, const Sites& sites) {
  if (finding.sites.size() == 1 && finding.sites[0].site != 0)
    return sites.name(finding.sites[0].site);
  if (finding.sites.front().site == 0) return inspect::counted(finding.sites.size(), "size");
  return text::format("{}, most at {}", inspect::counted(finding.sites.size(), "call site"),
                      sites.name(finding.sites.front().site));
}

std::string finding_words(const Finding& finding, const Sites& sites) {
  if (finding.sites.empty()) {
    const bool more = finding.change == Change::inserted;
    const auto count = inspect::counted(finding.count, "request");
    if (finding.at_end) {
      return more ? text::format("it goes on for {}, from event {}", count,
                                 text::grouped(finding.since))
                  : text::format(
                        "it ends earlier: {} of the other's, from its event {}, are not made",
                        count, text::grouped(finding.since));
    }
    return text::format("{} in one stretch, events {} to {}{}, {}", count,
                        text::grouped(finding.since), text::grouped(finding.until),
                        more ? "" : " of the other",
                        more ? "that were not there" : "that are not made");
  }
  std::uint64_t count_a = 0, count_b = 0;
  for (const auto& site : finding.sites) {
    count_a += site.count_a;
    count_b += site.count_b;
  }
  const auto place =
      text::format("{}; since event {}", where(finding, sites), text::grouped(finding.since));
  switch (finding.change) {
    case Change::kept: {
      const auto more = count_b - count_a;
      auto words = text::format("{} {} never freed", inspect::counted(more, "more allocation"),
                                more == 1 ? "is" : "are");
      const auto& site = finding.sites.front();
      if (finding.sites.size() == 1 && site.a_step > 0) {
        words += text::format(
            ", {} a step, as a leak is",
            site.a_step == 1 ? std::string("one") : std::string(text::grouped(site.a_step)));
      } else if (finding.sites.size() == 1 && site.again) {
        words += ", over the whole run, as a leak is";
      }
      return text::format("{}: {}", words, place);
    }
    case Change::larger:
      return text::format("{} {} {}: {}", inspect::counted(count_b, "request"),
                          count_b == 1 ? "is" : "are", size_words(finding.times), place);
    case Change::more:
      return text::format("{} where there were {}, {} as many: {}",
                          inspect::counted(count_b, "request"), text::grouped(count_a),
                          times_words(finding.times), place);
    case Change::added:
      return text::format("{} that were not there: {}", inspect::counted(count_b, "request"),
                          place);
    case Change::longer:
      return text::format("as many requests, of which more are live at the peak: {}", place);
    case Change::inserted:
    case Change::removed:
    case Change::fewer:
      break;
  }
  return text::format("{} where there were {}: {}", inspect::counted(count_b, "request"),
                      text::grouped(count_a), where(finding, sites));
}

std::string first_line(const Diff& diff, Bytes write = units::bytes) {
  const auto& a = diff.a;
  const auto& b = diff.b;
  if (diff.is_nothing()) {
    return text::format("Nothing differs: both make the same {} and peak at {}.",
                        inspect::counted(b.allocations.size(), "request"), write(b.peak_live));
  }
  const auto name = text::printable(b.name, 100);
  if (a.peak_live == b.peak_live) {
    auto words = text::format("{} peaks at {}, as {} does", name, write(b.peak_live),
                              text::printable(a.name, 100));
    if (diff.findings.empty()) words += ", with the same requests";
    if (a.reserved && b.reserved && *a.reserved != *b.reserved) {
      const bool more = *b.reserved > *a.reserved;
      words += text::format("; its manager holds {} at most, {} {}", write(*b.reserved),
                            write(more ? *b.reserved - *a.reserved : *a.reserved - *b.reserved),
                            more ? "more" : "less");
    }
    return words + '.';
  }
  const bool more = b.peak_live > a.peak_live;
  return text::format("{} peaks at {}, {} {} than {}: {} times its {}.", name, write(b.peak_live),
                      write(more ? b.peak_live - a.peak_live : a.peak_live - b.peak_live),
                      more ? "more" : "less", text::printable(a.name, 100),
                      ratio(b.peak_live, a.peak_live), write(a.peak_live));
}

std::vector<std::vector<std::string>> table(const Diff& diff, Bytes write) {
  const auto& a = diff.a;
  const auto& b = diff.b;
  std::vector<std::vector<std::string>> rows{{"", "before", "after", "times"}};
  const auto bytes = [&](std::string_view what, std::uint64_t of_a, std::uint64_t of_b) {
    rows.push_back({std::string(what), write(of_a), write(of_b), ratio(of_b, of_a)});
  };
  const auto count = [&](std::string_view what, std::uint64_t of_a, std::uint64_t of_b) {
    rows.push_back(
        {std::string(what), text::grouped(of_a), text::grouped(of_b), ratio(of_b, of_a)});
  };
  bytes("peak live", a.peak_live, b.peak_live);
  if (a.before + b.before > 0) bytes("there before", a.before, b.before);
  if (a.reserved && b.reserved) bytes("peak reserved", *a.reserved, *b.reserved);
  bytes("live at the end", a.live_at_end, b.live_at_end);
  count("requests", a.allocations.size(), b.allocations.size());
  if (a.refused + b.refused > 0) count("refused", a.refused, b.refused);
  if (a.steps + b.steps > 0) count("steps", a.steps, b.steps);
  return rows;
}

}  // namespace

format::Brief brief(const Diff& diff, const Sites& sites) {
  format::Brief out;
  out.answer.push_back(first_line(diff, units::short_bytes));
  if (diff.is_nothing()) return out;
  const auto words = [&](const Finding& each) {
    return text::format("{}: {}", signed_bytes(each.bytes, units::short_bytes),
                        finding_words(each, sites));
  };
  std::size_t told = 0;
  if (!diff.findings.empty()) {
    const auto& most = diff.findings.front();
    auto changes = words(most);
    // What one change adds another one may take away.
    const auto against =
        std::find_if(diff.findings.begin(), diff.findings.end(), [&](const Finding& each) {
          return (each.bytes < 0) != (most.bytes < 0) &&
                 2 * std::abs(each.bytes) >= std::abs(most.bytes);
        });
    const bool has_other = against != diff.findings.end();
    if (has_other) changes += "; and " + words(*against);
    out.answer.push_back(changes + '.');
    told = has_other ? 2 : 1;
  }
  const auto shorter = std::min(diff.a.allocations.size(), diff.b.allocations.size());
  if (2 * diff.matched < shorter)
    out.answer.push_back(text::format("Only {} of {} match: the runs are hardly alike.",
                                      text::grouped(diff.matched),
                                      inspect::counted(shorter, "request")));
  else if (const auto others = diff.findings.size(); others > told)
    out.answer.push_back(text::format("{} smaller than that.",
                                      others == told + 1
                                          ? std::string("Another change is")
                                          : text::format("{} other changes are", others - told)));
  out.sides = "lrrr";
  out.rows = table(diff, units::short_bytes);
  out.more = "each change, and what is live at the peaks";
  return out;
}

std::string to_text(const Diff& diff, const Sites& sites, const DiffShown& shown) {
  auto out = first_line(diff) + '\n';
  if (diff.is_nothing()) return out;
  const auto count = std::min(shown.top, diff.findings.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& finding = diff.findings[i];
    out += text::format("  {} {}\n", signed_bytes(finding.bytes), finding_words(finding, sites));
  }
  if (diff.findings.size() > count)
    out += text::format("  and {} smaller changes\n", diff.findings.size() - count);
  out += '\n' + format::columns("lrrr", table(diff, units::bytes));
  const auto shorter = std::min(diff.a.allocations.size(), diff.b.allocations.size());
  out += text::format("\n{} of the {} requests of the shorter run match one of the other, by {}.\n",
                      text::grouped(diff.matched), text::grouped(shorter),
                      diff.by_site ? "call site and order" : "size and order");
  if (diff.at_peaks.empty()) return out;
  out += "\nLive at the peaks, where it differs\n";
  std::vector<std::vector<std::string>> rows{
      {"change", "before", "count", "after", "count", "since event", ""}};
  std::size_t left = 0;
  for (const auto& each : diff.at_peaks) {
    if (rows.size() > shown.top) {
      ++left;
      continue;
    }
    rows.push_back({signed_bytes(static_cast<std::int64_t>(each.bytes_b) -
                                 static_cast<std::int64_t>(each.bytes_a)),
                    units::bytes(each.bytes_a), text::grouped(each.count_a),
                    units::bytes(each.bytes_b), text::grouped(each.count_b),
                    each.differs ? text::grouped(each.since) : "-",
                    each.size != 0 ? text::format("of {} bytes", text::grouped(each.size))
                                   : sites.name(each.site)});
  }
  if (left > 0) rows.push_back({"", "", "", "", "", "", text::format("... and {} more", left)});
  return out + format::columns("rrrrrrl", rows);
}

std::string to_json(const Diff& diff, const Sites& sites,
                    const std::vector<std::string>& failures) {
  format::JsonAnswer json("emmctl.diff/1", 2);
  const auto site = [&](std::uint32_t number) {
    json.member_or_null("call_site", number != 0, sites.name(number));
  };
  const auto run = [&](std::string_view name, const RecordedRun& of) {
    json.object(name, [&] {
      json.member("trace", of.name).member("events", of.events);
      json.member("requests", of.allocations.size()).member("refused", of.refused);
      json.member("steps", of.steps).member("before_bytes", of.before);
      json.member("peak_live_bytes", of.peak_live).member("peak_event", of.peak_event);
      json.member("live_at_end_bytes", of.live_at_end).member("peak_reserved_bytes", of.reserved);
    });
  };
  json.member("same", diff.is_nothing());
  run("a", diff.a);
  run("b", diff.b);
  json.member("matched", diff.matched).member("matched_by", diff.by_site ? "call site" : "size");
  json.objects("changes", diff.findings, [&](const Finding& finding) {
    json.member("change", finding.change).member("times", finding.times);
    json.member("bytes", finding.bytes).member("since_event", finding.since);
    json.member("requests", finding.count).member("words", finding_words(finding, sites));
    json.objects("sites", finding.sites, [&](const SiteChange& each) {
      site(each.site);
      json.member("count_a", each.count_a).member("count_b", each.count_b);
      json.member("bytes", each.bytes).member("since_event", each.since);
    });
  });
  json.objects("at_peaks", diff.at_peaks, [&](const AtPeaks& each) {
    site(each.site);
    json.member_or_null("size", each.size != 0, each.size).members(each);
  });
  json.member("failures", failures);
  return json.finish();
}

}  // namespace emm::fleet
