#pragma once

#include <array>
#include <atomic>
#include <barrier>
#include <thread>

#include "tools/peers/measure.hpp"

namespace emm::peers {

/// Threads work at once. Each has a stream and live memory of log-uniform sizes; the next thread
/// makes a share of its frees, on the stream of the allocation. Nothing runs on the device.
struct Threading {
  std::uint64_t threads = 16;
  std::uint64_t min_size = 512, max_size = std::uint64_t{64} << 20;
  std::uint64_t live = 64;              ///< Each thread holds at most so many.
  std::uint64_t requests = 200'000;     ///< Each thread makes at least so many.
  double elsewhere = 0.2;               ///< The share of frees that another thread makes.
  unsigned passes = 5;                  ///< The median counts.
  std::uint64_t pass_ns = 200'000'000;  ///< A pass repeats its round until it takes about this.
  std::uint64_t warm_up_ns = 2'000'000'000;  ///< Warming up, at least one pass, which do not count.
  std::uint64_t most_ns = 10'000'000'000;    ///< No pass begins later.
  std::uint64_t seed = 1;
};

namespace detail {

struct Step {
  enum class What : std::uint8_t { allocate, free, free_elsewhere };
  std::uint64_t size = 0;
  std::uint32_t slot = 0;
  What what = What::allocate;
};

/// Returns the steps of one thread, which end with nothing alive.
inline std::vector<Step> steps_of(const Threading& threading, std::uint64_t thread) {
  Prng random(threading.seed * 1'000 + thread);
  std::vector<Step> steps;
  std::vector<std::uint32_t> full, empty;
  for (std::uint64_t slot = threading.live; slot > 0; --slot)
    empty.push_back(static_cast<std::uint32_t>(slot - 1));
  while (steps.size() < threading.requests || !full.empty()) {
    const bool ending = steps.size() >= threading.requests;
    if (!ending && (full.empty() || (!empty.empty() && random.below(2) == 0))) {
      steps.push_back({.size = random.log_uniform(threading.min_size, threading.max_size),
                       .slot = empty.back()});
      full.push_back(empty.back());
      empty.pop_back();
    } else {
      auto& slot = full[static_cast<std::size_t>(random.below(full.size()))];
      const auto what =
          random.chance(threading.elsewhere) ? Step::What::free_elsewhere : Step::What::free;
      steps.push_back({.size = 0, .slot = slot, .what = what});
      empty.push_back(slot);
      slot = full.back();
      full.pop_back();
    }
  }
  return steps;
}

/// Passes memory from the thread before to this one; one thread writes and one reads. Each reads
/// what the other writes only where it must, since that moves a cache line between processors.
template <class Memory>
class RemoteFrees {
 public:
  bool put(Memory& memory) {
    if (end_ - known_read_ == kPlaces) {
      known_read_ = read_.load(std::memory_order_acquire);
      if (end_ - known_read_ == kPlaces) return false;
    }
    places_[end_ % kPlaces] = std::move(memory);
    memory = Memory();
    if (++end_ % kTogether == 0) pass_on();
    return true;
  }
  void pass_on() { written_.store(end_, std::memory_order_release); }
  template <class Take>
  void drain(const Take& take) {
    const auto end = written_.load(std::memory_order_acquire);
    if (begin_ == end) return;
    for (; begin_ != end; ++begin_) take(places_[begin_ % kPlaces]);
    read_.store(begin_, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kPlaces = 128, kTogether = 32;
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
  alignas(64) std::size_t end_ = 0, known_read_ = 0;  // the writer's
  alignas(64) std::size_t begin_ = 0;                 // the reader's
  alignas(64) std::array<Memory, kPlaces> places_{};
};

/// One thread of a crew, for all its passes.
template <class Allocator>
class Worker {
 public:
  using Memory = typename Allocator::Memory;

  Worker(Allocator& allocator, const Threading& threading, std::uint64_t me)
      : allocator_(allocator),
        steps_(steps_of(threading, me)),
        slots_(threading.live),
        me_(me),
        threads_(threading.threads) {}

  void follow(Worker& next) { next_ = &next; }
  std::size_t steps() const { return steps_.size(); }
  std::uint64_t failed() const { return failed_; }

  void work() {
    constexpr unsigned kStepsBetweenLooks = 32;
    unsigned until_look = kStepsBetweenLooks;
    for (const auto& step : steps_) {
      auto& memory = slots_[step.slot];
      if (step.what == Step::What::allocate) {
        failed_ += !allocator_.allocate(memory, step.size, stream_of(me_));
      } else if (step.what == Step::What::free || next_ == this ||
                 !next_->remote_frees_.put(memory)) {
        allocator_.free(memory, stream_of(me_));
      }
      if (--until_look > 0) continue;
      until_look = kStepsBetweenLooks;
      drain();
    }
    next_->remote_frees_.pass_on();
  }
  void drain() {
    const auto before = stream_of((me_ + threads_ - 1) % threads_);
    remote_frees_.drain([&](Memory& memory) { allocator_.free(memory, before); });
  }

 private:
  static std::uint16_t stream_of(std::uint64_t thread) {
    return static_cast<std::uint16_t>(thread + 1);
  }

  Allocator& allocator_;
  std::vector<Step> steps_;
  std::vector<Memory> slots_;
  std::uint64_t me_, threads_;
  Worker* next_ = this;
  std::uint64_t failed_ = 0;
  RemoteFrees<Memory> remote_frees_;
};

}  // namespace detail

/// Measures `threading.threads` threads, which live through all passes.
template <class Make>
void measure_threads(const std::string& peer, const Make& make, const Threading& threading) {
  const auto threads = threading.threads;
  auto allocator = make(static_cast<std::uint32_t>(threads) + 1);
  if (!allocator) return;
  using Allocator = typename decltype(allocator)::element_type;
  std::vector<std::unique_ptr<detail::Worker<Allocator>>> workers;
  std::uint64_t total = 0;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    workers.push_back(std::make_unique<detail::Worker<Allocator>>(*allocator, threading, thread));
    total += workers.back()->steps();
  }
  for (std::size_t i = 0; i < workers.size(); ++i) workers[i]->follow(*workers[(i + 1) % threads]);

  std::barrier together(static_cast<std::ptrdiff_t>(threads) + 1);
  unsigned rounds = 1;  // in a pass; 0: no more
  std::vector<std::thread> running;
  for (auto& worker : workers) {
    running.emplace_back([&together, &rounds, &worker] {
      for (;;) {
        together.arrive_and_wait();
        if (rounds == 0) return;
        for (unsigned round = 0; round < rounds; ++round) worker->work();
        together.arrive_and_wait();
        worker->drain();
      }
    });
  }
  const auto pass = [&] {
    together.arrive_and_wait();
    const auto begin_ns = now_ns();
    together.arrive_and_wait();
    return now_ns() - begin_ns;
  };
  auto begin_ns = now_ns();
  do {
    const auto round_ns = pass() / rounds + 1;
    rounds =
        static_cast<unsigned>(std::clamp<std::uint64_t>(threading.pass_ns / round_ns, 1, 1000));
  } while (now_ns() - begin_ns < threading.warm_up_ns);
  begin_ns = now_ns();
  std::vector<double> rates;
  while (rates.size() < threading.passes &&
         (rates.empty() || now_ns() - begin_ns < threading.most_ns)) {
    const auto requests = static_cast<double>(total) * rounds;
    rates.push_back(requests * 1e3 / static_cast<double>(pass()));
  }
  rounds = 0;
  together.arrive_and_wait();
  for (auto& thread : running) thread.join();
  allocator->synchronize();

  std::uint64_t failed = 0;
  for (const auto& worker : workers) failed += worker->failed();
  JsonLine line;
  line.text("peer", peer).text("threading", "own streams").bytes("threads", threads);
  line.number("million_per_second", median(rates)).numbers("passes", rates).bytes("failed", failed);
  line.bytes("processors", std::thread::hardware_concurrency());
  line.print();
}

}  // namespace emm::peers
