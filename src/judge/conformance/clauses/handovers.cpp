#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/combinations.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: how memory comes from one stream to another. Every way to free it is
// crossed with everything that may come before another stream asks. Memory that the host sees has
// no stream when it is asked for, so all work on it has ended by then.

namespace emm {
namespace handovers {
namespace {

using namespace emm::conformance;

// The calls by which a manager puts new work behind that of another stream: two mark that work, the
// others wait for a mark, a stream or all.
constexpr std::array kOrders{Call::event_create,       Call::event_record,
                             Call::stream_wait_event,  Call::event_synchronize,
                             Call::stream_synchronize, Call::ctx_synchronize};
constexpr std::span kMarks = std::span<const Call>(kOrders).first(2);
constexpr std::span kWaits = std::span<const Call>(kOrders).subspan(2);
// Every call by which device memory goes back to the driver, and every one by which it comes.
constexpr std::array kMemoryFrees{Call::mem_free, Call::mem_free_async, Call::runtime_free,
                                  Call::mem_free_host, Call::mem_unmap};
constexpr std::array kAllocations{Call::mem_alloc,
                                  Call::runtime_malloc,
                                  Call::mem_create,
                                  Call::mem_alloc_async,
                                  Call::mem_alloc_from_pool_async,
                                  Call::mem_alloc_managed,
                                  Call::mem_host_alloc};

constexpr StreamHandle kPerThread{2};  // CU_STREAM_PER_THREAD

enum class Kind : std::uint8_t { device, managed, mapped };

/// What is asked for, and what the device has left. A manager may cut small blocks from slabs.
struct Room {
  Kind kind;
  std::string_view words;
  std::uint64_t left;  ///< 0: much.
  std::uint64_t size;
  std::size_t most;          ///< Blocks that are asked for.
  std::size_t firsts;        ///< How many of the takers come first once.
  bool is_one_over = false;  ///< The work of the blocks' own stream is over, that of others is not.
  bool is_of_two = false;    ///< Another thread asks for half of the blocks.
  bool is_tight = false;     ///< Too little for a manager that takes memory when it begins.
};
constexpr Room kRooms[] = {
    {Kind::device, "blocks", 64_MiB, 6_MiB, 20, 5},
    {Kind::device, "blocks", 8_MiB, 512_KiB, 20, 2},
    {Kind::device, "blocks", 0, 6_MiB, 20, 1},
    {Kind::device, "small blocks", 0, 16_KiB, 20, 1},
    {Kind::device, "small blocks of all that there is", 2_MiB, 48_KiB, 44, 1, false, false, true},
    {Kind::device, "blocks whose work is over", 64_MiB, 6_MiB, 20, 1, true},
    {Kind::device, "blocks of two threads", 8_MiB, 256_KiB, 40, 1, false, true},
    {Kind::managed, "managed blocks", 0, 256_KiB, 6, 1},
    {Kind::mapped, "mapped blocks", 0, 256_KiB, 6, 1},
    {Kind::mapped, "small mapped blocks of two threads", 0, 16_KiB, 12, 1, false, true}};

/// A manager whose memory the checker of stream order follows.
class Course {
 public:
  Course(Bench& bench, const Room& in) : b(bench), room(in), order_(bench.watch_order()) {
    b.untraceable();
    b.expect(true, {}, {}, {});
    for (auto& stream : std::span(streams).first(4)) {
      auto made = b.ordered().stream_create(StreamKind::non_blocking);
      if (made) {
        stream = *made;
      } else {
        b.inconclusive(describe(made.error()));
      }
    }
    if (room.left != 0) b.leave_on_device(room.left);
    // No event is over unless somebody waits for it.
    answer_queries(kNotReady);
    if (room.is_one_over) b.watch().during = [this](const CallEvent& event) { hear(event); };
    b.manager();
    size_ = std::min(room.size, b.affordable(64_MiB) / 10) & ~(4_KiB - 1);
  }
  ~Course() {
    end_all();
    b.watch().during = nullptr;
    for (const auto stream : streams) {
      if (stream.value != 0 && stream != kPerThread && !b.ordered().stream_destroy(stream))
        return;  // the whole device is reset next
    }
  }
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  struct Block {
    BenchMemory memory;
    std::uint32_t id = 0;
    StreamHandle stream;
  };

  std::optional<Block> ask(std::uint64_t size, StreamHandle stream) {
    auto made = room.kind == Kind::device    ? b.try_memalloc(size, stream)
                : room.kind == Kind::managed ? b.try_managed(size)
                                             : b.try_hosted(size, {.mapped = true});
    if (!made || made->device().value == 0) return std::nullopt;
    const auto id = ++ids_;
    order_.allocated(0, id, made->device(), size, stream);
    return Block{*std::move(made), id, stream};
  }
  void free(Block& block, StreamHandle stream) {
    if (room.kind != Kind::device) stream = block.stream;  // that of its work
    order_.ending(0, block.id, block.memory.device(), stream);
    const auto freed = block.memory.free(stream);
    if (!is_refusing_) b.expect_ok(when, freed);
  }
  /// Takes all that there is, on one stream. What served before serves again, but for what a
  /// manager loses to the order in which it grows.
  bool fill(bool may_lose) {
    if (room.is_of_two) start_thread([this] { fill_up_to(room.most / 3); }).join();
    fill_up_to(room.most);
    if (!may_lose && !b.decided())
      b.expect_rule("suite/serves", 2 * blocks.size() >= served_, when,
                    text::format("{} blocks of {} bytes are served", blocks.size(), size_),
                    text::format("about {}, as before", served_));
    served_ = std::max(served_, blocks.size());
    return blocks.size() >= 4;
  }
  void fill_up_to(std::size_t most) {
    while (blocks.size() < most) {
      auto block = ask(size_, streams[0]);
      if (!block) break;
      blocks.push_back(*std::move(block));
    }
  }
  /// Asks for more than there is.
  void ask_in_vain(StreamHandle stream) {
    if (room.kind != Kind::device) refuse(kOutOfMemory);
    if (auto served = ask(200_MiB, stream)) free(*served, stream);
    if (room.kind != Kind::device) refuse(0);
  }
  void reset() {
    for (auto& block : blocks) order_.ending(0, block.id, block.memory.device(), block.stream);
    b.reset();
    blocks.clear();
  }
  void end_all() {
    for (auto& block : blocks) free(block, block.stream);
    blocks.clear();
    deferrals.clear();
  }
  /// What a manager remembers of it must not matter later.
  void have_a_past() {
    when = "after a reset, refused calls and nested deferrals";
    if (!fill(true)) return;
    for (std::size_t i = 0; i < blocks.size(); ++i) free(blocks[i], streams[i % 2]);
    blocks.clear();
    while_refused(kWaits, [&] {
      if (auto served = ask(size_, streams[3])) blocks.push_back(*std::move(served));
    });
    for (int i = 0; i < 2; ++i) deferrals.push_back(b.manager().defer_cleanup());
    for (int i = 0; i < 2; ++i) {
      ask_in_vain(streams[2]);
      refuse(kOutOfMemory);
      if (auto served = ask(24_MiB, streams[2])) free(*served, streams[2]);
      refuse(0);
      deferrals.clear();
    }
    if (!b.is_numba()) reset();  // its reset leaves memory live: RST-5
    refuse(kIllegalAddress);
    if (auto served = ask(20_MiB, streams[0])) free(*served, streams[0]);
    refuse(0);
    b.watch().forgive();
    clear();
    if (!b.is_numba()) reset();
    expect_order();
  }
  /// All work is over, and nothing is kept.
  void clear() {
    end_all();
    if (!b.ordered().ctx_synchronize() || !b.manager().flush()) return;
    static_cast<void>(b.manager().trim(0).has_value());
    b.watch().forget();
  }
  void expect_order(bool may_unmap = false) {
    for (const auto& hazard : order_.take_found()) {
      if (may_unmap && hazard.how != stream_order::Hazard::How::handed_out) continue;
      b.expect(false, when, describe(hazard),
               "the new owner's stream waits for that work, or all of the device was waited for");
    }
  }
  void refuse(std::int32_t native) {
    for (const auto call : kAllocations) b.watch().fail_always(call, native);
  }
  /// Runs `act` while the driver refuses these calls. Its frees may then fail.
  template <class Act>
  void while_refused(std::span<const Call> calls, Act act) {
    for (const auto call : calls) b.watch().fail_always(call, kIllegalAddress);
    is_refusing_ = true;
    act();
    is_refusing_ = false;
    for (const auto call : calls) b.watch().fail_always(call, 0);
    b.watch().forgive();
  }
  std::uint64_t size() const noexcept { return size_; }

  void answer_queries(std::int32_t native) {
    for (const auto call : {Call::event_query, Call::stream_query})
      b.watch().fail_always(call, native);
  }
  void hear(const CallEvent& event) {
    const bool of_event = event.call == Call::event_query;
    const std::lock_guard lock(mutex_);
    if (event.call == Call::event_record) recorded_[event.pointer] = event.stream;
    if (!of_event && event.call != Call::stream_query) return;
    const auto stream = of_event ? recorded_[event.pointer] : event.stream;
    answer_queries(stream == streams[0] ? 0 : kNotReady);
  }

  Bench& b;
  const Room& room;
  std::array<StreamHandle, 5> streams{{{}, {}, {}, {}, kPerThread}};
  std::vector<Block> blocks;
  std::vector<DeferCleanup> deferrals;
  std::string when;
  bool is_backwards = false;  ///< Blocks are freed the last one first.

 private:
  stream_order::Checker& order_;
  std::mutex mutex_;
  std::map<std::uint64_t, StreamHandle> recorded_;
  std::uint32_t ids_ = 0;
  std::uint64_t size_ = 0;
  std::size_t served_ = 0;
  bool is_refusing_ = false;
};

struct Way {
  std::string_view words;
  /// Frees the second to the fourth block.
  void (*free)(Course& course);
  bool may_lose = false;      ///< The driver keeps what it refused to free.
  bool is_on_stream = false;  ///< Asked of memory that has a stream.
};
/// The one in the middle is freed on `middle`.
void free_three(Course& c, StreamHandle stream, StreamHandle middle) {
  // Neighbours may be joined as either comes first.
  for (std::size_t i = 1; i < 4; ++i)
    c.free(c.blocks[c.is_backwards ? 4 - i : i], i == 2 ? middle : stream);
  c.blocks.erase(c.blocks.begin() + 1, c.blocks.begin() + 4);
}
void free_three(Course& c, StreamHandle stream) { free_three(c, stream, stream); }
/// Frees that the driver's events cannot mark.
void free_three_unmarked(Course& c, StreamHandle stream, std::span<const Call> refused = kMarks) {
  c.while_refused(refused, [&] { free_three(c, stream); });
  c.expect_order(true);  // it is given back where no wait was to be had
}

constexpr Way kWays[] = {
    {"freed", [](Course& c) { free_three(c, c.streams[0]); }},
    {"freed on two other streams", [](Course& c) { free_three(c, c.streams[1], c.streams[3]); }},
    {"freed in a deferral",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three(c, c.streams[0]);
     }},
    {"freed on two streams in a deferral",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three(c, c.streams[1], c.streams[0]);
     }},
    {"freed in nested deferrals",
     [](Course& c) {
       for (int i = 0; i < 2; ++i) c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three(c, c.streams[1], c.streams[3]);
       c.deferrals.pop_back();
     }},
    {"freed with most others in nested deferrals",
     [](Course& c) {
       for (int i = 0; i < 2; ++i) c.deferrals.push_back(c.b.manager().defer_cleanup());
       // More than a manager may like to keep for one stream.
       free_three(c, c.streams[0]);
       while (c.blocks.size() > 2) {
         c.free(c.blocks.back(), c.streams[0]);
         c.blocks.pop_back();
       }
       c.deferrals.pop_back();
     }},
    {"freed by another thread in a deferral",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       start_thread([&c] { free_three(c, c.streams[0]); }).join();
     }},
    {"freed by another thread",
     [](Course& c) { start_thread([&c] { free_three(c, c.streams[1], c.streams[3]); }).join(); }},
    {"freed before a deferral",
     [](Course& c) {
       free_three(c, c.streams[0]);
       c.deferrals.push_back(c.b.manager().defer_cleanup());
     }},
    {"freed on another stream, after a reset",
     [](Course& c) {
       c.reset();
       if (c.fill(true)) free_three(c, c.streams[1], c.streams[3]);
     }},
    {"ended by a reset", [](Course& c) { c.reset(); }},
    {"ended by a reset in a deferral",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       c.reset();
     }},
    {"freed after failed calls",
     [](Course& c) {
       c.refuse(kIllegalAddress);
       if (auto served = c.ask(20_MiB, c.streams[0])) c.free(*served, c.streams[0]);
       c.refuse(0);
       free_three(c, c.streams[0]);
     }},
    {"freed in a deferral, where events are refused",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three_unmarked(c, c.streams[0]);
     }},
    {"freed in a deferral, where events can be made and not recorded",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three_unmarked(c, c.streams[0], kMarks.subspan(1));
     }},
    {"freed in a deferral, where events and waits are refused",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three_unmarked(c, c.streams[0], kOrders);
     }},
    {"of another thread's default stream, freed in a deferral",
     [](Course& c) {
       free_three(c, c.streams[0]);
       start_thread([&c] {
         for (int i = 0; i < 3; ++i) {
           if (auto one = c.ask(c.size(), kPerThread))
             c.blocks.insert(c.blocks.begin() + 1, *std::move(one));
         }
       }).join();
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       if (c.blocks.size() >= 4) free_three(c, c.streams[0]);
     },
     false, true},
    {"of another thread's default stream, freed there in a deferral",
     [](Course& c) {
       free_three(c, c.streams[0]);
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       start_thread([&c] {
         for (int i = 0; i < 3; ++i) {
           if (auto one = c.ask(c.size(), kPerThread)) c.free(*one, kPerThread);
         }
       }).join();
     },
     false, true},
    {"freed on another stream in nested deferrals, where events are refused",
     [](Course& c) {
       for (int i = 0; i < 2; ++i) c.deferrals.push_back(c.b.manager().defer_cleanup());
       free_three_unmarked(c, c.streams[1]);
       c.deferrals.pop_back();
     }},
    {"ended by a reset in a deferral, after refused frees",
     [](Course& c) {
       c.while_refused(kMemoryFrees, [&] {
         free_three(c, c.streams[0]);
         static_cast<void>(c.b.manager().flush().has_value());
         c.ask_in_vain(c.streams[2]);
         static_cast<void>(c.b.manager().trim(0).has_value());
       });
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       c.reset();
     },
     true},
};

/// As many requests as there are freed blocks: a manager may take the refused wait of each for
/// done.
void ask_where_waits_are_refused(Course& c, StreamHandle stream) {
  c.while_refused(kWaits, [&] {
    for (int i = 0; i < 5; ++i) {
      // The first ones are for parts of what another stream has a part of.
      const auto size = i == 0 ? c.size() / 2 : i == 1 ? c.size() / 4 : c.size();
      if (auto served = c.ask(size & ~(4_KiB - 1), stream)) c.blocks.push_back(*std::move(served));
      c.expect_order();
    }
  });
}

struct Between {
  std::string_view words;
  void (*act)(Course& course);
};
constexpr Between kBetween[] = {
    {"nothing", [](Course&) {}},
    {"the deferral's end", [](Course& c) { c.deferrals.clear(); }},
    {"flush()", [](Course& c) { static_cast<void>(c.b.manager().flush().has_value()); }},
    {"the deferral's end and flush()",
     [](Course& c) {
       c.deferrals.clear();
       static_cast<void>(c.b.manager().flush().has_value());
     }},
    {"trim(0)", [](Course& c) { static_cast<void>(c.b.manager().trim(0).has_value()); }},
    {"a request that is out of memory", [](Course& c) { c.ask_in_vain(c.streams[2]); }},
    {"the deferral's end and a request that is out of memory",
     [](Course& c) {
       c.deferrals.clear();
       c.ask_in_vain(c.streams[2]);
     }},
    {"a driver without memory", [](Course& c) { c.refuse(kOutOfMemory); }},
    {"host memory out",
     [](Course& c) {
       c.b.watch().fail(Call::mem_host_alloc, {kOutOfMemory});
       static_cast<void>(c.b.manager().memhostalloc(70_KiB, {}).has_value());
       c.b.watch().fail(Call::mem_host_alloc, {});
     }},
    {"managed memory out",
     [](Course& c) {
       c.b.watch().fail(Call::mem_alloc_managed, {kOutOfMemory});
       static_cast<void>(c.b.manager().memallocmanaged(70_KiB, AttachFlags::global).has_value());
       c.b.watch().fail(Call::mem_alloc_managed, {});
     }},
    {"another free",
     [](Course& c) {
       if (c.blocks.empty()) return;
       c.free(c.blocks.back(), c.streams[0]);
       c.blocks.pop_back();
     }},
    {"another deferral", [](Course& c) { const auto one = c.b.manager().defer_cleanup(); }},
    {"initialize() and questions",
     [](Course& c) {
       static_cast<void>(c.b.manager().initialize().has_value());
       static_cast<void>(c.b.manager().get_memory_info().has_value());
       static_cast<void>(c.b.manager().state());
     }},
    {"reset()", [](Course& c) { c.reset(); }},
    {"requests whose waits are refused",
     [](Course& c) { ask_where_waits_are_refused(c, c.streams[2]); }},
    {"the deferral's end and requests whose waits are refused",
     [](Course& c) {
       c.deferrals.clear();
       ask_where_waits_are_refused(c, c.streams[2]);
     }},
    {"requests in another deferral whose waits are refused",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       // Another stream has waited for what a part of it was freed behind.
       if (auto served = c.ask(c.size() / 2 & ~(4_KiB - 1), c.streams[2]))
         c.blocks.push_back(*std::move(served));
       c.expect_order();
       ask_where_waits_are_refused(c, c.streams[3]);
     }},
    {"a request in another deferral that is out of memory",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       c.ask_in_vain(c.streams[2]);
     }},
    {"another deferral and a driver without memory",
     [](Course& c) {
       c.deferrals.push_back(c.b.manager().defer_cleanup());
       c.refuse(kOutOfMemory);
     }},
};

/// Where the freed memory goes: to how much of it, of which stream.
struct Taker {
  std::string_view words;
  std::uint64_t numerator, denominator;
  std::size_t stream;
};
constexpr Taker kTakers[] = {{"as much asked for", 1, 1, 2},
                             {"half of it asked for", 1, 2, 3},
                             {"more asked for", 5, 2, 2},
                             {"a fifth of it asked for", 1, 5, 3},
                             {"as much asked for on the stream of the free", 1, 1, 1},
                             {"as much asked for on this thread's default stream", 1, 1, 4}};

constexpr Taker kHalfByDefault{"half of it asked for on a default stream", 1, 2, 4};

void hand_over(Course& course, const Way& way, const Between& between, std::size_t number) {
  auto& b = course.b;
  if (b.decided()) return;
  const auto& words = course.room.words;
  if (!course.fill(way.may_lose)) return;  // as it is after the step before
  course.when = text::format("{} {}; then {}", words, way.words, between.words);
  course.is_backwards = !course.is_backwards;
  way.free(course);
  between.act(course);
  // The first taker finds all of it, the others what that one left.
  std::vector<Course::Block> taken;
  const auto take = [&](const Taker& taker, std::string_view whose) {
    course.when = text::format("{} of {} bytes {}; then {}; {} on another stream{}", words,
                               course.size(), way.words, between.words, taker.words, whose);
    auto next = course.ask(course.size() * taker.numerator / taker.denominator & ~(4_KiB - 1),
                           course.streams[taker.stream]);
    course.expect_order();
    if (next) taken.push_back(*std::move(next));
  };
  // What another thread's default stream waits for, this one's does not.
  if (way.is_on_stream) {
    start_thread([&] { take(kHalfByDefault, ", of another thread"); }).join();
    take(kHalfByDefault, "");
  }
  for (std::size_t i = 0; i < std::size(kTakers); ++i) {
    take(kTakers[(number + i) % std::size(kTakers)], "");
  }
  course.refuse(0);
  for (auto& block : taken) course.free(block, block.stream);
  course.clear();
  course.expect_order();
}

void hand_over_all(Bench& b, const Room& room, const Way& way, bool has_past) {
  Course course(b, room);
  if (has_past) course.have_a_past();
  course.when = "at first";
  if (!course.fill(way.may_lose)) return;
  course.clear();
  for (std::size_t first = 0; first < room.firsts; ++first) {
    for (const auto& between : kBetween) {
      if (b.is_numba() && between.words == "reset()") continue;
      // Another thread's default stream is best told from this one's.
      hand_over(course, way, between, first + (way.is_on_stream ? std::size(kTakers) - 1 : 0));
    }
  }
}

void check_handovers(Bench& b) {
  b.untraceable();
  b.expect(true, {}, {}, {});
  // In every other room the manager has a past, another one for each way.
  std::size_t number = 0;
  std::uint64_t at_first = 0;  // A manager may take memory when it begins.
  b.apart([&](Bench& on) {
    on.manager();
    at_first = on.held();
  });
  for (const auto& room : kRooms) {
    if ((room.is_tight && at_first != 0) || (room.left != 0 && room.left < at_first)) continue;
    if (room.kind != Kind::device && b.keeps_host_memory()) break;
    ++number;
    for (const auto& way : kWays) {
      const bool has_past = (number + static_cast<std::size_t>(&way - kWays)) % 2 == 0;
      if (b.decided()) return;
      if (way.is_on_stream && room.kind != Kind::device) continue;
      if (b.is_numba() && way.words.find("reset") != std::string_view::npos) continue;
      b.apart([&](Bench& on) {
        hand_over_all(on, room, way, has_past);
        // The driver has refused waits and events; in a past also frees, and keeps what these were
        // of.
        if (!way.may_lose && !has_past && !on.is_numba() && !on.decided() &&
            on.watch().total() != 0)
          on.expect_balance(text::format("{} {}; then the manager's end", room.words, way.words));
      });
    }
  }
}

constexpr Clause kHandoversClauses[] = {
    {.id = "states/streams",
     .rule =
         "Memory that was freed inside a deferral, before one, by a reset, by another thread or "
         "after a failure goes to another stream only once that stream waits for its work, also "
         "where memory is out and a flush finds it.",
     .source = "docs/streams.md; emm_plugin.h, free: work on the memory may be pending",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "*",
     .not_of_class = "its memory has no streams",
     .check = check_handovers},
};

}  // namespace
}  // namespace handovers

extern constinit const conformance::ClauseGroup handovers_clauses{
    "Beyond the catalogue: from stream to stream", handovers::kHandoversClauses};

namespace conformance {

void for_each_handover_cell(const CombinationCell& cell) {
  for (const auto& way : handovers::kWays) {
    for (const auto& between : handovers::kBetween)
      cell("states/streams", way.words, between.words);
  }
}

}  // namespace conformance
}  // namespace emm
