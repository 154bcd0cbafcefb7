#pragma once

#include <algorithm>
#include <cstdint>

#include "exchange/importers/paired_rows.hpp"
#include "exchange/importers/stream_name.hpp"
#include "format/rmm_csv_reader.hpp"

namespace emm::trace {

/// Turns times of day into one growing time that starts at the first of them or at `start_ns`. Rows
/// of several threads may be slightly out of order.
class DayClock {
 public:
  DayClock() = default;
  explicit DayClock(std::uint64_t start_ns) noexcept
      : start_(static_cast<std::int64_t>(start_ns)), latest_(start_), started_(true) {}

  /// Nanoseconds since the first row; 0 for an earlier stamp.
  std::uint64_t since_start_ns(std::uint64_t time_ns) {
    const auto time = static_cast<std::int64_t>(time_ns);
    if (!started_) {
      started_ = true;
      start_ = latest_ = time;
    }
    auto at = time + day_;
    if (at - latest_ < -kDisorder) {
      at += kDay;
    } else if (at - latest_ > kDay - kDisorder && day_ > 0) {
      at -= kDay;  // stamped before midnight, but written after a row stamped later
    }
    latest_ = std::max(latest_, at);
    day_ = latest_ / kDay * kDay;
    return at < start_ ? 0 : static_cast<std::uint64_t>(at - start_);
  }

 private:
  static constexpr auto kDay = static_cast<std::int64_t>(format::rmm::kDayNs);
  // Ns: threads write rows out of order; a clock that goes back further has passed midnight.
  static constexpr std::int64_t kDisorder = 60'000'000'000;
  std::int64_t start_ = 0, latest_ = 0, day_ = 0;  // day_: midnights passed, in nanoseconds
  bool started_ = false;
};

/// Turns the rows of a log of RMM's logging_resource_adaptor into operations.
class RmmRows {
 public:
  explicit RmmRows(ImportRun& run) noexcept : pairs_(run) {}

  Status row(const format::rmm::Row& row, std::uint64_t time_ns, bool with_thread) {
    using format::rmm::Action;
    auto& op = operation_;
    op.op = Op::memalloc;
    op.members = Members(Member::time_ns);
    op.line = 0;
    op.result = {};
    op.time_ns = time_ns;
    if (with_thread) {
      op.thread = Id::of(row.thread);
      op.members.add(Member::thread);
    }
    stream_.put(op, row.stream);
    switch (row.action) {
      case Action::allocate:
        return pairs_.allocate(op, row.pointer, row.size);
      case Action::allocate_failure:
        return pairs_.allocate_failure(op, row.size, Outcome::oom);
      case Action::free:
        return pairs_.free(op, row.pointer, row.size);
    }
    return {};
  }
  Result<ImportCounts> finish() { return pairs_.finish(); }

 private:
  PairedRows pairs_;
  StreamName stream_;
  Operation operation_;  // reused, since it is large and rows set only a few members
};

/// Reads the next row of a log; false at the end of the file. ImportRun::refuse() handles a bad
/// row. `dialect` is that of the last header. `dialect_of` recognizes headers, which may stand
/// anywhere, since logs are appended to.
template <class DialectOf, class Row>
Result<bool> next_rmm_row(ImportRun& run, const DialectOf& dialect_of,
                          format::rmm::Dialect& dialect, Row& row) {
  std::string_view line;
  for (;;) {
    auto more = run.next(line);
    if (!more || !*more) return more;
    const auto bad = format::rmm::parse(line, dialect, row);
    if (!bad) return true;
    auto named = dialect_of(line);
    if (!named) {
      auto cut = run.refuse(BadField{bad->column, bad->value, bad->at, bad->expected});
      if (!cut) return std::move(cut).error();
      return false;
    }
    named->layout.add_others(dialect.layout);
    dialect = *std::move(named);
  }
}

/// The header of a trace that is made from such logs.
Header rmm_header();

}  // namespace emm::trace
