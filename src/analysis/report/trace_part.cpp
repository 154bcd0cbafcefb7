#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "base/text.hpp"
#include "format/json_writer.hpp"
#include "inspect/description.hpp"
#include "inspect/fit_check.hpp"
#include "inspect/oom.hpp"
#include "inspect/oom_text.hpp"
#include "inspect/profile_text.hpp"
#include "inspect/stream_need.hpp"
#include "report/columns.hpp"
#include "report/page.hpp"
#include "trace/header.hpp"

namespace emm::report {
namespace {

using format::JsonWriter;
using trace::Lifetime;
using trace::Lifetimes;
using MemoryKind = Lifetime::MemoryKind;

// The overview above the timeline has kOverviewColumns, and a call site kFramesMost frames. A page
// of more than kSitesWithFramesMost call sites has no frames, since a browser has to load it.
constexpr std::size_t kOverviewColumns = 300, kFramesMost = 40, kSitesWithFramesMost = 20'000;
// the page's numbers are exact below this
constexpr std::uint64_t kNumberMost = std::uint64_t{1} << 53;

/// What happens to memory at an event. The page knows the values by number.
enum class Change : std::uint8_t {
  begin,    ///< The program gets memory.
  end,      ///< The program frees memory, and its address becomes free at once.
  asked,    ///< The program frees memory, but its address becomes free at a later `gone`.
  gone,     ///< The address of memory that the program freed earlier becomes free.
  held,     ///< The recorded manager takes memory from the device.
  given,    ///< The recorded manager releases memory to the device.
  refused,  ///< A recorded request ran out of memory.
};

/// The greatest common divisor of all numbers, at least 1.
template <class Numbers>
std::uint64_t unit_of(std::uint64_t count, const Numbers& number) {
  std::uint64_t unit = 0;
  for (std::uint64_t i = 0; i < count && unit != 1; ++i) unit = std::gcd(unit, number(i));
  return std::max<std::uint64_t>(unit, 1);
}

/// The columns of a trace's changes. Live memory has a slot, and the end of memory names its slot,
/// so the numbers stay small.
class Changes {
 public:
  /// `gap` may be null.
  Changes(const Recorded& recorded, const Lifetimes& lifetimes, const inspect::GapWalk* gap)
      : recorded_(recorded), lifetimes_(lifetimes), gap_(gap), slots_(lifetimes.all().size()) {
    const auto ids = lifetimes.all().size();
    address_unit_ = unit_of(ids, [&](auto id) { return address(static_cast<AllocId>(id)); });
    rank_sites();
  }

  void walk(const std::vector<Replayed>& managers) {
    const auto& trace = lifetimes_.trace();
    placed_.resize(managers.size());
    last_.resize(managers.size());
    // Memory whose address becomes free after its free, by event.
    std::vector<std::pair<std::uint32_t, AllocId>> late;
    for (std::uint32_t i = 0; i < lifetimes_.all().size(); ++i) {
      const auto& each = lifetimes_[static_cast<AllocId>(i)];
      if (each.what == MemoryKind::device && each.death != trace::kNever &&
          each.gone != each.death && each.gone != trace::kNever) {
        late.emplace_back(each.gone, static_cast<AllocId>(i));
      }
    }
    std::sort(late.begin(), late.end());
    std::size_t next_late = 0;
    lifetimes_.walk(
        [&](std::uint32_t event, AllocId id) { begin(event, id, managers); },
        [&](std::uint32_t event, AllocId id) { end(event, id); },
        [&](std::uint32_t event) {
          for (; next_late < late.size() && late[next_late].first == event; ++next_late) {
            step(event, Change::gone);
            free_slot(late[next_late].second);
          }
          const auto& each = trace[event];
          if (trace::is_refused(each)) {
            step(event, Change::refused);
            put_memory(each.id, each.size, each.site, each.stream, each.context, false, managers);
            put_block(AllocId{}, MemoryKind::host);
          }
        });
  }

  void add_to(Payload& payload, Payload& places) const {
    payload.add("steps", steps_.bytes());
    payload.add("sizes", sizes_.bytes());
    payload.add("sites", unless_zero(sites_));
    payload.add("streams", unless_zero(streams_));
    payload.add("devices", unless_zero(devices_));
    payload.add("slots", ends_.bytes());
    places.add("extra", unless_zero(extra_));
    places.add("flags", unless_zero(flags_));
    places.add("addresses", unless_zero(addresses_));
    places.add("rounding", unless_zero(rounding_));
    places.add("remainders", unless_zero(remainders_));
    places.add("stores", unless_zero(stores_));
    for (std::size_t i = 0; i < placed_.size(); ++i)
      places.add(text::format("placed {}", i), placed_[i].bytes());
  }

  /// The sites in the order of their numbers in the columns.
  const std::vector<SiteId>& sites() const noexcept { return by_rank_; }
  std::uint64_t changes() const noexcept { return changes_; }
  std::uint64_t memories() const noexcept { return memories_; }
  std::uint64_t slots_most() const noexcept { return slots_made_; }
  std::uint64_t address_unit() const noexcept { return address_unit_; }
  bool clipped() const noexcept { return clipped_; }

 private:
  static std::string_view unless_zero(const Column& column) {
    const std::string_view bytes = column.bytes();
    return bytes.find_first_not_of('\0') == bytes.npos ? std::string_view() : bytes;
  }

  std::uint64_t address(AllocId id) const noexcept {
    const auto at = recorded_.recording().address(id);
    return at < kNumberMost ? at : 0;
  }

  /// Sorts the sites by their total bytes, largest first, so that most numbers are small.
  void rank_sites() {
    std::unordered_map<std::uint32_t, std::uint64_t> bytes;
    for (const auto& each : lifetimes_.all()) {
      if (each.what == MemoryKind::device || each.what == MemoryKind::backing)
        bytes[static_cast<std::uint32_t>(index(each.site))] += each.size;
    }
    const auto& trace = lifetimes_.trace();
    for (std::size_t event = 0; event < trace.size(); ++event) {
      if (trace::is_refused(trace[event]))
        bytes.try_emplace(static_cast<std::uint32_t>(index(trace[event].site)));
    }
    for (const auto& [site, sum] : bytes) by_rank_.push_back(static_cast<SiteId>(site));
    std::sort(by_rank_.begin(), by_rank_.end(), [&](SiteId a, SiteId b) {
      const auto left = bytes[static_cast<std::uint32_t>(index(a))],
                 right = bytes[static_cast<std::uint32_t>(index(b))];
      return left != right ? left > right : a < b;
    });
    for (std::size_t i = 0; i < by_rank_.size(); ++i)
      ranks_[static_cast<std::uint32_t>(index(by_rank_[i]))] = i;
  }

  void step(std::uint32_t event, Change change) {
    // What existed before the recording exists at one moment, before any event.
    if (event < lifetimes_.trace().beginning()) event = 0;
    while (recorded_.recording().is_what_stays(event)) --event;
    steps_.add(std::uint64_t{event - at_} << 3 | static_cast<std::uint64_t>(change));
    at_ = event;
    ++changes_;
  }

  std::uint64_t clip(std::uint64_t size) {
    clipped_ = clipped_ || size >= kNumberMost;
    return std::min(size, kNumberMost - 1);
  }

  void put_memory(AllocId id, std::uint64_t size, SiteId site, StreamId stream, ContextId context,
                  bool preexisting, const std::vector<Replayed>& managers) {
    ++memories_;
    size = clip(size);
    sizes_.add(size);
    extra_.add(clip(std::max(recorded_.recording().granted(id), size)) - size);
    sites_.add(ranks_.at(static_cast<std::uint32_t>(index(site))));
    streams_.add(index(stream));
    devices_.add(lifetimes_.trace().contexts()[index(context)].device);
    flags_.add((recorded_.recording().is_mapped(id) ? 1u : 0u) | (preexisting ? 2u : 0u) |
               std::uint64_t{recorded_.pool(id)} << 2);
    const auto at = address(id);
    const auto place = at == 0 ? 0 : static_cast<std::int64_t>(at / address_unit_) + 1;
    addresses_.add_signed(place - last_address_);
    last_address_ = place;
    for (std::size_t i = 0; i < managers.size(); ++i) {
      const auto there = std::min(managers[i].address(id), kNumberMost - 1);
      placed_[i].add_signed(static_cast<std::int64_t>(there) - last_[i]);
      last_[i] = static_cast<std::int64_t>(there);
    }
  }

  /// Adds the rounding and the remainder of the memory's block, and the kind of free memory around
  /// it. A refused request has none of these.
  void put_block(AllocId id, MemoryKind what) {
    if (gap_ == nullptr) return;
    const bool in_block = what == MemoryKind::device;
    const auto block = in_block ? gap_->block(id) : inspect::KnownBlocks::KnownBlock{};
    rounding_.add(in_block ? clip(block.rounded - lifetimes_[id].size) : 0);
    remainders_.add(clip(block.bytes - block.rounded));
    stores_.add(in_block || what == MemoryKind::backing
                    ? static_cast<std::uint64_t>(gap_->store(id))
                    : std::uint64_t{0});
  }

  void begin(std::uint32_t event, AllocId id, const std::vector<Replayed>& managers) {
    const auto& each = lifetimes_[id];
    if (each.what != MemoryKind::device && each.what != MemoryKind::backing) return;
    step(event, each.what == MemoryKind::device ? Change::begin : Change::held);
    put_memory(id, each.size, each.site, each.stream, each.context, each.preexisting, managers);
    put_block(id, each.what);
    if (free_.empty()) {
      slots_[index(id)] = slots_made_++;
    } else {
      slots_[index(id)] = free_.back();
      free_.pop_back();
    }
  }

  void end(std::uint32_t event, AllocId id) {
    const auto& each = lifetimes_[id];
    if (each.what == MemoryKind::backing) {
      step(event, Change::given);
    } else if (each.what == MemoryKind::device) {
      step(event, each.gone == each.death ? Change::end : Change::asked);
      if (each.gone != each.death) {
        ends_.add(slots_[index(id)]);
        return;
      }
    } else {
      return;
    }
    free_slot(id);
  }

  void free_slot(AllocId id) {
    ends_.add(slots_[index(id)]);
    free_.push_back(slots_[index(id)]);
  }

  const Recorded& recorded_;
  const Lifetimes& lifetimes_;
  const inspect::GapWalk* gap_;
  std::vector<std::uint32_t> slots_;  // by AllocId
  std::vector<std::uint32_t> free_;   // free slots; the last is taken next
  std::uint32_t slots_made_ = 0, at_ = 0;
  std::uint64_t changes_ = 0, memories_ = 0, address_unit_ = 1;
  std::int64_t last_address_ = 0;
  bool clipped_ = false;
  std::vector<std::int64_t> last_;
  std::vector<SiteId> by_rank_;
  std::unordered_map<std::uint32_t, std::uint64_t> ranks_;
  Column steps_, sizes_, extra_, sites_, streams_, devices_, flags_, addresses_, ends_, rounding_,
      remainders_, stores_;
  std::vector<Column> placed_;
};

std::string printable(std::string_view text) { return text::printable(text, std::string::npos); }

/// Names and frames of the sites, for the flame graph. Each frame is named once.
std::string sites_json(const trace::Trace& trace, const std::vector<SiteId>& sites) {
  std::string out;
  std::unordered_map<std::string, std::size_t> numbers;
  std::vector<std::string> frames;
  JsonWriter json(out);
  json.begin_object().key("sites").begin_array();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    json.begin_array();
    json.value(index(sites[i]) == 0 ? "(no call site)" : inspect::site_name(trace, sites[i], 110));
    if (i < kSitesWithFramesMost) {
      const auto stack = trace.site_frames(sites[i]);
      const std::vector<std::string_view> views(stack.begin(), stack.end());
      for (const auto frame : inspect::telling_part(views, kFramesMost)) {
        const auto [found, added] = numbers.try_emplace(std::string(frame), frames.size());
        if (added) frames.push_back(found->first);
        json.value(std::uint64_t{found->second});
      }
    }
    json.end_array();
  }
  json.end_array().values("frames", frames, printable).end_object();
  return out;
}

/// The peak in each of some hundred parts of the trace. The page draws the comparison from these
/// before it unpacks any events.
class Overview {
 public:
  explicit Overview(std::uint64_t events)
      : events_(events), most_(std::min<std::uint64_t>(events, kOverviewColumns)) {}

  /// `bytes` are held from after `event` on.
  void add(std::uint32_t event, std::uint64_t bytes) {
    const auto column = column_of(event);
    for (; at_ < column; ++at_) most_[at_ + 1] = held_;
    most_[column] = std::max(most_[column], bytes);
    held_ = bytes;
  }
  void to_json(JsonWriter& json, std::string_view name) {
    for (; at_ + 1 < most_.size(); ++at_) most_[at_ + 1] = held_;
    json.member(name, most_);
  }

 private:
  std::size_t column_of(std::uint32_t event) const {
    return static_cast<std::size_t>(std::uint64_t{event} * most_.size() / events_);
  }
  std::uint64_t events_;
  std::vector<std::uint64_t> most_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
};

void put_overview(JsonWriter& json, const Lifetimes& lifetimes, bool backing) {
  const auto events = lifetimes.trace().size();
  Overview live(events), reserved(events);
  std::uint64_t live_bytes = 0, reserved_bytes = 0;
  const auto change = [&](std::uint32_t event, AllocId id, bool begins) {
    const auto& each = lifetimes[id];
    if (event < lifetimes.trace().beginning()) event = 0;
    if (each.what == MemoryKind::device) {
      live_bytes = begins ? live_bytes + each.size : live_bytes - each.size;
      live.add(event, live_bytes);
    } else if (each.what == MemoryKind::backing) {
      reserved_bytes = begins ? reserved_bytes + each.size : reserved_bytes - each.size;
      reserved.add(event, reserved_bytes);
    }
  };
  lifetimes.walk([&](std::uint32_t event, AllocId id) { change(event, id, true); },
                 [&](std::uint32_t event, AllocId id) { change(event, id, false); },
                 [](std::uint32_t) {});
  live.to_json(json, "live_overview");
  if (backing) reserved.to_json(json, "reserved_overview");
}

void put_manager(JsonWriter& json, const Replayed& manager, std::uint64_t events) {
  json.begin_object().member("name", manager.manager()).member("failed", manager.failed());
  // Managers on several devices: adds up what they hold on all of them.
  std::vector<std::pair<std::uint32_t, std::int64_t>> steps;
  for (const auto& [device, held] : manager.reserved()) {
    std::uint64_t before = 0;
    for (const auto& step : held) {
      steps.emplace_back(step.event, static_cast<std::int64_t>(step.bytes - before));
      before = step.bytes;
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Overview overview(events);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    sum += steps[i].second;
    if (i + 1 == steps.size() || steps[i + 1].first != steps[i].first)
      overview.add(steps[i].first, static_cast<std::uint64_t>(sum));
  }
  overview.to_json(json, "overview");
  json.values("devices", manager.reserved(), [](const auto& each) { return each.first; });
  json.key("summary").raw(manager.summary);
  json.end_object();
}

void put_devices(JsonWriter& json, const Lifetimes& lifetimes, const inspect::OomReport& ooms) {
  const auto& trace = lifetimes.trace();
  json.objects("devices", trace.devices(), [&](std::uint32_t ordinal) {
    json.member("device", ordinal).member("capacity", trace.capacity(ordinal));
    if (const auto peak = ooms.devices.find(ordinal); peak != ooms.devices.end())
      json.member("peak_needed", peak->second.needed);
    json.member("no_wait", inspect::stream_need(lifetimes, ordinal));
  });
}

void put_explanation(JsonWriter& json, const Recorded& recorded, const Lifetimes& lifetimes,
                     const inspect::OomReport& ooms, const std::vector<inspect::FitCheck>& checks,
                     std::string_view path) {
  const inspect::Shown shown{.top = 12, .frames = 3};
  json.key("explain").raw(
      inspect::to_json(recorded.recording(), lifetimes, ooms, 0, checks, shown.top));
  const bool state =
      ooms.all.empty() && !checks.empty() &&
      std::none_of(checks.begin(), checks.end(), [](const auto& each) { return each.has_history; });
  json.key("explain_text");
  if (!ooms.all.empty()) {
    json.value(inspect::to_text(recorded.recording(), lifetimes, ooms, 0, shown));
  } else if (state) {
    json.value(inspect::to_text(recorded.recording(), lifetimes, checks, path, shown));
  } else {
    json.null();
  }
}

/// What the recorded manager held beyond the live memory: a column of steps for each device and
/// each cause that occurs.
void add_gap(Payload& places, const inspect::Recording& recording, inspect::GapWalk& walk,
             const Lifetimes& lifetimes) {
  struct Written {
    Column column;
    std::uint32_t event = 0;
    std::int64_t bytes = 0;
  };
  const auto& devices = lifetimes.trace().devices();
  std::vector<std::array<Written, inspect::kBeyondCauses>> all(
      std::max<std::size_t>(devices.size(), 1));
  const auto& trace = lifetimes.trace();
  walk.walk([&](std::uint32_t event, const inspect::BeyondByDevice& now) {
    if (event < trace.first_moment() || recording.is_what_stays(event + 1)) return;
    if (event < trace.beginning()) event = 0;
    while (recording.is_what_stays(event)) --event;
    for (std::size_t place = 0; place < now.size(); ++place) {
      for (std::size_t cause = 0; cause < inspect::kBeyondCauses; ++cause) {
        auto& last = all[place][cause];
        const auto bytes = now[place][cause];
        if (bytes == last.bytes) continue;
        last.column.add(event - last.event);
        last.column.add_signed(bytes - last.bytes);
        last.event = event;
        last.bytes = bytes;
      }
    }
  });
  for (std::size_t place = 0; place < all.size(); ++place) {
    for (std::size_t cause = 0; cause < inspect::kBeyondCauses; ++cause) {
      if (const auto bytes = all[place][cause].column.bytes(); !bytes.empty())
        places.add(text::format("gap {} {}", place < devices.size() ? devices[place] : 0, cause),
                   bytes);
    }
  }
}

/// What each category has: a column of steps for each.
void add_categories(Payload& payload, const inspect::Recording& recording) {
  struct Written {
    Column column;
    std::uint32_t event = 0, changed = 0;
    std::uint64_t bytes = 0, written = 0;
  };
  const auto& trace = recording.trace();
  const auto& categories = recording.categories();
  std::vector<Written> all(categories.names().size());
  const auto write = [](Written& of) {
    if (of.bytes == of.written) return;
    of.column.add(of.changed - of.event);
    of.column.add_signed(static_cast<std::int64_t>(of.bytes - of.written));
    of.event = of.changed;
    of.written = of.bytes;
  };
  for (const auto& step : categories.steps()) {
    // As in Changes::step(); what follows the last event is counted to it.
    auto event = std::min(step.event, static_cast<std::uint32_t>(trace.size() - 1));
    if (event < trace.beginning()) event = 0;
    while (recording.is_what_stays(event)) --event;
    auto& of = all[step.category];
    if (event != of.changed) write(of);
    of.changed = event;
    of.bytes = step.begins ? of.bytes + step.bytes : of.bytes - std::min(of.bytes, step.bytes);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    write(all[i]);
    payload.add(text::format("category {}", i), all[i].column.bytes());
  }
}

/// "torch 2.9.1, emmctl record 0.1.0": the framework, and the tool with its version.
std::string recorded_with(const trace::Header& header) {
  auto out = header.framework;
  if (!header.tool.empty() && header.tool != header.framework) {
    if (!out.empty()) out += ", ";
    out += header.tool;
    if (!header.tool_version.empty()) out += " " + header.tool_version;
  }
  return out;
}

void put_columns(JsonWriter& json, std::string_view name, const Payload& payload) {
  json.key(name).begin_array();
  for (const auto& each : payload.columns())
    json.begin_array().value(each.name).value(each.size).end_array();
  json.end_array();
}

/// The segments that a manager held, in the order in which it took them.
std::string held_column(const Replayed& manager) {
  Column column;
  std::uint32_t birth = 0;
  std::int64_t address = 0;
  for (const auto& each : manager.held()) {
    column.add(each.birth - birth);
    column.add(each.death == Replayed::kNever ? 0 : each.death - each.birth + 1);
    column.add(std::min(each.size, kNumberMost - 1));
    const auto at = static_cast<std::int64_t>(std::min(each.address, kNumberMost - 1));
    column.add_signed(at - address);
    column.add(each.device);
    column.add(each.handle);
    birth = each.birth;
    address = at;
  }
  return column.bytes();
}

}  // namespace

PagePart trace_part(const Recorded& recorded, const Lifetimes& lifetimes,
                    const std::vector<Replayed>& managers, const inspect::KnownBlocks& known,
                    const std::vector<inspect::FitCheck>& checks, std::string_view path) {
  const auto& trace = recorded.recording().trace();
  const auto [profile, growth] = inspect::describe(recorded.recording(), lifetimes);
  Payload payload, places;
  inspect::GapWalk gap(recorded.recording(), lifetimes, known);
  Changes changes(recorded, lifetimes, profile.backing ? &gap : nullptr);
  changes.walk(managers);
  changes.add_to(payload, places);

  const auto time_unit = unit_of(trace.size(), [&](auto event) { return trace[event].time_ns; });
  if (profile.has_times) {
    Column times;
    std::int64_t last = 0;
    for (std::size_t event = 0; event < trace.size(); ++event) {
      const auto now = static_cast<std::int64_t>(trace[event].time_ns / time_unit);
      times.add_signed(now - last);
      last = now;
    }
    payload.add("times", times.bytes());
  }
  for (std::size_t i = 0; i < managers.size(); ++i) {
    places.add(text::format("held {}", i), held_column(managers[i]));
    for (const auto& [device, steps] : managers[i].reserved()) {
      Column column;
      Replayed::Step last;
      for (const auto& step : steps) {
        column.add(step.event - last.event);
        column.add_signed(static_cast<std::int64_t>(step.bytes - last.bytes));
        last = step;
      }
      payload.add(text::format("reserved {} {}", i, device), column.bytes());
    }
  }
  payload.add("site names", sites_json(trace, changes.sites()));
  if (trace.size() > 0) add_categories(payload, recorded.recording());
  if (profile.backing) add_gap(places, recorded.recording(), gap, lifetimes);

  PagePart part;
  JsonWriter json(part.json);
  json.begin_object();
  json.member("path", path).member("name", trace.header().name);
  json.member("first_moment", std::uint64_t{trace.first_moment()});
  json.member("recorded_with", recorded_with(trace.header()));
  json.member("events", std::uint64_t{trace.size()}).member("changes", changes.changes());
  json.member("memories", changes.memories()).member("slots", changes.slots_most());
  json.member("address_unit", changes.address_unit()).member("time_unit", time_unit);
  json.member("has_times", profile.has_times).member("has_backing", profile.backing.has_value());
  json.member("has_addresses", recorded.recording().has_addresses());
  json.member("is_state", recorded.recording().trace().is_state());
  json.member("clipped", changes.clipped()).key("gap_causes").begin_array();
  for (std::size_t i = 0; i < inspect::kBeyondCauses; ++i)
    json.value(inspect::name(static_cast<inspect::Beyond>(i)));
  json.end_array();
  const auto ooms = inspect::find_ooms(recorded.recording(), lifetimes);
  put_devices(json, lifetimes, ooms);
  json.member("streams", trace.streams()).member("pools", recorded.pools());
  json.values("categories", recorded.recording().categories().names(), printable);
  const bool is_told = growth.source == inspect::Growth::Source::marks ||
                       growth.source == inspect::Growth::Source::steps;
  json.values("iterations",
              inspect::first_of(growth.iterations, is_told ? growth.iterations.size() : 0),
              [](const auto& each) { return each.first; });
  if (trace.size() > 0) put_overview(json, lifetimes, profile.backing.has_value());
  json.key("inspect").raw(inspect::to_json(recorded.recording().trace(), profile, growth,
                                           std::nullopt, std::nullopt, std::nullopt,
                                           {.top = 20, .frames = 3}));
  put_explanation(json, recorded, lifetimes, ooms, checks, path);
  json.key("managers").begin_array();
  for (const auto& manager : managers) put_manager(json, manager, trace.size());
  json.end_array();
  put_columns(json, "columns", payload);
  put_columns(json, "place_columns", places);
  json.end_object();
  part.payload = payload.packed();
  part.places = places.packed();
  return part;
}

}  // namespace emm::report
