#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "trial/tune.hpp"

namespace emm::trial {
namespace {

using inspect::bytes_in_full;

/// Answers whether nothing tells two settings apart.
bool is_tie(const Tuned& a, const Tuned& b) {
  return a.served == b.served && a.fit == b.fit && a.peak_reserved == b.peak_reserved &&
         a.retries == b.retries;
}

bool is_range(const Tuned& one) { return one.fit && one.fit->low != one.fit->high; }

/// Writes the lower end of a range or, if it reads like the upper end, the difference.
std::string low_words(const FitRange& fit) {
  const auto low = units::bytes(fit.low);
  return low != units::bytes(fit.high) ? low
                                       : text::format("{} less", units::bytes(fit.high - fit.low));
}

std::string gain(std::uint64_t today, std::uint64_t other) {
  const auto percent =
      100 * (static_cast<double>(today) - static_cast<double>(other)) / static_cast<double>(today);
  return text::format("{} % {}", text::fixed(percent < 0 ? -percent : percent, 1),
                      percent < 0 ? "more" : "less");
}

std::string untried(const Tuning& tuning) {
  return tuning.pool_untried.empty() ? "" : text::format(" {}", tuning.pool_untried);
}

/// Says in a sentence or two what the best setting is worth against today's.
std::string verdict(const Tuning& tuning, const trace::Trace& trace) {
  if (tuning.ranking.empty()) return "Nothing was tried.";
  const auto& best = tuning.ranking.front();
  const auto* const today = tuning.today();
  const auto at = tuning.capacity != pytorch::kNoLimit
                      ? text::format("with {}", units::bytes(tuning.capacity))
                      : text::format("within its limit of {}", units::bytes(tuning.own_limit));
  std::string words;
  const auto fails = [&](const Tuned& one) {
    return text::format("runs out of memory at event {}, a request of {}",
                        text::grouped(trace.seq(static_cast<std::size_t>(*one.fails_at))),
                        units::bytes(one.failed_size));
  };
  if (today != nullptr && !today->served && today->fails_at)
    words = text::format("Today's setting, {}, {}. ", today->manager, fails(*today));
  if (!best.served) {
    words += text::format("No setting serves the program {}. ", at);
    if (best.fit)
      words += text::format("The least that serves it is {}, with {}. ",
                            bytes_in_full(best.fit->high), best.manager);
    return words +
           text::format("The program itself needs {}: a smaller batch or fewer live tensors.",
                        bytes_in_full(tuning.peak_live));
  }
  if (today != nullptr && is_tie(best, *today)) return words + "No setting is better than today's.";
  words += text::format("{} serves the program", best.manager);
  if (best.fit) words += text::format(" with {}", bytes_in_full(best.fit->high));
  if (today != nullptr && today->fit && best.fit && today->fit->high != best.fit->high) {
    words += text::format(", {} than today's {}", gain(today->fit->high, best.fit->high),
                          units::bytes(today->fit->high));
  } else if (today != nullptr && today->served && !best.reserved.is_range() &&
             today->peak_reserved != best.peak_reserved) {
    words += text::format(", and reserves {} than today's {}",
                          gain(today->peak_reserved, best.peak_reserved),
                          units::bytes(today->peak_reserved));
  }
  words += '.';
  if (is_range(best))
    words += text::format(" If the driver's addresses{} are lucky, {} are enough.",
                          tuning.lateness.late != 0 ? " and late frees" : "", low_words(*best.fit));
  return words;
}

/// Settings that nothing tells apart share a row; `one` stands for `ties` others.
struct Shown {
  const Tuned* one = nullptr;
  std::size_t ties = 0;
};
std::vector<Shown> shown_of(const Tuning& tuning) {
  std::vector<Shown> shown;
  for (const auto& each : tuning.ranking) {
    if (!shown.empty() && is_tie(*shown.back().one, each) && !each.is_today &&
        each.manager != "pool") {
      ++shown.back().ties;
      continue;
    }
    shown.push_back({.one = &each});
  }
  return shown;
}

std::string served_words(const Tuned& one, const trace::Trace& trace) {
  if (one.interrupted) return "interrupted";
  if (one.served) return "yes";
  if (one.is_open) return "it depends";
  return one.fails_at
             ? text::format("fails at {}",
                            text::grouped(trace.seq(static_cast<std::size_t>(*one.fails_at))))
             : "no";
}

/// Says what no setting changes. Empty if nothing existed before the first row.
std::string before_words(const Tuning& tuning) {
  if (tuning.before_reserved == 0) return "";
  const auto others = tuning.peak_live - std::min(tuning.peak_live, tuning.before_live);
  return text::format(
      " {} were reserved before the first row, {} of them live. They stay where they are under "
      "every "
      "setting: the answer is about the other {} of the {} that are live at most.",
      units::bytes(tuning.before_reserved), units::bytes(tuning.before_live), units::bytes(others),
      units::bytes(tuning.peak_live));
}

std::string reserved_words(const Tuned& one) {
  const auto low = units::bytes(one.reserved.low), high = units::bytes(one.reserved.high);
  return low == high ? units::bytes(one.peak_reserved) : low + " to " + high;
}

/// Says why a figure is a range. Empty if no free was late.
std::string late_words(const Tuning& tuning) {
  const auto& lateness = tuning.lateness;
  if (lateness.late == 0) return "";
  auto words = text::format(
      "{} of {} frees completed late, up to {} requests after they were asked for: other streams "
      "still used the blocks. With another setting that may be sooner or later, so figures are "
      "ranges, from the next request to {} requests later.",
      text::grouped(lateness.late), text::grouped(lateness.frees), text::grouped(lateness.longest),
      text::grouped(lateness.longest));
  if (tuning.capacity == pytorch::kNoLimit && tuning.own_limit == pytorch::kNoLimit)
    words += " The memory fraction is not known: it allows at least what the recording reserved.";
  return words;
}

std::string optional_bytes(const std::optional<std::uint64_t>& bytes) {
  return bytes ? units::bytes(*bytes) : "-";
}

}  // namespace

std::vector<std::string> lines_of(const std::string& spec) {
  std::vector<std::string> lines{{}};
  int depth = 0;
  for (const auto each : spec) {
    depth += each == '[' ? 1 : each == ']' ? -1 : 0;
    lines.back() += each;
    if (each == ',' && depth == 0) lines.emplace_back();
  }
  return lines;
}

std::string to_text(const Tuning& tuning, const trace::Trace& trace, std::size_t top, int width) {
  std::string out = format::wrapped(verdict(tuning, trace) + before_words(tuning) + untried(tuning),
                                    static_cast<std::size_t>(width)) +
                    "\n";
  const auto limited = tuning.capacity != pytorch::kNoLimit;
  std::vector<std::vector<std::string>> rows{
      {"", limited ? "served" : "", "fits", "reserved", "retries", "calls"}};
  const auto shown = shown_of(tuning);
  const auto any_waits = std::any_of(tuning.ranking.begin(), tuning.ranking.end(),
                                     [](const Tuned& each) { return each.stream_waits != 0; });
  const auto end_row = [&](std::vector<std::string>& row, std::string waits, std::string setting) {
    if (any_waits) row.push_back(std::move(waits));
    row.push_back(std::move(setting));
  };
  end_row(rows.front(), "waits", "setting");
  bool any_range = false;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto& one = *shown[i].one;
    if (i >= top && !one.is_today && one.manager != "pool") continue;
    auto names = lines_of(one.manager);
    if (shown[i].ties != 0) names.push_back(text::format("and {} alike", shown[i].ties));
    if (one.is_today) names.back() += " (today)";
    const auto ranges = is_range(one);
    any_range = any_range || ranges || one.is_open;
    if (ranges && names.size() == 1) names.emplace_back();
    rows.push_back({text::format("{}", i + 1),
                    limited || one.interrupted || !one.served ? served_words(one, trace) : "",
                    optional_bytes(one.fit_bytes()), reserved_words(one),
                    text::grouped(one.retries),
                    one.device_calls ? text::grouped(*one.device_calls) : "-"});
    end_row(rows.back(), text::grouped(one.stream_waits), names.front());
    for (std::size_t line = 1; line < names.size(); ++line) {
      rows.push_back({"", "", line == 1 && ranges ? "or " + low_words(*one.fit) : "", "", "", ""});
      end_row(rows.back(), "", names[line].empty() ? "" : "  " + names[line]);
    }
  }
  out += format::columns(any_waits ? "rlrrrrrl" : "rlrrrrl", rows, "");
  if (any_range)
    out += "\n" + format::wrapped(
                      "Two segments may have free blocks of one size; the driver's addresses "
                      "decide which is taken. The first figure is enough in every order that was "
                      "tried, the one after \"or\" in one of them.",
                      static_cast<std::size_t>(width));
  if (const auto late = late_words(tuning); !late.empty())
    out += "\n" + format::wrapped(late, static_cast<std::size_t>(width));
  if (!tuning.ranking.empty() && tuning.ranking.front().served && !tuning.ranking.front().is_today)
    out += text::format("\nTo use the first: {}\n", tuning.ranking.front().how);
  return out;
}

std::string to_markdown(const Tuning& tuning, const trace::Trace& trace) {
  std::string out =
      verdict(tuning, trace) + untried(tuning) +
      "\n\n| | served | fits | reserved | retries | device calls | stream waits | how |\n"
      "| --: | --- | --: | --: | --: | --: | --: | --- |\n";
  std::size_t place = 0;
  for (const auto& one : tuning.ranking) {
    out += text::format("| {} | {} | {} | {} | {} | {} | {} | {}{} |\n", ++place,
                        served_words(one, trace), optional_bytes(one.fit_bytes()),
                        reserved_words(one), text::grouped(one.retries),
                        one.device_calls ? text::grouped(*one.device_calls) : "-",
                        text::grouped(one.stream_waits), one.how, one.is_today ? " (today)" : "");
  }
  if (const auto late = late_words(tuning); !late.empty()) out += "\n" + late + "\n";
  return out;
}

void write_inferred_limit(format::JsonWriter& json,
                          const std::optional<pytorch::InferredLimit>& limit) {
  json.key("inferred_limit");
  if (!limit) {
    json.null();
    return;
  }
  json.begin_object().member("least_bytes", limit->range.least);
  json.member("below_bytes", limit->range.below).member("told_by", name(limit->by)).end_object();
}

std::string to_json(const Tuning& tuning, const trace::Trace& trace) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object().member("schema", "emmctl.tune/1").member("trace", trace.source());
  json.key("capacity_bytes");
  if (tuning.capacity == pytorch::kNoLimit)
    json.null();
  else
    json.value(tuning.capacity);
  json.member("capacity_of", tuning.limit == Limit::fraction ? "fraction" : "device");
  json.member("before_reserved_bytes", tuning.before_reserved);
  json.member("before_live_bytes", tuning.before_live);
  json.member("peak_live_bytes", tuning.peak_live).member("interrupted", tuning.interrupted);
  json.key("late_frees").begin_object().member("frees", tuning.lateness.frees);
  json.member("late", tuning.lateness.late);
  json.member("longest_requests", tuning.lateness.longest).end_object();
  write_inferred_limit(json, tuning.inferred_limit);
  json.key("ranking").begin_array();
  const auto optional = [&](std::string_view name, const std::optional<std::uint64_t>& value) {
    json.key(name);
    if (value)
      json.value(*value);
    else
      json.null();
  };
  for (const auto& one : tuning.ranking) {
    json.begin_object().member("manager", one.manager).member("how", one.how);
    json.member("today", one.is_today).member("served", one.served).member("open", one.is_open);
    optional("fails_at", one.fails_at
                             ? std::optional(trace.seq(static_cast<std::size_t>(*one.fails_at)))
                             : std::nullopt);
    optional("fit_bytes", one.fit_bytes());
    optional("fit_low_bytes", one.fit ? std::optional(one.fit->low) : std::nullopt);
    json.member("fit_exact", one.fit && one.fit->is_exact);
    json.member("peak_reserved_bytes", one.peak_reserved);
    write(json, one.reserved);
    json.member("retries", one.retries);
    optional("device_calls", one.device_calls);
    json.member("stream_waits", one.stream_waits);
    json.end_object();
  }
  json.end_array().end_object();
  return out + '\n';
}

}  // namespace emm::trial
