// The "[memory]" events of torch.profiler's Chrome trace: what PyTorch's allocators allocated and
// freed, with the totals that they stated.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "exchange/importers/import_run.hpp"
#include "exchange/importers/total_steps.hpp"
#include "format/block_row.hpp"
#include "format/json_reader.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

/// One event of device memory. A profile of gigabytes has millions, which are held to be sorted.
struct MemoryRow {
  std::int64_t time_ns = 0;
  std::uint64_t address = 0;
  std::int64_t bytes = 0;  ///< Below 0: freed.
  std::uint64_t allocated = 0, reserved = 0;
  std::uint64_t id = 0;  ///< Names the memory that it allocates or frees, once that is known.
  std::uint32_t line = 0;
  std::uint8_t device = 0;
  bool has_address = false, has_allocated = false, has_reserved = false;
};
using MemoryRows = format::BlockRow<MemoryRow, 12>;

/// Microseconds with a fraction, as the file spells them, in nanoseconds. Exact, since times since
/// 1970 have more digits than a double.
std::optional<std::int64_t> nanoseconds(std::string_view spelled) {
  const bool negative = spelled.starts_with('-');
  if (negative) spelled.remove_prefix(1);
  const auto point = spelled.find('.');
  const auto whole = text::to_u64(spelled.substr(0, point));
  // Us: times a thousand it stays below 2^63.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 52;
  if (!whole || *whole > kMost) return std::nullopt;
  auto ns = *whole * 1000;
  std::uint64_t unit = 100;
  for (auto at = point == spelled.npos ? spelled.size() : point + 1; at < spelled.size(); ++at) {
    if (spelled[at] < '0' || spelled[at] > '9') return std::nullopt;
    ns += unit * static_cast<std::uint64_t>(spelled[at] - '0');
    unit /= 10;
  }
  return negative ? -static_cast<std::int64_t>(ns) : static_cast<std::int64_t>(ns);
}

/// Reads the file once and keeps the events of memory, whatever else is in it: bare arrays of
/// events, and objects with "traceEvents".
class ProfileReader final : public format::JsonHandler {
 public:
  MemoryRows rows;
  std::map<std::uint64_t, DeviceInfo> devices;
  std::uint64_t of_cpu = 0, of_others = 0, without_words = 0;
  bool in_order = true, torn = false, is_profile = false;
  std::uint64_t torn_line = 0;

  Status on_number(const format::JsonNumber& number, format::JsonPosition) override {
    if (place_ == Place::event && depth_ == array_depth_ + 1 && key_ == Key::ts) {
      time_ = number.kind == format::JsonNumber::Kind::unsigned_integer &&
                      number.value <= (std::uint64_t{1} << 52)
                  ? std::optional(static_cast<std::int64_t>(number.value * 1000))
                  : nanoseconds(number.text);
    } else if (place_ == Place::arguments && depth_ == array_depth_ + 2) {
      argument(number);
    } else if (place_ == Place::device && depth_ == array_depth_ + 1) {
      if (number.kind != format::JsonNumber::Kind::unsigned_integer) return {};
      if (key_ == Key::id)
        device_.id = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(number.value, std::uint64_t{kDeviceMax} + 1));
      if (key_ == Key::capacity) device_.capacity = number.value;
    }
    return {};
  }
  Status on_string(std::string_view value, format::JsonPosition) override {
    if (place_ == Place::event && depth_ == array_depth_ + 1 && key_ == Key::name) {
      is_memory_ = value == "[memory]";
    } else if (place_ == Place::arguments && depth_ == array_depth_ + 2 && key_ == Key::address) {
      address_ = text::to_u64(value);
    } else if (place_ == Place::device && depth_ == array_depth_ + 1 && key_ == Key::name) {
      device_.name = value;
    }
    return {};
  }
  Status on_key(std::string_view key, format::JsonPosition) override {
    key_ = Key::other;
    if (depth_ == 1 && array_depth_ == 0) {
      key_ = key == "traceEvents" ? Key::events : key == "deviceProperties" ? Key::devices : key_;
    } else if (place_ == Place::event && depth_ == array_depth_ + 1) {
      key_ = key == "name" ? Key::name : key == "ts" ? Key::ts : key == "args" ? Key::args : key_;
    } else if (place_ == Place::arguments && depth_ == array_depth_ + 2) {
      key_ = argument_of(key);
    } else if (place_ == Place::device && depth_ == array_depth_ + 1) {
      key_ = key == "id"               ? Key::id
             : key == "name"           ? Key::name
             : key == "totalGlobalMem" ? Key::capacity
                                       : key_;
    }
    return {};
  }
  Status on_begin_object(format::JsonPosition at) override {
    ++depth_;
    if (place_ == Place::events && depth_ == array_depth_ + 1) {
      place_ = Place::event;
      is_memory_ = false;
      time_.reset(), address_.reset(), bytes_.reset(), allocated_.reset(), reserved_.reset();
      device_type_.reset(), device_id_.reset();
      line_ = at.line;
    } else if (place_ == Place::event && depth_ == array_depth_ + 2 && key_ == Key::args) {
      place_ = Place::arguments;
    } else if (place_ == Place::devices && depth_ == array_depth_ + 1) {
      place_ = Place::device;
      device_ = {};
    }
    return {};
  }
  Status on_end_object(format::JsonPosition) override {
    if (place_ == Place::arguments && depth_ == array_depth_ + 2) {
      place_ = Place::event;
      key_ = Key::other;
    } else if (place_ == Place::event && depth_ == array_depth_ + 1) {
      place_ = Place::events;
      if (is_memory_) take();
    } else if (place_ == Place::device && depth_ == array_depth_ + 1) {
      place_ = Place::devices;
      if (device_.id <= kDeviceMax) devices[device_.id] = std::exchange(device_, {});
    }
    --depth_;
    return {};
  }
  Status on_begin_array(format::JsonPosition) override {
    ++depth_;
    if (array_depth_ != 0) return {};
    if (depth_ == 1 || (depth_ == 2 && key_ == Key::events)) {
      array_depth_ = depth_;
      place_ = Place::events;
      is_profile = true;
    } else if (depth_ == 2 && key_ == Key::devices) {
      array_depth_ = depth_;
      place_ = Place::devices;
    }
    return {};
  }
  Status on_end_array(format::JsonPosition) override {
    if (depth_ == array_depth_) {
      array_depth_ = 0;
      place_ = Place::outside;
    }
    --depth_;
    return {};
  }
  Status on_torn(const std::string&, format::JsonPosition at) override {
    torn = true;
    torn_line = at.line;
    return {};
  }

 private:
  enum class Place : std::uint8_t { outside, events, event, arguments, devices, device };
  enum class Key : std::uint8_t {
    other,
    events,
    devices,
    name,
    ts,
    args,
    id,
    capacity,
    address,
    bytes,
    allocated,
    reserved,
    device_id,
    device_type,
  };

  static Key argument_of(std::string_view key) noexcept {
    return key == "Addr"              ? Key::address
           : key == "Bytes"           ? Key::bytes
           : key == "Total Allocated" ? Key::allocated
           : key == "Total Reserved"  ? Key::reserved
           : key == "Device Id"       ? Key::device_id
           : key == "Device Type"     ? Key::device_type
                                      : Key::other;
  }

  void argument(const format::JsonNumber& number) noexcept {
    using Kind = format::JsonNumber::Kind;
    if (number.kind == Kind::other) return;
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;  // far from what adding would overflow
    const bool small = number.kind == Kind::unsigned_integer && number.value < kMost;
    switch (key_) {
      case Key::address:
        address_ = number.kind == Kind::negative ? static_cast<std::uint64_t>(number.negative)
                                                 : number.value;
        return;
      case Key::bytes:
        if (small) bytes_ = static_cast<std::int64_t>(number.value);
        if (number.kind == Kind::negative && number.negative > -static_cast<std::int64_t>(kMost))
          bytes_ = number.negative;
        return;
      case Key::allocated:
        if (small) allocated_ = number.value;
        return;
      case Key::reserved:
        if (small) reserved_ = number.value;
        return;
      case Key::device_id:
        if (small) device_id_ = number.value;
        return;
      case Key::device_type:
        if (small) device_type_ = number.value;
        return;
      default:
        return;
    }
  }

  void take() {
    constexpr std::uint64_t kCpu = 0;  // c10::DeviceType
    if (device_type_ == kCpu) {
      ++of_cpu;
      return;
    }
    if (!device_type_ || !bytes_ || !time_ || device_id_.value_or(0) > kDeviceMax) {
      ++without_words;
      return;
    }
    if (!type_) type_ = device_type_;
    if (type_ != device_type_) {
      ++of_others;
      return;
    }
    if (rows.size() != 0 && rows[rows.size() - 1].time_ns > *time_) in_order = false;
    rows.push(
        {.time_ns = *time_,
         .address = address_.value_or(0),
         .bytes = *bytes_,
         .allocated = allocated_.value_or(0),
         .reserved = reserved_.value_or(0),
         .line = static_cast<std::uint32_t>(std::min<std::uint64_t>(line_, ~std::uint32_t{0})),
         .device = static_cast<std::uint8_t>(device_id_.value_or(0)),
         .has_address = address_.value_or(0) != 0,
         .has_allocated = allocated_.has_value(),
         .has_reserved = reserved_.has_value()});
  }

  std::size_t depth_ = 0, array_depth_ = 0;  // array_depth_: of the array that place_ is in
  Place place_ = Place::outside;
  Key key_ = Key::other;
  bool is_memory_ = false;
  std::uint64_t line_ = 0;
  std::optional<std::int64_t> time_, bytes_;
  std::optional<std::uint64_t> address_, allocated_, reserved_, device_id_, device_type_, type_;
  DeviceInfo device_;
};

/// Memory that the rows free and do not allocate.
struct OldMemory {
  std::uint64_t address = 0, size = 0;  ///< Address 0: not known.
  std::uint8_t device = 0;
};

/// Finds out which memory each row frees. A row without an address frees the latest memory of its
/// size, since all that it tells is a size.
class Pairing {
 public:
  Pairing(MemoryRows& rows, const std::vector<std::uint32_t>& order) : rows_(rows), order_(order) {}

  std::vector<OldMemory> old;
  std::vector<bool> left_out;  ///< By place in the order: rows that become no operation.
  std::uint64_t duplicates = 0, nothing = 0, by_size = 0;

  /// The row at the place `at` of the order of time.
  MemoryRow& row(std::size_t at) { return rows_[order_.empty() ? at : order_[at]]; }

  /// Ids count up from 1: the old memory first, then the rows.
  void run() {
    left_out.resize(rows_.size());
    std::map<std::uint8_t, std::unordered_map<std::uint64_t, std::size_t>> at_address;
    std::map<std::pair<std::uint8_t, std::uint64_t>, std::vector<std::size_t>> of_size;
    std::vector<std::pair<std::size_t, std::size_t>> frees;  // place, place of what it frees
    // A place that no row has: the memory is older than the first row.
    constexpr std::size_t kOld = std::size_t{1} << 62;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto& each = row(i);
      const auto size = static_cast<std::uint64_t>(each.bytes < 0 ? -each.bytes : each.bytes);
      if (size == 0) {
        ++nothing;
        left_out[i] = true;
        continue;
      }
      by_size += each.has_address ? 0 : 1;
      if (each.bytes > 0) {
        if (!each.has_address) {
          of_size[{each.device, size}].push_back(i);
        } else if (!at_address[each.device].emplace(each.address, i).second) {
          ++duplicates;
          left_out[i] = true;
        }
        continue;
      }
      auto freed = kOld + old.size();
      if (each.has_address) {
        auto& live = at_address[each.device];
        if (const auto found = live.find(each.address); found != live.end()) {
          freed = found->second;
          live.erase(found);
        }
      } else if (auto& live = of_size[{each.device, size}]; !live.empty()) {
        freed = live.back();
        live.pop_back();
      }
      if (freed >= kOld)
        old.push_back(
            {.address = each.has_address ? each.address : 0, .size = size, .device = each.device});
      frees.emplace_back(i, freed);
    }
    for (const auto& [place, freed] : frees) {
      if (freed >= kOld) {
        row(place).id = freed - kOld + 1;
      } else {
        row(place).id = freed;  // a place until number() has given that row its id
        by_place_.push_back(place);
      }
    }
  }
  /// Gives the rows that allocate their ids; `first` is the first of them.
  void number(std::uint64_t first) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (row(i).bytes > 0 && !left_out[i]) row(i).id = first++;
    }
    for (const auto place : by_place_) row(place).id = row(row(place).id).id;
  }

 private:
  MemoryRows& rows_;
  const std::vector<std::uint32_t>& order_;
  std::vector<std::size_t> by_place_;
};

/// What one device has, while the rows become operations.
struct DeviceState {
  ByteSum live;
  std::uint64_t count = 0;
  std::optional<TotalSteps> reserved;
};

class ProfilerImport {
 public:
  ProfilerImport(ImportRun& run, ProfileReader& read) : run_(run), read_(read) {}

  Result<ImportCounts> import() {
    if (!read_.in_order) sort();
    Pairing pairing(read_.rows, order_);
    pairing.run();
    find_first_rows(pairing);
    if (auto begun = begin(pairing); !begun) return std::move(begun).error();
    for (std::size_t i = 0; i < read_.rows.size(); ++i) {
      if (pairing.left_out[i]) continue;
      if (auto taken = row(pairing.row(i)); !taken) return std::move(taken).error();
    }
    count(pairing);
    ByteSum live;
    std::uint64_t blocks = 0;
    for (const auto& [device, state] : devices_) {
      live.add(state.live);
      blocks += state.count;
    }
    return run_.finish(blocks, live);
  }

 private:
  void sort() {
    order_.resize(read_.rows.size());
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const auto &first = read_.rows[a], &second = read_.rows[b];
      return first.time_ns != second.time_ns ? first.time_ns < second.time_ns : a < b;
    });
  }

  /// The totals of a device's first row tell how much was live and reserved before.
  void find_first_rows(Pairing& pairing) {
    for (const auto& each : pairing.old) {
      before_[each.device].named += each.size;
      devices_[each.device];
    }
    for (std::size_t i = 0; i < read_.rows.size(); ++i) {
      const auto& each = pairing.row(i);
      auto& before = before_[each.device];
      if (std::exchange(before.known, true)) continue;
      devices_[each.device];
      const auto bytes = static_cast<std::uint64_t>(each.bytes < 0 ? 0 : each.bytes);
      const auto freed = static_cast<std::uint64_t>(each.bytes < 0 ? -each.bytes : 0);
      if (each.has_allocated && each.allocated + freed >= bytes)
        before.live = each.allocated + freed - bytes;
      if (each.has_reserved) before.reserved = each.reserved;
    }
  }

  Operation common(std::uint8_t device) const {
    Operation op;
    if (device != 0) {
      op.device = device;
      op.members.add(Member::device);
    }
    return op;
  }

  Status begin(Pairing& pairing) {
    auto header = recording_header(kTorchProfiler, {"multi-device"});
    if (devices_.size() < 2) header.requires_.clear();
    for (const auto& [number, device] : read_.devices) {
      if (devices_.count(static_cast<std::uint8_t>(number)) != 0) header.devices.push_back(device);
    }
    if (pairing.by_size != 0) header.extensions = "\"x-curve\":\"blocks\"";
    if (auto begun = run_.header(header); !begun) return begun;
    for (auto& [device, state] : devices_) {
      const auto& before = before_[device];
      if (before.reserved == 0) continue;
      state.reserved.emplace(run_, Layer::backing, last_segment_);
      if (auto held = state.reserved->step(common(device), before.reserved, true); !held)
        return held;
    }
    for (const auto& each : pairing.old) {
      if (auto made = old(each.device, each.size, each.address); !made) return made;
    }
    for (const auto& [device, before] : before_) {
      if (before.live <= before.named) continue;
      unseen_ += before.live - before.named;
      if (auto made = old(device, before.live - before.named, 0); !made) return made;
    }
    pairing.number(run_.id_to_come());
    return {};
  }

  Status old(std::uint8_t device, std::uint64_t size, std::uint64_t address) {
    auto op = common(device);
    op.op = Op::memalloc;
    op.id = Id::of(run_.next_id());
    op.size = size;
    op.preexisting = true;
    op.members = op.members | Members(Member::id, Member::size, Member::preexisting);
    if (address != 0) {
      op.addr = address;
      op.members.add(Member::addr);
    }
    add_extension(op, extension_, "\"x-no_row\":true");
    auto& state = devices_[device];
    state.live.add(size);
    ++state.count;
    return run_.emit(op);
  }

  Status row(const MemoryRow& each) {
    auto op = common(each.device);
    op.line = each.line;
    if (!start_ns_) start_ns_ = each.time_ns;
    op.time_ns = static_cast<std::uint64_t>(each.time_ns - *start_ns_);
    op.members.add(Member::time_ns);
    auto& state = devices_[each.device];
    const bool allocates = each.bytes > 0;
    if (allocates) {
      // What the manager took from the device, it took for this request.
      if (auto held = reserve(op, each, state); !held) return held;
    }
    auto made = op;
    made.op = allocates ? Op::memalloc : Op::free;
    made.id = Id::of(each.id);
    made.members.add(Member::id);
    const auto size = static_cast<std::uint64_t>(allocates ? each.bytes : -each.bytes);
    if (allocates) {
      made.id = Id::of(run_.next_id());
      made.size = size;
      made.members.add(Member::size);
      if (each.has_address) {
        made.addr = each.address;
        made.members.add(Member::addr);
      }
      state.live.add(size);
      ++state.count;
      sizes_[each.id] = size;
    } else {
      const auto found = sizes_.find(each.id);
      const auto was = found != sizes_.end() ? found->second : size;
      other_size_ += was != size ? 1 : 0;
      state.live.subtract(was);
      --state.count;
      if (found != sizes_.end()) sizes_.erase(found);
    }
    run_.used();
    other_total_ += each.has_allocated && each.allocated != state.live.value() ? 1 : 0;
    if (auto given = run_.emit(made); !given) return given;
    return allocates ? Status{} : reserve(op, each, state);
  }

  Status reserve(const Operation& op, const MemoryRow& each, DeviceState& state) {
    if (!each.has_reserved) return {};
    if (!state.reserved) state.reserved.emplace(run_, Layer::backing, last_segment_);
    return state.reserved->step(op, each.reserved);
  }

  void count(const Pairing& pairing) {
    auto& counts = run_.counts();
    counts.rows += pairing.duplicates;
    counts.duplicate += pairing.duplicates;
    const auto others = pairing.nothing + read_.of_cpu + read_.of_others + read_.without_words;
    counts.rows += others;
    counts.other += others;
    run_.note(read_.of_cpu, "events are of the CPU's memory");
    run_.note(read_.of_others, "events are of another type of device than the first");
    run_.note(read_.without_words, "[memory] events do not say how much, when or on which device");
    run_.note(pairing.nothing, "rows allocate or free 0 bytes");
    run_.note(pairing.duplicates, "rows allocate at an address that is live");
    run_.note(other_size_, "rows free another size than was allocated");
    run_.note(pairing.old.size(), "frees are of memory from before the profile began");
    if (unseen_ != 0) {
      counts.notes.push_back(
          text::format("{} were live before the profile began, and nothing frees them: of which "
                       "blocks they are is unknown",
                       units::bytes(unseen_)));
    }
    run_.note(other_total_,
              "events state another total than the sum of the rows: the profile does not have all "
              "rows");
    if (pairing.by_size != 0) {
      counts.notes.push_back(
          text::format("{} events have no address: the file tells the curve and the peak of what "
                       "was live, and no more",
                       pairing.by_size));
    }
  }

  struct Before {
    bool known = false;
    std::uint64_t named = 0;  ///< Bytes that the rows free.
    std::uint64_t live = 0, reserved = 0;
  };

  ImportRun& run_;
  ProfileReader& read_;
  std::vector<std::uint32_t> order_;  // empty: as in the file
  std::map<std::uint8_t, Before> before_;
  std::map<std::uint8_t, DeviceState> devices_;
  std::unordered_map<std::uint64_t, std::uint64_t> sizes_;  // live memory of rows, by id
  std::uint64_t last_segment_ = 0, unseen_ = 0, other_size_ = 0, other_total_ = 0;
  std::optional<std::int64_t> start_ns_;
  std::string extension_;
};

int sniff_torch_profiler(std::string_view prefix) {
  const auto begin = prefix.find_first_not_of(" \t\r\n");
  if (begin == prefix.npos || (prefix[begin] != '{' && prefix[begin] != '[')) return 0;
  const auto has = [&](std::string_view words) { return prefix.find(words) != prefix.npos; };
  if (!has("\"ph\"") && !has("\"traceEvents\"")) return 0;
  if (has("\"[memory]\"")) return 97;
  if (!has("\"traceEvents\"")) return has("\"ts\"") ? 60 : 0;
  return has("\"deviceProperties\"") || has("\"schemaVersion\"") || has("\"cpu_op\"") ? 90 : 55;
}

Result<ImportCounts> read_profile(format::ByteSource& source, OperationSink& sink,
                                  const ImportOptions& options) {
  ProfileReader read;
  if (auto done = format::read_json(source, read); !done) return std::move(done).error();
  const bool cut = read.torn || source.truncated();
  if (cut && !options.partial) {
    return fail(Errc::parse_error, "{}:{}: the file ends {}: expected {}", source.name(),
                read.torn_line, "inside the profile", "a whole Chrome trace, or --partial");
  }
  if (!read.is_profile || (read.rows.size() == 0 && read.of_cpu == 0)) {
    return fail(Errc::parse_error,
                "{}: the Chrome trace has no [memory] events: expected one that "
                "torch.profiler.profile(profile_memory=True) wrote",
                source.name());
  }
  ImportRun run(source, sink, options);
  if (read.torn) {
    ++run.counts().rows;
    ++run.counts().truncated;
    run.counts().notes.push_back(text::format("the file ends inside line {}", read.torn_line));
  }
  return ProfilerImport(run, read).import();
}

}  // namespace

extern constinit const Importer torch_profiler_importer{
    .name = "torch-profiler",
    .summary = "torch.profiler's Chrome trace, of profile_memory=True: its [memory] events",
    .from_documentation = true,
    .sniff = sniff_torch_profiler,
    .read = read_profile,
};

}  // namespace emm
