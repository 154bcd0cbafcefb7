// Umpire's replay logs.
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "exchange/importers/each_row.hpp"
#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/umpire_row.hpp"
#include "trace/field.hpp"
#include "trace/operation.hpp"

namespace emm {
namespace {

using namespace trace;

bool is_comment(std::string_view line) { return text::trim(line).starts_with('#'); }

bool says_all(std::string_view line, std::initializer_list<std::string_view> words) {
  for (const auto word : words) {
    if (line.find(word) == std::string_view::npos) return false;
  }
  return true;
}

int sniff_umpire_replay(std::string_view prefix) {
  constexpr std::size_t kComments = 100;  // lines that may come before the first row
  auto sure = 0;
  auto rows = 0;
  first_lines(prefix, kComments, [&](std::string_view line) {
    if (is_comment(line) || rows++ > 0 || !text::trim(line).starts_with('{')) return;
    if (says_all(line, {"\"kind\"", "\"replay\"", "\"event\""})) sure = 95;
    if (says_all(line, {"\"category\"", "\"name\"", "\"timestamp\""})) sure = 95;
  });
  return sure;
}

/// Turns rows into operations.
///
/// A reallocation has a row that announces it and a row with its result. Between them rows of its
/// own may do it: an allocate, sometimes after a deallocate. If no row did, the result becomes a
/// free and an allocation.
class UmpireReplay {
 public:
  explicit UmpireReplay(ImportRun& run) noexcept : run_(run), pairs_(run) {}

  Status row(const UmpireRow& row) {
    if (!std::exchange(started_, true)) start_ns_ = row.time_ns;
    Operation op{.members = Members(Member::time_ns)};
    op.time_ns = row.time_ns < start_ns_ ? 0 : row.time_ns - start_ns_;
    switch (row.event) {
      case UmpireEvent::allocate:
        if (row.intent) return announced();
        ++done_;
        return allocate(op, row, row.size);
      case UmpireEvent::deallocate:
        ++done_;
        return pairs_.free(op, row.pointer);
      case UmpireEvent::reallocate:
        return reallocate(op, row);
      case UmpireEvent::make_resource:
      case UmpireEvent::make_allocator:
        return make_allocator(row);
      case UmpireEvent::version:
      case UmpireEvent::other:
        break;
    }
    run_.other();
    return {};
  }
  void comment() {
    ++comments_;
    run_.other();
  }
  Result<ImportCounts> finish() {
    run_.note(comments_, "lines are comments");
    run_.note(announced_, "rows announce what a later row says again");
    run_.note(by_rows_, "reallocations were done by rows of their own");
    run_.note(unannounced_, "reallocations were not announced, so that their size is not known");
    return pairs_.finish();
  }

 private:
  /// Where an allocator's memory is.
  struct ResourceMemory {
    Op op = Op::memalloc;
    std::uint32_t device = 0;
  };
  struct Allocator {
    std::string name;
    ResourceMemory place;
  };
  struct Reallocation {
    std::uint64_t pointer, size;
    std::uint64_t done;  // the value of done_ at the announcement
  };

  Status announced() {
    ++announced_;
    run_.duplicate();
    return {};
  }

  /// Where the memory of a resource is, by its name: "HOST", "DEVICE", "DEVICE::3", "PINNED::FINE",
  /// ...
  Result<ResourceMemory> memory_of(std::string_view name) const {
    const auto end = name.find("::");
    const auto kind = name.substr(0, end);
    ResourceMemory place;
    if (kind == "HOST" || kind == "PINNED" || kind == "FILE" || kind == "SHARED") {
      place.op = Op::memhostalloc;
      return place;
    }
    if (kind == "UM") place.op = Op::memallocmanaged;
    if (end == std::string_view::npos) return place;
    const auto rest = name.substr(end + 2);
    const auto device = text::to_u64(rest.substr(0, rest.find("::")));
    if (!device) return place;
    if (*device > kDeviceMax) {
      return fail(Errc::parse_error, "{}:{}: a resource is \"{}\": expected devices up to {}",
                  run_.source_name(), run_.line_number(), name, kDeviceMax);
    }
    place.device = static_cast<std::uint32_t>(*device);
    return place;
  }

  /// An allocator hands out memory of the resource below it.
  Status make_allocator(const UmpireRow& row) {
    if (row.intent) return announced();
    const auto is_resource = row.event == UmpireEvent::make_resource;
    auto place = memory_of(is_resource ? row.name : row.parent);
    if (!place) return std::move(place).error();
    Allocator made{.name = row.name, .place = *place};
    if (!is_resource) {
      for (const auto& [address, below] : allocators_) {
        if (below.name == row.parent) made.place = below.place;
      }
    }
    const auto [at, added] = allocators_.emplace(row.allocator, made);
    if (!added && at->second.name == row.name) return announced();
    at->second = made;
    run_.other();
    return {};
  }

  Status allocate(Operation& op, const UmpireRow& row, std::uint64_t size) {
    const auto found = allocators_.find(row.allocator);
    if (found != allocators_.end()) {
      const auto& [name, place] = found->second;
      op.op = place.op;
      op.device = place.device;
      if (place.device != 0) op.members.add(Member::device);
      if (!name.empty()) {
        op.label = name;
        op.members.add(Member::label);
      }
    }
    return pairs_.allocate(op, row.pointer, size);
  }

  Status reallocate(Operation& op, const UmpireRow& row) {
    if (row.intent) {
      reallocations_[row.allocator] = {.pointer = row.pointer, .size = row.size, .done = done_};
      return announced();
    }
    const auto found = reallocations_.find(row.allocator);
    if (found == reallocations_.end()) {
      ++unannounced_;
      run_.unmatched();
      return {};
    }
    const auto asked = found->second;
    reallocations_.erase(found);
    if (done_ != asked.done) {
      ++by_rows_;
      run_.duplicate();
      return {};
    }
    // Two operations stand for one row; only the allocation counts the row.
    const auto counts = run_.counts();
    if (asked.pointer != 0) {
      auto freed = op;
      if (auto given = pairs_.free(freed, asked.pointer); !given) return given;
      run_.counts() = counts;
    }
    return allocate(op, row, asked.size);
  }

  ImportRun& run_;
  PairedRows pairs_;
  std::map<std::uint64_t, Allocator> allocators_;
  std::map<std::uint64_t, Reallocation> reallocations_;
  std::uint64_t comments_ = 0, announced_ = 0, by_rows_ = 0, unannounced_ = 0, start_ns_ = 0;
  std::uint64_t done_ = 0;  // allocations and frees with rows of their own
  bool started_ = false;
};

/// "Umpire 2022.3.1", from the rows before the first allocation.
std::string framework_of(std::string_view prefix) {
  std::string framework = "Umpire";
  first_lines(prefix, 100, [&](std::string_view line) {
    UmpireRow row;
    if (is_comment(line) || line.find("\"version\"") == std::string_view::npos) return;
    const auto bad = parse_umpire_row(line, "", 1, row);
    if (bad && !*bad && !row.version.empty()) framework = "Umpire " + row.version;
  });
  return framework;
}

Result<ImportCounts> read_replay(format::ByteSource& source, OperationSink& sink,
                                 const ImportOptions& options) {
  const auto prefix = source.peek(std::size_t{64} << 10);
  if (!prefix) return prefix.error();
  if (auto lines = refuse_umpire_database(*prefix, source.name()); !lines)
    return std::move(lines).error();
  ImportRun run(source, sink, options);
  const auto header = recording_header(framework_of(*prefix), {"multi-device"});
  if (auto begun = run.header(header); !begun) return std::move(begun).error();
  UmpireReplay replay(run);
  UmpireRow row;
  auto comment = false;
  auto read = each_row(
      run,
      [&](std::string_view line) -> Result<std::optional<BadField>> {
        comment = is_comment(line);
        if (comment) return std::optional<BadField>{};
        return parse_umpire_row(line, run.source_name(), run.line_number(), row);
      },
      [&]() -> Status {
        if (!comment) return replay.row(row);
        replay.comment();
        return {};
      });
  if (!read) return std::move(read).error();
  return replay.finish();
}

}  // namespace

extern constinit const Importer umpire_replay_importer{
    .name = "umpire-replay",
    .summary = "Umpire's replay log, of 2022 and later or before: one JSON line an operation",
    .from_documentation = false,
    .sniff = sniff_umpire_replay,
    .read = read_replay,
};

}  // namespace emm
