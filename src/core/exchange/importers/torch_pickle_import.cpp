#include "exchange/importers/torch_pickle_import.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "base/units.hpp"
#include "exchange/importers/torch_pickle_header.hpp"
#include "format/json_value.hpp"
#include "format/json_writer.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

using format::PickleValue;
using Type = PickleValue::Type;
using Found = TorchPickleRows::Found;

// More devices than any machine has; each becomes a context of the trace.
constexpr std::uint32_t kDevicesMax = 200;

/// The size of the device's memory, which only emmctl.torch.snapshot_on_oom() saves; 0: unknown.
std::uint64_t device_total(std::string_view options) {
  const auto said = format::parse_json(std::string(options));
  const auto* const settings = said ? said->find("allocator_settings") : nullptr;
  const auto* const total = settings != nullptr ? settings->find("emmctl_device_total") : nullptr;
  return total != nullptr ? total->as_u64().value_or(0) : 0;
}

}  // namespace

Result<ImportCounts> TorchPickleImport::read() {
  for (const auto step :
       {&TorchPickleImport::find_root, &TorchPickleImport::find_devices,
        &TorchPickleImport::find_before, &TorchPickleImport::find_state, &TorchPickleImport::header,
        &TorchPickleImport::before, &TorchPickleImport::rows}) {
    if (auto done = (this->*step)(); !done) return std::move(done).error();
  }
  std::uint64_t live = 0;
  ByteSum live_bytes;
  for (auto& [number, device] : devices_) {
    if (auto said = say(number, device); !said) return std::move(said).error();
    live += device.session->live_count();
    live_bytes.add(device.session->live_bytes());
  }
  for (const auto& [action, count] : unknown_actions_) {
    run_.note(count,
              text::format("rows say \"{}\", which is no action of the allocator's that is known",
                           action));
  }
  if (!has_segments_ && !pickle_.torn()) {
    run_.counts().notes.emplace_back(
        "the snapshot has no \"segments\": the state at its end is not known");
  }
  run_.note(forward_frames_, "rows have frames of the forward pass, which a trace does not keep");
  run_.note(pickle_.opaque_count(),
            "values are bytes, sets or integers beyond 64 bits, which are not read");
  run_.note(pickle_.bytes_after(), "bytes follow the end of the pickle");
  if (pickle_.torn()) {
    say_cut();
    if (run_.counts().truncated == 0) ++run_.counts().rows, ++run_.counts().truncated;
  }
  return run_.finish(live, live_bytes);
}

void TorchPickleImport::say_cut() {
  auto words = text::format("the file ends inside the pickle, at byte {}", pickle_.bytes_read());
  switch (cut_) {
    case Cut::nowhere:
      break;
    case Cut::in_state:
      words +=
          ", inside the state at the end: the segments up to there are taken, and not the last "
          "block";
      break;
    case Cut::in_rows: {
      std::uint64_t rows = 0;
      for (const auto& [number, device] : devices_) rows += device.whole_rows;
      words += text::format(
          ", inside the rows of device {}: {} rows are taken, and not the last one nor the {} "
          "segments at the "
          "end, to which rows without their tail do not lead",
          cut_device_, rows - after_cut_, pickle_.size(pickle_.find(root_, "segments")));
      break;
    }
    case Cut::behind_rows:
      words += ", behind the rows: settings or annotations are missing";
      break;
  }
  run_.counts().notes.push_back(words);
  run_.note(after_cut_,
            text::format("rows of other devices are later than the last of device {}: not taken",
                         cut_device_));
}

Error TorchPickleImport::wrong(std::string_view what, std::string_view expected) const {
  return fail(Errc::parse_error, "{}: {}: expected {}", run_.source_name(), what, expected);
}

/// A list, or a tuple if another program rewrote the dict.
bool TorchPickleImport::is_sequence(PickleValue value) const {
  return pickle_.type(value) == Type::list || pickle_.type(value) == Type::tuple;
}

bool TorchPickleImport::is_snapshot(PickleValue value) const {
  return pickle_.find(value, "device_traces") != PickleValue() || is_sequence(segments_of(value));
}

/// Finds the snapshot where a program pickled it inside of a dict, a list or a tuple.
Status TorchPickleImport::find_root() {
  root_ = pickle_.root();
  if (is_snapshot(root_)) return {};
  struct Place {
    PickleValue value;
    std::string path;
    unsigned depth = 0;
  };
  // A snapshot lies near the top. A pickle may contain itself.
  constexpr unsigned kDepthMax = 4;
  constexpr std::size_t kPlacesMax = 10'000;
  std::vector<Place> places{{root_, "", 0}}, found;
  std::set<std::uint32_t> seen;
  for (std::size_t at = 0; at < places.size() && places.size() < kPlacesMax; ++at) {
    const auto place = places[at];
    if (!pickle_.is_container(place.value)) continue;
    if (!seen.insert(pickle_.identity(place.value)).second) continue;
    if (is_snapshot(place.value)) {
      found.push_back(place);
      continue;
    }
    if (place.depth == kDepthMax) continue;
    const bool is_dict = pickle_.type(place.value) == Type::dict;
    std::uint64_t index = 0;
    PickleValue key, value;
    for (auto each = pickle_.elements(place.value);
         (!is_dict || each.next(key)) && each.next(value) && places.size() < kPlacesMax; ++index) {
      const auto name = pickle_.string(key);
      const auto number = is_dict ? pickle_.i64(key).value_or(0) : static_cast<std::int64_t>(index);
      places.push_back(
          {value,
           place.path + (is_dict && name ? text::format("['{}']", text::printable(*name, 60))
                                         : text::format("[{}]", number)),
           place.depth + 1});
    }
  }
  if (found.empty()) return {};
  if (found.size() > 1) {
    constexpr std::size_t kNamed = 8;  // paths that a message names
    std::vector<std::string_view> paths;
    for (const auto& each : found) {
      if (paths.size() < kNamed) paths.push_back(each.path);
    }
    return wrong(text::format("the file holds {} snapshots, at {}{}", found.size(),
                              text::join(paths), found.size() > kNamed ? ", ..." : ""),
                 text::format("one: where `held` is what the file holds, write each by "
                              "`pickle.dump(held{}, open(\"0.pickle\", \"wb\"))`",
                              found.front().path));
  }
  root_ = found.front().value;
  run_.counts().notes.push_back(
      text::format("the snapshot lies at {} of what the file holds", found.front().path));
  return {};
}

Status TorchPickleImport::find_devices() {
  const auto traces = pickle_.find(root_, "device_traces");
  has_segments_ = is_sequence(segments_of(root_));
  const auto has_rows = traces != PickleValue();
  const bool may_follow = pickle_.type(root_) == Type::dict && pickle_.torn();
  if (has_rows ? !is_sequence(traces) : !has_segments_ && !may_follow) {
    return wrong("this is no snapshot of PyTorch's memory",
                 "a dict with \"segments\" and \"device_traces\", or the list of segments that "
                 "torch.cuda.memory_snapshot() returns");
  }
  PickleValue rows;
  std::uint32_t number = 0;
  for (auto each = pickle_.elements(traces); each.next(rows); ++number) {
    if (pickle_.size(rows) == 0 || !is_sequence(rows)) continue;
    if (number >= kDevicesMax)
      return wrong(text::format("device {}", number), "a snapshot of fewer devices");
    devices_[number].rows = rows;
    devices_[number].whole_rows = pickle_.size(rows);
  }
  cut_device_ = number == 0 ? 0 : number - 1;
  find_cut();
  PickleValue name;
  for (auto each = pickle_.elements(pickle_.find(root_, "categories")); each.next(name);) {
    categories_.push_back(pickle_.string(name).value_or(""));
  }
  return {};
}

PickleValue TorchPickleImport::segments_of(PickleValue value) const {
  if (pickle_.type(value) != Type::list) return pickle_.find(value, "segments");
  PickleValue first;
  auto each = pickle_.elements(value);
  const bool is_segment = each.next(first) && pickle_.find(first, "blocks") != PickleValue();
  return is_segment ? value : PickleValue();
}

/// Finds where a file was cut, which leaves the last member of its snapshot incomplete. Without
/// their tail the rows do not lead to the state at the end, so that is left out. The last row may
/// be incomplete too.
void TorchPickleImport::find_cut() {
  if (!pickle_.torn()) return;
  std::string_view last;
  PickleValue name, value;
  for (auto each = pickle_.elements(root_); each.next(name) && each.next(value);) {
    last = pickle_.string(name).value_or("");
  }
  const auto has_rows = pickle_.find(root_, "device_traces") != PickleValue();
  cut_ = last == "device_traces"          ? Cut::in_rows
         : has_rows && last != "segments" ? Cut::behind_rows
                                          : Cut::in_state;
  if (cut_ != Cut::in_rows) return;
  const auto device = devices_.find(cut_device_);
  if (device == devices_.end()) return;
  --device->second.whole_rows;
  ++run_.counts().rows;
  ++run_.counts().truncated;
}

Status TorchPickleImport::find_before() {
  const auto earliest = [&](std::uint64_t time_us) {
    if (!numbers_.start_us || time_us < *numbers_.start_us) numbers_.start_us = time_us;
  };
  for (auto& [number, device] : devices_) {
    PickleValue value;
    TorchRow row;
    std::uint64_t at = 0;
    for (auto each = pickle_.elements(device.rows); at < device.whole_rows && each.next(value);
         ++at) {
      if (rows_.read(value, row) != Found::row) continue;
      if (row.has_time) earliest(row.time_us);
      if (cut_ == Cut::in_rows && number == cut_device_ && row.has_time)
        cut_us_ = std::max(cut_us_.value_or(0), row.time_us);
    }
  }
  annotations();
  if (!annotations_.empty()) earliest(annotations_.front().time_us);
  for (auto& [number, device] : devices_) {
    PickleValue value;
    TorchRow row;
    std::uint64_t at = 0;
    for (auto each = pickle_.elements(device.rows); at < device.whole_rows && each.next(value);
         ++at) {
      if (rows_.read(value, row) == Found::row && !is_after_cut(row)) device.before.row(row);
    }
  }
  return {};
}

/// Is the row later than the last row of the device whose rows were cut? What that device held from
/// then on is unknown.
bool TorchPickleImport::is_after_cut(const TorchRow& row) const {
  return cut_us_ && row.has_time && row.time_us > *cut_us_;
}

Status TorchPickleImport::find_state() {
  PickleValue value;
  std::uint64_t at = 0;
  const auto all = cut_ == Cut::in_rows ? PickleValue() : segments_of(root_);
  for (auto each = pickle_.elements(all); each.next(value); ++at) {
    auto segment = read_torch_segment(pickle_, value);
    const auto may_be_half = cut_ == Cut::in_state && at + 1 == pickle_.size(all);
    if (may_be_half && !segment.active.empty()) segment.active.pop_back();
    if (!segment.lacking.empty()) {
      if (pickle_.torn()) continue;
      return wrong(text::format("segments[{}] has no number \"{}\"", at, segment.lacking),
                   "bytes or an address");
    }
    if (segment.device >= kDevicesMax) {
      return wrong(text::format("device {}", segment.device), "a snapshot of fewer devices");
    }
    auto& device = devices_[segment.device];
    device.before.segment(segment.memory);
    ++device.state.segments;
    device.state.reserved.add(segment.memory.size);
    for (const auto& block : segment.active) {
      device.before.active_block(block);
      ++(block.pending ? device.state.pending : device.state.blocks);
      if (block.pending) continue;
      device.state.allocated.add(block.granted);
      device.state.requested.add(block.size);
    }
  }
  for (auto& [number, device] : devices_) device.before.finish();
  return {};
}

Status TorchPickleImport::header() {
  const auto settings = pickle_.find(root_, "allocator_settings");
  overflowed_ = pickle_.boolean(pickle_.find(settings, "trace_alloc_overflowed")).value_or(false);
  Header header;
  header.requires_ = {"streams"};
  if (devices_.size() > 1) header.requires_.emplace_back("multi-device");
  header.level = Level::framework;
  header.framework = "torch";
  if (numbers_.start_us && *numbers_.start_us < std::numeric_limits<std::uint64_t>::max() / 1000) {
    header.has_clock = true;
    header.clock_source = "CLOCK_REALTIME";
    header.clock_start_realtime_ns = *numbers_.start_us * 1000;
  }
  header.has_complete = true;
  header.complete = !overflowed_;
  TorchState all;
  for (const auto& [number, device] : devices_) {
    DeviceInfo info;
    info.id = number;
    header.devices.push_back(std::move(info));
    header.complete =
        header.complete && device.before.allocations().empty() && device.before.segments().empty();
    all.segments += device.state.segments;
    all.reserved.add(device.state.reserved);
    all.blocks += device.state.blocks;
    all.allocated.add(device.state.allocated);
    all.requested.add(device.state.requested);
    all.pending += device.state.pending;
  }
  if (pickle_.torn()) header.complete = false;
  header.source_options = torch_pickle_options(pickle_, settings, all);
  if (header.devices.size() == 1)
    header.devices.front().capacity = device_total(header.source_options);
  return run_.header(header);
}

Status TorchPickleImport::before() {
  const auto named = devices_.size() > 1 || (devices_.size() == 1 && devices_.begin()->first != 0);
  if (overflowed_) {
    Operation gap{.op = Op::gap, .members = Members(Member::reason)};
    gap.reason = "the ring of events overflowed";
    if (auto given = run_.emit(gap); !given) return given;
    const auto settings = pickle_.find(root_, "allocator_settings");
    const auto entries = pickle_.u64(pickle_.find(settings, "trace_alloc_max_entries"));
    run_.counts().notes.push_back(
        text::format("the oldest events are lost: the ring of {} overflowed",
                     entries ? text::format("{} events", *entries) : std::string("events")));
  }
  for (auto& [number, device] : devices_) {
    device.session = std::make_unique<TorchSession>(
        run_, numbers_, named ? std::optional<std::uint32_t>(number) : std::nullopt);
    for (auto memory : device.before.segments()) {
      if (auto sited = find_site(memory); !sited) return sited;
      if (auto given = device.session->held_before(memory); !given) return given;
    }
    for (auto memory : device.before.allocations()) {
      if (auto sited = find_site(memory); !sited) return sited;
      if (auto given = device.session->live_before(memory); !given) return given;
    }
  }
  return {};
}

Status TorchPickleImport::find_site(TorchMemory& memory) {
  auto site = sites_.site(memory.frames);
  if (!site) return std::move(site).error();
  memory.site = *site;
  return {};
}

Status TorchPickleImport::rows() {
  for (auto& [number, device] : devices_) {
    device.each = pickle_.elements(device.rows);
    if (auto done = advance(number, device); !done) return done;
  }
  for (;;) {
    Device* next = nullptr;
    std::uint32_t which = 0;
    for (auto& [number, device] : devices_) {
      if (!device.head) continue;
      if (next != nullptr &&
          (!device.head->row.has_time || device.head->row.time_us >= next->head->row.time_us)) {
        continue;
      }
      next = &device;
      which = number;
    }
    const auto annotates =
        annotated_ < annotations_.size() &&
        (next == nullptr || annotations_[annotated_].time_us < next->head->row.time_us);
    if (annotates) {
      if (auto done = annotate(); !done) return done;
      continue;
    }
    if (next == nullptr) return {};
    if (auto done = emit(*next); !done) return done;
    if (auto done = advance(which, *next); !done) return done;
  }
}

/// Reads up to the next row that counts.
Status TorchPickleImport::advance(std::uint32_t number, Device& device) {
  device.head.reset();
  PickleValue value;
  while (device.row < device.whole_rows && device.each.next(value)) {
    ++device.row;
    Head head;
    switch (rows_.read(value, head.row)) {
      case Found::unknown:
        ++unknown_actions_[std::string(rows_.unknown_action())];
        run_.other();
        continue;
      case Found::bad:
        if (auto done = bad_row(number, device); !done) return done;
        continue;
      case Found::row:
        break;
    }
    if (is_after_cut(head.row)) {
      ++after_cut_;
      run_.other();
      continue;
    }
    head.frames = rows_.field(TorchPickleRows::Field::frames);
    head.metadata = rows_.field(TorchPickleRows::Field::user_metadata);
    head.category = rows_.field(TorchPickleRows::Field::category);
    head.pool = rows_.field(TorchPickleRows::Field::pool_id);
    head.context = rows_.field(TorchPickleRows::Field::compile_context);
    const auto forward = rows_.field(TorchPickleRows::Field::forward_frames);
    forward_frames_ += forward != PickleValue() && pickle_.size(forward) != 0 ? 1 : 0;
    device.head = head;
    return {};
  }
  return {};
}

Status TorchPickleImport::bad_row(std::uint32_t number, const Device& device) {
  const auto [member, expected] = rows_.wrong();
  return wrong(text::format("device_traces[{}][{}]: {} is not as it should be", number,
                            device.row - 1, member),
               expected);
}

Status TorchPickleImport::emit(Device& device) {
  auto& head = *device.head;
  auto site = sites_.site(head.frames);
  if (!site) return std::move(site).error();
  head.row.site = *site;
  head.row.label = pickle_.string(head.metadata).value_or("");
  const auto category = pickle_.u64(head.category);
  if (head.row.label.empty() && category && *category < categories_.size()) {
    head.row.label = categories_[static_cast<std::size_t>(*category)];
  }
  extension_.clear();
  auto pool = read_torch_pool(pickle_, head.pool);
  const auto action = head.row.action;
  if (action == TorchAction::segment_alloc || action == TorchAction::segment_map ||
      action == TorchAction::segment_free || action == TorchAction::segment_unmap) {
    const auto by_state = device.before.pool_of_segment_row(device.segment_rows++);
    if (pool.is_default()) pool = by_state;
  }
  if (action == TorchAction::alloc)
    head.row.granted = device.before.granted_to_alloc_row(device.alloc_rows++);
  if (!pool.is_default()) extension_ = pool.member();
  if (head.context != no_context_) {
    const auto word = pickle_.string(head.context).value_or("");
    if (word.empty() || word == "N/A") {
      no_context_ = head.context;
    } else {
      extension_ += extension_.empty() ? "\"x-compile_context\":" : ",\"x-compile_context\":";
      format::append_json_string(extension_, word);
    }
  }
  head.row.extension = extension_;
  return device.session->row(head.row);
}

/// Collects the annotations, sorted by time.
void TorchPickleImport::annotations() {
  PickleValue value;
  const auto named = devices_.size() > 1;
  for (auto each = pickle_.elements(pickle_.find(root_, "external_annotations"));
       each.next(value);) {
    const auto time_us = pickle_.u64(pickle_.find(value, "time_us"));
    const auto name = pickle_.string(pickle_.find(value, "name"));
    const auto stage = pickle_.string(pickle_.find(value, "stage")).value_or("");
    const auto phase = stage == "START" ? Phase::begin
                       : stage == "END" ? Phase::end
                                        : Phase::instant;
    if (!time_us || !name) {
      run_.other();
      continue;
    }
    const auto device = pickle_.u64(pickle_.find(value, "device"));
    Annotation made{.time_us = *time_us, .phase = phase, .name = *name, .device = std::nullopt};
    if (named && device && *device < kDevicesMax) made.device = static_cast<std::uint32_t>(*device);
    annotations_.push_back(made);
  }
  std::stable_sort(annotations_.begin(), annotations_.end(),
                   [](const auto& a, const auto& b) { return a.time_us < b.time_us; });
}

Status TorchPickleImport::annotate() {
  const auto& annotation = annotations_[annotated_++];
  Operation made{.op = Op::mark, .members = Members(Member::time_ns, Member::text)};
  made.time_ns = numbers_.since_start_ns(annotation.time_us);
  made.text = annotation.name;
  if (annotation.phase != Phase::instant) {
    made.phase = annotation.phase;
    made.members.add(Member::phase);
  }
  if (annotation.device && devices_.count(*annotation.device) != 0) {
    made.device = *annotation.device;
    made.members.add(Member::device);
  }
  run_.used();
  return run_.emit(made);
}

Status TorchPickleImport::say(std::uint32_t number, Device& device) {
  auto& notes = run_.counts().notes;
  const auto& before = device.before;
  const auto where = devices_.size() > 1 ? text::format(" on device {}", number) : std::string();
  const auto say_before = [&](std::uint64_t count, std::string_view what, std::uint64_t bytes) {
    if (count == 0) return;
    const auto size = units::short_bytes(bytes);
    notes.push_back(
        (count == 1 ? text::format("1 {} of {}{} was", what, size, where)
                    : text::format("{} {}s, {} in all{}, were", count, what, size, where)) +
        " there before the first row: the recording began later, or its ring lost the oldest rows");
  };
  say_before(before.allocations().size(), "allocation", before.bytes().value());
  say_before(before.segments().size(), "segment", before.reserved().value());
  if (device.state.pending != 0) device.session->completions_are_recorded();
  if (auto finished = device.session->finish(); !finished) return finished;
  if (pickle_.torn() || !has_segments_) return {};
  run_.note(before.contradictions(), "blocks are active at the end though the rows free them");
  const auto compare = [&](std::string_view what, std::uint64_t rows, std::uint64_t end) {
    if (rows == end) return;
    notes.push_back(text::format("{}{}: {} by the rows, {} by the segments at the end", what, where,
                                 rows, end));
  };
  compare("live allocations", device.session->live_count(), device.state.blocks);
  compare("live bytes", device.session->live_bytes().value(), device.state.requested.value());
  compare("reserved bytes", device.session->reserved_bytes().value(),
          device.state.reserved.value());
  return {};
}

}  // namespace emm::trace
