#include "trial/remedies.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>
#include <tuple>

#include "base/text.hpp"
#include "base/units.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"
#include "trial/habits.hpp"

namespace emm::trial {
namespace {

using inspect::bytes_in_full;
using inspect::need_beside;

/// Answers whether the request of `event` and all before it were served.
bool serves(const std::optional<std::uint64_t>& fails_at, std::uint64_t event) {
  return !fails_at || *fails_at > event;
}

Remedy by_model(std::string what, std::string how, const pytorch::Program& program,
                std::uint64_t event, const Question& question) {
  Remedy remedy{.what = std::move(what), .how = std::move(how)};
  const auto options = run_options(program.settings, question.capacity, question.limit);
  const auto outcome = run(program, options);
  remedy.served = serves(outcome.fails_at, event);
  remedy.serves_program = !outcome.fails_at;
  remedy.peak_reserved = outcome.counts.peak_reserved;
  remedy.reserved = reserved_of(as_late(program), options, program, outcome, question.below);
  return remedy;
}

constexpr std::string_view kMore = "today's setting and more memory";
constexpr std::string_view kPool = "pool", kExpandable = "pytorch:expandable_segments=True";

/// Takes the best three settings, and always expandable segments and the pool. Settings that
/// reserve and need the same are taken once.
class Chosen {
 public:
  bool take(const Tuned& each) {
    const auto always = each.manager == kPool || each.manager == kExpandable;
    if (each.is_today || (!always && settings_ == 3)) return false;
    const auto what = std::make_pair(each.peak_reserved, each.fit_bytes());
    const auto is_new = std::find(taken_.begin(), taken_.end(), what) == taken_.end();
    if (!always && !is_new) return false;
    taken_.push_back(what);
    settings_ += always ? 0 : 1;
    return true;
  }

 private:
  std::size_t settings_ = 0;
  std::vector<std::pair<std::uint64_t, std::optional<std::uint64_t>>> taken_;
};

auto rank(const Remedy& remedy) { return std::make_tuple(!remedy.serves_program, !remedy.served); }

/// The parts of a gap with one cause and one call site, added up.
struct ShownPart {
  pytorch::GapCause cause{};
  SiteId site{};
  bool has_site = false;
  std::uint64_t bytes = 0, blocks = 0;
};
std::vector<ShownPart> by_site(const pytorch::Gap& gap, const trace::Trace& trace) {
  std::map<std::pair<pytorch::GapCause, std::uint32_t>, ShownPart> sums;
  for (const auto& part : gap.parts) {
    const auto site = part.event ? trace[static_cast<std::size_t>(*part.event)].site : SiteId{};
    auto& sum = sums[{part.cause, static_cast<std::uint32_t>(site)}];
    sum.cause = part.cause;
    sum.site = site;
    sum.has_site = part.event && site != SiteId{};
    sum.bytes += part.bytes;
    sum.blocks += part.blocks;
  }
  std::vector<ShownPart> shown;
  for (const auto& [key, sum] : sums) shown.push_back(sum);
  std::stable_sort(shown.begin(), shown.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return shown;
}

std::optional<std::uint64_t> outside_at(const pytorch::Recording& recording, std::uint64_t event) {
  std::uint64_t reserved = 0;
  for (const auto& step : recording.steps()) {
    using Kind = pytorch::Step::Kind;
    if (step.kind == Kind::segment_begin) reserved += step.size;
    if (step.kind == Kind::segment_end) reserved -= std::min(reserved, step.size);
    if (step.kind != Kind::refused || step.event != event) continue;
    const auto total = recording.settings().total;
    const auto known = step.device_free + reserved;
    if (total == 0 || step.device_free == 0 || known > total) return std::nullopt;
    return total - known;
  }
  return std::nullopt;
}

/// Returns changes of the program that may avoid the causes of the gap.
std::vector<Remedy> habits(const pytorch::Program& program, const Advice& advice,
                           std::uint64_t event, const Question& question) {
  std::vector<Remedy> found;
  if (!advice.gap) return found;
  const auto has = [&](std::initializer_list<pytorch::GapCause> causes) {
    const auto& parts = advice.gap->parts;
    return std::any_of(parts.begin(), parts.end(), [&](const pytorch::GapPart& part) {
      return std::find(causes.begin(), causes.end(), part.cause) != causes.end();
    });
  };
  const auto add = [&](std::string_view what, std::string_view how, const pytorch::Program& other) {
    found.push_back(by_model(std::string(what), std::string(how), other, event, question));
  };
  using Cause = pytorch::GapCause;
  if (has({Cause::waiting_for_event}))
    add("streams that wait, no record_stream()", kNoWaiting, without_waiting(program));
  if (has({Cause::private_pool})) {
    add("one private pool for all", kOnePool, with_one_pool(program));
    add("private pools that are done, dropped", kDropped, with_pools_dropped(program, event));
  }
  if (has({Cause::too_small, Cause::small_pool, Cause::large_pool, Cause::kept_whole,
           Cause::other_stream}))
    add("what stays, in a MemPool of its own", kPoolOfItsOwn, with_lasting_apart(program, event));
  return found;
}

}  // namespace

Result<Advice> advise(const pytorch::Recording& recording, const trace::Trace& trace,
                      std::optional<std::uint64_t> asked, const Question& question,
                      const TuneOptions& options) {
  Advice advice;
  advice.event = asked;
  const auto event = asked.value_or(trace.size());
  auto program = program_of(recording, recording.settings());
  if (question.by == AskedBy::user) program.settings.drop_limit();
  auto tuning_options = options;
  tuning_options.question = question;
  tuning_options.fit_few = true;
  auto tuning = tune(program, trace, tuning_options);
  if (!tuning) return tuning.error();
  advice.tuning = *std::move(tuning);
  advice.tuning.inferred_limit = inferred_limit(recording);
  if (asked) {
    advice.gap = gap_at(recording, recording.settings(), event);
    advice.outside = outside_at(recording, event);
  }

  Chosen chosen;
  for (const auto& each : advice.tuning.ranking) {
    if (!chosen.take(each)) continue;
    advice.remedies.push_back({.what = each.manager == kPool       ? "the pool"
                                       : each.manager == "pytorch" ? "PyTorch's default settings"
                                                                   : each.manager.substr(8),
                               .how = each.how,
                               .served = serves(each.fails_at, event),
                               .serves_program = each.served,
                               .peak_reserved = each.peak_reserved,
                               .reserved = each.reserved,
                               .fit_bytes = each.fit_bytes()});
  }
  const auto asks = std::find_if(program.calls.begin(), program.calls.end(),
                                 [&](const pytorch::Call& call) { return asks_at(call, event); });
  const auto in_capture = asks != program.calls.end() && !asks->pool.is_default();
  if (asked)
    advice.remedies.push_back(by_model(
        in_capture ? "empty_cache() in front of its capture" : "empty_cache() in front of it",
        "torch.cuda.empty_cache()", with_empty_cache(program, event), event, question));
  for (auto& each : habits(program, advice, event, question)) {
    if (each.served) advice.remedies.push_back(std::move(each));
  }
  for (const std::uint64_t part : {1, 2, 4}) {
    auto remedy =
        by_model(text::format("requests {} smaller", part == 1   ? "1/8"
                                                     : part == 2 ? "1/4"
                                                                 : "1/2"),
                 "a smaller batch, shorter sequences", smaller(program, part), event, question);
    const auto enough = remedy.serves_program;
    if (enough || part == 4) advice.remedies.push_back(std::move(remedy));
    if (enough) break;
  }
  if (const auto* const today = advice.tuning.today(); today != nullptr && today->fit) {
    const auto more = std::max(today->fit->high, question.capacity) - question.capacity;
    program.settings.drop_limit();  // More memory is also a higher fraction.
    auto remedy = by_model(
        std::string(kMore), text::format("{} more for the allocator", units::bytes(more)), program,
        event,
        {.capacity = std::max(today->fit->high, question.capacity), .limit = question.limit});
    remedy.fit_bytes = today->fit_bytes();
    advice.remedies.push_back(std::move(remedy));
  }
  std::stable_sort(advice.remedies.begin(), advice.remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return rank(a) < rank(b); });
  // More memory is the last resort.
  std::stable_partition(advice.remedies.begin(), advice.remedies.end(),
                        [](const Remedy& each) { return each.what != kMore; });
  return advice;
}

void add_advice(format::Brief& brief, const Advice& advice) {
  const auto first = first_advice(advice.tuning);
  const auto* const today = advice.tuning.today();
  const auto& question = advice.tuning.question;
  std::string whole;
  if (today != nullptr && today->fit && !first.says_today)
    whole = text::format("The whole run needs {} with today's setting. ",
                         need_beside(today->fit->high, question.capacity));
  brief.answer.insert(brief.answer.begin(), whole + first.words);
  brief.command = first.is_today ? "" : first.how;
}

std::string to_text(const Advice& advice, const trace::Trace& trace, std::size_t top, int width) {
  std::string out;
  if (advice.gap && advice.gap->reserved > advice.gap->live) {
    const auto& gap = *advice.gap;
    out += text::format("\nReserved beyond what was live then: {}\n",
                        bytes_in_full(gap.reserved - gap.live));
    std::vector<std::vector<std::string>> rows;
    const auto shown = by_site(gap, trace);
    std::uint64_t rest = 0;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto& part = shown[i];
      if (i >= top) {
        rest += part.bytes;
        continue;
      }
      auto words = std::string(pytorch::name(part.cause));
      if (part.has_site) words += ": " + inspect::site_name(trace, part.site, 40);
      rows.push_back({units::bytes(part.bytes), text::grouped(part.blocks), words});
    }
    if (rest != 0) rows.push_back({units::bytes(rest), "", "other parts"});
    out += format::columns("rrl", rows);
  }
  if (advice.outside)
    out += "\n" + format::wrapped(
                      text::format("Outside of the allocator, {}: the context, other libraries and "
                                   "other processes. No setting of the allocator changes that.",
                                   bytes_in_full(*advice.outside)),
                      static_cast<std::size_t>(width));
  out += text::format("\nWhat to do, each tried by a replay with {}\n",
                      bytes_in_full(advice.tuning.question.capacity));
  std::vector<std::vector<std::string>> rows{{"the request", "the whole program", ""}};
  for (const auto& each : advice.remedies) {
    const auto more = each.what == kMore;
    const auto whole = more || each.serves_program ? "is served" : "fails";
    rows.push_back({each.served ? "is served" : "fails",
                    each.fit_bytes ? text::format("{}, needs {}", whole,
                                                  need_beside(*each.fit_bytes,
                                                              advice.tuning.question.capacity))
                                   : whole,
                    more ? text::format("{}: {}", each.what, each.how) : each.what});
  }
  out += format::columns("lll", rows);
  const auto first = first_advice(advice.tuning);
  auto words = text::format("{} The program itself needs {}.", first.words,
                            bytes_in_full(advice.tuning.peak_live));
  if (const auto& lateness = advice.tuning.lateness; lateness.late != 0)
    words += text::format(
        " {} frees completed late, as the device got there: each figure is enough whether that is "
        "at the next request or {} requests later.",
        text::grouped(lateness.late), text::grouped(lateness.longest_requests));
  if (!advice.tuning.pool_untried.empty()) words += text::format(" {}", advice.tuning.pool_untried);
  out += format::wrapped(words, static_cast<std::size_t>(width));
  if (!first.is_today && !first.how.empty())
    out += text::format("{}:\n{}\n", first.serves ? "First try" : "What serves it", first.how);
  return out;
}

std::string to_json_members(const Advice& advice, const trace::Trace& trace) {
  std::string out;
  format::JsonWriter json(out);
  json.begin_object();
  write_advice(json, advice.tuning);
  json.objects("remedies", advice.remedies, [&](const auto& each) {
    json.member("what", each.what).member("how", each.how).member("served", each.served);
    json.member("serves_program", each.serves_program);
    json.member("peak_reserved_bytes", each.peak_reserved);
    write(json, each.reserved);
    json.member("fit_bytes", each.fit_bytes);
  });
  json.objects("gap", advice.gap ? by_site(*advice.gap, trace) : std::vector<ShownPart>(),
               [&](const auto& part) {
                 json.member("cause", part.cause).member("bytes", part.bytes);
                 json.member_or_null("site", part.has_site,
                                     inspect::site_name(trace, part.site, 200));
               });
  json.member("outside_bytes", advice.outside);
  write_inferred_limit(json, advice.tuning.inferred_limit);
  json.member("remedies_at_bytes", advice.tuning.question.capacity);
  json.member("capacity_by", name(advice.tuning.question.by));
  json.member("need_bytes", advice.tuning.peak_live);
  json.end_object();
  return out.substr(1, out.size() - 2);
}

}  // namespace emm::trial
