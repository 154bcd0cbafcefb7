#include <time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <thread>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/interrupted_threads.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: threads. What many threads do at once is counted and handed out once.
// Memory outlives the thread that requested it. Managers of one library do not affect each other.
// Each thread has a default stream of its own.

namespace emm {
namespace {

using namespace emm::conformance;
using std::chrono::steady_clock;

/// Knows the owner of each 256 bytes that are handed out. Threads claim them concurrently without a
/// lock. A place is not checked while another live place occupies its entry.
class ClaimTable {
 public:
  /// Returns false if another thread has claimed a part.
  bool claim(std::uint64_t address, std::uint64_t size) noexcept {
    bool alone = true;
    for_each(address, size, [&](std::atomic<std::uint64_t>& entry, std::uint64_t place) {
      std::uint64_t none = 0;
      if (!entry.compare_exchange_strong(none, place) && none == place) alone = false;
    });
    return alone;
  }
  void release(std::uint64_t address, std::uint64_t size) noexcept {
    for_each(address, size, [](std::atomic<std::uint64_t>& entry, std::uint64_t place) {
      entry.compare_exchange_strong(place, 0);
    });
  }

 private:
  static constexpr std::uint64_t kGranule = 256;  // bytes: the least alignment that CUDA promises
  template <class Body>
  void for_each(std::uint64_t address, std::uint64_t size, Body body) noexcept {
    for (auto place = address / kGranule; place <= (address + size - 1) / kGranule; ++place)
      body(entries_[place * 0x9e3779b97f4a7c15 >> 50], place);
  }
  std::unique_ptr<std::atomic<std::uint64_t>[]> entries_ =
      std::make_unique<std::atomic<std::uint64_t>[]>(std::size_t{1} << 14);
};

// How long many threads race: short, so that a clause ends soon; RaceTime prolongs it.
constexpr std::chrono::milliseconds kCrowdTime{100};

/// How long threads race. On a busy machine it takes up to four times as long, until this process
/// has had the processor for as long as two idle processors would give it in three quarters of
/// `time`.
class RaceTime {
 public:
  explicit RaceTime(std::chrono::milliseconds time)
      : until_(steady_clock::now() + time),
        latest_(until_ + 3 * time),
        enough_(processor_time() + time + time / 2) {}
  bool is_over() const {
    const auto now = steady_clock::now();
    return now >= until_ && (now >= latest_ || processor_time() >= enough_);
  }

 private:
  static std::chrono::nanoseconds processor_time() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  steady_clock::time_point until_, latest_;
  std::chrono::nanoseconds enough_;
};

/// Runs four threads that request and free small blocks. Half of the blocks are freed by another
/// thread than requested them.
class Crowd {
 public:
  explicit Crowd(Bench& bench) : manager_(bench.manager()), seed_(bench.seed()) {
    managed_ = !make(64) && managed_is_offered();
  }

  bool can_run() const noexcept { return can_run_; }
  std::uint64_t served() const noexcept { return served_; }
  bool overlapped() const noexcept { return overlapped_; }

  void run(Bench& b, std::chrono::milliseconds time) {
    const RaceTime race(time);
    run_interrupted(b, kThreads, [&](std::size_t i) { work(seed_ + i, race); });
    for (auto& box : boxes_) end(box.exchange(nullptr));
  }

 private:
  static constexpr std::size_t kThreads = 4;
  // Blocks that a thread keeps, so that frees and requests alternate.
  static constexpr std::size_t kHeld = 7;

  struct HeldBlock {
    MemoryPointer memory;
    bool claimed = false;
  };

  Result<MemoryPointer> make(std::uint64_t size) {
    const InManager in_manager;
    if (!managed_) {
      auto made = manager_.memalloc(size);
      if (made) can_run_ = true;
      return made;
    }
    auto made = manager_.memallocmanaged(size, AttachFlags::global);
    if (!made) return std::move(made).error();
    return std::move(made->memory());
  }
  bool managed_is_offered() {
    managed_ = true;
    const auto made = make(64);
    can_run_ = made.has_value();
    return can_run_;
  }

  void end(HeldBlock* block) {
    if (block == nullptr) return;
    if (block->claimed) claims_.release(block->memory.device_pointer().value, block->memory.size());
    delete block;
  }

  void work(std::uint64_t seed, const RaceTime& race) {
    Prng random(seed);
    std::array<HeldBlock*, kHeld> held{};
    for (std::uint64_t i = 0; !overlapped_; ++i) {
      if (i % 16 == 0 && race.is_over()) break;
      auto& slot = held[random.below(kHeld)];
      if (slot != nullptr) {
        // Either another thread frees it or this one does.
        auto* block = std::exchange(slot, nullptr);
        end(random.chance(0.5) ? boxes_[random.below(kThreads)].exchange(block) : block);
        continue;
      }
      auto made = make(random.log_uniform(1, 2_KiB));
      if (!made) continue;
      ++served_;
      slot = new HeldBlock{*std::move(made)};
      slot->claimed = claims_.claim(slot->memory.device_pointer().value, slot->memory.size());
      if (!slot->claimed) overlapped_ = true;
    }
    for (auto* block : held) end(block);
  }

  MemoryManager& manager_;
  std::uint64_t seed_;
  bool managed_ = false;
  std::atomic<bool> can_run_{false};
  ClaimTable claims_;
  std::array<std::atomic<HeldBlock*>, kThreads> boxes_{};
  std::atomic<std::uint64_t> served_{0};
  std::atomic<bool> overlapped_{false};
};

// The accounts of a manager at rest.

/// A number that a manager reports. It must be the same whenever the same memory is live.
struct RestingNumber {
  std::string_view name;
  std::optional<std::uint64_t> value;
};

std::vector<RestingNumber> resting_numbers(MemoryManager& manager) {
  const auto counted = manager.statistics();
  const auto net = [](const MemoryStatistics::Count& of) {
    return of.allocated && of.freed ? std::optional(*of.allocated - *of.freed) : std::nullopt;
  };
  return {
      {"live_bytes of state()", manager.state().live_bytes},
      {"allocation.all.current of statistics()", counted.allocation.current},
      {"allocated_bytes.all.current of statistics()", counted.allocated_bytes.current},
      {"requested_bytes.all.current of statistics()", counted.requested_bytes.current},
      {"allocation.all.allocated less freed of statistics()", net(counted.allocation)},
      {"requested_bytes.all.allocated less freed of statistics()", net(counted.requested_bytes)}};
}

void check_accounts(Bench& b) {
  b.untraceable();
  const std::array kept{b.any(1000), b.any(24), b.any(64_KiB)};
  if (b.decided()) return;
  Crowd crowd(b);
  if (!crowd.can_run()) return b.not_applicable("this manager has no device or managed memory");
  const auto before = resting_numbers(b.manager());
  const auto made_before = b.manager().statistics().allocation.allocated;
  crowd.run(b, kCrowdTime);
  b.expect_ok("flush()", b.manager().flush());
  const auto done =
      text::format("{} blocks asked for and freed by four threads at once", crowd.served());
  const auto differs = [&](std::vector<RestingNumber> after) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i].value != after[i].value) return i;
    }
    return before.size();
  };
  // The manager may free on a thread of its own.
  auto after = resting_numbers(b.manager());
  for (int i = 0; i < 50 && differs(after) < before.size(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = resting_numbers(b.manager());
  }
  b.expect(true, {}, {}, {});
  if (const auto at = differs(after); at < before.size()) {
    const auto shown = [](std::optional<std::uint64_t> value) {
      return value ? text::format("{}", *value) : std::string("not known");
    };
    b.expect(false, text::format("{}, then {}", done, before[at].name), shown(after[at].value),
             text::format("{}, as before them", shown(before[at].value)));
  }
  const auto made_after = b.manager().statistics().allocation.allocated;
  if (made_before && made_after) {
    b.expect_equal(text::format("{}, by allocation.all.allocated of statistics()", done),
                   *made_after - *made_before, crowd.served());
  }
}

// Two threads in the driver at once.

/// Holds each of two threads before a driver call until the other one is before a call too, or has
/// ended. An update is lost if the manager reads a number before a call and writes it after the
/// call without a lock.
class Meeting {
 public:
  explicit Meeting(Bench& bench) : b_(bench) {
    b_.watch().during = [this](const CallEvent& event) { attend(event.call); };
  }
  ~Meeting() { b_.watch().during = nullptr; }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Runs `body(0)` and `body(1)`, each on a thread of its own.
  void run(const std::function<void(std::size_t)>& body) {
    waiting_ = 0;
    guests_ = 2;
    std::latch begun(2);
    run_interrupted(b_, 2, [&](std::size_t at) {
      begun.arrive_and_wait();
      is_guest_ = true;
      {
        const InManager in_manager;
        body(at);
      }
      is_guest_ = false;
      const std::lock_guard lock(mutex_);
      --guests_;
      if (waiting_ > 0) go_on();
    });
  }

 private:
  void attend(Call call) {
    // For a guest that does not come to this call.
    constexpr std::chrono::milliseconds kPatience{10};
    constexpr int kMisses = 3;  // then no guest is waited for at this call
    if (!is_guest_) return;
    std::unique_lock lock(mutex_);
    if (misses_[call] == kMisses) return;
    if (++waiting_ >= guests_) return go_on();
    const auto round = round_;
    if (changed_.wait_for(lock, kPatience, [&] { return round_ != round; })) return;
    // The manager may hold a lock in such calls that the other thread waits for.
    --waiting_;
    ++misses_[call];
  }
  void go_on() {
    waiting_ = 0;
    ++round_;
    changed_.notify_all();
  }

  static inline thread_local bool is_guest_ = false;
  Bench& b_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t guests_ = 0;
  std::size_t waiting_ = 0;
  std::uint64_t round_ = 0;
  std::map<Call, int> misses_;
};

/// Memory of any kind that a thread has requested.
struct ThreadsBlock {
  std::shared_ptr<void> memory;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

ThreadsBlock block_of(Result<MemoryPointer> made) {
  if (!made) return {};
  const auto begin = made->device_pointer().value;
  const auto size = made->size();
  return {std::make_shared<MemoryPointer>(*std::move(made)), begin, size};
}
ThreadsBlock block_of(Result<ManagedMemory> made) {
  if (!made) return {};
  return block_of(Result<MemoryPointer>(std::move(made->memory())));
}
ThreadsBlock block_of(Result<HostMemory> made) {
  if (!made) return {};
  const auto range = std::visit(
      [](const auto& memory) {
        return HostRange{.pointer = memory.host_pointer(), .size = memory.size()};
      },
      *made);
  return {std::make_shared<HostMemory>(*std::move(made)),
          reinterpret_cast<std::uint64_t>(range.pointer), range.size};
}

struct ThreadsKind {
  std::string_view words;
  ThreadsBlock (*make)(MemoryManager& manager, HostRange region);
};
constexpr ThreadsKind kThreadsKinds[] = {
    {"300 KiB", [](MemoryManager& m, HostRange) { return block_of(m.memalloc(300_KiB)); }},
    {"3 MiB", [](MemoryManager& m, HostRange) { return block_of(m.memalloc(3_MiB)); }},
    {"24 MiB", [](MemoryManager& m, HostRange) { return block_of(m.memalloc(24_MiB)); }},
    {"300 KiB of managed memory",
     [](MemoryManager& m, HostRange) {
       return block_of(m.memallocmanaged(300_KiB, AttachFlags::global));
     }},
    {"70 KiB of mapped memory",
     [](MemoryManager& m, HostRange) {
       return block_of(m.memhostalloc(70_KiB, {.mapped = true}));
     }},
    {"5 KiB of pinned memory",
     [](MemoryManager& m, HostRange) { return block_of(m.memhostalloc(5_KiB, {})); }},
    {"a region", [](MemoryManager& m, HostRange region) { return block_of(m.mempin(region, {})); }},
};

/// What a manager reports when nothing is live, after flush() and trim(0).
struct AtRest {
  std::vector<RestingNumber> numbers;
  /// Numbers that depend on what the manager holds from the device.
  std::vector<RestingNumber> of_held;
  std::uint64_t held = 0;  ///< Bytes held from the device.
};

/// Returns nothing if flush() fails.
std::optional<AtRest> at_rest(Bench& b) {
  if (!b.manager().flush()) return std::nullopt;
  static_cast<void>(b.manager().trim(0).has_value());
  AtRest rest{.numbers = resting_numbers(b.manager()), .of_held = {}, .held = b.held()};
  const auto state = b.manager().state();
  rest.numbers.push_back({"pending_count of state()", state.pending_count});
  rest.numbers.push_back({"pending_bytes of state()", state.pending_bytes});
  // The driver's own pools decide what they hold.
  const auto& ledger = b.watch().ledger();
  if (ledger.calls(Call::mem_alloc_async).made +
          ledger.calls(Call::mem_alloc_from_pool_async).made !=
      0)
    return rest;
  rest.of_held = {
      {"reserved_bytes of state()", state.reserved_bytes},
      {"segment.all.current of statistics()", b.manager().statistics().segment.current}};
  // Other processes use a real device too.
  if (const auto info = b.manager().get_memory_info(); info && b.is_simulated())
    rest.of_held.push_back({"free bytes of get_memory_info()", info->free});
  return rest;
}

struct OtherNumber {
  std::string_view name;
  std::string seen;
  std::string expected;
};

/// Returns the first number that differs from before. Tries again for a while, because a manager
/// may free on a thread of its own.
std::optional<OtherNumber> other_than(Bench& b, const AtRest& before) {
  const auto shown = [](std::optional<std::uint64_t> value) {
    return value ? text::format("{}", *value) : std::string("not known");
  };
  const auto look = [&]() -> std::optional<OtherNumber> {
    const auto now = at_rest(b);
    if (!now) return OtherNumber{"flush()", "it fails", "success"};
    const auto differs = [](const RestingNumber& was, const RestingNumber& is) {
      return was.value && is.value && was.value != is.value;
    };
    const auto told = [&](const RestingNumber& was, const RestingNumber& is) {
      return OtherNumber{was.name, shown(is.value), shown(was.value) + ", as before"};
    };
    for (std::size_t i = 0; i < before.numbers.size(); ++i) {
      if (differs(before.numbers[i], now->numbers[i]))
        return told(before.numbers[i], now->numbers[i]);
    }
    if (before.held != now->held) return std::nullopt;
    for (std::size_t i = 0; i < std::min(before.of_held.size(), now->of_held.size()); ++i) {
      if (differs(before.of_held[i], now->of_held[i]))
        return told(before.of_held[i], now->of_held[i]);
    }
    return std::nullopt;
  };
  auto other = look();
  for (int i = 0; i < 50 && other; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    other = look();
  }
  return other;
}

void expect_same_rest(Bench& b, const AtRest& before, std::string_view done) {
  if (b.decided()) return;
  const auto other = other_than(b, before);
  b.expect(!other, other ? text::format("{}, then {}", done, other->name) : "",
           other ? other->seen : "", other ? other->expected : "");
}

/// Bytes that a device has given. The ledger may hear of a free after the address is handed out
/// again, where two threads call.
std::uint64_t given_by_device(Bench& b) {
  const auto info = b.device().mem_get_info();
  return info ? info->total - info->free : 0;
}

/// Whether the device has given no more than that while the manager is at rest. It may free on a
/// thread of its own.
bool comes_to_hold(Bench& b, std::uint64_t bytes) {
  for (int i = 0; i < 50; ++i) {
    if (at_rest(b) && given_by_device(b) <= bytes) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void check_two_at_once(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  auto& manager = b.manager();
  const std::array regions{b.buffer(), b.buffer()};
  const auto in_turn = [](const std::function<void(std::size_t)>& body) {
    for (std::size_t at : {0, 1}) start_thread([&] { body(at); }).join();
  };
  const auto use_each = [&](std::size_t at) {
    for (const auto& kind : kThreadsKinds) kind.make(manager, regions[at]);
  };
  in_turn(use_each);
  const auto rest = at_rest(b);
  if (!rest) return;
  const auto given_at_rest = given_by_device(b);
  in_turn(use_each);
  if (other_than(b, *rest)) return;  // it differs even without a second thread
  Meeting meeting(b);
  std::array<ThreadsBlock, 2> blocks;
  for (const auto& [words, make] : kThreadsKinds) {
    const auto ask = [&, ask_for = make](std::size_t at) {
      blocks[at] = ask_for(manager, regions[at]);
    };
    const auto end = [&](std::size_t at) { blocks[at] = {}; };
    const auto overlap = [&] {
      const auto& [first, second] = blocks;
      return first.memory && second.memory && first.begin < second.begin + second.size &&
             second.begin < first.begin + first.size;
    };
    in_turn(ask);
    const bool overlaps_in_turn = overlap();
    meeting.run(end);
    expect_same_rest(b, *rest,
                     text::format("{}, asked for in turn, freed by two threads at once", words));
    if (b.decided()) return;
    meeting.run(ask);
    b.expect(overlaps_in_turn || !overlap(),
             text::format("{}, asked for by two threads at once", words),
             "both have the same memory", "every byte has one owner");
    in_turn(end);
    expect_same_rest(b, *rest,
                     text::format("{}, asked for by two threads at once, freed in turn", words));
    if (b.decided()) return;
  }
  meeting.run([&](std::size_t at) {
    for (int i = 0; i < 3; ++i) {
      use_each(at);
      static_cast<void>(manager.flush().has_value());
    }
  });
  expect_same_rest(b, *rest, "memory of each kind, asked for, freed and flushed by two threads");
  const auto leave_idle_and_pending = [&] {
    const auto deferred = manager.defer_cleanup();
    std::vector<ThreadsBlock> all;
    for (const auto& kind : kThreadsKinds) all.push_back(kind.make(manager, regions[0]));
  };
  leave_idle_and_pending();
  meeting.run([&](std::size_t) { static_cast<void>(manager.flush().has_value()); });
  expect_same_rest(b, *rest, "flush() by two threads at once");
  leave_idle_and_pending();
  meeting.run([&](std::size_t) { static_cast<void>(manager.trim(0).has_value()); });
  expect_same_rest(b, *rest, "trim(0) by two threads at once");
  for (int i = 0; i < 4; ++i) {
    meeting.run([&](std::size_t at) {
      kThreadsKinds[at + 1].make(manager, regions[at]);
      static_cast<void>(manager.trim(0).has_value());
    });
    expect_same_rest(b, *rest, "3 and 24 MiB asked for, freed and trimmed by two threads at once");
  }
  if (b.is_numba() || b.decided()) return;
  leave_idle_and_pending();
  meeting.run([&](std::size_t) { manager.reset(); });
  // A reset may restart the statistics.
  auto state = *rest;
  for (auto& number : state.numbers) {
    if (!number.name.ends_with("state()")) number.value = {};
  }
  for (auto& number : state.of_held) {
    if (number.name.ends_with("statistics()")) number.value = {};
  }
  expect_same_rest(b, state, "reset() by two threads at once");
  if (b.decided()) return;
  // A reset ends what another thread is given meanwhile, or leaves it alive. Once that thread has
  // freed it, and after another reset, nothing is left of it.
  const auto held_after = [&](const auto& run) {
    std::vector<ThreadsBlock> ended, asked;
    for (const auto& kind : kThreadsKinds) ended.push_back(kind.make(manager, regions[0]));
    run([&](std::size_t at) {
      if (at == 0) return manager.reset();
      for (const auto& kind : kThreadsKinds) asked.push_back(kind.make(manager, regions[1]));
    });
    ended.clear();
    asked.clear();
    manager.reset();  // of what the host took for ended and the manager had left alive
    return at_rest(b) ? given_by_device(b) : 0;
  };
  const auto given = held_after(in_turn);
  if (given != given_at_rest || !b.is_simulated()) return;  // it keeps idle memory
  const auto held = held_after([&](const auto& body) { meeting.run(body); });
  constexpr std::string_view kDone =
      "reset() while another thread asks for memory, another reset()";
  b.expect(held <= given || comes_to_hold(b, given), text::format("{}, flush() and trim(0)", kDone),
           text::format("{} bytes of the device are held", held),
           text::format("{}, as before", given));
  expect_same_rest(b, state, kDone);
}

// Live memory of threads that request at once.

void check_overlap(Bench& b) {
  b.untraceable();
  Crowd crowd(b);
  if (!crowd.can_run()) return b.not_applicable("this manager has no device or managed memory");
  crowd.run(b, kCrowdTime);
  b.expect(
      !crowd.overlapped(),
      text::format("{} small blocks asked for and freed by four threads at once", crowd.served()),
      "a block is handed out that shares bytes with one that is alive", "every byte has one owner");
}

// Memory of threads that end.

void check_ended_threads(Bench& b) {
  b.untraceable();
  const auto on_short_thread = [](const std::function<void()>& act) { start_thread(act).join(); };

  // A thread that ends leaves a block with content. This thread has one of the same size.
  const auto own = b.any(300_KiB);
  BenchMemory left;
  on_short_thread([&] { left = b.any(300_KiB); });
  if (b.decided()) return;
  b.fill(left, 0x51);
  on_short_thread([&] {
    const auto next = b.any(300_KiB);
    b.fill(next, 0x52);
  });
  b.expect(b.holds(left, 0x51), "memory asked for by a thread that has ended",
           "its content is lost", "it is as it was");
  left.drop();

  b.leave_on_device(64_MiB);
  struct Round {
    std::uint64_t size;
    std::size_t count;
    int threads;
  };
  // Together they request 84 MiB.
  for (const auto& round : {Round{3_MiB, 1, 28}, Round{128_KiB, 16, 42}, Round{16_KiB, 64, 84}}) {
    for (const bool freed_there : {true, false}) {
      std::optional<Error> refused;
      int number = 0;
      for (; number < round.threads && !refused && !b.decided(); ++number) {
        std::vector<MemoryPointer> blocks;
        const auto ask = [&] {
          while (blocks.size() < round.count) {
            auto block = b.manager().memalloc(round.size);
            if (block) {
              blocks.push_back(*std::move(block));
              continue;
            }
            if (block.error().code == Errc::not_supported) return;
            // Managers that take whole pages for a small block hold less of them.
            if (blocks.size() * 2_MiB < 32_MiB) refused = block.error();
            return;
          }
        };
        // Either a thread requests and frees, or this one requests and a thread frees.
        if (!freed_there) ask();
        on_short_thread([&] {
          if (freed_there) ask();
          blocks.clear();
        });
      }
      b.expect(!refused,
               text::format("up to {} blocks of {} KiB {} each of {} threads in turn, which then "
                            "end, with 64 MiB left on the device",
                            round.count, round.size / 1_KiB,
                            freed_there ? "asked for and freed by" : "freed by", round.threads),
               refused ? text::format("the request of thread {}: {}", number, answer_of(*refused))
                       : std::string(),
               "what an ended thread has freed serves again");
      if (b.decided()) return;
    }
  }
}

// Threads that stay alive and may keep what they freed.

void check_living_threads(Bench& b) {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kEach = 8;  // MiB that each thread frees
  auto& manager = b.manager();
  const auto fill = [&manager](std::size_t most) {
    std::vector<MemoryPointer> blocks;
    while (blocks.size() < most) {
      auto block = manager.memalloc(1_MiB);
      if (!block) break;
      blocks.push_back(*std::move(block));
    }
    return blocks.size();
  };
  const auto alone = fill(kThreads * kEach);
  std::latch freed(kThreads);
  std::latch over(1);
  std::vector<std::thread> threads;
  while (threads.size() < kThreads) {
    threads.push_back(start_thread([&] {
      fill(kEach);
      freed.count_down();
      over.wait();
    }));
  }
  freed.wait();
  const auto after = fill(kThreads * kEach);
  over.count_down();
  for (auto& thread : threads) thread.join();
  b.expect(2 * after >= alone,
           text::format("blocks of 1 MiB, after {} threads that live on have freed {} each",
                        kThreads, kEach),
           text::format("{} are served, then memory is out", after),
           text::format("about {}, as before: what another thread has freed serves again", alone));
}

// Frees that threads make at once.

/// Answers whether a thread does step `i`. It reads the clock only at some steps and never at
/// first, because on a busy machine a thread may begin when its time is over.
bool goes_on(std::uint64_t i, const RaceTime& race) {
  constexpr std::uint64_t kBetween = 8;  // steps between two looks at the clock
  return i < kBetween || i % kBetween != 0 || !race.is_over();
}

void check_frees_at_once(Bench& b) {
  b.untraceable();
  auto& manager = b.manager();
  b.expect(true, {}, {}, {});
  constexpr std::size_t kThreads = 4;
  std::array<HostRange, kThreads> regions;
  for (auto& region : regions) region = b.buffer();
  std::atomic<std::uint64_t> ended{0};
  const RaceTime race(std::chrono::milliseconds(60));
  run_interrupted(b, kThreads, [&](std::size_t at) {
    for (std::uint64_t i = 0; goes_on(i, race); ++i) {
      const InManager in_manager;
      const auto host = manager.memhostalloc(64, {.mapped = i % 2 == 0});
      const auto managed = manager.memallocmanaged(64, AttachFlags::global);
      const auto device = manager.memalloc(1_KiB);
      const auto region = manager.mempin(regions[at], {});
      ended += (host ? 1u : 0u) + (managed ? 1u : 0u) + (device ? 1u : 0u) + (region ? 1u : 0u);
      if (i % kThreads == at && !manager.flush()) return;
    }
  });
  if (ended == 0) return b.not_applicable("this manager gives none of the memory asked for here");
  b.expect_balance(text::format(
      "{} blocks of every kind that four threads freed at once, flush(), the manager's end",
      ended.load()));
}

// Slots that threads call at once.

/// Makes several threads the first to initialize, and to reset what is live.
void begin_and_reset_at_once(Bench& b) {
  constexpr int kManagers = 12;  // tries: the race is short
  for (int i = 0; i < kManagers && !b.decided(); ++i) {
    auto fresh = Bench::create(b.subject(), b.clause());
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& on = **fresh;
    on.untraceable();
    on.expect(true, {}, {}, {});
    auto& manager = on.uninitialized();
    std::array<std::string, 3> answers;
    std::atomic<int> awaited{3};
    const auto begin_together = [&] {
      for (--awaited; awaited > 0;) std::this_thread::yield();
    };
    // Driver calls are slow here, so that a thread that checks without a lock whether a call was
    // made finds that it was not.
    on.watch().during = [](const CallEvent&) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    };
    run_interrupted(on, 3, [&](std::size_t at) {
      begin_together();
      const InManager in_manager;
      if (const auto made = manager.initialize(); !made) answers[at] = answer_of(made.error());
    });
    on.watch().during = nullptr;
    for (const auto& answer : answers)
      on.expect(answer.empty(), "initialize() on three threads at once", answer, "success");
    std::vector<BenchMemory> alive;
    for (std::uint64_t at = 0; at < 160; ++at) {
      auto block = at % 4 == 3 ? on.try_hosted(64, {}) : on.try_memalloc(1 + at * 100);
      if (!block && block.error().code == Errc::not_supported) block = on.try_managed(1 + at * 100);
      if (block) alive.push_back(*std::move(block));
    }
    if (alive.empty()) return;
    if (!on.is_numba()) {
      awaited = 2;
      run_interrupted(on, 2, [&](std::size_t) {
        begin_together();
        const InManager in_manager;
        manager.reset();
      });
    }
    if (!on.is_numba())  // it abandons pending frees: ERR-3
      on.expect_balance("initialize() on three threads, memory, reset() on two at once");
    b.take(on);
  }
}

/// Requests device memory, or whatever the manager offers.
ThreadsBlock ask_for_any(MemoryManager& manager, std::uint64_t size, HostRange region) {
  auto made = manager.memalloc(size);
  if (made || made.error().code != Errc::not_supported) return block_of(std::move(made));
  auto managed = block_of(manager.memallocmanaged(size, AttachFlags::global));
  return managed.memory ? managed : block_of(manager.mempin(region, {}));
}

/// Calls every slot except reset() from four threads.
void call_every_slot_at_once(Bench& b) {
  constexpr std::size_t kThreads = 4;
  auto& manager = b.manager();
  std::array<HostRange, kThreads> regions;
  for (auto& region : regions) region = b.buffer();
  std::atomic<bool> any{false};
  const RaceTime race(std::chrono::milliseconds(80));
  run_interrupted(b, kThreads, [&](std::size_t at) {
    Prng random(b.seed() + at);
    std::array<ThreadsBlock, 40> held;
    for (std::uint64_t i = 0; goes_on(i, race); ++i) {
      const InManager in_manager;
      if (random.chance(0.02)) held = {};
      switch (random.below(16)) {
        case 0:
          static_cast<void>(manager.state());
          break;
        case 1:
          static_cast<void>(manager.statistics());
          break;
        case 2:
          static_cast<void>(manager.get_memory_info().has_value());
          break;
        case 3:
          static_cast<void>(manager.trim(random.below(2) * 4_MiB).has_value());
          break;
        case 4:
          static_cast<void>(manager.flush().has_value());
          break;
        case 5:
          static_cast<void>(manager.initialize().has_value());
          break;
        case 6: {
          const auto deferred = manager.defer_cleanup();
          const auto host = manager.memhostalloc(64, {});
          if (host) any = true;
          break;
        }
        case 7:
          if (const auto& slot = held[random.below(held.size())]; slot.memory)
            static_cast<void>(manager.get_ipc_handle({{slot.begin}, slot.size}).has_value());
          break;
        default: {
          auto& slot = held[random.below(held.size())];
          if (slot.memory) {
            slot = {};
          } else {
            slot = ask_for_any(manager, random.log_uniform(1, 3_MiB), regions[at]);
            if (slot.memory) any = true;
          }
        }
      }
    }
  });
  if (!any) return b.not_applicable("this manager gives none of the memory asked for here");
  if (!b.is_numba())
    b.expect_balance("every slot called by four threads at once, then the manager's end");
}

// Two managers of one library.

/// A separate manager whose driver calls are watched on their own.
class Neighbour {
 public:
  Neighbour(Bench& b, int ordinal) {
    auto opened = b.platform().open(ordinal);
    if (!opened) return;
    opened_ = *std::move(opened);
    driver_.emplace(*opened_.driver, watch_);
    if (opened_.runtime) runtime_.emplace(*opened_.runtime, watch_);
    auto made = b.subject().factory.make({.driver = &*driver_,
                                          .runtime = runtime_ ? &*runtime_ : nullptr,
                                          .clock = &b.platform().clock(),
                                          .observer = &observer_,
                                          .profile = b.subject().profile});
    if (made && (*made)->initialize()) manager_ = *std::move(made);
  }

  explicit operator bool() const noexcept { return manager_ != nullptr; }
  MemoryManager& operator*() noexcept { return *manager_; }
  Driver& device() noexcept { return *opened_.driver; }
  void end() { manager_.reset(); }
  const CallLedger& ledger() noexcept { return watch_.ledger(); }
  std::uint64_t bytes_free() {
    const auto info = device().mem_get_info();
    return info ? info->free : 0;
  }

 private:
  OpenedDevice opened_;
  Watch watch_;
  std::optional<ForwardingDriver> driver_;
  std::optional<ForwardingRuntime> runtime_;
  RecordingObserver observer_;
  std::unique_ptr<MemoryManager> manager_;
};

struct NeighbourBlock {
  MemoryPointer memory;
  std::uint64_t size = 0;
  std::uint8_t value = 0;
};

std::vector<NeighbourBlock> blocks_of(Neighbour& manager, std::uint8_t value) {
  std::vector<NeighbourBlock> blocks;
  for (const auto size : {std::uint64_t{64}, 4_KiB, 100_KiB, 1_MiB, 3_MiB, 9_MiB}) {
    auto block = (*manager).memalloc(size);
    if (!block) continue;
    if (!manager.device().memset_d8(block->device_pointer(), value, size)) continue;
    blocks.push_back({*std::move(block), size, value});
  }
  return blocks;
}

bool all_hold(Neighbour& manager, const std::vector<NeighbourBlock>& blocks) {
  for (const auto& [memory, size, value] : blocks) {
    std::array<std::byte, 64> bytes;
    for (const auto at : {std::uint64_t{0}, size - bytes.size()}) {
      if (!manager.device().memcpy_dtoh(bytes, memory.device_pointer() + at)) return false;
      for (const auto byte : bytes) {
        if (byte != std::byte{value}) return false;
      }
    }
  }
  return true;
}

void check_neighbours(Bench& b, int other_ordinal) {
  const auto where = other_ordinal == 0 ? "two managers on one device" : "a manager on each device";
  const auto opened_before = b.platform().open(other_ordinal);
  const auto other_before = opened_before ? (*opened_before).driver->mem_get_info()
                                          : Result<MemoryInfo>(opened_before.error());
  const auto first_before = b.device().mem_get_info();
  if (!other_before || !first_before) return;
  Neighbour first(b, 0);
  Neighbour second(b, other_ordinal);
  if (!first || !second)
    return static_cast<void>(
        b.expect(false, where, "the second cannot be made or initialized", "both serve"));
  auto own = blocks_of(first, 0x61);
  const auto first_free = first.bytes_free();
  auto others = blocks_of(second, 0x62);
  if (own.empty() || others.empty()) return;
  std::uint64_t live = 0;
  for (const auto& block : others) live += block.size;
  if (other_ordinal != 0) {
    b.expect(second.bytes_free() + live <= other_before->free, where,
             text::format("{} bytes of the second manager are alive, and its device has {} bytes "
                          "less free",
                          live, other_before->free - second.bytes_free()),
             "they are on its own device");
    b.expect(first.bytes_free() == first_free || !b.is_simulated(), where,
             "requests of the second manager take memory of the first one's device",
             "they take none");
  }
  for (auto* one : {&first, &second}) {
    const auto& block = one == &first ? own.back() : others.back();
    const auto handle = (**one).get_ipc_handle(
        {.device_pointer = block.memory.device_pointer(), .size = block.size});
    if (!handle || !handle->fields().source_info) continue;
    b.expect(
        *handle->fields().source_info == one->device().device_identity(),
        text::format("{}, get_ipc_handle of the {}", where, one == &first ? "first" : "second"),
        "another device than that of the memory", "its own device");
  }
  b.expect(all_hold(first, own) && all_hold(second, others),
           text::format("{}, blocks of both filled", where), "some have the other's content",
           "each block is apart");
  if (b.decided()) return;
  if (!b.is_numba()) {
    (*first).reset();
    own.clear();
    b.expect(all_hold(second, others), text::format("{}, the first one reset", where),
             "memory of the second is lost", "it is as it was");
    own = blocks_of(first, 0x63);
  }
  own.clear();
  first.end();
  b.expect(all_hold(second, others), text::format("{}, the first one ended", where),
           "memory of the second is lost", "it is as it was");
  const auto next = (*second).memalloc(64_KiB);
  b.expect_ok(text::format("{}, a request of the second after the first one's end", where), next);
  others.clear();
  for (auto* one : {&first, &second}) {
    b.expect(
        one->ledger().double_ends() == 0 && one->ledger().foreign_ends() == 0,
        text::format("{}, the driver calls of the {}", where, one == &first ? "first" : "second"),
        one->ledger().verdict(), "it frees its own memory alone");
  }
}

std::vector<std::shared_ptr<void>> memory_of_each_kind(Bench& b, Neighbour& manager) {
  std::vector<std::shared_ptr<void>> all;
  const auto keep = [&](auto made) {
    if (made) all.push_back(std::make_shared<std::decay_t<decltype(*made)>>(*std::move(made)));
  };
  for (const auto size : {std::uint64_t{64}, 70_KiB, 3_MiB}) {
    keep((*manager).memalloc(size));
    keep((*manager).memallocmanaged(size, AttachFlags::global));
    keep((*manager).memhostalloc(size, {.mapped = true}));
    keep((*manager).memhostalloc(size, {}));
  }
  keep((*manager).mempin(b.buffer(), {}, {}));
  return all;
}

bool has_given_all_back(const CallLedger& ledger) {
  std::uint64_t left = 0;
  for (std::size_t kind = 0; kind < CallLedger::kKinds; ++kind)
    left += ledger.live(static_cast<CallLedger::Kind>(kind)).count;
  return left == 0 && ledger.double_ends() == 0 && ledger.foreign_ends() == 0;
}

/// Answers whether a manager without a neighbour releases what it took. If it does not, the clauses
/// about two managers do not judge it.
bool gives_all_back_alone(Bench& b) {
  Neighbour alone(b, 0);
  if (!alone) return false;
  auto memory = memory_of_each_kind(b, alone);
  (*alone).reset();
  memory = memory_of_each_kind(b, alone);
  memory.resize(memory.size() / 2);
  (*alone).reset();
  memory = memory_of_each_kind(b, alone);
  memory.resize(memory.size() / 2);
  alone.end();
  b.expect_rule("accounts/balance", has_given_all_back(alone.ledger()),
                "memory of each kind and a reset, twice, memory again, the manager's end",
                alone.ledger().verdict(), "balanced");
  return has_given_all_back(alone.ledger());
}

/// Each manager resets and ends while the other has memory of every kind, live and freed. At the
/// end each must have returned what it took.
void reset_neighbours(Bench& b, int other_ordinal) {
  Neighbour first(b, 0);
  Neighbour second(b, other_ordinal);
  if (!first || !second) return;
  auto of_first = memory_of_each_kind(b, first);
  auto of_second = memory_of_each_kind(b, second);
  of_second.resize(of_second.size() / 2);
  (*first).reset();
  of_first = memory_of_each_kind(b, first);
  auto more_of_second = memory_of_each_kind(b, second);
  more_of_second.resize(more_of_second.size() / 2);
  of_first.resize(of_first.size() / 2);
  (*second).reset();
  of_second.clear();
  of_first.clear();
  const auto last_of_first = memory_of_each_kind(b, first);
  second.end();
  first.end();
  for (auto* one : {&first, &second}) {
    b.expect(
        has_given_all_back(one->ledger()),
        text::format("{}, each reset and ended while the other has memory; the driver calls "
                     "of the {}",
                     other_ordinal == 0 ? "two managers on one device" : "a manager on each device",
                     one == &first ? "first" : "second"),
        one->ledger().verdict(), "it releases all that it took, once");
  }
}

// The default streams.

/// A program on two threads that take turns. It reuses memory across the default streams, the two
/// threads' own ones, and a stream that waits for none of them.
class DefaultStreamProgram {
 public:
  DefaultStreamProgram(Bench& bench, std::uint64_t seed)
      : b_(bench), random_(seed), order_(bench.watch_order()) {}

  void run(int steps) {
    b_.untraceable();
    b_.manager();
    if (random_.chance(0.5)) b_.leave_on_device(48_MiB);
    auto apart = b_.ordered().stream_create(StreamKind::non_blocking);
    if (!apart) return b_.inconclusive(describe(apart.error()));
    streams_ = {{}, kLegacyStream, kPerThreadStream, kPerThreadStream, kPerThreadStream, *apart};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < threads.size(); ++i)
      threads[i] = start_thread([this, i] { serve(i); });
    for (int i = 0; i < steps && !b_.decided(); ++i) {
      on(random_.below(2), [this] { step(); });
      if (b_.watch().total() == 0)
        b_.inconclusive("the driver calls of this manager are not seen here");
      for (const auto& hazard : order_.take_found()) accuse(hazard);
    }
    while (!live_.empty()) on(0, [this] { end(live_.size() - 1); });
    on(0, {});
    on(1, {});
    for (auto& thread : threads) thread.join();
    if (!b_.ordered().stream_destroy(*apart)) return;  // the device goes next
  }

 private:
  struct Live {
    BenchMemory block;
    std::uint32_t id = 0;
    StreamHandle stream;
    std::size_t thread = 0;
  };

  /// Makes a thread run a step, and waits for it. An empty step ends the thread.
  void on(std::size_t thread, std::function<void()> step) {
    std::unique_lock lock(mutex_);
    thread_ = thread;
    step_ = std::move(step);
    is_due_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_due_; });
  }
  void serve(std::size_t thread) {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_due_ && thread_ == thread; });
      const bool ends = !step_;
      if (!ends) step_();
      is_due_ = false;
      changed_.notify_all();
      if (ends) return;
    }
  }

  void accuse(const stream_order::Hazard& hazard) {
    b_.expect(
        false,
        text::format("a random program on the default streams of two threads, seed {}", b_.seed()),
        describe(hazard),
        "an order between that work and what comes after: stream 2 is another one on each "
        "thread");
  }

  void step() {
    if (random_.chance(0.03) && b_.ordered().ctx_synchronize()) return;
    if (live_.size() < 10 && random_.chance(0.55)) return make();
    if (live_.empty()) return;
    end(random_.below(live_.size()));
  }

  void make() {
    const auto size = std::array{4_KiB, 64_KiB, 1_MiB, 5_MiB}[random_.below(4)];
    const auto stream = streams_[random_.below(streams_.size())];
    auto block = b_.try_memalloc(size, stream);
    if (!block) {
      if (block.error().code == Errc::not_supported && ids_ == 0)
        b_.not_applicable(describe(block.error()));
      return;
    }
    b_.expect(true, {}, {}, {});
    Live one{.block = *std::move(block), .id = ++ids_, .stream = stream, .thread = thread_};
    order_.allocated(0, one.id, one.block.device(), size, stream);
    live_.push_back(std::move(one));
  }

  void end(std::size_t at) {
    auto one = std::move(live_[at]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    // Another thread cannot name this thread's default stream.
    const bool is_nameable = one.stream != kPerThreadStream || one.thread == thread_;
    // A free on another stream also counts as a request on the memory's own stream.
    const auto stream = is_nameable && random_.chance(0.7) ? one.stream
                        : random_.chance(0.3)              ? StreamHandle{}
                                              : streams_[random_.below(streams_.size())];
    order_.ending(0, one.id, one.block.device(), stream);
    if (const auto freed = one.block.free(stream); !freed)
      b_.expect_ok("free() on a stream", freed);
  }

  Bench& b_;
  Prng random_;
  stream_order::Checker& order_;
  std::vector<StreamHandle> streams_;
  std::vector<Live> live_;
  std::uint32_t ids_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> step_;
  std::size_t thread_ = 0;
  bool is_due_ = false;
};

/// A thread asks for memory on its default stream, and ends before or after it has freed it. A
/// later thread, whose pthread_t may be the same, has another stream.
void follow_an_ended_thread(Bench& b) {
  constexpr std::uint64_t kSize = 64_KiB;
  constexpr int kTimes = 4;  // so that a pthread_t is used again
  auto& order = b.watch_order();
  b.untraceable();
  b.expect(true, {}, {}, {});
  b.manager();
  for (const auto call : {Call::event_query, Call::stream_query})
    b.watch().fail_always(call, kNotReady);
  std::uint32_t ids = 0;
  for (int i = 0; i < 2 * kTimes && !b.decided(); ++i) {
    const bool frees_first = i % 2 == 0;
    BenchMemory block, next;
    const auto ask = [&](BenchMemory& to) {
      auto made = b.try_memalloc(kSize, kPerThreadStream);
      if (!made) return false;
      order.allocated(0, ++ids, made->device(), kSize, kPerThreadStream);
      to = *std::move(made);
      return true;
    };
    const auto end = [&](BenchMemory& one) {
      order.ending(0, ids, one.device(), kPerThreadStream);
      return one.free(kPerThreadStream).has_value();
    };
    bool goes_on = false;
    start_thread([&] { goes_on = ask(block) && (!frees_first || end(block)); }).join();
    if (!goes_on) return;
    start_thread([&] { goes_on = (frees_first || end(block)) && ask(next) && end(next); }).join();
    if (!goes_on) return;
    for (const auto& hazard : order.take_found())
      b.expect(false,
               text::format("a block asked for on the default stream of a thread that has ended, "
                            "freed by {}, and one asked for on that of a later thread",
                            frees_first ? "the first thread" : "the later one"),
               describe(hazard),
               "the later thread's stream waits for that work: it is another one");
  }
}

/// A thread frees on its default stream inside a deferral that another thread ends. The work on the
/// memory is that of the thread that freed it, which the other one cannot name.
void end_the_deferral_on_another_thread(Bench& b) {
  // Requests, and their bytes: enough to reach the block.
  constexpr std::size_t kAsked = 40;
  constexpr std::uint64_t kAskedBytes = 32_MiB;
  for (const bool on_own : {true, false}) {
    for (const auto size : {64_KiB, 5_MiB}) {
      b.apart([&](Bench& on) {
        auto& order = on.watch_order();
        on.manager();
        const auto apart = on.ordered().stream_create(StreamKind::non_blocking);
        if (!apart) return;
        const auto stream = on_own ? kPerThreadStream : *apart;
        std::uint32_t ids = 0;
        const auto allocate = [&](StreamHandle for_stream) {
          auto made = on.try_memalloc(size, for_stream);
          if (made) order.allocated(0, ++ids, made->device(), size, for_stream);
          return made;
        };
        auto deferred = on.defer();
        bool is_freed = false;
        start_thread([&] {
          auto made = allocate(kPerThreadStream);
          if (!made) return;
          order.ending(0, ids, made->device(), kPerThreadStream);
          is_freed = made->free(kPerThreadStream).has_value();
        }).join();
        deferred.end();
        static_cast<void>(on.manager().flush().has_value());
        // A manager may first give other memory.
        const auto most = is_freed ? std::min<std::size_t>(kAsked, kAskedBytes / size) : 0;
        std::vector<BenchMemory> next;
        while (next.size() < most) {
          auto block = allocate(stream);
          if (!block) break;
          next.push_back(*std::move(block));
        }
        for (const auto& hazard : order.take_found())
          on.expect(false,
                    text::format("{} bytes freed on a thread's default stream in a deferral that "
                                 "another thread ends, and as many asked for on {}",
                                 size, on_own ? "that thread's" : "a stream that waits for none"),
                    describe(hazard), "an order between that work and what comes after");
        next.clear();
        if (!on.ordered().stream_destroy(*apart)) return;  // the device goes next
      });
    }
  }
}

/// A reset inside a deferral ends what another thread has on its default stream, which the thread
/// that resets cannot name.
void reset_what_another_thread_has(Bench& b) {
  if (b.is_numba()) return;  // its reset leaves device memory alive: RST-5
  auto& order = b.watch_order();
  b.untraceable();
  b.expect(true, {}, {}, {});
  b.manager();
  const auto apart = b.ordered().stream_create(StreamKind::non_blocking);
  if (!apart) return b.inconclusive(describe(apart.error()));
  std::uint32_t ids = 0;
  for (const auto size : {4_KiB, 64_KiB, 5_MiB}) {
    BenchMemory block;
    start_thread([&] {
      auto made = b.try_memalloc(size, kPerThreadStream);
      if (!made) return;
      order.allocated(0, ++ids, made->device(), size, kPerThreadStream);
      order.ending(0, ids, made->device(), kPerThreadStream);
      block = *std::move(made);
    }).join();
    if (block.size() == 0) break;
    const auto deferred = b.defer();
    b.reset();
    auto next = b.try_memalloc(size, *apart);
    if (!next) break;
    order.allocated(0, ++ids, next->device(), size, *apart);
    for (const auto& hazard : order.take_found())
      b.expect(false,
               text::format("{} bytes that a thread has on its default stream, ended by another "
                            "thread's reset() inside a deferral, and as many asked for",
                            size),
               describe(hazard), "an order between that work and what comes after");
    order.ending(0, ids, next->device(), *apart);
    if (!next->free(*apart)) break;
  }
  if (!b.ordered().stream_destroy(*apart)) return;  // the device goes next
}

void run_default_stream_programs(Bench& b) {
  constexpr std::uint64_t kPrograms = 8;  // by chance, each from a seed of its own
  b.untraceable();
  b.expect(true, {}, {}, {});
  b.apart(follow_an_ended_thread);
  if (!b.decided()) b.apart(reset_what_another_thread_has);
  if (!b.decided()) end_the_deferral_on_another_thread(b);
  for (std::uint64_t i = 0; i < kPrograms && !b.decided(); ++i) {
    auto subject = b.subject();
    subject.seed += i;
    auto fresh = Bench::create(subject, "threads/default_streams");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    DefaultStreamProgram(**fresh, subject.seed).run(100);
    b.take(**fresh);
  }
}

/// Several threads make managers of the library, and initialize and end them one after the other.
void make_managers_at_once(Bench& b) {
  constexpr std::size_t kThreads = 4, kManagers = 60;
  std::array<std::vector<std::unique_ptr<MemoryManager>>, kThreads> made;
  std::array<std::string, kThreads> answers;
  run_interrupted(b, kThreads, [&](std::size_t at) {
    for (std::size_t i = 0; i < kManagers; ++i) {
      const InManager in_manager;
      auto one = b.subject().factory.make({.driver = &b.driver(),
                                           .runtime = b.runtime(),
                                           .clock = &b.platform().clock(),
                                           .observer = &b.observer(),
                                           .profile = b.subject().profile});
      if (one)
        made[at].push_back(*std::move(one));
      else
        answers[at] = answer_of(one.error());
    }
  });
  for (std::size_t at = 0; at < kThreads; ++at) {
    b.expect(answers[at].empty(), "create() on four threads at once", answers[at], "a manager");
    for (std::size_t i = 0; i < made[at].size(); i += 20)
      b.expect_ok("initialize() of one of 240 managers that four threads have made at once",
                  made[at][i]->initialize());
    made[at].clear();
  }
}

constexpr Clause kThreadsClauses[] = {
    {.id = "threads/accounts",
     .rule = "What threads do at once is counted to the last byte and the last block.",
     .source = "emm/memory_manager.hpp; emm/memory_statistics.hpp",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "threads/overlap",
     .check =
         [](Bench& b) {
           check_accounts(b);
           if (b.decided()) return;
           auto fresh = Bench::create(b.subject(), b.clause());
           if (!fresh) return b.inconclusive(describe(fresh.error()));
           check_two_at_once(**fresh);
           b.take(**fresh);
         }},

    {.id = "threads/overlap",
     .rule = "Threads that ask and free at once never get a byte that another has.",
     .source = "emm_plugin.h: any thread",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/threads suite/cross_thread_free threads/accounts",
     .check = check_overlap},

    {.id = "threads/ended",
     .rule = "Memory belongs to the manager and no thread: what an ended thread asked for stays, "
             "and what it or a living one freed serves again.",
     .source = "emm_plugin.h: any thread",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           check_ended_threads(b);
           if (!b.decided()) check_living_threads(b);
         }},

    {.id = "threads/frees",
     .rule = "What threads free and flush at once, of whatever kind, is freed once, and all of it.",
     .source = "emm_plugin.h: any thread",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "threads/overlap threads/accounts threads/slots suite/threads PD-17",
     .check = check_frees_at_once},

    {.id = "threads/slots",
     .rule = "Several threads may call any slots at once, the first initialize() and reset() among "
             "them.",
     .source = "emm_plugin.h: any thread",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "threads/overlap threads/accounts threads/frees suite/threads",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.manager();
           b.expect(true, {}, {}, {});
           call_every_slot_at_once(b);
           if (!b.decided()) begin_and_reset_at_once(b);
         }},

    {.id = "threads/managers_apart",
     .rule = "Two managers of one library serve each its own device, end each its own memory and "
             "share none.",
     .source = "emm_plugin.h, struct emm_manager; NBEP 7",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           if (const auto block = b.memalloc(4_KiB); b.decided()) return;
           b.end_manager();
           b.expect(true, {}, {}, {});
           const bool can_reset = !b.is_numba() && gives_all_back_alone(b);
           for (int other = 0; other < std::min(b.platform().device_count(), 2); ++other) {
             check_neighbours(b, other);
             if (!b.decided() && can_reset) reset_neighbours(b, other);
             if (b.decided()) return;
           }
           b.apart(make_managers_at_once);
         }},

    {.id = "threads/default_streams",
     .rule = "The per-thread default stream is another one on each thread: what one thread freed "
             "there waits before another has it.",
     .source = "docs/streams.md; CUDA, stream synchronization behavior",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "stream/hazards",
     .not_of_class = "its memory has no streams",
     .check = run_default_stream_programs},
};

}  // namespace

extern constinit const ClauseGroup threads_clauses{"Beyond the catalogue: threads",
                                                   kThreadsClauses};

}  // namespace emm
