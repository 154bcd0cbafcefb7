#include "trial/fit_text.hpp"

#include <algorithm>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "log/writer.hpp"

namespace emm::trial {
namespace {

using inspect::bytes_in_full;

/// Capacities are multiples of 2 MiB, so this is exact.
std::string mib(std::uint64_t capacity) {
  return text::format("{} MiB", text::grouped(capacity >> 20));
}

/// Formats "508 to 522 MiB and 534 MiB", in lines that fit a row.
std::vector<std::string> ranges(const std::vector<std::uint64_t>& capacities) {
  constexpr std::size_t kShown = 12, kWidth = 66;  // ranges, and columns of a row
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  for (const auto capacity : capacities) {
    if (!runs.empty() && runs.back().second + kStep == capacity) {
      runs.back().second = capacity;
    } else {
      runs.emplace_back(capacity, capacity);
    }
  }
  std::string words;
  for (std::size_t i = 0; i < runs.size() && i < kShown; ++i) {
    const auto [from, to] = runs[i];
    const bool last = i + 1 == runs.size();
    words += from == to ? mib(from) : text::format("{} to {}", text::grouped(from >> 20), mib(to));
    if (!last) words += i + 2 == runs.size() ? " and " : ", ";
  }
  if (runs.size() > kShown) words += text::format("and others, {} in all", capacities.size());
  std::vector<std::string> lines;
  auto left = format::wrapped(words, kWidth);
  for (std::size_t end = 0; (end = left.find('\n')) != left.npos; left.erase(0, end + 1))
    lines.push_back(left.substr(0, end));
  return lines;
}

std::string each_of(const FitShown& shown) {
  const auto devices = shown.trace.device_count();
  return devices > 1 ? text::format(" on each of {} devices", devices) : std::string();
}

std::string refused_words(std::uint64_t refused) {
  return refused == 1
             ? "the request that the recording refused"
             : text::format("the {} requests that the recording refused", text::grouped(refused));
}

/// Names what is served, as the object of a sentence.
std::string asked_words(const Fit& fit) {
  if (fit.refused == 0) return "the trace";
  if (fit.asked == trace::CountedRequests::served) return "what the recording served";
  return text::format("all that the trace asks for, {} included,", refused_words(fit.refused));
}

/// How a count of bytes is written: inspect::bytes_in_full() or units::enough_bytes().
using Bytes = std::string (*)(std::uint64_t);

/// Says what the program needs, and what the manager takes beyond that.
std::string waste(const Fit& fit, const FitShown& shown, Bytes write) {
  const auto capacity = *fit.answer.capacity;
  const auto need = need_of(shown.needs), no_wait = no_wait_need_of(shown.needs);
  if (need == 0) return "The program asks for no device memory.";
  const bool in_part = fit.refused != 0 && fit.asked == trace::CountedRequests::served;
  auto words = text::format("{} needs {}", in_part ? "That" : "The program itself", write(need));
  if (capacity == need && no_wait <= need) return words + ", so the manager wastes nothing.";
  words += ", whoever serves it";
  if (no_wait > need)
    words += text::format(", and {} of a manager that never waits", write(no_wait));
  if (capacity == need) return words + "; this one takes no more than the first.";
  if (capacity < need) {
    return words +
           ". The manager declined some of it, or served it with memory that is not the device's.";
  }
  const auto more = capacity - need;
  const auto percent = text::fixed(100 * static_cast<double>(more) / static_cast<double>(need), 1);
  const auto size = write == units::enough_bytes ? units::short_bytes(more) : units::bytes(more);
  return words +
         (no_wait > need
              ? text::format("; this one takes {} ({} %) more than the first.", size, percent)
              : text::format("; the other {} ({} %) are the manager's waste.", size, percent));
}

/// Says that no capacity is enough.
std::string no_answer(const Fit& fit, const FitShown& shown) {
  if (fit.interrupted)
    return text::format("Interrupted before {} was found to fit.", shown.manager);
  auto words =
      text::format("The trace passes with {} at no capacity that was tried, {} of them up to {}",
                   shown.manager, fit.answer.trials.size(), units::bytes(kCapacityMost));
  if (fit.asked == trace::CountedRequests::all && fit.refused != 0)
    words += text::format(", with {} served", refused_words(fit.refused));
  return words + '.';
}

/// Says how much serves the trace.
std::string served_words(const Fit& fit, const FitShown& shown, Bytes write) {
  const auto capacity = *fit.answer.capacity;
  auto words = text::format("{} serves {} with {}{}", shown.manager, asked_words(fit),
                            write(capacity), each_of(shown));
  if (fit.answer.is_least()) words += ", and not with 2 MiB less";
  if (capacity == kStep) words += ", the least that a device can have";
  return words + '.';
}

/// Says where another capacity, or other addresses of the driver, change the answer.
std::string doubts(const Fit& fit, const FitShown& shown, Bytes write) {
  const auto& found = fit.answer;
  const auto capacity = *found.capacity;
  std::vector<std::string> words;
  if (const auto least = found.least_passing().value_or(capacity); least < capacity) {
    words.push_back(
        text::format("{} are enough by luck: some capacities in between fail.", mib(least)));
  }
  if (shown.range && shown.range->high > capacity)
    words.push_back(text::format("With other addresses of the driver it takes up to {}.",
                                 write(shown.range->high)));
  if (found.fails_from)
    words.push_back(text::format("From {} on it fails again.", mib(*found.fails_from)));
  return text::join(words, " ");
}

/// Says the answer in a few sentences.
std::string answer(const Fit& fit, const FitShown& shown) {
  if (!fit.answer.capacity) return no_answer(fit, shown);
  const auto doubt = doubts(fit, shown, bytes_in_full);
  return served_words(fit, shown, bytes_in_full) + (doubt.empty() ? "" : " " + doubt) + ' ' +
         waste(fit, shown, bytes_in_full);
}

using Rows = std::vector<std::vector<std::string>>;

void add_lines(Rows& rows, std::string_view name, std::string_view lead,
               const std::vector<std::string>& lines) {
  rows.push_back({std::string(name), std::string(lead)});
  for (const auto& line : lines) rows.push_back({"", "  " + line});
}

/// Says the answer to the other question.
std::string other_answer(const Fit& fit) {
  const bool all = fit.asked == trace::CountedRequests::all;
  const auto* other = fit.of(all ? trace::CountedRequests::served : trace::CountedRequests::all);
  const auto what =
      all ? std::string("what the recording served") : std::string("all that the trace asks for");
  if (other == nullptr || (!other->capacity && fit.interrupted))
    return "not known: interrupted before";
  if (!other->capacity) return text::format("no capacity that was tried is enough for {}", what);
  return text::format("{} for {}", bytes_in_full(*other->capacity), what);
}

void add_tried(Rows& rows, const Answer& found) {
  const auto above = found.above(false), failing_above = found.above(true);
  if (!above.empty()) {
    const auto lead =
        text::format("{} larger ones tried, up to {}; the trace ", above.size(), mib(above.back()));
    rows.push_back({"above", lead + (failing_above.empty()
                                         ? std::string("passes at all")
                                         : text::format("fails at {}", failing_above.size()))});
  }
  const auto below = found.below(false), passing = found.below(true);
  if (below.empty()) return;
  rows.push_back({"below", text::format("{} smaller ones tried, from {}; the trace passes at {}",
                                        below.size(), mib(below.front()),
                                        passing.empty() ? std::string("none")
                                                        : text::format("{}", passing.size()))});
  if (passing.empty()) return;
  add_lines(rows, "", "it passes all the same at", ranges(passing));
  std::vector<std::uint64_t> failing;
  std::set_difference(below.begin(), below.end(), passing.begin(), passing.end(),
                      std::back_inserter(failing));
  failing.erase(failing.begin(), std::upper_bound(failing.begin(), failing.end(), passing.front()));
  add_lines(rows, "", "and fails at more than that:", ranges(failing));
}

Rows rows(const Fit& fit, const std::optional<FitRange>& range, bool several_devices) {
  const auto& found = fit.answer;
  Rows out;
  if (!found.capacity) {
    for (auto trial = found.trials.rbegin(); trial != found.trials.rend(); ++trial) {
      if (!trial->second) {
        out.push_back({"fails", text::format("at {}", bytes_in_full(trial->first))});
        break;
      }
    }
    if (const auto least = found.least_passing())
      out.push_back({"passes", text::format("at {}", bytes_in_full(*least))});
  } else {
    out.push_back({"reserved", text::format("{} at most{}", bytes_in_full(fit.peak_reserved),
                                            several_devices ? ", of all devices together" : "")});
  }
  if (fit.refused != 0) {
    const bool all = fit.asked == trace::CountedRequests::all;
    out.push_back({all ? "--as-recorded" : "without it", other_answer(fit)});
    if (fit.asked == trace::CountedRequests::served) {
      out.push_back(
          {"refused", text::format("here too: {} of the {} that the recording refused",
                                   text::grouped(fit.refused_again), text::grouped(fit.refused))});
    }
  }
  if (found.capacity && range && !range->is_exact)
    out.push_back({"addresses", text::format("decide between free blocks of one size: {} to {}",
                                             mib(range->low), mib(range->high))});
  add_tried(out, found);
  out.push_back({"trials", text::grouped(fit.trials)});
  return out;
}

/// Returns the range, widened to include the answer with the simulated device's addresses.
std::optional<FitRange> range_of(const Fit& fit, const FitShown& shown) {
  auto range = shown.range;
  if (range && fit.answer.capacity) {
    range->is_exact = range->is_exact && range->high == *fit.answer.capacity;
    range->low = std::min(range->low, *fit.answer.capacity);
    range->high = std::max(range->high, *fit.answer.capacity);
  }
  return range;
}

}  // namespace

std::uint64_t need_of(const std::vector<inspect::MemoryNeed>& needs) noexcept {
  std::uint64_t most = 0;
  for (const auto& need : needs) most = std::max(most, need.paged);
  return most;
}

std::uint64_t no_wait_need_of(const std::vector<inspect::MemoryNeed>& needs) noexcept {
  std::uint64_t most = 0;
  for (const auto& need : needs) most = std::max(most, need.no_wait);
  return most;
}

namespace {

/// The one that needs least first, and of equal ones the fastest.
bool needs_less(const Fitted* a, const Fitted* b) {
  constexpr auto kUnknown = ~std::uint64_t{0};  // sorts behind all that is known
  const auto place = [&](const Fitted* each) {
    return std::pair(each->fit.answer.capacity.value_or(kUnknown),
                     each->fit.driver_ns.value_or(kUnknown));
  };
  return place(a) < place(b);
}

/// Puts the manager to recommend first. `order` is by what they need.
void put_best_first(std::vector<const Fitted*>& order) {
  std::vector<Cost> costs;
  for (const auto* each : order) {
    const auto& fit = each->fit;
    if (!fit.answer.capacity || !fit.driver_ns) break;
    costs.push_back({.bytes = static_cast<double>(*fit.answer.capacity),
                     .ns = static_cast<double>(*fit.driver_ns)});
  }
  if (costs.empty()) return;
  const auto best = order.begin() + static_cast<std::ptrdiff_t>(best_of(costs));
  std::rotate(order.begin(), best, best + 1);
}

}  // namespace

format::Brief brief(const std::vector<Fitted>& all) {
  format::Brief out;
  const auto write = units::enough_bytes;
  std::vector<const Fitted*> order;
  for (const auto& each : all) order.push_back(&each);
  std::stable_sort(order.begin(), order.end(), needs_less);
  const auto* const least = order.front();
  put_best_first(order);
  const auto& [fit, shown] = *order.front();
  const auto name = format::file_name(shown.trace.source());
  const auto path = text::shell_word(shown.trace.source());
  const auto need = need_of(shown.needs), no_wait = no_wait_need_of(shown.needs);
  if (!fit.answer.capacity) {
    out.answer.push_back(all.size() == 1
                             ? no_answer(fit, shown)
                             : text::format("None of {} managers serves {} at any capacity tried.",
                                            all.size(), name));
    out.command = text::format("emmctl replay {}{} --device sim", path, shown.chosen_by);
  } else {
    const auto capacity = *fit.answer.capacity;
    out.answer.push_back(all.size() == 1
                             ? served_words(fit, shown, write)
                             : text::format("{} serves {} with {}: {}{}.", shown.manager,
                                            asked_words(fit),
                                            beside_least(capacity, *least->fit.answer.capacity),
                                            write(capacity), each_of(shown)));
    if (least != order.front())
      out.answer.back() += text::format(" {} needs {}, and its driver calls take {}, not {}.",
                                        least->shown.manager, write(*least->fit.answer.capacity),
                                        inspect::time_or_dash(least->fit.driver_ns),
                                        inspect::time_or_dash(fit.driver_ns));
    out.answer.push_back(waste(fit, shown, write));
    out.answer.push_back(doubts(fit, shown, write));
    out.command = text::format("emmctl replay {}{} --device sim:capacity={}MiB", path,
                               shown.chosen_by, capacity >> 20);
  }
  out.sides = "lrrrr";
  out.rows = {{"", "capacity", "of live", "reserved", "driver time"}};
  const auto times = [&](std::uint64_t bytes) {
    return need == 0 ? std::string("-")
                     : text::fixed(static_cast<double>(bytes) / static_cast<double>(need), 3);
  };
  if (need != 0) out.rows.push_back({"live peak", write(need), "1.000", "-", "-"});
  if (no_wait > need)
    out.rows.push_back({"without waiting", write(no_wait), times(no_wait), "-", "-"});
  constexpr std::size_t kManagersShown = 6;  // rows; --more has the rest
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [each, of] = *order[i];
    if (i == kManagersShown) {
      out.rows.push_back({text::format("{} more", order.size() - i), "", "", "", ""});
      break;
    }
    const auto capacity = each.answer.capacity;
    out.rows.push_back(
        {of.manager, capacity ? write(*capacity) : "none found", capacity ? times(*capacity) : "-",
         capacity ? write(each.peak_reserved) : "-", inspect::time_or_dash(each.driver_ns)});
    if (all.size() != 1 || each.refused == 0) continue;
    const bool asked_all = each.asked == trace::CountedRequests::all;
    const auto* other =
        each.of(asked_all ? trace::CountedRequests::served : trace::CountedRequests::all);
    if (other != nullptr && other->capacity)
      out.rows.push_back({asked_all ? "as recorded" : "all requests", write(*other->capacity),
                          times(*other->capacity), "-", "-"});
  }
  out.more = "what fails with 2 MiB less, and the capacities that were tried";
  return out;
}

std::string to_text(const Fit& fit, const FitShown& shown) {
  auto out = format::wrapped(answer(fit, shown), static_cast<std::size_t>(shown.width)) + '\n';
  out += format::columns("ll", rows(fit, range_of(fit, shown), shown.trace.device_count() > 1));
  out += inspect::to_text(shown.needs);
  const auto add_failure = [&](const std::string& heading, const std::optional<log::Summary>& of) {
    if (!of || !of->first_failure) return;
    out += log::failure_to_text(heading, *of->first_failure, shown.width, shown.all_frames);
    out.pop_back();
  };
  const auto& found = fit.answer;
  add_failure(found.capacity ? text::format("\nWith 2 MiB less ({} bytes) it fails",
                                            text::grouped(*found.capacity - kStep))
                             : text::format("\nWith {} it fails", bytes_in_full(kCapacityMost)),
              fit.below);
  if (found.fails_from)
    add_failure(text::format("\nWith {} it fails", bytes_in_full(*found.fails_from)), fit.above);
  return out;
}

std::string to_json(const Fit& fit, const FitShown& shown) {
  format::JsonAnswer json("emmctl.fit/2", 2);
  const auto& found = fit.answer;
  const auto answered = [&](trace::CountedRequests asked) {
    const auto* of = fit.of(asked);
    return of == nullptr ? std::nullopt : of->capacity;
  };
  json.member("trace", shown.trace.source()).member("manager", shown.manager);
  json.member("events", shown.trace.size()).member("devices", shown.trace.device_count());
  json.member("complete", !fit.interrupted && !fit.hung);
  json.member("as_recorded", fit.asked == trace::CountedRequests::served);
  const auto need = need_of(shown.needs);
  json.member("capacity_bytes", found.capacity);
  json.member("least_passing_bytes", found.least_passing());
  json.member("fails_from_bytes", found.fails_from);
  const auto range = range_of(fit, shown);
  json.member("capacity_low_bytes", range ? std::optional(range->low) : found.capacity);
  json.member("capacity_high_bytes", range ? std::optional(range->high) : found.capacity);
  json.member("all_served_bytes", answered(trace::CountedRequests::all));
  json.member("as_recorded_bytes", answered(trace::CountedRequests::served));
  json.member("need_bytes", need).member("no_wait_need_bytes", no_wait_need_of(shown.needs));
  std::optional<std::uint64_t> waste_bytes, fails_at;
  if (found.capacity) waste_bytes = *found.capacity - std::min(need, *found.capacity);
  if (fit.below) fails_at = found.capacity ? *found.capacity - kStep : kCapacityMost;
  json.member("waste_bytes", waste_bytes).member("peak_reserved_bytes", fit.peak_reserved);
  json.member("driver_ns", fit.driver_ns).member("refused", fit.refused);
  json.member("refused_again", fit.refused_again).member("fails_at_bytes", fails_at);
  json.member("failure", fit.below ? fit.below->first_failure : std::nullopt);
  json.member("failure_above", fit.above ? fit.above->first_failure : std::nullopt);
  json.member("tried_below", found.below(false)).member("passing_below", found.below(true));
  json.member("tried_above", found.above(false)).member("failing_above", found.above(true));
  json.objects("trials", found.trials, [&](const auto& trial) {
    const auto& [capacity, passes] = trial;
    json.member("capacity_bytes", capacity).member("passes", passes);
  });
  json.member("needs", shown.needs);
  return json.finish();
}

std::string to_json(const std::vector<Fitted>& all) {
  if (all.size() == 1) return to_json(all.front().fit, all.front().shown);
  std::vector<std::string> fits;
  for (const auto& each : all) fits.push_back(to_json(each.fit, each.shown));
  return "{\n\"schema\": \"emmctl.fit-set/1\",\n\"fits\": [\n" + text::join(fits, ",\n") + "]\n}\n";
}

}  // namespace emm::trial
