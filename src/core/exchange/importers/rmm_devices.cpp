#include "exchange/importers/rmm_devices.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/text.hpp"
#include "exchange/importers/rmm_rows.hpp"
#include "trace/field.hpp"
#include "trace/header.hpp"
#include "trace/operation.hpp"

namespace emm::trace {
namespace {

namespace rmm = format::rmm;

/// Passes on one log's operations with its device. Holds back the `end`, since the merged trace has
/// only one.
class OnDevice final : public OperationSink {
 public:
  OnDevice(OperationSink& to, std::uint32_t device, Operation& end) noexcept
      : to_(to), device_(device), end_(end) {}

  Status on_header(const Header&) override { return {}; }
  Status on_operation(const Operation& operation) override {
    if (operation.op == Op::end) {
      end_.live += operation.live;
      end_.live_bytes += std::min(operation.live_bytes, ~std::uint64_t{0} - end_.live_bytes);
      ++end_.count;
      return {};
    }
    ++end_.events;
    auto op = operation;
    op.device = device_;
    op.line = 0;  // a line number does not say which file
    if (device_ != 0) op.members.add(Member::device);
    return to_.on_operation(op);
  }

 private:
  OperationSink& to_;
  std::uint32_t device_;
  Operation& end_;
};

/// Reads one of the logs, one row ahead.
class Log {
 public:
  Log(const DeviceLog& log, OperationSink& sink, Operation& end, const ImportOptions& options)
      : sink_(sink, log.device, end), run_(*log.source, sink_, options), rows_(run_) {}

  Status read() {
    auto more = next_rmm_row(run_, rmm::dialect_of, dialect_, row_);
    if (!more) return std::move(more).error();
    ended_ = !*more;
    return {};
  }
  void start(std::uint64_t of_day_ns) {
    clock_ = DayClock(of_day_ns);
    tell_time();
  }
  Status take() {
    if (auto taken = rows_.row(row_, time_ns_, dialect_.has_thread()); !taken) return taken;
    if (auto more = read(); !more) return more;
    tell_time();
    return {};
  }

  ImportRun& run() noexcept { return run_; }
  bool ended() const noexcept { return ended_; }
  std::uint64_t of_day_ns() const noexcept { return row_.time_ns; }
  std::uint64_t time_ns() const noexcept { return time_ns_; }
  Result<ImportCounts> finish() {
    run_.note_columns(dialect_.layout.others());
    return rows_.finish();
  }

 private:
  void tell_time() {
    if (!ended_) time_ns_ = clock_.since_start_ns(row_.time_ns);
  }

  OnDevice sink_;
  ImportRun run_;
  RmmRows rows_;
  DayClock clock_;
  rmm::Dialect dialect_ = *rmm::dialect_of(rmm::kHeader);
  rmm::Row row_;
  std::uint64_t time_ns_ = 0;
  bool ended_ = false;
};

using Logs = std::vector<std::unique_ptr<Log>>;

/// The time of day at which the earliest log begins.
std::uint64_t start_of(const Logs& logs) {
  std::optional<std::uint64_t> start;
  for (const auto& log : logs) {
    if (log->ended()) continue;
    const auto time = log->of_day_ns();
    if (!start) start = time;
    const auto ahead =
        (*start + rmm::kDayNs - time) % rmm::kDayNs;  // the time from `time` to `start`
    if (ahead < rmm::kDayNs / 2) start = time;
  }
  return start.value_or(0);
}

void add(ImportCounts& sum, ImportCounts counts, std::string_view name) {
  sum.rows += counts.rows;
  sum.used += counts.used;
  sum.unmatched += counts.unmatched;
  sum.duplicate += counts.duplicate;
  sum.other += counts.other;
  sum.truncated += counts.truncated;
  for (const auto& note : counts.notes) sum.notes.push_back(text::format("{}: {}", name, note));
}

}  // namespace

std::optional<std::uint32_t> device_of_log(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  constexpr std::string_view kMark = ".dev";
  const auto at = name.rfind(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const auto rest = name.substr(at + kMark.size());
  const auto digits = rest.substr(0, rest.find('.'));
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto device = text::to_u64(digits);
  if (!device || *device > kDeviceMax) return std::nullopt;
  return static_cast<std::uint32_t>(*device);
}

Result<ImportCounts> read_rmm_devices(std::span<const DeviceLog> given, OperationSink& sink,
                                      const ImportOptions& options) {
  auto header = rmm_header();
  header.requires_.emplace_back("multi-device");
  if (auto begun = sink.on_header(header); !begun) return std::move(begun).error();

  Operation end{.op = Op::end,
                .members = Members(Member::events, Member::lost, Member::live, Member::live_bytes)};
  Logs logs;
  for (const auto& log : given) {
    logs.push_back(std::make_unique<Log>(log, sink, end, options));
    logs.back()->run().share_ids(logs.size() - 1, given.size());
    if (auto read = logs.back()->read(); !read) return std::move(read).error();
  }
  const auto start = start_of(logs);
  for (const auto& log : logs) log->start(start);
  for (;;) {
    Log* first = nullptr;
    for (const auto& log : logs) {
      if (!log->ended() && (first == nullptr || log->time_ns() < first->time_ns()))
        first = log.get();
    }
    if (first == nullptr) break;
    if (auto taken = first->take(); !taken) return std::move(taken).error();
  }

  ImportCounts counts;
  for (const auto& log : logs) {
    auto done = log->finish();
    if (!done) return std::move(done).error();
    add(counts, *std::move(done), log->run().source_name());
  }
  const auto whole = end.count == logs.size();  // otherwise a file was cut
  end.count = 0;
  if (whole) {
    if (auto given_on = sink.on_operation(end); !given_on) return std::move(given_on).error();
  }
  if (auto finished = sink.finish(); !finished) return std::move(finished).error();
  return counts;
}

}  // namespace emm::trace
