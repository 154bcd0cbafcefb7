#include "replay/parallel.hpp"

#include <algorithm>
#include <system_error>

#include "replay/worker.hpp"

namespace emm::replay {
namespace {

using trace::Op;

constexpr std::size_t kLogged = 1 << 20;  ///< Events between two writings of a log.
constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kSamples = 256;  ///< Of a pass, by all threads.

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) noexcept {
  auto known = peak.load(std::memory_order_relaxed);
  while (known < value && !peak.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

bool Parallel::alone(Op op) noexcept {
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

Parallel::Parallel(Run& run) : run_(run) {
  const auto& trace = run.trace_;
  for (std::size_t i = 0; i < trace.threads().size(); ++i) {
    workers_.push_back(std::make_unique<Worker>(*this, i, trace.threads().size()));
  }
  sample_every_ = std::max<std::size_t>(1, trace.size() / kSamples);
  std::vector<std::vector<AllocId>> made(workers_.size());
  std::uint32_t records = 0;
  for (std::size_t at = 0; at < trace.size(); ++at) {
    const auto& event = trace[at];
    if (alone(event.op)) {
      alone_.push_back(at);
    } else {
      workers_[index(event.thread)]->events.push_back(static_cast<std::uint32_t>(at));
    }
    if (makes(event.op) || event.op == Op::open_ipc_handle) {
      made[index(event.thread)].push_back(event.id);
    }
    if (event.op != Op::event_record) continue;
    const auto record = trace.detail(event).record;
    records = std::max(records, record + 1);
    if (recorded_at_.size() < records) recorded_at_.resize(records, kNever);
    recorded_at_[record] = std::min<std::uint64_t>(recorded_at_[record], at);
  }
  recorded_ = std::make_unique<std::atomic<bool>[]>(records);
  run.live_.group(made);
}

Parallel::~Parallel() {
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
          mine.serve(end);
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
  run_.live_.await_all();
}

void Parallel::serve_all(std::size_t end) {
  const auto hidden = run_.hidden_ns_, model_hidden = run_.model_hidden_ns_;
  running_ = true;
  first_processor_ = processors_.current();
  {
    std::unique_lock lock(turn_);
    ++round_;
    end_ = end;
    busy_ = workers_.size();
    begun_.notify_all();
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  running_ = false;
  for (const auto& worker : workers_) worker->take_mail();
  run_.hidden_ns_ = hidden;  // it ran beside other threads
  run_.model_hidden_ns_ = model_hidden;
  add_up();
  if (run_.record_order_) run_.record_order_->pass_on();
}

void Parallel::add_up() {
  auto& pass = run_.pass_;
  std::uint64_t waited = 0;
  for (const auto& worker : workers_) {
    run_.live_bytes_ += static_cast<std::uint64_t>(worker->live_bytes.exchange(0));
    run_.live_count_ += static_cast<std::uint64_t>(std::exchange(worker->live_count, 0));
    pass.allocs += std::exchange(worker->allocs, 0);
    pass.frees += std::exchange(worker->frees, 0);
    run_.summary_.outcomes.worked_worked += std::exchange(worker->worked_worked, 0);
    waited = std::max(waited, std::exchange(worker->waited_ns, 0));
  }
  run_.waited_ns_ += waited;
  pass.peak_live_bytes = std::max({pass.peak_live_bytes, run_.live_bytes_, peak_live_.exchange(0)});
  pass.peak_requested_bytes =
      std::max(pass.peak_requested_bytes, run_.requested_bytes(pass.peak_live_bytes));
  if (!run_.options_.checks) return;
  for (const auto& lane : run_.lanes_) {
    if (lane->open()) run_.measure_reserved(*lane);
  }
  pass.peak_reserved_bytes = std::max(pass.peak_reserved_bytes, peak_reserved_.exchange(0));
}

void Parallel::add_up_times() {
  for (const auto& worker : workers_) {
    run_.alloc_times_.add(worker->alloc_times);
    run_.free_times_.add(worker->free_times);
    run_.lateness_.add(worker->lateness);
  }
}

std::int64_t Parallel::live_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->live_bytes.load(std::memory_order_relaxed);
  return bytes;
}

/// What is live and held now, as far as one thread can see what others do meanwhile.
void Parallel::sample() {
  const auto live = static_cast<std::int64_t>(run_.live_bytes_) + live_bytes();
  if (live > 0) raise(peak_live_, static_cast<std::uint64_t>(live));
  if (!run_.options_.checks) return;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < run_.lanes_.size(); ++i) {
    auto& lane = *run_.lanes_[i];
    const bool first = std::none_of(
        run_.lanes_.begin(), run_.lanes_.begin() + static_cast<std::ptrdiff_t>(i),
        [&](const auto& other) { return other->open() && other->shared == lane.shared; });
    if (lane.open() && first) held += lane.driver().held_bytes();
  }
  raise(peak_reserved_, held);
}

std::size_t Parallel::walk(std::size_t begin, std::size_t end) {
  // What was served before the threads began is not theirs.
  for (const auto& worker : workers_) {
    auto& next = worker->next;
    for (; next < worker->events.size() && worker->events[next] < begin; ++next) {
      const auto& event = run_.trace_[worker->events[next]];
      if (makes(event.op)) run_.live_.settle(event.id);
    }
  }
  auto at = std::lower_bound(alone_.begin(), alone_.end(), begin);
  while (begin < end && !run_.stop_) {
    auto until = at == alone_.end() ? end : std::min(*at, end);
    if (run_.record_order_) until = std::min(until, begin + kLogged);
    if (until > begin) serve_all(until);
    begin = until;
    if (run_.stop_ || begin == end || at == alone_.end() || *at != begin) continue;
    run_.walk(begin, begin + 1);
    const auto& event = run_.trace_[begin];
    if (event.op == Op::open_ipc_handle) run_.live_.settle(event.id);
    ++begin;
    ++at;
  }
  if (!run_.stop_) return end;
  if (run_.record_order_) run_.record_order_->pass_on();
  std::size_t served = 0;
  for (const auto& worker : workers_) served += worker->next;
  for (const auto one : alone_) served += one < begin ? 1 : 0;
  return std::min(served, end);
}

}  // namespace emm::replay
