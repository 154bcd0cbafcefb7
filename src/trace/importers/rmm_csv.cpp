// The log of RMM's logging_resource_adaptor.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "format/rmm_csv_reader.hpp"
#include "trace/importers/address_book.hpp"
#include "trace/importers/import_run.hpp"
#include "trace/importers/stream_name.hpp"

namespace emm {
namespace {

using namespace trace;
namespace rmm = format::rmm;

std::string_view first_line(std::string_view prefix) {
  if (prefix.starts_with("\xef\xbb\xbf")) prefix.remove_prefix(3);
  auto line = prefix.substr(0, prefix.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int sniff(std::string_view prefix) {
  const auto line = first_line(prefix);
  if (rmm::dialect_of(line)) return 100;
  rmm::Row row;
  return rmm::parse(line, rmm::Dialect::with_thread, row) ? 0 : 60;  // a piece of a log, its header cut off
}

/// Times of day as one growing time. Rows of several threads may stand a little out of order.
class DayClock {
 public:
  /// Nanoseconds since the first row; 0 for a row that was stamped before it.
  std::uint64_t since_start_ns(std::uint64_t time_us) {
    const auto time = static_cast<std::int64_t>(time_us);
    if (!started_) {
      started_ = true;
      start_ = latest_ = time;
    }
    auto at = time + day_;
    if (at - latest_ < -kDisorder) {
      at += kDay;
    } else if (at - latest_ > kDay - kDisorder && day_ > 0) {
      at -= kDay;  // stamped before midnight, written after one that was stamped after it
    }
    latest_ = std::max(latest_, at);
    day_ = latest_ / kDay * kDay;
    return at < start_ ? 0 : static_cast<std::uint64_t>(at - start_) * 1000;
  }

 private:
  static constexpr auto kDay = static_cast<std::int64_t>(rmm::kDayUs);
  static constexpr std::int64_t kDisorder = 60'000'000;
  std::int64_t start_ = 0, latest_ = 0, day_ = 0;  // day_: midnights passed, in microseconds
  bool started_ = false;
};

/// Rows in, operations out.
class RmmCsv {
 public:
  explicit RmmCsv(ImportRun& run) noexcept : run_(run) {}

  Status row(const rmm::Row& row, bool with_thread) {
    Operation op{.members = Members(Member::time_ns)};
    op.time_ns = clock_.since_start_ns(row.time_us);
    if (with_thread) {
      op.thread = Id::of(row.thread);
      op.members.add(Member::thread);
    }
    stream_.put(op, row.stream);
    switch (row.action) {
      case rmm::Action::allocate: return allocate(op, row);
      case rmm::Action::allocate_failure: return allocate_failure(op, row);
      case rmm::Action::free: return free(op, row);
    }
    return {};
  }

  Result<ImportCounts> finish() {
    run_.note(null_, "rows give or take back nothing, at a null pointer");
    run_.note(live_again_, "rows allocate at an address that is live");
    run_.note(other_size_, "rows free another size than was allocated");
    return run_.finish(book_.count(), book_.bytes());
  }

 private:
  Status allocate(Operation& op, const rmm::Row& row) {
    if (row.pointer == 0) return nothing();
    if (book_.has(row.pointer)) {
      ++live_again_;
      run_.duplicate();
      return {};
    }
    make(op, row);
    book_.add(row.pointer, {.id = op.id.number, .size = row.size});
    op.addr = row.pointer;
    op.members.add(Member::addr);
    return run_.emit(op);
  }
  Status allocate_failure(Operation& op, const rmm::Row& row) {
    make(op, row);
    op.result.outcome = Outcome::oom;
    op.members.add(Member::result);
    return run_.emit(op);
  }
  Status free(Operation& op, const rmm::Row& row) {
    if (row.pointer == 0) return nothing();
    const auto ended = book_.remove(row.pointer);
    if (!ended) {
      run_.unmatched();
      return {};
    }
    other_size_ += ended->size != row.size ? 1 : 0;
    op.op = Op::free;
    op.id = Id::of(ended->id);
    op.members.add(Member::id);
    run_.used();
    return run_.emit(op);
  }
  void make(Operation& op, const rmm::Row& row) {
    op.op = Op::memalloc;
    op.id = Id::of(run_.next_id());
    op.size = row.size;
    op.members.add(Member::id);
    op.members.add(Member::size);
    run_.used();
  }
  Status nothing() {
    ++null_;
    run_.other();
    return {};
  }

  ImportRun& run_;
  AddressBook book_;
  DayClock clock_;
  StreamName stream_;
  std::uint64_t null_ = 0, live_again_ = 0, other_size_ = 0;
};

Result<ImportCounts> read_log(format::ByteSource& source, OperationSink& sink, const ImportOptions& options) {
  ImportRun run(source, sink, options);
  Header header;
  header.requires_ = {"streams", "threads"};
  header.level = Level::framework;
  header.complete = header.has_complete = true;
  header.framework = "RMM";
  if (auto begun = run.header(header); !begun) return std::move(begun).error();

  RmmCsv log(run);
  auto dialect = rmm::Dialect::with_thread;
  std::string_view line;
  for (;;) {
    auto more = run.next(line);
    if (!more) return std::move(more).error();
    if (!*more) break;
    if (const auto named = rmm::dialect_of(line)) {  // also where one log was appended to another
      dialect = *named;
      continue;
    }
    rmm::Row row;
    if (const auto bad = rmm::parse(line, dialect, row)) {
      if (auto cut = run.refuse(BadField{bad->column, bad->value, bad->at, bad->expected}); !cut) {
        return std::move(cut).error();
      }
      break;
    }
    if (auto taken = log.row(row, dialect == rmm::Dialect::with_thread); !taken) return std::move(taken).error();
  }
  return log.finish();
}

}  // namespace

extern constinit const Importer rmm_csv_importer{
    .name = "rmm-csv",
    .summary = "RMM's log: Thread,Time,Action,Pointer,Size,Stream; and v0.14's, without Thread",
    .from_documentation = true,
    .sniff = sniff,
    .read = read_log,
};

}  // namespace emm
