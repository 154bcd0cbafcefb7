#include "replay/parallel.hpp"

#include <algorithm>
#include <system_error>

#include "replay/one_thread.hpp"
#include "replay/worker.hpp"

namespace emm::replay {
namespace {

using trace::Op;

constexpr std::size_t kLogged = 1 << 20;             ///< Events between two writes to the log.
constexpr std::uint64_t kNever = ~std::uint64_t{0};  // ns
constexpr std::size_t kSamples = 256;                ///< Samples of all threads in a pass.

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) noexcept {
  auto known = peak.load(std::memory_order_relaxed);
  while (known < value && !peak.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

bool Parallel::is_alone(Op op) noexcept {
  switch (op) {
    case Op::initialize:
    case Op::reset:
    case Op::context_create:
    case Op::context_destroy:
    case Op::stream_create:
    case Op::stream_destroy:
    case Op::get_ipc_handle:
    case Op::open_ipc_handle:
    case Op::close_ipc_handle:
      return true;
    default:
      return false;
  }
}

Parallel::Parallel(ReplayCore& core, Operations& operations)
    : core_(core), operations_(operations) {
  const auto& trace = core.state.trace;
  for (std::size_t i = 0; i < trace.threads().size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(*this, i, trace.threads().size()));
    core.accounts.threads.push_back(&workers_.back()->accounts);
  }
  sample_every_ = std::max<std::size_t>(1, trace.size() / kSamples);
  std::vector<std::vector<AllocId>> made(workers_.size());
  std::uint32_t records = 0;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (is_alone(event.op)) {
      alone_.push_back(at);
    } else {
      workers_[index(event.thread)]->events.push_back(static_cast<std::uint32_t>(at));
    }
    if (gives_memory_an_id(event.op)) {
      made[index(event.thread)].push_back(event.id);
    }
    if (event.op != Op::event_record) continue;
    const auto record = trace.detail(event).record;
    records = std::max(records, record + 1);
    if (recorded_at_.size() < records) recorded_at_.resize(records, kNever);
    recorded_at_[record] = std::min<std::uint64_t>(recorded_at_[record], at);
  }
  recorded_ = std::make_unique<std::atomic<bool>[]>(records);
  core.held.live.group(made);
}

Parallel::~Parallel() {
  core_.accounts.threads.clear();
  {
    const std::lock_guard lock(turn_);
    over_ = true;
  }
  begun_.notify_all();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

Status Parallel::start() {
  try {
    for (const auto& worker : workers_) {
      worker->thread = std::thread([this, &mine = *worker] {
        std::uint64_t seen = 0;
        for (;;) {
          std::size_t end = 0;
          {
            std::unique_lock lock(turn_);
            begun_.wait(lock, [&] { return over_ || round_ != seen; });
            if (over_) return;
            seen = round_;
            end = end_;
          }
          mine.execute_until(end);
          const std::lock_guard lock(turn_);
          if (--busy_ == 0) done_.notify_one();
        }
      });
    }
  } catch (const std::system_error& error) {
    return Error{
        .code = Errc::out_of_memory,
        .message = text::format("the system has no room for {} threads ({}): raise its limits "
                                "(ulimit -v, ulimit -u), or replay with --threads trace",
                                workers_.size(), error.code().message())};
  }
  return {};
}

void Parallel::rewind() {
  for (const auto& worker : workers_) worker->next = 0;
  for (std::size_t i = 0; i < recorded_at_.size(); ++i) recorded_[i].store(false);
  core_.held.live.expect_all();
}

void Parallel::run_threads(std::size_t end) {
  const auto excluded = core_.clock.excluded();
  core_.state.threads_running = true;
  first_processor_ = processors_.current();
  {
    std::unique_lock lock(turn_);
    ++round_;
    end_ = end;
    busy_ = workers_.size();
    begun_.notify_all();
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  core_.state.threads_running = false;
  for (const auto& worker : workers_) worker->erase_returned();
  core_.clock.include_since(excluded);
  auto& accounts = core_.accounts;
  accounts.add_threads(peak_live_.exchange(0), core_.judge.summary.outcomes);
  if (core_.state.options.checks) {
    core_.contexts.for_each_open([&](ContextState& one) { accounts.measure_reserved(one); });
    auto& peak = accounts.pass.peak_reserved_bytes;
    peak = std::max(peak, peak_reserved_.exchange(0));
  }
  core_.log.write_ordered();
}

void Parallel::sample() {
  const auto live =
      static_cast<std::int64_t>(core_.accounts.live_bytes) + core_.accounts.thread_live_bytes();
  if (live > 0) raise(peak_live_, static_cast<std::uint64_t>(live));
  if (!core_.state.options.checks) return;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < core_.contexts.all().size(); ++i) {
    auto& context = *core_.contexts.all()[i];
    const bool first = std::none_of(
        core_.contexts.all().begin(), core_.contexts.all().begin() + static_cast<std::ptrdiff_t>(i),
        [&](const auto& other) {
          return other->open() && other->device_state == context.device_state;
        });
    if (context.open() && first) held += context.driver().held_bytes();
  }
  raise(peak_reserved_, held);
}

std::size_t Parallel::execute_range(std::size_t begin, std::size_t end) {
  // The threads skip events that were executed before they began.
  for (const auto& worker : workers_) {
    auto& next = worker->next;
    for (; next < worker->events.size() && worker->events[next] < begin; ++next) {
      const auto& event = core_.state.trace[worker->events[next]];
      if (asks_for_memory(event.op)) core_.held.live.mark_not_held(event.id);
    }
  }
  auto at = std::lower_bound(alone_.begin(), alone_.end(), begin);
  while (begin < end && !core_.state.stop) {
    auto until = at == alone_.end() ? end : std::min(*at, end);
    if (core_.log.order() != nullptr) until = std::min(until, begin + kLogged);
    if (until > begin) run_threads(until);
    begin = until;
    if (core_.state.stop || begin == end || at == alone_.end() || *at != begin) continue;
    replay::execute_range(core_, operations_, begin, begin + 1);
    const auto& event = core_.state.trace[begin];
    if (event.op == Op::open_ipc_handle) core_.held.live.mark_not_held(event.id);
    ++begin;
    ++at;
  }
  if (!core_.state.stop) return end;
  core_.log.write_ordered();
  std::size_t executed = 0;
  for (const auto& worker : workers_) executed += worker->next;
  for (const auto one : alone_) executed += one < begin ? 1 : 0;
  return std::min(executed, end);
}

}  // namespace emm::replay
