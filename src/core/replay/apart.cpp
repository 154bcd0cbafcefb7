#include "replay/apart.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

#include "base/text.hpp"
#include "driver/call.hpp"
#include "log/summary_bytes.hpp"
#include "plugin/child.hpp"
#include "replay/current_event.hpp"
#include "replay/engine.hpp"

namespace emm {
namespace {

using plugin::CallMark;
using plugin::ChildEnd;

/// Carries the records of a run from its process to this one. A record that was put in survives the
/// end of the process that put it in. One thread at a time at either end.
///
/// The store of put_ releases the record and the load in pass_on() acquires it. taken_ does the
/// same for the slot that becomes free. So neither side needs a lock that a dead process could
/// hold.
class Ring final : public log::RecordSink {
 public:
  void on_record(const log::Record& record, const log::Gauges& gauges) override {
    constexpr useconds_t kWaitUs = 50;  // what a full ring is left for the parent to empty it
    const auto at = put_.load(std::memory_order_relaxed);
    while (at - taken_.load(std::memory_order_acquire) == kRecords) usleep(kWaitUs);
    records_[at % kRecords] = {.record = record, .gauges = gauges};
    put_.store(at + 1, std::memory_order_release);
  }
  void pass_on(log::RecordSink& to) {
    auto at = taken_.load(std::memory_order_relaxed);
    for (const auto end = put_.load(std::memory_order_acquire); at != end; ++at) {
      const auto& [record, gauges] = records_[at % kRecords];
      to.on_record(record, gauges);
      taken_.store(at + 1, std::memory_order_release);
    }
  }

 private:
  static constexpr std::uint64_t kRecords = 8192;  // of the ring: what the parent may lag behind
  struct Both {
    log::Record record;
    log::Gauges gauges;
  };
  std::atomic<std::uint64_t> put_{0}, taken_{0};
  std::array<Both, kRecords> records_{};
};

/// The memory that the two processes share, besides ReplayOptions::kept.
struct Shared {
  Ring ring;
  log::LogOptions log_options;
  std::atomic<bool> wants_log{false};
  std::atomic<std::uint64_t> done{0}, total{0};
};
// In whole pages, as mmap() gives them.
constexpr std::size_t kSharedBytes = (sizeof(Shared) + 4095) / 4096 * 4096;

std::uint64_t executed_event() noexcept {
  return replay::has_current_event() ? replay::current_event() : CallMark::kNoEvent;
}

/// An answer is an error, or words and a summary.
constexpr char kError = 'E', kAnswer = 'A';

std::string to_bytes(const Error& error) {
  return text::format("{}{}{}", kError, static_cast<char>('A' + static_cast<int>(error.code)),
                      describe(error));
}

std::string to_bytes(const std::vector<std::string>& words, const log::Summary& summary) {
  std::string bytes(1, kAnswer);
  for (const auto& one : words) bytes += text::format("{}:", one.size()) + one;
  return bytes + "." + log::to_bytes(summary);
}

Result<log::Summary> from_bytes(std::string_view bytes, std::vector<std::string>& words) {
  const Error torn{.code = Errc::internal,
                   .message = "the answer of the process of a run cannot be read"};
  if (bytes.size() > 1 && bytes[0] == kError)
    return Error{.code = static_cast<Errc>(bytes[1] - 'A'),
                 .message = std::string(bytes.substr(2))};
  if (bytes.empty() || bytes[0] != kAnswer) return torn;
  bytes.remove_prefix(1);
  while (!bytes.empty() && bytes[0] != '.') {
    const auto colon = bytes.find(':');
    const auto size = text::to_u64(bytes.substr(0, colon));
    if (colon == bytes.npos || !size || *size > bytes.size() - colon - 1) return torn;
    words.emplace_back(bytes.substr(colon + 1, static_cast<std::size_t>(*size)));
    bytes.remove_prefix(colon + 1 + static_cast<std::size_t>(*size));
  }
  if (bytes.empty()) return torn;
  auto summary = log::summary_from_bytes(bytes.substr(1));
  if (!summary) return torn;
  return *std::move(summary);
}

std::string_view meaning_of(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV, an address that is not its own";
    case SIGBUS:
      return "SIGBUS, memory that is not there";
    case SIGFPE:
      return "SIGFPE, arithmetic";
    case SIGILL:
      return "SIGILL, an instruction that is none";
    case SIGABRT:
      return "SIGABRT, abort()";
    case SIGKILL:
      return "SIGKILL, it was killed";
    default:
      return "a signal";
  }
}

std::string in_words(std::chrono::milliseconds time) {
  constexpr int kSecond = 1000;
  if (time.count() % kSecond == 0) return text::format("{} s", time.count() / kSecond);
  return text::format("{} ms", time.count());
}

/// One sentence: "memalloc crashed: SIGSEGV, ..., at event 2 (line 7)".
log::Abnormal how_it_ended(const ChildEnd& end, const ApartRun& run) {
  log::Abnormal how{.words = {}, .signal = end.signal, .hung = end.kind == ChildEnd::Kind::hung};
  std::string place;
  if (end.event != CallMark::kNoEvent) {
    how.event = end.event;
    place = " after the last event";
    if (end.event < run.trace.size()) {
      // A streaming trace read its events in the other process, which is gone.
      how.line = run.trace.holds(end.event) ? run.trace[end.event].line : 0;
      place = how.line == 0 ? text::format(" at event {}", end.event)
                            : text::format(" at event {} (line {})", end.event, how.line);
    }
  }
  std::string_view deed = end.last_call;
  if (!end.inside) {
    deed = "its process";
    if (!end.last_call.empty()) place = text::format(" after {} had returned", end.last_call);
    if (end.whole) place = " as it ended, when all had been answered";
  }
  const auto& name = run.manager.name;
  switch (end.kind) {
    case ChildEnd::Kind::answered:
      break;
    case ChildEnd::Kind::crashed:
    case ChildEnd::Kind::heap_damaged:
      how.words = text::format("{}: {} crashed{}: {}", name, deed, place, meaning_of(end.signal));
      break;
    case ChildEnd::Kind::exited:
      how.words = end.inside ? text::format("{}: {} ended its process{}, with exit code {}", name,
                                            deed, place, end.exit_code)
                             : text::format("{}: {} ended{}, with exit code {}", name, deed, place,
                                            end.exit_code);
      break;
    case ChildEnd::Kind::hung:
      if (!end.inside) {
        how.words =
            text::format("{}: its process did not end within {}, when all had been answered", name,
                         in_words(run.manager.apart.value()));
        break;
      }
      how.words = text::format("{}: the call {}{} did not return within {}", name, deed, place,
                               in_words(run.manager.apart.value()));
      break;
    case ChildEnd::Kind::interrupted:
      if (!end.inside) {
        how.words = text::format("{}: its process did not end within {} of the interrupt", name,
                                 in_words(run.manager.apart.value()));
        break;
      }
      how.words = text::format("{}: the call {}{} did not return when the run was interrupted",
                               name, deed, place);
      break;
  }
  return how;
}

log::Summary unbegun(const ApartRun& run, log::Abnormal how) {
  log::Summary summary;
  summary.trace = run.trace.source();
  summary.manager = run.manager.name;
  summary.pass.failures = 1;
  summary.abnormal = std::move(how);
  return summary;
}

}  // namespace

Result<log::Summary> run_apart(const ApartRun& run, std::vector<std::string>& words) {
  words.clear();
  if (!run.manager.apart) {
    return run.work({.kept = {},
                     .interrupted = run.interrupted,
                     .progress = run.progress,
                     .open_log = run.open_log,
                     .words = words});
  }

  const plugin::SharedMemory memory(kSharedBytes + replay::kKeptBytes);
  if (!memory.ok()) {
    return Error{.code = Errc::io_error,
                 .message = text::format("no memory to share with the process of {}: {}",
                                         run.manager.name, std::strerror(errno))};
  }
  auto& shared = *new (memory.bytes().data()) Shared;
  const auto kept = memory.bytes().subspan(kSharedBytes);
  log::RecordSink* log = nullptr;
  std::optional<Error> no_log;
  const auto look = [&] {
    if (run.progress && shared.total.load() != 0)
      run.progress(shared.done.load(), shared.total.load());
    if (!shared.wants_log.load() || no_log) return no_log.has_value();
    if (log == nullptr) {
      auto opened = run.open_log(shared.log_options);
      if (opened) log = *opened;
      if (!opened) no_log = std::move(opened).error();
    }
    if (log != nullptr) shared.ring.pass_on(*log);
    return no_log.has_value();
  };
  const auto end = plugin::run_in_child(
      {.call_deadline = *run.manager.apart,
       .interrupted = run.interrupted,
       .look = look,
       .on_stderr = true,
       .runs_exit_handlers = true},
      [&](const std::atomic<bool>& interrupted) {
        plugin::mark_events_of(executed_event);
        const OpenLog open_log = [&](const log::LogOptions& options) -> Result<log::RecordSink*> {
          shared.log_options = options;
          shared.wants_log.store(true);
          return &shared.ring;
        };
        const auto progress = [&](std::uint64_t done, std::uint64_t total) {
          shared.done.store(done);
          shared.total.store(total);
        };
        std::vector<std::string> said;
        try {
          const auto summary = run.work({.kept = kept,
                                         .interrupted = &interrupted,
                                         .progress = progress,
                                         .open_log = run.open_log ? open_log : OpenLog(),
                                         .words = said});
          return summary ? to_bytes(said, *summary) : to_bytes(summary.error());
        } catch (const std::bad_alloc&) {
          return to_bytes(Error{.code = Errc::io_error, .message = "out of host memory"});
        }
      });
  if (no_log) return *std::move(no_log);
  if (!end) return end.error();

  if (end->kind == ChildEnd::Kind::answered) return from_bytes(end->bytes, words);
  auto how = how_it_ended(*end, run);
  if (end->whole) {
    auto summary = from_bytes(end->bytes, words);
    if (!summary) return summary;
    ++summary->pass.failures;
    how.signal = 0;  // all had been answered, so the signal does not matter
    summary->abnormal = std::move(how);
    return summary;
  }
  auto summary = replay::found_so_far(kept, run.trace, how);
  if (!summary) summary = unbegun(run, std::move(how));
  if (end->kind == ChildEnd::Kind::interrupted) summary->interrupted = true;
  return *std::move(summary);
}

Result<log::Summary> replay_logged(const RunEnvironment& at, const trace::Trace& trace,
                                   replay::Stack& stack) {
  auto log = at.open_log(log::LogOptions::of(stack.clock()));
  if (!log) return std::move(log).error();
  replay::ReplayOptions options;
  options.interrupted = at.interrupted;
  options.progress = at.progress;
  options.kept = at.kept;
  return replay::Engine(trace, stack, std::move(options), *log).run();
}

}  // namespace emm
