#include "exchange/merge_levels.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text_format.hpp"
#include "format/byte_sink.hpp"
#include "format/byte_source.hpp"
#include "trace/header.hpp"
#include "trace/live_bytes.hpp"
#include "trace/operation.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

namespace emm::trace {
namespace {

/// The places of one level's operations in the merged order, in reading order. 0 leaves an
/// operation out.
struct LinePlaces {
  std::vector<std::uint64_t> places, parents;
};

/// Writes the operations of one level as lines and stores the place of each.
class LevelLines final : public OperationSink {
 public:
  /// With `given`, which must outlive this object, each operation gets the place stored there.
  /// `renames` writes an id that is a number as "q1", since the other level uses the same numbers.
  explicit LevelLines(const LinePlaces* given = nullptr, bool renames = false)
      : given_(given),
        renames_(renames),
        sink_(format::ByteSink::to_string(text_)),
        writer_(make_writer(*sink_, Form::lines)) {}

  Status on_header(const Header& header) override {
    header_ = header;
    return writer_->on_header(header);
  }
  Status on_operation(const Operation& given) override {
    if (given.op == Op::end) {
      if (given.has(Member::lost)) lost_ = given.lost;
      return {};
    }
    auto operation = given;
    if (shift_ns_ != 0 && operation.has(Member::time_ns)) operation.time_ns += shift_ns_;
    std::string id;
    if (given_ != nullptr) {
      const auto place = given_->places[read_], parent = given_->parents[read_];
      ++read_;
      if (place == 0) return {};
      operation.seq = place;
      operation.members.add(Member::seq);
      if (parent != 0) {
        operation.parent = parent;
        operation.members.add(Member::parent);
      }
      if (renames_ && operation.has(Member::id) && operation.id.is_number()) {
        id = text::format("q{}", operation.id.number);
        operation.id = {.text = id};
      }
    }
    // An operation without a seq follows the one before it.
    if (operation.has(Member::seq)) last_ = operation.seq;
    constexpr std::string_view kNumber = "\"x-request\":";
    if (operation.has(Member::extension) && operation.extension.starts_with(kNumber)) {
      std::uint64_t number = 0;
      const auto rest = operation.extension.substr(kNumber.size());
      std::from_chars(rest.data(), rest.data() + rest.size(), number);
      requests_[number] = last_;
      operation.members.remove(Member::extension);
    }
    places_.push_back(last_);
    return writer_->on_operation(operation);
  }
  Status finish() override { return {}; }
  Status close() { return sink_->close(); }
  /// After close(): the line of the header, then a line for each operation.
  std::string_view text() const noexcept { return text_; }

  void shift(std::uint64_t ns) noexcept { shift_ns_ = ns; }
  std::uint64_t lost() const noexcept { return lost_; }
  const Header& header() const noexcept { return header_; }
  const std::vector<std::uint64_t>& places() const noexcept { return places_; }
  const std::unordered_map<std::uint64_t, std::uint64_t>& requests() const noexcept {
    return requests_;
  }

 private:
  const LinePlaces* given_;
  bool renames_;
  std::size_t read_ = 0;
  std::string text_;
  std::unique_ptr<format::ByteSink> sink_;
  std::unique_ptr<OperationSink> writer_;
  Header header_;
  std::uint64_t shift_ns_ = 0, last_ = 0, lost_ = 0;
  std::vector<std::uint64_t> places_;
  std::unordered_map<std::uint64_t, std::uint64_t> requests_;
};

/// Iterates over the operation lines of a level.
class Lines {
 public:
  explicit Lines(const LevelLines& level) : rest_(level.text()), places_(&level.places()) {
    (void)take();
  }
  bool has_more() const noexcept { return at_ < places_->size(); }
  std::uint64_t place() const noexcept { return (*places_)[at_]; }
  std::string_view next() noexcept {
    ++at_;
    return take();
  }

 private:
  std::string_view take() noexcept {
    const auto end = std::min(rest_.find('\n'), rest_.size() - 1) + 1;
    const auto line = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return line;
  }
  std::string_view rest_;
  const std::vector<std::uint64_t>* places_;
  std::size_t at_ = 0;
};

/// Merges the lines of both levels into one source.
class Merged final : public format::ByteSource {
 public:
  Merged(std::string header, const LevelLines& above, const LevelLines& beneath)
      : header_(std::move(header)), above_(above), beneath_(beneath) {}

  const std::string& name() const noexcept override { return name_; }
  Result<std::string_view> peek(std::size_t size) override {
    return std::string_view(header_).substr(0, size);
  }
  Result<std::string_view> next() override {
    // Bytes of a piece, and those behind it that may be read.
    constexpr std::size_t kChunk = std::size_t{1} << 16, kReadable = 64;
    buffer_.clear();
    if (!begun_) buffer_ = header_;
    begun_ = true;
    while (buffer_.size() < kChunk && (above_.has_more() || beneath_.has_more())) {
      const bool from_above =
          !beneath_.has_more() || (above_.has_more() && above_.place() < beneath_.place());
      buffer_ += (from_above ? above_ : beneath_).next();
    }
    const auto size = buffer_.size();
    buffer_.append(kReadable, '\0');
    return std::string_view(buffer_).substr(0, size);
  }
  std::uint64_t consumed() const noexcept override { return 0; }
  std::uint64_t total() const noexcept override { return 0; }
  bool truncated() const noexcept override { return false; }

 private:
  std::string name_ = "both levels", header_, buffer_;
  Lines above_, beneath_;
  bool begun_ = false;
};

/// Reads the header and ignores the operations.
class HeaderOnly final : public OperationSink {
 public:
  Status on_header(const Header& header) override {
    found = header;
    return {};
  }
  Status on_operation(const Operation&) override { return {}; }
  Status finish() override { return {}; }
  Header found;
};

Header header_of(const Header& requests, const Header& calls) {
  auto header = requests;
  header.complete = requests.complete && calls.complete;
  header.tool = "emmctl record";
  header.command = calls.command;
  header.driver_version = calls.driver_version;
  header.devices = calls.devices;
  if (header.source_options.empty()) header.source_options = calls.source_options;
  header.default_thread = calls.default_thread;
  header.clock_start_ns = std::min(requests.clock_start_ns, calls.clock_start_ns);
  header.clock_start_realtime_ns =
      std::min(requests.clock_start_realtime_ns, calls.clock_start_realtime_ns);
  for (const auto& name : calls.requires_) {
    if (std::find(header.requires_.begin(), header.requires_.end(), name) == header.requires_.end())
      header.requires_.push_back(name);
  }
  return header;
}

/// Reads a file of any known format into `sink`.
Result<ImportCounts> read_file(const std::string& path, OperationSink& sink,
                               const ImportOptions& options) {
  auto source = format::ByteSource::open(path);
  if (!source) return std::move(source).error();
  auto importer = detect(**source);
  if (!importer) return std::move(importer).error();
  return (*importer)->read(**source, sink, options);
}

Status write_both(const Header& header, LevelLines& above, LevelLines& beneath,
                  OperationSink& sink) {
  for (auto* const level : {&above, &beneath}) {
    if (auto closed = level->close(); !closed) return closed.error();
  }
  std::string line;
  {
    const auto out = format::ByteSink::to_string(line);
    if (auto begun = make_writer(*out, Form::lines)->on_header(header); !begun)
      return begun.error();
    if (auto closed = out->close(); !closed) return closed.error();
  }
  Merged merged(std::move(line), above, beneath);
  EndingSink ending(sink, above.lost() + beneath.lost());
  if (auto done = read(merged, ending); !done) return std::move(done).error();
  return {};
}

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The facts about PyTorch's history that are needed to find its segments among the driver's calls.
class History final : public OperationSink {
 public:
  struct Row {
    Op op = Op::memalloc;
    bool is_segment = false;
    std::uint64_t addr = 0, size = 0, time_ns = 0;
    std::size_t segment = kNone;  ///< For the free of a segment: the row of its memalloc.
  };
  Status on_header(const Header& header) override {
    header_ = header;
    return {};
  }
  Status on_operation(const Operation& operation) override {
    if (operation.op == Op::end) return {};
    Row row{operation.op, operation.layer == Layer::backing, operation.addr, operation.size,
            header_.clock_start_realtime_ns + operation.time_ns};
    if (row.is_segment && operation.op == Op::memalloc) {
      segments_[std::string(operation.id.text)] = rows_.size();
    } else if (row.is_segment && operation.op == Op::free) {
      const auto segment = segments_.find(std::string(operation.id.text));
      if (segment != segments_.end()) row.segment = segment->second;
    }
    rows_.push_back(row);
    return {};
  }
  const Header& header() const noexcept { return header_; }
  const std::vector<Row>& rows() const noexcept { return rows_; }

 private:
  Header header_;
  std::vector<Row> rows_;
  std::unordered_map<std::string, std::size_t> segments_;
};

/// The driver's calls of a recording, with the facts that join() needs.
class Calls final : public OperationSink {
 public:
  struct Call {
    std::uint64_t size = 0, time_ns = 0;
    std::size_t end = kNone;  ///< The call that freed the memory.
  };
  Status on_header(const Header& header) override {
    header_ = header;
    return {};
  }
  Status on_operation(const Operation& operation) override {
    if (operation.op == Op::end) return {};
    const auto at = calls_.size();
    calls_.push_back({operation.size, header_.clock_start_realtime_ns + operation.time_ns});
    switch (operation.op) {
      case Op::memalloc:
        if (operation.has(Member::result)) break;
        live_[operation.id.number] = at;
        if (operation.kind == Kind::device) by_addr_[operation.addr].push_back(at);
        break;
      case Op::free:
        if (const auto of = live_.find(operation.id.number); of != live_.end()) {
          calls_[of->second].end = at;
          live_.erase(of);
        }
        break;
      case Op::address_reserve:
        ranges_[std::string(operation.range.text)] = operation.addr;
        break;
      case Op::mem_map: {
        // The address of physical memory is where it is mapped.
        const auto of = live_.find(operation.id.number);
        const auto range = ranges_.find(std::string(operation.range.text));
        if (of != live_.end() && range != ranges_.end())
          by_addr_[range->second + operation.offset].push_back(of->second);
        break;
      }
      default:
        break;
    }
    return {};
  }
  const Header& header() const noexcept { return header_; }
  const std::vector<Call>& calls() const noexcept { return calls_; }

  /// Finds the calls from `begin` on that took the memory of [addr, addr + size) from the device,
  /// one for each byte. Empty if they did not take all of it.
  std::vector<std::size_t> took(std::uint64_t addr, std::uint64_t size, std::size_t begin) const {
    std::vector<std::size_t> found;
    for (const auto end = addr + size; addr < end;) {
      const auto place = by_addr_.find(addr);
      if (place == by_addr_.end()) return {};
      const auto call = std::lower_bound(place->second.begin(), place->second.end(), begin);
      if (call == place->second.end() || calls_[*call].size == 0) return {};
      found.push_back(*call);
      addr += calls_[*call].size;
    }
    return found;
  }

 private:
  Header header_;
  std::vector<Call> calls_;
  std::unordered_map<std::uint64_t, std::size_t> live_;
  std::unordered_map<std::string, std::uint64_t> ranges_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_addr_;
};

/// The merged order of both levels.
struct Joined {
  LinePlaces above, beneath;
  std::size_t segments = 0,
              found = 0;  ///< Segments of the history, and those found among the calls.
};

/// Merges the levels by address and clock. PyTorch's history has no seq in common with the driver's
/// calls, but its segments have the addresses that the driver gave, so each segment shows where the
/// history was at a call. The clock orders what lies between two such calls.
Joined join(const History& history, const Calls& calls) {
  const auto& rows = history.rows();
  const auto& made = calls.calls();
  Joined out;
  std::vector<std::size_t> rows_before(made.size(), kNone), cause(made.size(), kNone);
  std::unordered_map<std::size_t, std::vector<std::size_t>> calls_of;
  std::size_t next = 0;  // call
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (!row.is_segment) continue;
    std::vector<std::size_t> of_it;
    if (row.op == Op::memalloc) {
      ++out.segments;
      of_it = calls.took(row.addr, row.size, next);
      if (of_it.empty()) continue;
      ++out.found;
      // PyTorch takes a segment for the next request that gets memory of it.
      const auto in_it = [&](const History::Row& later) {
        return !later.is_segment && later.op == Op::memalloc && later.addr >= row.addr &&
               later.addr - row.addr < row.size;
      };
      const auto request =
          std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(), in_it);
      if (request != rows.end()) {
        for (const auto call : of_it)
          cause[call] = static_cast<std::size_t>(request - rows.begin());
      }
      calls_of[i] = of_it;
    } else if (row.segment != kNone) {
      for (const auto taken : calls_of[row.segment]) {
        if (const auto end = made[taken].end; end != kNone && end >= next) of_it.push_back(end);
      }
    }
    for (const auto call : of_it) {
      rows_before[call] = i;
      next = std::max(next, call + 1);
    }
  }

  // A call without a segment is placed by the clock, between the neighbours that have one.
  const bool has_time =
      history.header().clock_start_realtime_ns != 0 && calls.header().clock_start_realtime_ns != 0;
  std::vector<std::size_t> bound(made.size() + 1, rows.size());
  for (auto i = made.size(); i-- > 0;)
    bound[i] = rows_before[i] != kNone ? std::min(rows_before[i], bound[i + 1]) : bound[i + 1];
  out.above.places.resize(rows.size());
  out.above.parents.resize(rows.size());
  out.beneath.places.resize(made.size());
  out.beneath.parents.resize(made.size());
  std::uint64_t place = 0;
  std::size_t at = 0;
  const auto put_rows = [&](std::size_t end) {
    for (; at < end; ++at) {
      if (!rows[at].is_segment) out.above.places[at] = ++place;
    }
  };
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (rows_before[i] != kNone) {
      put_rows(bound[i]);
    } else if (has_time) {
      while (at < bound[i] && rows[at].time_ns <= made[i].time_ns) put_rows(at + 1);
    }
    out.beneath.places[i] = ++place;
  }
  put_rows(rows.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (cause[i] != kNone) out.beneath.parents[i] = out.above.places[cause[i]];
  }
  return out;
}

}  // namespace

Result<ImportCounts> merge_levels(const std::string& requests, const std::string& calls,
                                  OperationSink& sink) {
  // The recording that began earlier starts at time 0.
  const auto header_in = [](const std::string& path) -> Result<Header> {
    HeaderOnly only;
    if (auto done = read_file(path, only, {.partial = true}); !done) return std::move(done).error();
    return only.found;
  };
  auto first = header_in(requests);
  if (!first) return std::move(first).error();
  auto second = header_in(calls);
  if (!second) return std::move(second).error();
  const auto header = header_of(*first, *second);

  LevelLines above, beneath;
  above.shift(first->clock_start_ns - header.clock_start_ns);
  beneath.shift(second->clock_start_ns - header.clock_start_ns);
  if (auto done = read_file(requests, above, {.partial = true}); !done)
    return std::move(done).error();
  auto counts = read_file(calls, beneath, {.requests = &above.requests()});
  if (!counts) return counts;
  if (auto done = write_both(header, above, beneath, sink); !done) return std::move(done).error();
  return counts;
}

Result<ImportCounts> merge_history(const std::string& history, const std::string& calls,
                                   OperationSink& sink) {
  const std::unordered_map<std::uint64_t, std::uint64_t> no_requests;
  History told;
  if (auto done = read_file(history, told, {.partial = true}); !done)
    return std::move(done).error();
  Calls made;
  if (auto done = read_file(calls, made, {.requests = &no_requests}); !done)
    return std::move(done).error();
  const auto joined = join(told, made);
  if (joined.found == 0) {
    // No transcript shows this, since it needs a program that calls a driver: record_test does.
    constexpr std::string_view kWords =
        "none of {} segments of PyTorch's history is among the driver's calls: it is a trace of "
        "its own";
    return fail(Errc::parse_error, kWords, joined.segments);
  }

  // The merged trace uses the clock of the calls.
  const auto from = told.header().clock_start_realtime_ns;
  const auto until = made.header().clock_start_realtime_ns;
  auto header = header_of(told.header(), made.header());
  // Not all calls are the allocator's, so they must not be compared with its model.
  header.framework.clear();
  header.source_options = made.header().source_options;
  header.clock_source = made.header().clock_source;
  header.boot_id = made.header().boot_id;
  header.clock_start_realtime_ns = std::min(from, until);
  header.clock_start_ns = made.header().clock_start_ns - (until - header.clock_start_realtime_ns);
  LevelLines above(&joined.above, true), beneath(&joined.beneath);
  above.shift(from - header.clock_start_realtime_ns);
  beneath.shift(until - header.clock_start_realtime_ns);
  if (auto done = read_file(history, above, {.partial = true}); !done)
    return std::move(done).error();
  auto counts = read_file(calls, beneath, {.requests = &no_requests});
  if (!counts) return counts;
  if (joined.found < joined.segments) {
    counts->notes.push_back(
        text::format("{} of {} segments of PyTorch's history are not among the driver's calls",
                     joined.segments - joined.found, joined.segments));
  }
  if (auto done = write_both(header, above, beneath, sink); !done) return std::move(done).error();
  return counts;
}

}  // namespace emm::trace
