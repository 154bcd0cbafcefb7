#pragma once

#include <array>
#include <atomic>
#include <thread>

#include "tools/peers/measure.hpp"

namespace emm::peers {

/// Threads at work at once: each has a stream, its own live memory of log-uniform sizes, and a
/// share of its frees made by the next thread, on the stream of the allocation. Requests of the
/// allocator only; nothing runs on the device.
struct Threading {
  std::vector<std::uint64_t> threads{1, 16};
  std::uint64_t min_size = 512, max_size = std::uint64_t{64} << 20;
  std::uint64_t live = 64;           ///< Of each thread, at most.
  std::uint64_t requests = 200'000;  ///< Of each thread, at least.
  double elsewhere = 0.2;            ///< The share of frees that another thread makes.
  unsigned passes = 5;               ///< The median counts; one more before them does not.
  std::uint64_t seed = 1;
};

namespace detail {

struct Step {
  enum class What : std::uint8_t { allocate, free, free_elsewhere };
  std::uint64_t size = 0;
  std::uint32_t slot = 0;
  What what = What::allocate;
};

/// What one thread does: ends with nothing alive.
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

/// Memory on its way from the thread before to this one: one writer, one reader.
template <class Memory>
class Inbox {
 public:
  bool put(Memory& memory) {
    const auto at = written_.load(std::memory_order_relaxed);
    if (at - read_.load(std::memory_order_acquire) == kPlaces) return false;
    places_[at % kPlaces] = std::move(memory);
    memory = Memory();
    written_.store(at + 1, std::memory_order_release);
    return true;
  }
  template <class Take>
  void drain(const Take& take) {
    auto at = read_.load(std::memory_order_relaxed);
    const auto end = written_.load(std::memory_order_acquire);
    if (at == end) return;
    for (; at != end; ++at) take(places_[at % kPlaces]);
    read_.store(at, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kPlaces = 256;
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
  alignas(64) std::array<Memory, kPlaces> places_{};
};

}  // namespace detail

template <class Make>
void measure_threads(const std::string& peer, const Make& make, const Threading& threading) {
  for (const auto threads : threading.threads) {
    auto allocator = make(static_cast<std::uint32_t>(threads) + 1);
    if (!allocator) return;
    using Memory = typename decltype(allocator)::element_type::Memory;
    std::vector<std::vector<detail::Step>> steps;
    std::uint64_t total = 0;
    for (std::uint64_t thread = 0; thread < threads; ++thread) {
      steps.push_back(detail::steps_of(threading, thread));
      total += steps.back().size();
    }
    std::vector<detail::Inbox<Memory>> inboxes(threads);
    std::atomic<std::uint64_t> failed{0};
    std::vector<double> rates;
    for (unsigned pass = 0; pass <= threading.passes; ++pass) {
      std::atomic<std::uint64_t> ready{0}, done{0};
      std::atomic<std::uint64_t> begin_ns{0}, end_ns{0};
      const auto work = [&](std::uint64_t me) {
        const auto next = (me + 1) % threads;
        const auto stream = static_cast<std::uint16_t>(me + 1);
        const auto before = static_cast<std::uint16_t>((me + threads - 1) % threads + 1);
        std::vector<Memory> slots(threading.live);
        std::uint64_t refused = 0;
        const auto drain = [&] {
          inboxes[me].drain([&](Memory& memory) { allocator->free(memory, before); });
        };
        if (ready.fetch_add(1) + 1 == threads) begin_ns = now_ns();
        while (begin_ns.load(std::memory_order_acquire) == 0) std::this_thread::yield();
        for (const auto& step : steps[me]) {
          auto& memory = slots[step.slot];
          if (step.what == detail::Step::What::allocate) {
            refused += !allocator->allocate(memory, step.size, stream);
          } else if (step.what == detail::Step::What::free || next == me ||
                     !inboxes[next].put(memory)) {
            allocator->free(memory, stream);
          }
          if (next != me) drain();
        }
        if (done.fetch_add(1) + 1 == threads) end_ns = now_ns();
        while (done.load(std::memory_order_acquire) != threads) std::this_thread::yield();
        drain();
        failed += refused;
      };
      std::vector<std::thread> running;
      for (std::uint64_t thread = 0; thread < threads; ++thread) running.emplace_back(work, thread);
      for (auto& thread : running) thread.join();
      allocator->synchronize();
      if (pass > 0)
        rates.push_back(static_cast<double>(total) * 1e3 / static_cast<double>(end_ns - begin_ns));
    }
    JsonLine line;
    line.text("peer", peer).text("threading", "own streams").bytes("threads", threads);
    line.number("million_per_second", median(rates))
        .numbers("passes", rates)
        .bytes("failed", failed);
    line.bytes("processors", std::thread::hardware_concurrency());
    line.print();
  }
}

}  // namespace emm::peers
