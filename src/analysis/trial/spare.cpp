#include "trial/spare.hpp"

#include <algorithm>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/side_by_side.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "replay/engine.hpp"
#include "trial/draft.hpp"
#include "trial/setting.hpp"

namespace emm::trial {
namespace {

using pytorch::Call;

/// A program with an extra block, as it may run: in each order of the driver's addresses, and with
/// late frees at each of their moments. Each trial sets the block's size.
class WithBlock {
 public:
  WithBlock(const pytorch::Program& program, const std::vector<pytorch::Program>& late,
            const Lifespan& lifespan) {
    add(program, lifespan);
    for (const auto& each : late) add(each, lifespan);
    for (const auto order : kOrders) cases_.push_back({.program = 0, .order = order});
    for (std::size_t i = 1; i < programs_.size(); ++i)
      cases_.push_back({.program = i, .order = kOrders[0]});
  }

  struct Case {
    std::size_t program = 0;
    Addresses order{};
  };
  /// The likeliest first.
  const std::vector<Case>& cases() const noexcept { return cases_; }

  pytorch::Outcome run(std::uint64_t size, pytorch::RunOptions options, const Case& of) {
    auto& [program, at] = programs_[of.program];
    program.calls[at].size = size;
    options.addresses = of.order;
    options.stop_at_failure = true;
    return pytorch::run(program, options);
  }
  bool always_serves(std::uint64_t size, const pytorch::RunOptions& options) {
    return std::all_of(cases_.begin(), cases_.end(),
                       [&](const Case& of) { return !run(size, options, of).fails_at; });
  }
  bool may_serve(std::uint64_t size, const pytorch::RunOptions& options) {
    return std::any_of(cases_.begin(), cases_.end(),
                       [&](const Case& of) { return !run(size, options, of).fails_at; });
  }

 private:
  void add(const pytorch::Program& of, const Lifespan& lifespan) {
    auto& [program, at_call] = programs_.emplace_back(of, 0);
    auto& calls = program.calls;
    const auto before = [&](std::uint64_t event) {
      return std::find_if(calls.begin(), calls.end(),
                          [&](const Call& call) { return call.event >= event; });
    };
    const auto block = program.allocations++;
    calls.insert(before(lifespan.to),
                 {.kind = Call::Kind::free, .allocation = block, .event = lifespan.to});
    const auto at =
        calls.insert(before(lifespan.from),
                     {.kind = Call::Kind::alloc, .allocation = block, .event = lifespan.from});
    at_call = static_cast<std::size_t>(at - calls.begin());
  }

  std::vector<std::pair<pytorch::Program, std::size_t>> programs_;  ///< With the block's request.
  std::vector<Case> cases_;
};

Spare judge(const pytorch::Program& program, const std::vector<pytorch::Program>& late,
            const Lifespan& lifespan, const pytorch::Settings& settings,
            const TuneOptions& options) {
  Spare found{.manager = spec_of(settings, program.settings), .how = how_of(settings)};
  WithBlock block(program, late, lifespan);
  const auto with = run_options(settings, options.question.capacity, options.question.limit);
  const auto stopped = [&] {
    return options.interrupted != nullptr && options.interrupted->load();
  };
  const auto none = options.question.capacity / kStep * kStep + kStep;
  const auto largest = [&](std::uint64_t low, std::uint64_t high, const auto& serves) {
    while (high - low > kStep && !stopped()) {
      const auto middle = low + (high - low) / 2 / kStep * kStep;
      (serves(middle) ? low : high) = middle;
    }
    return low;
  };
  const auto always = [&](std::uint64_t size) { return block.always_serves(size, with); };
  const auto perhaps = [&](std::uint64_t size) { return block.may_serve(size, with); };
  std::uint64_t low = 0;
  if (always(kStep)) found.bytes = low = largest(kStep, none, always);
  if (low != 0 || perhaps(kStep)) found.most_bytes = largest(std::max(low, kStep), none, perhaps);
  for (const auto& of : block.cases()) {
    const auto outcome = block.run(low + kStep, with, of);
    if (!outcome.fails_at) continue;
    found.limited_at = outcome.fails_at;
    found.limited_size = outcome.failed_size;
    break;
  }
  return found;
}

/// Judges the pool by replays of the trace with the extra block.
class PoolWithBlock {
 public:
  PoolWithBlock(const trace::Trace& trace, const Lifespan& lifespan, Setting setting,
                std::uint64_t capacity)
      : builder_(trace),
        draft_(whole(trace, EventParts(trace))),
        setting_(std::move(setting)),
        capacity_(capacity / kStep * kStep) {
    draft_.block = ExtraBlock{.from = static_cast<std::uint32_t>(lifespan.from),
                              .to = static_cast<std::uint32_t>(lifespan.to),
                              .size = 0};
  }

  Result<Spare> judge(const TuneOptions& options) {
    Spare found{.manager = "pool", .how = std::string(kHowPool)};
    std::uint64_t low = 0, high = capacity_ + kStep;
    while (high - low > kStep) {
      if (options.interrupted != nullptr && options.interrupted->load()) break;
      const auto middle = low + std::max((high - low) / 2 / kStep, std::uint64_t{1}) * kStep;
      const auto done = replay(middle);
      if (!done) return done.error();
      if (replay::exit_code(*done) == 0 && done->outcomes.failed_as_recorded == 0) {
        low = middle;
        continue;
      }
      high = middle;
      if (!done->first_failure) continue;
      const auto line = done->first_failure->line;  // A step's number, from 1; 0: the block.
      found.limited_at = line == 0 ? draft_.block->from : draft_.steps[line - 1].event;
      found.limited_size = done->first_failure->size;
    }
    if (low != 0) found.bytes = found.most_bytes = low;
    return found;
  }

 private:
  Result<log::Summary> replay(std::uint64_t size) {
    draft_.block->size = size;
    const auto trace = builder_.build(draft_);
    if (!trace) return trace.error();
    return trial::run(*trace, setting_, capacity_);
  }

  DraftBuilder builder_;
  Draft draft_;
  Setting setting_;
  std::uint64_t capacity_;
};

void sort(std::vector<Spare>& ranking) {
  std::stable_sort(ranking.begin(), ranking.end(), [](const Spare& a, const Spare& b) {
    const auto key = [](const Spare& each) {
      return std::make_tuple(each.bytes.value_or(0), each.most_bytes.value_or(0), each.is_today);
    };
    return key(a) > key(b);
  });
}

bool is_tie(const Spare& a, const Spare& b) {
  return a.bytes == b.bytes && a.most_bytes == b.most_bytes && a.limited_at == b.limited_at &&
         a.limited_size == b.limited_size;
}

std::string size_words(const Spare& one) {
  if (!one.most_bytes) return "none";
  if (!one.bytes) return "none to " + units::bytes(*one.most_bytes);
  if (*one.bytes == *one.most_bytes) return units::bytes(*one.bytes);
  return units::bytes(*one.bytes) + " to " + units::bytes(*one.most_bytes);
}

std::string event_words(std::uint64_t event, const trace::Trace& trace) {
  return event < trace.size() ? text::grouped(trace.seq(static_cast<std::size_t>(event)))
                              : std::string("the end");
}

}  // namespace

std::vector<Spare> spare(const pytorch::Program& program, const Lifespan& lifespan,
                         const TuneOptions& options) {
  const auto settings = candidates(program, options);
  const auto late = as_late(program);
  std::vector<Spare> found(settings.size());
  std::mutex mutex;
  std::uint64_t done = 0;
  side_by_side(options.jobs, settings.size(), [&](std::size_t i) {
    if (options.interrupted != nullptr && options.interrupted->load()) return;
    found[i] = judge(program, late, lifespan, settings[i], options);
    found[i].is_today = i == 0;
    const std::lock_guard lock(mutex);
    if (options.progress) options.progress(++done, settings.size());
  });
  std::erase_if(found, [](const Spare& each) { return each.manager.empty(); });
  sort(found);
  return found;
}

Result<std::vector<Spare>> spare(const pytorch::Program& program, const trace::Trace& trace,
                                 const Lifespan& lifespan, const TuneOptions& options) {
  auto ranking = spare(program, lifespan, options);
  if (!why_no_pool(program, trace).empty()) return ranking;
  auto setting = pool_setting(options);
  if (!setting) return std::move(setting).error();
  const auto capacity = std::min(options.question.capacity, program.settings.limit());
  auto pool = PoolWithBlock(trace, lifespan, *std::move(setting), capacity).judge(options);
  if (!pool) return std::move(pool).error();
  ranking.push_back(*std::move(pool));
  sort(ranking);
  return ranking;
}

std::string to_text(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const Lateness& lateness, const trace::Trace& trace,
                    std::size_t top, int width) {
  if (ranking.empty()) return "Nothing was tried.\n";
  const auto& best = ranking.front();
  const auto life = text::format("from event {} to {}", event_words(lifespan.from, trace),
                                 event_words(lifespan.to, trace));
  auto words =
      best.bytes ? text::format("With {} a block of {} fits {}, under {}.", units::bytes(capacity),
                                inspect::bytes_in_full(*best.bytes), life, best.manager)
                 : text::format("With {} no block of 2 MiB or more fits {}.",
                                units::bytes(capacity), life);
  if (best.bytes && best.most_bytes > best.bytes)
    words += text::format(" It may be up to {}.", units::bytes(*best.most_bytes));
  if (best.limited_at && *best.limited_at != lifespan.from)
    words += text::format(" With 2 MiB more, event {} has no memory: a request of {}.",
                          event_words(*best.limited_at, trace), units::bytes(best.limited_size));
  auto out = format::wrapped(words, static_cast<std::size_t>(width)) + "\n";
  std::vector<std::vector<std::string>> rows{{"", "block", "limited at", "by", "setting"}};
  std::size_t shown = 0;
  bool any_range = false;
  for (std::size_t i = 0; i < ranking.size(); ++i) {
    const auto& one = ranking[i];
    if (i > 0 && is_tie(ranking[i - 1], one) && !one.is_today) continue;
    if (shown++ >= top && !one.is_today) continue;
    auto names = lines_of(one.manager);
    if (one.is_today) names.back() += " (today)";
    const auto by = !one.limited_at                    ? std::string()
                    : *one.limited_at == lifespan.from ? std::string("the block itself")
                                                       : units::bytes(one.limited_size);
    any_range = any_range || one.bytes != one.most_bytes;
    rows.push_back({text::format("{}", i + 1), size_words(one),
                    one.limited_at ? event_words(*one.limited_at, trace) : "-", by, names.front()});
    for (std::size_t line = 1; line < names.size(); ++line)
      rows.push_back({"", "", "", "", "  " + names[line]});
  }
  out += format::columns("rrrrl", rows, "");
  if (any_range)
    out += "\n" + format::wrapped(
                      lateness.late != 0
                          ? why_range(lateness) + " The pool, where it is tried, frees at once."
                          : "Two segments may have free blocks of one size; the driver's addresses "
                            "decide which is taken, and so which block fits.",
                      static_cast<std::size_t>(width));
  if (best.bytes && !best.is_today) out += text::format("\nTo use the first: {}\n", best.how);
  return out;
}

std::string to_json(const std::vector<Spare>& ranking, const Lifespan& lifespan,
                    std::uint64_t capacity, const Lateness& lateness, const trace::Trace& trace) {
  format::JsonAnswer json("emmctl.spare/1");
  const auto seq = [&](std::uint64_t event) -> std::optional<std::uint64_t> {
    if (event >= trace.size()) return std::nullopt;
    return trace.seq(static_cast<std::size_t>(event));
  };
  json.member("trace", trace.source()).member("capacity_bytes", capacity);
  json.member("from_event", seq(lifespan.from)).member("to_event", seq(lifespan.to));
  json.member("late_frees", lateness);
  json.objects("ranking", ranking, [&](const Spare& one) {
    json.member("manager", one.manager).member("how", one.how).member("today", one.is_today);
    json.member("block_bytes", one.bytes).member("block_most_bytes", one.most_bytes);
    json.member("limited_at", one.limited_at ? seq(*one.limited_at) : std::nullopt);
    json.member("limited_size", one.limited_size);
  });
  return json.finish();
}

}  // namespace emm::trial
