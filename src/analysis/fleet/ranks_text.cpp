#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "fleet/ranks.hpp"
#include "format/columns.hpp"
#include "format/json_writer.hpp"
#include "inspect/report_parts.hpp"

namespace emm::fleet {
namespace {

/// How a count of bytes is written: units::bytes() or units::short_bytes().
using Bytes = std::string (*)(std::uint64_t);

std::string rank_name(const Rank& rank) {
  return text::format("rank {}", text::printable(rank.file.label, 60));
}

std::string capital(std::string words) {
  if (!words.empty() && words[0] >= 'a' && words[0] <= 'z')
    words[0] = static_cast<char>(words[0] - 'a' + 'A');
  return words;
}

bool all_read(const Comparison& comparison, bool (*has)(const Rank&)) {
  return std::all_of(comparison.ranks.begin(), comparison.ranks.end(),
                     [&](const Rank& rank) { return !rank.read || has(rank); });
}

std::uint64_t compared(const Comparison& comparison, const Rank& rank) {
  const bool outside =
      all_read(comparison, [](const Rank& each) { return each.outside.has_value(); });
  const bool reserved =
      all_read(comparison, [](const Rank& each) { return each.reserved.has_value(); });
  auto bytes = reserved ? rank.held() : rank.peak_live;
  if (rank.refusal) bytes = std::max(bytes, rank.refusal->live + rank.refusal->size);
  return bytes + (outside ? *rank.outside : 0);
}

/// Writes "ranks 0, 1 and 2"; of many, the first.
std::string names_of(const Comparison& comparison, const std::vector<std::size_t>& places) {
  // Names that are listed, and ranks in a row from which on a range is written.
  constexpr std::size_t kLabels = 16, kRow = 4;
  std::vector<std::string> labels;
  const auto label = [&](std::size_t k) {
    return text::printable(comparison.ranks[places[k]].file.label, 60);
  };
  const auto number = [&](std::size_t k) { return comparison.ranks[places[k]].file.number; };
  for (std::size_t k = 0; k < places.size();) {
    auto end = k + 1;  // of consecutive numbers
    while (end < places.size() && number(k) && number(end) == *number(k) + (end - k)) ++end;
    if (end - k >= kRow) {
      labels.push_back(text::format("{} to {}", label(k), label(end - 1)));
    } else {
      end = k + 1;
      labels.push_back(label(k));
    }
    k = end;
  }
  const auto more = labels.size() > kLabels ? labels.size() - kLabels : 0;
  if (more > 0) labels.resize(kLabels);
  return text::format("{} {}{}", places.size() == 1 ? "rank" : "ranks", text::join(labels),
                      more > 0 ? text::format(" and {} more", more) : std::string());
}

std::int64_t left_of(const Comparison& comparison, const Rank& rank) {
  return static_cast<std::int64_t>(*rank.limit) -
         static_cast<std::int64_t>(compared(comparison, rank));
}

/// "its device held 6.06 GiB at most", "136.50 GiB of 139.81 GiB are left"
std::string held_words(const Comparison& comparison, const Rank& rank, std::string_view its,
                       Bytes write) {
  const auto used = compared(comparison, rank);
  if (comparison.by_room) {
    const auto left = left_of(comparison, rank);
    return left >= 0
               ? text::format("{} of {} are left", write(static_cast<std::uint64_t>(left)),
                              write(*rank.limit))
               : text::format("{} {} more than {} {}", its == "its" ? "it takes" : "they take",
                              write(static_cast<std::uint64_t>(-left)), its, write(*rank.limit));
  }
  const bool outside =
      all_read(comparison, [](const Rank& each) { return each.outside.has_value(); });
  const bool reserved =
      all_read(comparison, [](const Rank& each) { return each.reserved.has_value(); });
  const bool one = its == "its";
  return text::format("{} {} at most",
                      outside    ? text::format("{} device{} held", its, one ? "" : "s each")
                      : reserved ? text::format("{} manager{} held", its, one ? "" : "s each")
                      : one      ? std::string("it had")
                                 : std::string("they each had"),
                      outside || reserved ? write(used) : write(used) + " live");
}

std::string tightest_words(const Comparison& comparison, Bytes write = units::bytes) {
  const auto& rank = comparison.ranks[*comparison.tightest];
  const auto used = compared(comparison, rank);
  const auto* next = comparison.next ? &comparison.ranks[*comparison.next] : nullptr;
  if (rank.refusal) {
    return text::format("{} is the tightest: its request of {} failed at event {}, with {} live.",
                        capital(rank_name(rank)), write(rank.refusal->size),
                        text::grouped(rank.refusal->event), write(rank.refusal->live));
  }
  if (next == nullptr) {
    return text::format("{} is the tightest: {}; there is no other.", capital(rank_name(rank)),
                        held_words(comparison, rank, "its", write));
  }
  auto places = comparison.as_tight;
  places.insert(std::lower_bound(places.begin(), places.end(), *comparison.tightest),
                *comparison.tightest);
  const bool all = std::binary_search(places.begin(), places.end(), *comparison.next);
  std::string words;
  if (all) {
    return text::format("{} are equally tight: {}.", capital(names_of(comparison, places)),
                        held_words(comparison, rank, "their", write));
  }
  if (places.size() > 1) {
    words = text::format("{} are the tightest: {}", capital(names_of(comparison, places)),
                         held_words(comparison, rank, "their", write));
  } else {
    words = text::format("{} is the tightest: {}", capital(rank_name(rank)),
                         held_words(comparison, rank, "its", write));
  }
  if (comparison.by_room) {
    const auto more = left_of(comparison, *next) - left_of(comparison, rank);
    return words + (more > 0
                        ? text::format(", {} less than of {}, the next.",
                                       write(static_cast<std::uint64_t>(more)), rank_name(*next))
                        : text::format(", as of {}.", rank_name(*next)));
  }
  const auto theirs = compared(comparison, *next);
  if (used == theirs) return words + text::format(", as much as {}.", rank_name(*next));
  words += text::format(", {} more than {}, the next", write(used - theirs), rank_name(*next));
  if (comparison.median_used < theirs) {
    words += text::format(", and {} more than the median of the others",
                          write(used - comparison.median_used));
  }
  return words + '.';
}

std::string site_words(const Sites& sites, const Excess& most, const std::vector<Excess>& keys) {
  // Finds the size that makes up most of what the site has.
  const Excess* key = nullptr;
  for (const auto& each : keys) {
    if (each.site == most.site) {
      key = &each;
      break;
    }
  }
  auto words = most.site != 0
                   ? text::format("{} from {}", units::bytes(most.more()), sites.name(most.site))
                   : text::format("{} without a call site", units::bytes(most.more()));
  if (key == nullptr) return words;
  if (most.count == most.others_count && most.others_bytes != 0) {
    return words +
           text::format(
               ": {}, {} times as large as theirs", inspect::counted(most.count, "allocation"),
               text::fixed(static_cast<double>(most.bytes) / static_cast<double>(most.others_bytes),
                           2));
  }
  if (most.others_bytes == 0) {
    return words + text::format(": {} of {}, the others none", text::grouped(key->count),
                                units::bytes(key->size));
  }
  return words + text::format(": {} of {} against {}", text::grouped(key->count),
                              units::bytes(key->size), text::grouped(key->others_count));
}

/// Writes "; the most is ..." if there is any. If that has no call site, adds the most that has
/// one.
std::string most_words(const Comparison& comparison, const Sites& sites) {
  if (comparison.sites.empty()) return {};
  const auto& most = comparison.sites.front();
  const auto words = "; the most is " + site_words(sites, most, comparison.keys);
  if (most.site != 0) return words;
  const auto named = std::find_if(comparison.sites.begin(), comparison.sites.end(),
                                  [](const Excess& each) { return each.site != 0; });
  if (named == comparison.sites.end() || named->more() * 8 < most.more()) return words;
  return words + text::format("; {}", site_words(sites, *named, comparison.keys));
}

std::string live_words(const Comparison& comparison, const Sites& sites, std::uint64_t bytes) {
  auto words =
      text::format("{} more live at its peak than the median of the others", units::bytes(bytes));
  const auto* larger = comparison.larger ? &*comparison.larger : nullptr;
  if (larger == nullptr || (larger->bytes - larger->others_bytes) * 2 < bytes)
    return words + most_words(comparison, sites);
  words += text::format(
      ", in as many allocations ({} and {}), which are larger: {} that no other rank "
      "asks for, {} against {}",
      text::grouped(larger->allocations), text::grouped(larger->others_allocations),
      larger->own_sizes == 1 ? std::string("1 has a size")
                             : text::grouped(larger->own_sizes) + " have sizes",
      units::bytes(larger->bytes), units::bytes(larger->others_bytes));
  const auto named = std::find_if(comparison.sites.begin(), comparison.sites.end(),
                                  [](const Excess& each) { return each.site != 0; });
  if (named != comparison.sites.end() && named->more() * 8 >= bytes)
    words += "; most of what has a call site, " + site_words(sites, *named, comparison.keys);
  return words;
}

/// Says why its device held more, in words that follow "it has" and "its manager held".
std::string held_more_words(const Comparison& comparison, const Sites& sites, Reason reason,
                            std::uint64_t bytes, bool also) {
  const auto& rank = comparison.ranks[*comparison.tightest];
  switch (reason) {
    case Reason::nothing:
      break;
    case Reason::idle: {
      auto words = text::format(
          "its manager held {} that were not live, {} more than the others' median",
          units::bytes(rank.held() - std::min(rank.held(), rank.peak_live)), units::bytes(bytes));
      // Memory for a request that the others do not make was not taken for want of a free block.
      const auto* most = comparison.grown.empty() ? nullptr : &comparison.grown.front();
      if (most != nullptr && most->others_count == 0 && 2 * most->more() >= bytes) {
        words += text::format("; it reserved {} for {} of {}{}: no other rank makes such a request",
                              units::bytes(most->more()), inspect::counted(most->count, "request"),
                              units::bytes(most->size),
                              most->site != 0 ? " from " + sites.name(most->site) : std::string());
      } else if (!also) {
        words += ": it is fragmented";
      }
      return words;
    }
    case Reason::outside:
      return text::format(
          "outside of its allocator its device held {}, {} more than the others' median: contexts, "
          "libraries or other processes",
          units::bytes(rank.outside.value_or(0)), units::bytes(bytes));
    case Reason::live:
      return "it has " + live_words(comparison, sites, bytes);
  }
  return {};
}

std::string reason_words(const Comparison& comparison, const Sites& sites) {
  if (!comparison.next) return "Nothing to compare it with was read.";
  const auto& rank = comparison.ranks[*comparison.tightest];
  if (comparison.reason == Reason::nothing) {
    const auto whole = comparison.as_tight.size() + 1;
    const bool all =
        std::any_of(comparison.alike.begin(), comparison.alike.end(), [&](const auto& group) {
          return group.size() == whole && group.size() == comparison.ranks.size();
        });
    if (all && rank.refused == 0) return "All make the same requests to the end.";
    return comparison.as_tight.empty()
               ? "It holds no more than the others do, within a hundredth."
               : "They hold no more than the others do, within a hundredth.";
  }
  auto words =
      held_more_words(comparison, sites, comparison.reason, comparison.reason_bytes, false);
  words = comparison.as_tight.empty() ? capital(words)
                                      : text::format("Of {}: {}", rank_name(rank), words);
  if (comparison.also != Reason::nothing) {
    words += "; besides, " +
             held_more_words(comparison, sites, comparison.also, comparison.also_bytes, true);
  }
  return words + '.';
}

std::string spike_words(const Comparison& comparison) {
  constexpr std::size_t kShown = 4;  // stretches that a sentence still reads well with
  const auto& spike = *comparison.spike;
  const auto& rank = comparison.ranks[*comparison.tightest];
  std::vector<std::string> ranges;
  for (const auto& [first, last] : spike.events) {
    if (ranges.size() < kShown)
      ranges.push_back(text::format("{} to {}", text::grouped(first), text::grouped(last)));
  }
  const auto more = spike.events.size() - ranges.size();
  return text::format(
      "It is so in {} of {} parts of its recording alone, events {}{} of {}; elsewhere it has {} "
      "live at most.\n",
      spike.parts, Rank::kParts, text::join(ranges),
      more > 0 ? text::format(" and {} more times", more) : std::string(),
      text::grouped(rank.events), units::bytes(spike.elsewhere));
}

std::string request_words(const std::optional<Request>& request, const Sites& sites) {
  if (!request) return "asks for nothing more";
  auto words = text::format("asks for {} at event {}", inspect::bytes_in_full(request->size),
                            text::grouped(request->event));
  if (request->site != 0) words += ", " + sites.name(request->site);
  return words;
}

std::string left_words(const Comparison& comparison, const Rank& rank, Bytes write) {
  if (!rank.limit) return "-";
  const auto used = compared(comparison, rank);
  return used > *rank.limit ? "-" + write(used - *rank.limit) : write(*rank.limit - used);
}

/// Says where a rank parts from the tightest.
std::string parts_words(const Comparison& comparison, std::size_t i) {
  if (i == comparison.tightest) return "the tightest";
  if (std::binary_search(comparison.as_tight.begin(), comparison.as_tight.end(), i))
    return "as tight";
  const auto& parting = comparison.partings[i];
  if (!parting) return "never";
  return parting->there ? text::grouped(parting->there->event) : std::string("its end");
}

std::string table(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows{{"rank", "live at peak", "reserved", "outside",
                                              "in all", "limit", "left", "requests", "parts at"}};
  const auto optional = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? units::bytes(*bytes) : std::string("-");
  };
  for (std::size_t i = 0; i < comparison.ranks.size(); ++i) {
    const auto& rank = comparison.ranks[i];
    if (!rank.read) {
      rows.push_back(
          {text::printable(rank.file.label, 60), "-", "-", "-", "-", "-", "-", "-", "damaged"});
      continue;
    }
    rows.push_back({text::printable(rank.file.label, 60), units::bytes(rank.peak_live),
                    optional(rank.reserved), optional(rank.outside),
                    units::bytes(compared(comparison, rank)), optional(rank.limit),
                    left_words(comparison, rank, units::bytes), text::grouped(rank.requests.size()),
                    parts_words(comparison, i)});
  }
  return format::columns("lrrrrrrrl", rows);
}

void put_site(format::JsonWriter& json, const Sites& sites, std::uint32_t site) {
  json.member_or_null("call_site", site != 0, sites.name(site));
}

void put_request(format::JsonWriter& json, std::string_view name, const Rank& rank,
                 const std::optional<Request>& request, const Sites& sites) {
  const auto of = request.value_or(Request());
  json.object(name, [&] {
    json.member("rank", rank.file.label).member_or_null("event", request.has_value(), of.event);
    json.member_or_null("size", request.has_value(), of.size);
    put_site(json, sites, of.site);
  });
}

void put_rank(format::JsonWriter& json, const Comparison& comparison, std::size_t place) {
  const auto& rank = comparison.ranks[place];
  json.begin_object().member("rank", rank.file.label).member("path", rank.file.path);
  json.member("read", rank.read).member("device", rank.device);
  json.member_or_null("fault", !rank.fault.empty(), rank.fault);
  json.member("events", rank.events).member("requests", rank.requests.size());
  json.member("refused", rank.refused).member("peak_live_bytes", rank.peak_live);
  json.member("peak_event", rank.peak_event).member("peak_reserved_bytes", rank.reserved);
  json.member("outside_bytes", rank.outside).member("limit_bytes", rank.limit);
  json.member("used_bytes", rank.read ? compared(comparison, rank) : 0).key("parts_at");
  const auto& parting = comparison.partings[place];
  parting && parting->there ? json.value(parting->there->event) : json.null();
  json.end_object();
}

/// Writes the member "tightest".
void put_tightest(format::JsonWriter& json, const Comparison& set, const Sites& sites) {
  json.object("tightest", set.tightest, [&](std::size_t tightest) {
    const auto& rank = set.ranks[tightest];
    const auto used = compared(set, rank);
    const auto label_of = [&](std::size_t i) { return set.ranks[i].file.label; };
    json.member("rank", rank.file.label).values("as_tight", set.as_tight, label_of);
    json.member("used_bytes", used);
    const auto& next = set.ranks[set.next.value_or(tightest)];
    json.member_or_null("next", set.next.has_value(), next.file.label);
    json.member_or_null("more_than_next_bytes", set.next.has_value(),
                        used - std::min(used, compared(set, next)));
    json.member("others_median_bytes", set.median_used).member("reason", set.reason);
    json.member("reason_bytes", set.reason_bytes).member("also", set.also);
    json.member("also_bytes", set.also == Reason::nothing ? 0 : set.also_bytes);
    json.member("words", std::array{tightest_words(set), reason_words(set, sites)});
  });
}

bool is_tighter(const Comparison& a, const Comparison& b) {
  const auto& one = a.ranks[*a.tightest];
  const auto& other = b.ranks[*b.tightest];
  if ((one.refused != 0) != (other.refused != 0)) return one.refused != 0;
  if (a.by_room && b.by_room) return left_of(a, one) < left_of(b, other);
  return compared(a, one) > compared(b, other);
}

/// Says in a sentence why the tightest rank holds more.
std::string brief_reason(const Comparison& comparison, const Sites& sites) {
  const auto more = units::short_bytes(comparison.reason_bytes);
  switch (comparison.reason) {
    case Reason::nothing:
      break;
    case Reason::live: {
      if (comparison.sites.empty() || comparison.sites.front().site == 0)
        return text::format("At its peak {} more is live than the others' median.", more);
      return text::format("At its peak {} more is live than the others' median, most from {}.",
                          more, sites.name(comparison.sites.front().site));
    }
    case Reason::idle:
      return text::format("Its manager kept {} more that was not live than the others' median.",
                          more);
    case Reason::outside:
      return text::format(
          "Contexts, libraries or other processes hold {} more than the others' median.", more);
  }
  return comparison.next ? reason_words(comparison, sites) : std::string();
}

/// The ranks in the order of what they hold, those that were not read first.
std::vector<std::size_t> by_size(const Comparison& comparison) {
  std::vector<std::size_t> order(comparison.ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t i) {
    const auto& rank = comparison.ranks[i];
    return std::tuple(i != comparison.tightest, rank.read,
                      rank.read ? ~compared(comparison, rank) : 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  return order;
}

/// The tightest ranks of one run.
void add_ranks(const Comparison& comparison, format::Brief& out) {
  out.sides = "lrrrrrl";
  out.rows = {{"rank", "live", "reserved", "outside", "in all", "left", "parts at event"}};
  const auto optional = [](const std::optional<std::uint64_t>& bytes) {
    return bytes ? units::short_bytes(*bytes) : std::string("-");
  };
  const bool outside =
      all_read(comparison, [](const Rank& each) { return each.outside.has_value(); });
  for (const auto i : by_size(comparison)) {
    const auto& rank = comparison.ranks[i];
    const auto label = text::printable(rank.file.label, 40);
    if (out.rows.size() > format::Brief::kRows) {
      const auto left = comparison.ranks.size() - format::Brief::kRows;
      out.rows.push_back({text::format("{} more", left), "", "", "", "", "", ""});
      return;
    }
    if (!rank.read) {
      out.rows.push_back({label, "-", "-", "-", "-", "-", "damaged"});
      continue;
    }
    // "in all" repeats "reserved" where nothing is known of what is outside of the allocator.
    out.rows.push_back(
        {label, units::short_bytes(rank.peak_live), optional(rank.reserved), optional(rank.outside),
         outside ? units::short_bytes(compared(comparison, rank)) : "-",
         left_words(comparison, rank, units::short_bytes), parts_words(comparison, i)});
  }
}

/// The tightest rank of each run.
void add_runs(const std::vector<Comparison>& runs, format::Brief& out) {
  out.sides = "llrl";
  out.rows = {{"recordings", "tightest", "it holds", "differs in"}};
  for (const auto& run : runs) {
    if (out.rows.size() > format::Brief::kRows) {
      out.rows.push_back({text::format("{} more", runs.size() - format::Brief::kRows), "", "", ""});
      return;
    }
    if (!run.tightest) {
      out.rows.push_back({text::printable(run.name, 40), "none read", "-", "-"});
      continue;
    }
    const auto& rank = run.ranks[*run.tightest];
    out.rows.push_back({text::printable(run.name, 40), text::printable(rank.file.label, 40),
                        units::short_bytes(compared(run, rank)), std::string(name(run.reason))});
  }
}

}  // namespace

format::Brief brief(const std::vector<Comparison>& runs, const Sites& sites) {
  format::Brief out;
  const Comparison* tightest = nullptr;
  for (const auto& run : runs) {
    if (run.tightest && (tightest == nullptr || is_tighter(run, *tightest))) tightest = &run;
  }
  if (tightest == nullptr) return out;
  const auto& rank = tightest->ranks[*tightest->tightest];
  if (runs.size() > 1)
    out.answer.push_back(text::format("Of {} of each rank, {} is the tightest.",
                                      inspect::counted(runs.size(), "recording"),
                                      text::printable(tightest->name, 100)));
  out.answer.push_back(tightest_words(*tightest, units::short_bytes));
  out.answer.push_back(brief_reason(*tightest, sites));
  out.command = text::format(rank.refusal ? "emmctl explain {}" : "emmctl inspect {}",
                             text::shell_word(rank.file.path));
  runs.size() > 1 ? add_runs(runs, out) : add_ranks(*tightest, out);
  out.more =
      "each rank, where they part, an even spread, and what the tightest has beyond the others";
  return out;
}

std::string to_text(const Comparison& comparison, const Sites& sites, const RanksShown& shown) {
  std::string out;
  if (comparison.tightest) {
    const auto& rank = comparison.ranks[*comparison.tightest];
    out += tightest_words(comparison) + '\n' + reason_words(comparison, sites) + '\n';
    if (comparison.spike) out += spike_words(comparison);
    out += '\n';
    const bool devices = std::any_of(comparison.ranks.begin(), comparison.ranks.end(),
                                     [](const Rank& each) { return each.device.has_value(); });
    out += text::format("{}: {}{}\n", text::printable(comparison.name, 200),
                        inspect::counted(comparison.ranks.size(), "rank"),
                        devices ? ", one for each device" : "");
    out += table(comparison);
    if (comparison.next || !comparison.keys.empty()) out += '\n';
    if (const auto used = compared(comparison, rank); comparison.next && used > comparison.even) {
      out += text::format("Spread evenly, each would hold {}, {} less than {} does.\n",
                          units::bytes(comparison.even), units::bytes(used - comparison.even),
                          rank_name(rank));
    }
    if (const auto& parting = comparison.parting) {
      const auto& other = comparison.ranks[parting->other];
      out += text::format(
          "{} and {}, the most alike that part, make {} alike. Then\n  {} {}\n  {} {}\n",
          capital(rank_name(rank)), rank_name(other), inspect::counted(parting->alike, "request"),
          rank_name(rank), request_words(parting->here, sites), rank_name(other),
          request_words(parting->there, sites));
    }
    for (const auto& group : comparison.alike)
      out += capital(names_of(comparison, group)) + " make the same requests to the end.\n";
    if (!comparison.keys.empty() && comparison.next) {
      out += text::format("\nWhat {} has at its peak beyond the median of the others\n",
                          rank_name(rank));
      std::vector<std::vector<std::string>> rows{{"more", "count", "others", "of", ""}};
      for (std::size_t i = 0; i < std::min(shown.top, comparison.keys.size()); ++i) {
        const auto& key = comparison.keys[i];
        rows.push_back({units::bytes(key.more()), text::grouped(key.count),
                        text::grouped(key.others_count), units::bytes(key.size),
                        sites.name(key.site)});
      }
      if (comparison.keys.size() > shown.top) {
        std::uint64_t left = 0;
        for (auto i = shown.top; i < comparison.keys.size(); ++i) left += comparison.keys[i].more();
        rows.push_back({units::bytes(left), "", "", "",
                        text::format("... and {} more", comparison.keys.size() - shown.top)});
      }
      out += format::columns("rrrrl", rows);
    }
  }
  return out;
}

std::string tightest_of(const std::vector<const Comparison*>& sets, const Sites& sites) {
  const Comparison* tightest = nullptr;
  for (const auto* set : sets) {
    if (set->tightest && (tightest == nullptr || is_tighter(*set, *tightest))) tightest = set;
  }
  if (tightest == nullptr) return {};
  return text::format("Of {} {} is the tightest:\n  {}\n  {}\n",
                      inspect::counted(sets.size(), "recording") + " of each rank,",
                      text::printable(tightest->name, 200), tightest_words(*tightest),
                      reason_words(*tightest, sites));
}

std::string to_json(const std::vector<Comparison>& sets, const Sites& sites,
                    const RanksShown& shown) {
  format::JsonAnswer json("emmctl.ranks/1", 2);
  json.objects("sets", sets, [&](const Comparison& set) {
    json.member("name", set.name).key("ranks").begin_array();
    for (std::size_t i = 0; i < set.ranks.size(); ++i) put_rank(json, set, i);
    json.end_array();
    json.member("missing", set.missing).member("missing_places", set.missing_places);
    put_tightest(json, set, sites);
    json.member("larger", set.larger);
    json.object("spike", set.spike, [&](const Spike& spike) {
      json.member("elsewhere_bytes", spike.elsewhere);
      json.objects("stretches", spike.events, [&](const auto& stretch) {
        json.member("first", stretch.first).member("last", stretch.second);
      });
    });
    json.objects("beyond_others", inspect::first_of(set.keys, shown.top), [&](const Excess& key) {
      put_site(json, sites, key.site);
      json.members(key);
    });
    json.object("parting", set.parting, [&](const Parting& parting) {
      json.member("alike_requests", parting.alike);
      put_request(json, "here", set.ranks[parting.rank], parting.here, sites);
      put_request(json, "there", set.ranks[parting.other], parting.there, sites);
    });
    json.key("alike").begin_array();
    for (const auto& group : set.alike) {
      json.begin_array();
      for (const auto i : group) json.value(set.ranks[i].file.label);
      json.end_array();
    }
    json.end_array().member("even_bytes", set.even);
  });
  return json.finish();
}

}  // namespace emm::fleet
