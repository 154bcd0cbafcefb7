#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/prng.hpp"
#include "conformance/model/operation.hpp"

namespace emm::model {
namespace {

/// What one sequence emphasizes: the weight of each kind of operation.
struct Mood {
  unsigned memalloc = 30, memhostalloc = 12, mempin = 6, memallocmanaged = 8;
  unsigned end_of_memory = 40, flush = 2, defer = 4, end_defer = 4, reset = 1, initialize = 2,
           info = 1;
  double fault_rate = 0.0;
  double nested_rate = 0.0;
  double zero_rate = 0.02;
  std::uint64_t parts = 4;         ///< Most sizes are the byte limit divided by 1 to this many.
  std::uint64_t size_divisor = 1;  ///< Divides all sizes.
};

/// One in so many sequences uses several threads.
constexpr std::uint64_t kElsewhere = 256;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) { sequence_.seed = seed; }

  Sequence run() {
    choose_device();
    choose_mood();
    const auto length = random_.between(10, 200);
    sequence_.operations.reserve(length);
    if (!random_.chance(0.1)) push({.ask = Ask::initialize});
    while (sequence_.operations.size() < length) push(next());
    sequence_.slots = slots_;
    return std::move(sequence_);
  }

 private:
  void choose_device() {
    auto& setup = sequence_.setup;
    setup.total = random_.log_uniform(1'000, 100'000);
    if (sequence_.seed % 8 == 0) setup.total *= 1'000;
    if (random_.chance(0.7))
      setup.total -= setup.total % 500;  // so that parts add up to exactly the limit
    limit_ = static_cast<std::uint64_t>(static_cast<double>(setup.total) * 0.2);
    setup.capacity = setup.total;
    if (random_.chance(0.3)) setup.capacity = limit_ * random_.between(1, 4);
    setup.host_capacity = limit_ * random_.between(1, 8);
    setup.accepts_zero = random_.chance(0.3);
    if (random_.chance(0.04)) setup.total = 0;
  }

  void choose_mood() {
    switch (random_.below(6)) {
      case 0:
        mood_.size_divisor = 40, mood_.zero_rate = 0.1, mood_.flush = 0;
        break;  // this limit on the count comes first
      case 1:
        mood_.end_of_memory = 25, mood_.parts = 2;
        break;  // the device is full
      case 2:
        mood_.defer = 10, mood_.end_defer = 8;
        break;
      case 3:
        mood_.memhostalloc = 40, mood_.mempin = 15, mood_.memalloc = 10;
        break;
      case 4:
        mood_.reset = 6, mood_.flush = 6, mood_.zero_rate = 0.2;
        break;
      default:
        break;
    }
    constexpr std::array<double, 4> kRates{0.0, 0.02, 0.1, 0.4};
    mood_.fault_rate = kRates[random_.below(kRates.size())];
    if (random_.chance(0.25)) mood_.nested_rate = 0.1;
  }

  Operation next() {
    const std::array<unsigned, 11> weights{mood_.memalloc,        mood_.memhostalloc,  mood_.mempin,
                                           mood_.memallocmanaged, mood_.end_of_memory, mood_.flush,
                                           mood_.defer,           mood_.end_defer,     mood_.reset,
                                           mood_.initialize,      mood_.info};
    unsigned sum = 0;
    for (const auto weight : weights) sum += weight;
    auto drawn = random_.below(sum);
    std::size_t choice = 0;
    while (drawn >= weights[choice]) drawn -= weights[choice++];
    switch (choice) {
      case 0:
        return make({.ask = Ask::memalloc});
      case 1:
        return make({.ask = Ask::memhostalloc,
                     .host = {random_.chance(0.5), random_.chance(0.3), random_.chance(0.3)}});
      case 2:
        return make({.ask = Ask::mempin,
                     .host = {.mapped = random_.chance(0.5)},
                     .region = static_cast<int>(random_.below(kRegions))});
      case 3:
        return make({.ask = Ask::memallocmanaged,
                     .attach = random_.chance(0.5) ? AttachFlags::global : AttachFlags::host});
      case 4:
        return end_of_memory();
      case 5:
        return {.ask = Ask::flush};
      case 6:
        return {.ask = Ask::defer_cleanup};
      case 7:
        return {.ask = Ask::end_defer_cleanup};
      case 8:
        return {.ask = Ask::reset};
      case 9:
        return {.ask = Ask::initialize};
      default:
        return {.ask = Ask::get_memory_info};
    }
  }

  Operation make(Operation operation) {
    operation.slot = slots_++;
    operation.size = choose_size();
    held_.push_back(operation.slot);
    return operation;
  }

  std::uint64_t choose_size() {
    if (random_.chance(mood_.zero_rate)) return 0;
    return std::max<std::uint64_t>(1, choose_large_size() / mood_.size_divisor);
  }

  std::uint64_t choose_large_size() {
    switch (random_.below(12)) {
      case 0:
        return limit_ + 1;
      case 1:
        return limit_ - 1;
      case 2:
        return 1;
      case 3:
        return random_.between(1, limit_ * 5);
      case 4:
        return sequence_.setup.capacity - random_.below(2);
      case 5:
        return limit_;
      default:
        return limit_ / random_.between(1, mood_.parts);
    }
  }

  /// Ends live memory, usually the latest, and sometimes memory that was freed or reset before.
  Operation end_of_memory() {
    if (held_.empty()) return make({.ask = Ask::memalloc});
    auto at = static_cast<std::size_t>(random_.below(held_.size()));
    if (random_.chance(0.4))
      at = held_.size() - 1 -
           static_cast<std::size_t>(random_.below(std::min<std::size_t>(held_.size(), 3)));
    const auto slot = held_[at];
    if (random_.chance(0.15)) return {.ask = Ask::free, .slot = slot};
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
    return {.ask = Ask::drop, .slot = slot};
  }

  void push(Operation operation) {
    if (!held_.empty() && operation.ask != Ask::reset && random_.chance(mood_.nested_rate)) {
      const auto slot = held_[random_.below(held_.size())];
      if (slot != operation.slot) operation.nested = slot;
    } else if (random_.chance(mood_.fault_rate)) {
      operation.faults = choose_faults();
    }
    const auto at = sequence_.operations.size();
    operation.which = at;
    operation.elsewhere = sequence_.seed % kElsewhere == 0 && at % 3 != 0;
    sequence_.operations.push_back(operation);
  }

  Faults choose_faults() {
    constexpr std::array<std::int32_t, 4> kCodes{2, 1, 700, 999};
    const auto code = [&] {
      return random_.chance(0.5) ? 2 : kCodes[random_.below(kCodes.size())];
    };
    Faults faults{.mask = 0, .first = code(), .later = code()};
    const auto count = random_.between(1, 3);
    const auto reach = random_.chance(0.7) ? 3u : 12u;
    for (std::uint64_t i = 0; i < count; ++i)
      faults.mask |= std::uint64_t{1} << random_.below(reach);
    return faults;
  }

  Prng random_;
  Sequence sequence_;
  Mood mood_;
  std::uint64_t limit_ = 0;
  int slots_ = 0;
  std::vector<int> held_;
};

}  // namespace

Sequence generate(std::uint64_t seed) { return Generator(seed).run(); }

}  // namespace emm::model
