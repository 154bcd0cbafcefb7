#include <algorithm>

#include "base/counted.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "trial/tune.hpp"

namespace emm::trial {
namespace {

using inspect::bytes_in_full;
using inspect::need_beside;
using inspect::time_or_dash;

/// Answers whether nothing tells two settings apart.
bool is_tie(const Tuned& a, const Tuned& b) {
  return a.served == b.served && a.fit == b.fit && a.peak_reserved == b.peak_reserved &&
         a.unlimited_reserved == b.unlimited_reserved && a.lost_ns == b.lost_ns &&
         a.retries == b.retries;
}

std::string sizes(std::uint64_t bytes, const Tuning& tuning) {
  return need_beside(bytes, tuning.question.capacity);
}

bool is_range(const Tuned& one) { return one.fit && one.fit->low != one.fit->high; }

/// Writes the lower end of a range or, if it reads like the upper end, the difference.
std::string low_words(const FitRange& fit) {
  const auto low = units::bytes(fit.low);
  return low != units::bytes(fit.high) ? low
                                       : text::format("{} less", units::bytes(fit.high - fit.low));
}

std::string untried(const Tuning& tuning) {
  return tuning.pool_untried.empty() ? "" : text::format(" {}", tuning.pool_untried);
}

std::string fails(const Tuned& one, const trace::Trace& trace) {
  return text::format("runs out of memory at event {}, a request of {}",
                      text::grouped(trace.seq(static_cast<std::size_t>(*one.fails_at))),
                      units::short_bytes(one.failed_size));
}

/// Says how today's setting fares, if the first advice does not.
std::string today_words(const Tuning& tuning, const trace::Trace& trace) {
  const auto* const today = tuning.today();
  if (today == nullptr || today == &tuning.ranking.front() || first_advice(tuning).says_today)
    return {};
  if (!today->served && today->fails_at)
    return text::format("Today's setting {}{}.", fails(*today, trace),
                        today->fit ? text::format("; it needs {}", sizes(today->fit->high, tuning))
                                   : std::string());
  if (!today->fit) return {};
  return text::format("Today's setting needs {}{}.", sizes(today->fit->high, tuning),
                      today->lost_ns
                          ? text::format(", with {} of driver calls", time_or_dash(today->lost_ns))
                          : std::string());
}

/// Says in a sentence or two what the best setting is worth against today's.
std::string verdict(const Tuning& tuning, const trace::Trace& trace) {
  if (tuning.ranking.empty()) return "Nothing was tried.";
  auto words = first_advice(tuning).words;
  if (const auto today = today_words(tuning, trace); !today.empty()) words += " " + today;
  return words + text::format(" The program itself needs {}.", bytes_in_full(tuning.peak_live));
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

std::string one_line(std::string lines) {
  for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos;)
    lines.replace(at, 1, "; ");
  return lines;
}

/// `words_of` writes one size.
std::string range_words(const Reserved& range, std::string (*words_of)(std::uint64_t)) {
  auto low = words_of(range.low);
  const auto high = words_of(range.high);
  return low == high ? low : low + " to " + high;
}
std::string reserved_words(const Tuned& one) {
  return range_words(one.reserved, [](std::uint64_t bytes) { return units::bytes(bytes); });
}
std::string unlimited_words(const Tuned& one) {
  return range_words(one.unlimited, [](std::uint64_t bytes) { return units::bytes(bytes); });
}

bool is_wide(const Reserved& range) { return range.high - range.low > range.low / 10; }

/// Says why a range is wide. Empty if none is.
std::string wide_words(const Tuning& tuning) {
  const auto any = std::any_of(tuning.ranking.begin(), tuning.ranking.end(), [](const Tuned& each) {
    return is_wide(each.reserved) || is_wide(each.unlimited);
  });
  return any ? why_range_briefly(tuning.lateness, tuning.caught) : "";
}

/// Says why a figure is a range. Empty if no free was late and no failure caught.
std::string late_words(const Tuning& tuning) {
  auto words = why_range(tuning.lateness);
  if (tuning.caught != 0) {
    words += text::format(
        "{}The program caught {}. Under another setting others may fail, and what it "
        "does "
        "then is not recorded: it reserves at least what it did until then, and at most the limit. "
        "Without a limit it may reserve more than is shown.",
        words.empty() ? "" : " ", text::counted(tuning.caught, "failure"));
  }
  if (tuning.lateness.late == 0) return words;
  words += " What is lost, retries and calls are those of frees that complete as recorded.";
  if (tuning.pool_untried.empty()) words += " The pool's figures are those of frees without delay.";
  if (tuning.question.capacity == pytorch::kNoLimit)
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
  const auto limited = tuning.question.capacity != pytorch::kNoLimit;
  std::vector<std::vector<std::string>> rows{
      {"", limited ? "served" : "", "fits", "lost", "reserved", "no limit", "retries", "calls"}};
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
                    optional_bytes(one.fit_bytes()), time_or_dash(one.lost_ns), reserved_words(one),
                    unlimited_words(one), text::grouped(one.retries),
                    one.device_calls ? text::grouped(*one.device_calls) : "-"});
    end_row(rows.back(), text::grouped(one.stream_waits), names.front());
    for (std::size_t line = 1; line < names.size(); ++line) {
      rows.push_back(
          {"", "", line == 1 && ranges ? "or " + low_words(*one.fit) : "", "", "", "", "", ""});
      end_row(rows.back(), "", names[line].empty() ? "" : "  " + names[line]);
    }
  }
  out += format::columns(any_waits ? "rlrrrrrrrl" : "rlrrrrrrl", rows, "");
  if (any_range)
    out += "\n" + format::wrapped(
                      "Two segments may have free blocks of one size; the driver's addresses "
                      "decide which is taken. The first figure is enough in every order that was "
                      "tried, the one after \"or\" in one of them.",
                      static_cast<std::size_t>(width));
  if (const auto late = late_words(tuning); !late.empty())
    out += "\n" + format::wrapped(late, static_cast<std::size_t>(width));
  if (const auto first = first_advice(tuning); !first.how.empty() && !first.is_today)
    out += text::format("\nTo use it:\n{}\n", first.how);
  return out;
}

namespace {

/// Shows the `best` settings, and today's.
format::Brief brief_of(const Tuning& tuning, const trace::Trace& trace, std::size_t best) {
  format::Brief made;
  if (tuning.ranking.empty()) {
    made.answer = {"Nothing was tried."};
    return made;
  }
  const auto first = first_advice(tuning);
  made.answer = {first.words, today_words(tuning, trace)};
  const auto any_wide_row = [&] {
    const auto shown = shown_of(tuning);
    return std::any_of(shown.begin(), shown.end(),
                       [](const Shown& each) { return is_wide(each.one->unlimited); });
  };
  if (any_wide_row()) made.answer.push_back(wide_words(tuning));
  if (tuning.before_live != 0) {
    made.answer.push_back(
        text::format("{} of the {} that are live at most were there before the first row, and stay "
                     "where they are.",
                     units::short_bytes(tuning.before_live), units::short_bytes(tuning.peak_live)));
  }
  if (!first.is_today) made.command = first.how;
  const auto limited = tuning.question.capacity != pytorch::kNoLimit;
  made.sides = "lrrrl";
  made.rows = {{limited ? "served" : "", "fits", "lost", "reserved", "setting"}};
  const auto* const today = tuning.today();
  constexpr std::size_t kWide = 40;  // columns of a setting; a longer one gets a line of its own
  std::size_t shown = 0;
  for (const auto& each : shown_of(tuning)) {
    const auto* const one = each.one;
    if (shown >= best && one != today) continue;
    ++shown;
    auto name = one->manager;
    if (name.starts_with("pytorch:")) name.erase(0, std::string_view("pytorch:").size());
    auto names = name.size() > kWide ? lines_of(name) : std::vector<std::string>{name};
    for (auto& line : names) line = text::printable(line, one->is_today ? kWide - 8 : kWide);
    if (one->is_today) names.back() += " (today)";
    made.rows.push_back(
        {limited || !one->served ? served_words(*one, trace) : "",
         one->fit ? need_beside(one->fit->high, tuning.question.capacity) : "-",
         time_or_dash(one->lost_ns),
         range_words(one->unlimited, [](std::uint64_t bytes) { return units::short_bytes(bytes); }),
         names.front()});
    for (std::size_t line = 1; line < names.size(); ++line)
      made.rows.push_back({"", "", "", "", "  " + names[line]});
  }
  made.more =
      text::format("all {} settings; \"lost\": time of driver calls; \"reserved\": without a limit",
                   tuning.ranking.size());
  return made;
}

}  // namespace

format::Brief brief(const Tuning& tuning, const trace::Trace& trace) {
  std::size_t best = 3;
  auto made = brief_of(tuning, trace, best);
  while (best > 1 && words_of(made) > format::Brief::kWords) made = brief_of(tuning, trace, --best);
  return made;
}

std::string to_markdown(const Tuning& tuning, const trace::Trace& trace) {
  std::string out =
      verdict(tuning, trace) + untried(tuning) +
      "\n\n| | served | fits | time lost | reserved | reserved without a limit | retries | device "
      "calls | stream waits | how |\n"
      "| --: | --- | --: | --: | --: | --: | --: | --: | --: | --- |\n";
  std::size_t place = 0;
  for (const auto& one : tuning.ranking) {
    out += text::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {}{} |\n", ++place,
        served_words(one, trace), optional_bytes(one.fit_bytes()), time_or_dash(one.lost_ns),
        reserved_words(one), unlimited_words(one), text::grouped(one.retries),
        one.device_calls ? text::grouped(*one.device_calls) : "-", text::grouped(one.stream_waits),
        one_line(one.how), one.is_today ? " (today)" : "");
  }
  if (const auto late = late_words(tuning); !late.empty()) out += "\n" + late + "\n";
  return out;
}

void write_inferred_limit(format::JsonWriter& json,
                          const std::optional<pytorch::InferredLimit>& limit) {
  json.object("inferred_limit", limit, [&](const auto& of) {
    json.member("least_bytes", of.range.least).member("below_bytes", of.range.below);
    json.member("told_by", of.by);
  });
}

namespace {

constexpr std::size_t kFrameworkWidth = 20;  // bytes of a name that a file gives

std::string name_of(const Tuned& one) { return one.is_today ? "today's setting" : one.manager; }

}  // namespace

namespace {

bool has_capacity(const Tuning& tuning) noexcept {
  return tuning.question.capacity != pytorch::kNoLimit;
}
std::string need_of(const Tuning& tuning) {
  const auto& best = tuning.ranking.front();
  return best.fit ? sizes(best.fit->high, tuning) : std::string();
}
/// What the driver calls of the best setting take, as the end of a sentence.
std::string lost_time_of(const Tuned& best) {
  if (best.lost_ns.value_or(0) == 0) return {};
  return text::format("; its driver calls take {}", time_or_dash(best.lost_ns));
}

/// No setting serves the program at the capacity: the least that one needs, and what else helps, a
/// higher limit or a smaller batch.
void advise_without_server(FirstAdvice& made, const Tuning& tuning) {
  const auto& best = tuning.ranking.front();
  made.words = text::format("No setting serves the program with {}",
                            units::short_bytes(tuning.question.capacity));
  const auto* const least = tuning.least();
  // One setting is named, and its own figure: the one that is advised.
  if (least != nullptr)
    made.words +=
        text::format("; the least is {}{}, with {}", least == &best || !best.fit ? "" : "about ",
                     best.fit ? need_of(tuning) : sizes(least->fit->high, tuning),
                     name_of(best.fit ? best : *least));
  const auto is_fraction = tuning.question.limit == Limit::fraction;
  const auto is_pool = best.manager == "pool";
  if (is_fraction && is_pool) made.words += "; no memory fraction limits the pool";
  made.words += '.';
  // A fraction can be raised in the program, and the device's memory cannot. It does not bind
  // the pool.
  const auto is_raised = is_fraction && !is_pool && best.fit;
  if (is_raised)
    made.how = text::format("{}{}", best.is_today ? "" : best.how + "\n",
                            fraction_line(best.fit->high, tuning.total));
  const auto* const today = tuning.today();
  std::string batch, with;
  if (tuning.smaller) {
    const auto eighths = tuning.smaller->eighths;
    batch = text::format("batch smaller by {}", eighths == 1   ? "1/8"
                                                : eighths == 2 ? "1/4"
                                                               : "1/2");
    if (tuning.smaller->manager != best.manager) with = ", with " + tuning.smaller->manager;
  }
  if (is_raised)
    made.words += batch.empty() ? " Raise the limit."
                                : text::format(" Raise the limit, or take a {}{}.", batch, with);
  else if (!batch.empty())
    made.words += text::format(" A {} is served{}.", batch, with);
  // What is pasted has to serve the program: with a smaller batch, or not at all.
  const auto is_change =
      tuning.smaller && (today == nullptr || today->manager != tuning.smaller->manager);
  if (!is_fraction) made.how = is_change ? tuning.smaller->how + "  # and a " + batch : "";
}

/// Today's setting is the best. Where the recording failed by a lower limit, that is to be raised.
void advise_to_stay(FirstAdvice& made, const Tuning& tuning) {
  const auto& best = tuning.ranking.front();
  const auto& question = tuning.question;
  const auto need = need_of(tuning), capacity = units::short_bytes(question.capacity);
  made.says_today = has_capacity(tuning) && best.fit;
  if (made.says_today)
    made.words = text::format("Today's setting needs {}, so {} are enough, and no other is better",
                              need, capacity);
  else if (has_capacity(tuning))
    made.words = text::format("Today's setting serves the program with {}, and no other is better",
                              capacity);
  else
    made.words = text::format("No setting is better than today's{}",
                              best.fit ? text::format(": it needs {}", need) : std::string());
  made.words += lost_time_of(best) + '.';
  const auto& limit = tuning.inferred_limit;
  if (!has_capacity(tuning) || !limit || limit->range.below > question.capacity) return;
  made.words += text::format(" The recording failed by a limit below {}; raise it.",
                             units::short_bytes(limit->range.below));
  made.how = question.limit == Limit::fraction
                 ? fraction_line(question.capacity, tuning.total)
                 : std::string("torch.cuda.set_per_process_memory_fraction(1.0)");
  made.is_today = false;
}

/// Today's setting serves the program, and another one does so faster or with less.
void advise_better(FirstAdvice& made, const Tuning& tuning, const Tuned& today) {
  const auto& best = tuning.ranking.front();
  made.says_today = true;
  made.words =
      text::format("Today's setting needs {}, so {} are enough; {}", sizes(today.fit->high, tuning),
                   units::short_bytes(tuning.question.capacity), best.manager);
  if (today.lost_ns && best.lost_ns && *best.lost_ns < *today.lost_ns)
    made.words += text::format(" is faster: its driver calls take {}, not {}.",
                               time_or_dash(best.lost_ns), time_or_dash(today.lost_ns));
  else if (best.unlimited_reserved < today.unlimited_reserved)
    made.words += text::format(" reserves {} without a limit, not {}.",
                               units::short_bytes(best.unlimited_reserved),
                               units::short_bytes(today.unlimited_reserved));
  else
    made.words += " does as well.";
}

/// Another setting serves the program, and today's does not or is not known.
void advise_change(FirstAdvice& made, const Tuning& tuning) {
  const auto& best = tuning.ranking.front();
  made.words = best.manager == "pytorch" ? std::string("PyTorch's defaults serve the program")
                                         : text::format("{} serves the program", best.manager);
  if (has_capacity(tuning))
    made.words += text::format(" with {}", units::short_bytes(tuning.question.capacity));
  else if (best.fit)
    made.words += text::format(" with {}", need_of(tuning));
  made.words += lost_time_of(best) + '.';
  const auto* const least = tuning.least();
  constexpr double kMuch = 10;  // times as long in driver calls: then the least is no bargain
  if (!has_capacity(tuning) && least != nullptr && best.fit && best.lost_ns && least->lost_ns &&
      static_cast<double>(*least->lost_ns) > kMuch * static_cast<double>(*best.lost_ns))
    made.words += text::format(" The least is {} with {}, whose calls take {}.",
                               sizes(least->fit->high, tuning), name_of(*least),
                               time_or_dash(least->lost_ns));
}

FirstAdvice advice_for_pytorch(const Tuning& tuning) {
  FirstAdvice made;
  if (tuning.ranking.empty()) return made;
  const auto& best = tuning.ranking.front();
  made.serves = best.served;
  made.is_today = best.is_today && best.served;
  made.manager = best.manager;
  made.how = best.how;
  const auto* const today = tuning.today();
  if (!best.served && has_capacity(tuning)) {
    advise_without_server(made, tuning);
  } else if (!best.served) {
    made.words = "No setting serves the program.";
    made.how.clear();
  } else if (best.is_today) {
    advise_to_stay(made, tuning);
  } else if (has_capacity(tuning) && today != nullptr && today->served && today->fit &&
             tuning.knows_today) {
    advise_better(made, tuning, *today);
  } else {
    advise_change(made, tuning);
  }
  return made;
}

}  // namespace

FirstAdvice first_advice(const Tuning& tuning) {
  auto made = advice_for_pytorch(tuning);
  if (!tuning.other_framework.empty()) {
    made.words = text::format(
        "{} does not read PyTorch's settings: the table says what they would do for its requests.",
        text::printable(tuning.other_framework, kFrameworkWidth));
    made.how.clear();
  } else if (!tuning.knows_today) {
    made.words = "The recording does not tell PyTorch's setting. " + made.words;
  }
  return made;
}

void write_advice(format::JsonWriter& json, const Tuning& tuning) {
  const auto first = first_advice(tuning);
  json.object("advice", [&] {
    json.member("serves", first.serves).member("manager", first.manager).member("how", first.how);
    json.member("words", first.words).member("smaller_batch", tuning.smaller);
  });
}

std::string to_json(const Tuning& tuning, const trace::Trace& trace) {
  format::JsonAnswer json("emmctl.tune/1");
  const auto& question = tuning.question;
  json.member("trace", trace.source());
  json.member_or_null("capacity_bytes", question.capacity != pytorch::kNoLimit, question.capacity);
  json.member("capacity_by", question.by);
  json.member("capacity_of", question.limit == Limit::fraction ? "fraction" : "device");
  json.member("before_reserved_bytes", tuning.before_reserved);
  json.member("before_live_bytes", tuning.before_live);
  json.member("peak_live_bytes", tuning.peak_live).member("interrupted", tuning.interrupted);
  json.member("late_frees", tuning.lateness).member("caught_failures", tuning.caught);
  const auto why = wide_words(tuning);
  json.member_or_null("wide_because", !why.empty(), why);
  write_inferred_limit(json, tuning.inferred_limit);
  write_advice(json, tuning);
  json.objects("ranking", tuning.ranking, [&](const Tuned& one) {
    json.member("manager", one.manager).member("how", one.how).member("today", one.is_today);
    json.member("served", one.served).member("open", one.is_open);
    json.member("fails_at", one.fails_at
                                ? std::optional(trace.seq(static_cast<std::size_t>(*one.fails_at)))
                                : std::nullopt);
    json.member("fit_bytes", one.fit_bytes());
    json.member("fit_low_bytes", one.fit ? std::optional(one.fit->low) : std::nullopt);
    json.member("fit_exact", one.fit && one.fit->is_exact);
    json.member("peak_reserved_bytes", one.peak_reserved);
    write(json, one.reserved);
    json.member("unlimited_reserved_bytes", one.unlimited_reserved);
    json.member("unlimited_reserved_low_bytes", one.unlimited.low);
    json.member("unlimited_reserved_high_bytes", one.unlimited.high);
    json.member("retries", one.retries).member("lost_ns", one.lost_ns);
    json.member("device_calls", one.device_calls).member("stream_waits", one.stream_waits);
  });
  return json.finish();
}

}  // namespace emm::trial
