#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/interrupted_threads.hpp"
#include "driver/call.hpp"
#include "plugin/imported_manager.hpp"

// Beyond the catalogue: deferral. A manager may ignore defer_cleanup (DFR-5). So each check first
// observes which frees the manager holds back inside one deferral. It then demands the same of
// deferrals that nest, cross threads, outlive a reset or see a flush.

namespace emm {
namespace {

using namespace emm::conformance;

enum class Kind : std::uint8_t { device, managed, mapped, pinned };
constexpr std::array kKinds{Kind::device, Kind::managed, Kind::mapped, Kind::pinned};

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, 4> kNames{"device memory", "managed memory",
                                                   "mapped memory", "pinned memory"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<BenchMemory> try_make(Bench& b, Kind kind, std::uint64_t size) {
  switch (kind) {
    case Kind::device:
      return b.try_memalloc(size);
    case Kind::managed:
      return b.try_managed(size);
    case Kind::mapped:
      return b.try_hosted(size, {.mapped = true});
    case Kind::pinned:
      return b.try_hosted(size, {});
  }
  return Error{.code = Errc::not_supported};
}

CallLedger::Kind ledger_kind(Kind kind) {
  return kind == Kind::device    ? CallLedger::Kind::device
         : kind == Kind::managed ? CallLedger::Kind::managed
                                 : CallLedger::Kind::host;
}

/// What a manager was seen to do with frees of one kind inside one deferral.
struct Observed {
  bool defers = false;
  bool holds_through_flush = true;
  std::chrono::milliseconds patience{};
  std::uint64_t host_size = 4_KiB;  ///< Size of blocks other than device memory.
  /// A block whose free is pending serves requests of its size. A reused address then says nothing,
  /// and only the driver's ledger shows a free.
  bool reuses_waiting = false;
};

/// Frees one block and finds out whether that free has been made. A block of device memory is the
/// largest that the manager serves, so another of its size is served only once the free is made.
/// For other kinds, the driver's allocation must have ended. A reused address also counts, unless
/// the manager is known to reuse pending blocks.
class FreedBlock {
 public:
  /// `patience` is how long a free on another thread may take.
  FreedBlock(Bench& bench, Kind kind, const Observed& observed)
      : b_(bench),
        kind_(kind),
        patience_(observed.patience),
        reuses_waiting_(observed.reuses_waiting) {
    if (kind == Kind::device && !b_.is_filled()) {
      // What the manager holds idle can serve, too. The ledger does not see it in a driver's pool.
      const auto held = std::max(b_.held(), b_.manager().state().reserved_bytes.value_or(0));
      b_.leave_on_device(64_MiB - std::min<std::uint64_t>(held, 64_MiB));
    }
    auto size = kind == Kind::device ? 40_MiB : observed.host_size;
    auto block = try_make(b_, kind, size);
    while (!block && block.error().code == Errc::out_of_memory && size > 64_KiB) {
      size /= 2;
      block = try_make(b_, kind, size);
    }
    if (!block) return;
    block_ = *std::move(block);
    size_ = size;
    address_ = block_.address();
    if (kind == Kind::device && !b_.is_simulated()) leave_no_room();
    thing_ = b_.watch().ledger().find(ledger_kind(kind), address_);
  }

  bool is_made() const { return size_ != 0; }
  void drop() { block_.drop(); }

  bool is_back() { return is_back(patience_); }
  /// Waits less, for a free that should not be made.
  bool is_back_already() { return is_back(std::min(patience_, std::chrono::milliseconds(2))); }
  bool is_back(std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      if (look()) return true;
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// Answers whether one of many requests of its size gets the block. A manager may keep blocks for
  /// later and hand out others first.
  bool is_given_among_many() {
    constexpr std::size_t kMost = 100;  // blocks that a manager may have kept for later
    std::vector<BenchMemory> others;
    while (kind_ != Kind::device && others.size() < kMost) {
      auto next = try_make(b_, kind_, size_);
      if (!next) break;
      if (next->address() < address_ + size_ && address_ < next->address() + size_) return true;
      others.push_back(*std::move(next));
    }
    return false;
  }
  /// Says how the last is_back() found out.
  const std::string& how() const { return how_; }
  /// The last is_back() saw only a reused address, which may be that of a pending block.
  bool is_handed_out_again() const { return is_handed_out_again_; }

 private:
  /// A real device gives more than it reports, and a driver's pool what it holds idle.
  void leave_no_room() {
    constexpr std::size_t kMost = 64;  // requests until the rest of a device is filled
    while (others_.size() < kMost) {
      auto next = try_make(b_, kind_, size_);
      if (!next) return;
      others_.push_back(*std::move(next));
    }
  }
  bool look() {
    if (kind_ != Kind::device && thing_ &&
        b_.watch().ledger().find(ledger_kind(kind_), thing_->base) != thing_) {
      how_ = kind_ == Kind::managed ? "cuMemFree of it is made" : "cuMemFreeHost of it is made";
      return true;
    }
    // A pending block cannot serve a request that is larger than itself.
    auto next = try_make(b_, kind_, reuses_waiting_ ? 2 * size_ + 4_KiB : size_);
    if (!next || reuses_waiting_) return false;
    if (kind_ == Kind::device) {
      // While its free waits, the next FreedBlock would find no room.
      next->drop();
      static_cast<void>(b_.manager().flush().has_value());
      how_ = text::format(
          "a request for another {} MiB, for which there is no room beside it, is "
          "served",
          size_ / 1_MiB);
      return true;
    }
    how_ = "its address is handed out again";
    is_handed_out_again_ = next->address() < address_ + size_ && address_ < next->address() + size_;
    return is_handed_out_again_;
  }

  Bench& b_;
  Kind kind_;
  std::chrono::milliseconds patience_;
  bool reuses_waiting_;
  bool is_handed_out_again_ = false;
  std::vector<BenchMemory> others_;
  BenchMemory block_;
  std::uint64_t size_ = 0;
  std::uint64_t address_ = 0;
  std::optional<CallLedger::Thing> thing_;
  std::string how_;
};

std::unique_ptr<Bench> fresh(Bench& b) {
  auto made = Bench::create(b.subject(), "deferral");
  if (!made) {
    b.inconclusive(describe(made.error()));
    return nullptr;
  }
  return *std::move(made);
}

/// Drops `count` blocks one after another without a flush, and answers whether all are held.
bool holds_all(Bench& b, Kind kind, std::size_t count, std::size_t& first_back,
               std::uint64_t size = 4_KiB) {
  std::vector<BenchMemory> blocks;
  std::vector<std::uint64_t> bases;
  for (std::size_t i = 0; i < count; ++i) {
    auto block = try_make(b, kind, size);
    if (!block) return true;
    const auto thing = b.watch().ledger().find(ledger_kind(kind), block->address());
    if (!thing) return true;
    bases.push_back(thing->base);
    blocks.push_back(*std::move(block));
  }
  for (std::size_t i = 0; i < count; ++i) {
    blocks[i].drop();
    for (std::size_t k = 0; k <= i; ++k) {
      if (b.watch().ledger().find(ledger_kind(kind), bases[k])) continue;
      first_back = i + 1;
      return false;
    }
  }
  return true;
}

/// Frees many blocks that live side by side, so that none serves the request for another.
void free_many(Bench& b, Kind kind, std::size_t count, std::uint64_t size = 4_KiB) {
  std::vector<BenchMemory> blocks;
  while (blocks.size() < count) {
    auto block = try_make(b, kind, size);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
}

/// Sets `handed_out_again` where the manager seems not to defer only because the address of a freed
/// block was handed out again.
Observed observe(Bench& b, Kind kind, Observed seen, bool& handed_out_again) {
  using std::chrono::milliseconds;
  // A free of device memory shows by the room that it makes. A limit of the manager's own would
  // hide that.
  if (kind == Kind::device && b.capacity().limit) return {};
  const auto host_size = seen.host_size;
  bool eager = false;
  bool by_flush = false;
  bool counts_pending = false;
  std::atomic<bool> elsewhere{false};
  {
    const auto outside = fresh(b);
    if (!outside) return {};
    outside->watch().during = [&elsewhere, home = std::this_thread::get_id()](const CallEvent&) {
      if (std::this_thread::get_id() != home) elsewhere = true;
    };
    auto asked = seen;
    asked.patience = milliseconds(kind == Kind::device ? 0 : 2);
    FreedBlock block(*outside, kind, asked);
    if (!block.is_made()) return {};
    block.drop();
    eager = block.is_back();
    if (!eager) {
      counts_pending = outside->manager().state().pending_count.value_or(0) > 0;
      if (!outside->manager().flush()) return {};
      by_flush = block.is_back();
    }
    outside->watch().during = nullptr;
  }
  if (elsewhere) seen.patience = milliseconds(15);
  if (!eager && !by_flush) return {};
  {
    const auto inside = fresh(b);
    if (!inside) return {};
    const auto deferred = inside->manager().defer_cleanup();
    FreedBlock block(*inside, kind, seen);
    if (!block.is_made()) return {};
    block.drop();
    if (block.is_back()) {
      handed_out_again = block.is_handed_out_again();
      return {};
    }
    // A free that the manager counts as pending is deferred, so a deferral must hold it back.
    counts_pending = counts_pending && deferred.is_active() && !elsewhere;
    if (!inside->manager().flush()) return {};
    seen.holds_through_flush = !block.is_back_already();
  }
  seen.defers = eager || counts_pending || seen.holds_through_flush;
  if (seen.defers || kind == Kind::device) return seen;
  // Frees wait for a flush, inside a deferral and outside. The deferral defers them if outside they
  // also wait for a limit that they ignore inside.
  constexpr std::size_t kMost = 40;
  std::size_t limit = 0;
  const auto outside = fresh(b);
  if (!outside || holds_all(*outside, kind, kMost, limit, host_size)) return seen;
  const auto inside = fresh(b);
  if (!inside) return seen;
  auto deferred = inside->defer();
  seen.defers = holds_all(*inside, kind, limit + 8, limit, host_size);
  return seen;
}

/// Observes small blocks first, then large ones, because a manager may keep small ones for later
/// and defer large ones. If an address is reused, observes again with the driver's ledger alone,
/// because the block may have been pending.
Observed observe(Bench& b, Kind kind) {
  Observed seen;
  for (const auto host_size : {4_KiB, 2_MiB + 512}) {
    bool handed_out_again = false;
    seen = observe(b, kind, {.host_size = host_size}, handed_out_again);
    if (seen.defers || kind == Kind::device) break;
    if (!handed_out_again) continue;
    seen = observe(b, kind, {.host_size = host_size, .reuses_waiting = true}, handed_out_again);
    if (seen.defers) break;
  }
  return seen;
}

/// Runs `check(trial, kind, observed)` on a bench of its own for each kind of memory whose frees
/// the manager defers.
void for_each_deferred(Bench& b, const std::function<void(Bench&, Kind, const Observed&)>& check) {
  b.untraceable();
  b.manager();
  bool any = false;
  for (const auto kind : kKinds) {
    if (b.decided()) return;
    const auto observed = observe(b, kind);
    if (!observed.defers) continue;
    any = true;
    b.expect(true, {}, {}, {});
    const auto trial = fresh(b);
    if (!trial) return;
    trial->untraceable();
    trial->expect(true, {}, {}, {});
    check(*trial, kind, observed);
    b.take(*trial);
  }
  if (!any) b.not_applicable("this manager frees inside a deferral as it does outside, and it may");
}

void expect_held(Bench& b, FreedBlock& block, Kind kind, const Observed& observed,
                 std::string_view when) {
  auto back = block.is_back_already();
  if (!back && observed.holds_through_flush) {
    if (!b.expect_ok("flush()", b.manager().flush())) return;
    back = block.is_back_already();
  }
  b.expect(!back, text::format("{} freed {}", name(kind), when), block.how(),
           "it is held back until the last deferral has ended, as it is inside a single one");
}

void expect_back(Bench& b, FreedBlock& block, Kind kind, std::string_view when) {
  if (!b.expect_ok("flush()", b.manager().flush())) return;
  b.expect(block.is_back() || block.is_given_among_many(),
           text::format("{} freed {}, after the deferral's end and flush()", name(kind), when),
           "its free is never made", "it is made");
}

// Deferrals that nest.

void check_nesting(Bench& b, Kind kind, const Observed& observed) {
  for (const bool oldest_first : {false, true}) {
    std::vector<Deferral> deferrals;
    for (int i = 0; i < 6; ++i) deferrals.push_back(b.defer());
    FreedBlock block(b, kind, observed);
    if (!block.is_made()) return;
    const auto when = text::format("inside six deferrals, of which the {} has not ended",
                                   oldest_first ? "youngest" : "oldest");
    const auto end = [&](std::size_t i) { deferrals[oldest_first ? 5 - i : i].end(); };
    end(5);
    end(4);
    if (kind != Kind::device) {
      std::vector<BenchMemory> others;  // they wait with it
      for (int i = 0; i < 6; ++i) {
        if (auto also = try_make(b, kind, observed.host_size)) others.push_back(*std::move(also));
      }
    }
    block.drop();
    for (std::size_t i = 3; i > 0; --i) end(i);
    expect_held(b, block, kind, observed, when);
    if (b.decided()) return;
    end(0);
    expect_back(b, block, kind, when);
    if (b.decided()) return;
  }
}

/// Expects the beginning of a deferral not to make a free that another one holds back.
void check_opening(Bench& b, Kind kind, const Observed& observed) {
  auto outer = b.defer();
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  auto inner = b.defer();
  expect_held(b, block, kind, observed, "inside a deferral, before a second one began there");
  if (b.decided()) return;
  inner.end();
  outer.end();
  expect_back(b, block, kind, "inside a deferral, before a second one began and ended there");
}

/// Overflows counters of few bits or few levels. Python's numbers have no such width.
void check_deep_nesting(Bench& b, Kind kind, const Observed& observed) {
  const std::size_t depth = b.subject().is_class ? 1'100 : 66'000;
  std::vector<DeferCleanup> deferrals;
  deferrals.reserve(depth);
  while (deferrals.size() < depth) deferrals.push_back(b.manager().defer_cleanup());
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  const auto when = [depth](std::size_t left) {
    return text::format("inside {} deferrals, of which {} have not ended", depth, left);
  };
  for (const auto left : {depth, depth - 44, std::size_t{32'768}, std::size_t{1'024},
                          std::size_t{256}, std::size_t{16}, std::size_t{1}}) {
    while (deferrals.size() > left) deferrals.pop_back();
    expect_held(b, block, kind, observed, when(left));
    if (b.decided()) return;
  }
  deferrals.clear();
  expect_back(b, block, kind, when(0));
}

// Deferrals of another manager of the same library.

/// Expects nothing that another manager does to end a deferral of this one, to make a free that it
/// holds back, or to lose one.
void check_apart_acts(Bench& b, Bench& other, Kind kind, const Observed& observed) {
  struct Act {
    std::string_view words;
    void (*act)(Bench& other);
  };
  static constexpr Act kActs[] = {
      {"another manager's initialize()",
       [](Bench& o) { static_cast<void>(o.manager().initialize().has_value()); }},
      {"another manager's flush()",
       [](Bench& o) { static_cast<void>(o.manager().flush().has_value()); }},
      {"another manager's trim(0)",
       [](Bench& o) { static_cast<void>(o.manager().trim(0).has_value()); }},
      {"another manager's reset()", [](Bench& o) { o.reset(); }},
      {"another manager's end", [](Bench& o) { o.end_manager(); }},
  };
  auto others = std::optional(other.manager().defer_cleanup());
  for (const auto& [words, act] : kActs) {
    if (!others) others.emplace(other.manager().defer_cleanup());
    auto deferred = b.defer();
    FreedBlock block(b, kind, observed);
    if (!block.is_made()) return;
    block.drop();
    others.reset();
    act(other);
    const auto when = text::format(
        "inside a deferral, then the end of another manager's, which began before, and {}", words);
    expect_held(b, block, kind, observed, when);
    if (b.decided()) return;
    deferred.end();
    expect_back(b, block, kind, when);
    if (b.decided()) return;
  }
}

void check_apart(Bench& b, Kind kind, const Observed& observed) {
  const auto other = fresh(b);
  if (!other) return;
  other->manager();
  {
    const auto deferred = other->manager().defer_cleanup();
    FreedBlock block(b, kind, observed);
    if (!block.is_made()) return;
    block.drop();
    b.expect_ok("flush()", b.manager().flush());
    b.expect(block.is_back(),
             text::format("{} freed, then flush(), while another manager defers", name(kind)),
             "its free is not made", "it is made: that deferral is the other manager's");
  }
  if (b.decided()) return;
  auto deferred = b.defer();
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  { const auto others = other->manager().defer_cleanup(); }
  expect_held(b, block, kind, observed,
              "inside a deferral, while one of another manager began and ended");
  deferred.end();
  if (!b.manager().flush()) return;
  check_apart_acts(b, *other, kind, observed);
}

// A deferral that begins, sees a free and ends on three threads.

void check_threads(Bench& b, Kind kind, const Observed& observed) {
  const auto on_another = [](const std::function<void()>& act) { start_thread(act).join(); };
  for (const bool begun_here : {true, false}) {
    std::optional<Deferral> deferred;
    const auto begin = [&] { deferred.emplace(b.defer()); };
    begun_here ? begin() : on_another(begin);
    FreedBlock block(b, kind, observed);
    if (!block.is_made()) return;
    const auto drop = [&] { block.drop(); };
    begun_here ? on_another(drop) : drop();
    const std::string when = begun_here ? "by another thread than began the deferral"
                                        : "inside a deferral that another thread began";
    expect_held(b, block, kind, observed, when);
    if (b.decided()) return;
    on_another([&] { deferred->end(); });
    expect_back(b, block, kind, when + " and a third one ended");
    if (b.decided()) return;
  }
}

// Deferrals that begin and end on several threads at once, inside one that lasts.

void check_many_threads(Bench& b, Kind kind, const Observed& observed) {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + std::chrono::milliseconds(8);
  auto lasting = b.defer();
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  for (int i = 0; i < 4; ++i) {
    const auto one = b.manager().defer_cleanup();
    const auto other = b.manager().defer_cleanup();
  }
  if (observed.holds_through_flush && !b.manager().flush()) return;
  if (block.is_back_already()) return;  // deferral/nests
  run_interrupted(b, 4, [&](std::size_t) {
    for (int i = 0; i % 16 != 0 || steady_clock::now() < until; ++i) {
      const InManager in_manager;
      const auto deferred = b.manager().defer_cleanup();
    }
  });
  const std::string when =
      "inside a deferral, while four threads began and ended deferrals at once";
  expect_held(b, block, kind, observed, when);
  if (b.decided()) return;
  lasting.end();
  expect_back(b, block, kind, when);
}

// A deferral that begins while another thread flushes.

/// A flush makes the free that is under way, and no other once the deferral has begun.
void check_flush_under_way(Bench& b, Kind kind, const Observed& observed) {
  if (kind == Kind::device || b.is_numba()) return;
  constexpr std::size_t kBlocks = 12;  // more than a manager could free between two looks
  // One free that this thread has taken, and one that a thread of the manager's has.
  constexpr std::size_t kMost = 2;
  {
    const auto deferred = b.defer();
    free_many(b, kind, kBlocks, observed.host_size);
  }
  struct Seen {
    std::atomic<bool> is_due{true}, has_begun{false};
    std::atomic<std::size_t> made_after{0};
    std::optional<DeferCleanup> deferral;
    std::thread thread;
  };
  const auto seen = std::make_shared<Seen>();
  b.watch().during = [seen, &manager = b.manager()](const CallEvent& event) {
    if (event.call != Call::mem_free && event.call != Call::mem_free_host) return;
    if (seen->has_begun) ++seen->made_after;
    if (!seen->is_due.exchange(false)) return;
    seen->thread = start_thread([seen, &manager] {
      seen->deferral.emplace(manager.defer_cleanup());
      seen->has_begun = true;
    });
    // The manager may hold a lock here for which that waits.
    for (int i = 0; i < 100 && !seen->has_begun; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const auto flushed = b.manager().flush();
  b.watch().during = nullptr;
  seen->is_due = false;
  if (seen->thread.joinable()) seen->thread.join();
  b.expect(seen->made_after <= kMost,
           text::format("flush() of {} frees of {}, and a deferral that another thread begins in "
                        "the first of them",
                        kBlocks, name(kind)),
           text::format("{} more frees are made", seen->made_after.load()),
           "they wait until the deferral has ended");
  seen->deferral.reset();
  if (flushed) b.expect_ok("flush()", b.manager().flush());
}

// A deferral that outlives a reset.

void check_reset(Bench& b, Kind kind, const Observed& observed) {
  auto deferred = b.defer();
  if (kind != Kind::device) {
    FreedBlock pending(b, kind, observed);
    if (!pending.is_made()) return;
    pending.drop();
    b.reset();
    expect_held(b, pending, kind, observed, "inside a deferral, before a reset there");
    if (b.decided()) return;
  }
  {
    const auto ended = try_make(b, kind, 4_KiB);
    b.reset();
  }
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  expect_held(b, block, kind, observed, "inside a deferral, after a reset there");
  if (b.decided()) return;
  deferred.end();
  expect_back(b, block, kind, "inside a deferral, after a reset there");
  if (kind == Kind::device) return;
  // What a reset ends waits in nested deferrals as it does in one.
  bool waits = true;
  for (const std::size_t depth : {1, 2}) {
    if (b.decided()) return;
    std::vector<Deferral> deferrals;
    while (deferrals.size() < depth) deferrals.push_back(b.defer());
    FreedBlock ended(b, kind, observed);
    if (!ended.is_made()) return;
    b.reset();
    const bool is_back = ended.is_back_already();
    if (depth == 1) waits = !is_back;
    b.expect(!waits || !is_back,
             text::format("{} that a reset ends inside {} deferrals", name(kind), depth),
             ended.how(), "it is held back, as it is inside one");
    deferrals.clear();
    b.expect_ok("flush()", b.manager().flush());
  }
}

// A flush inside.

void check_flush(Bench& b, Kind kind, const Observed& observed) {
  const auto expect_waits = [&](FreedBlock& block, std::string_view when) {
    b.expect(!block.is_back_already(), text::format("{} freed {}", name(kind), when), block.how(),
             "it is held back until the deferral has ended");
  };
  auto deferred = b.defer();
  b.expect_ok("flush() inside a deferral", b.manager().flush());
  FreedBlock block(b, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  expect_waits(block, "inside a deferral, after a flush() there");
  b.expect_ok("flush() inside a deferral", b.manager().flush());
  expect_waits(block, "inside a deferral, before a flush() there");
  if (b.decided()) return;
  deferred.end();
  expect_back(b, block, kind, "inside a deferral with two flushes");
}

// What a deferral outlasts.

struct Disturbance {
  std::string_view words;
  void (*act)(Bench& bench);
  bool resets = false;  ///< The act frees what is live.
};

/// As free_many(), without the bench, which takes longer than a manager. 4,500 of them, of a class
/// of Python's 1,100.
template <class Make>
void free_many_without(Bench& b, Make make) {
  const std::size_t count = b.subject().is_class ? 1'100 : 4'500;
  auto& manager = b.manager();
  std::vector<decltype(make(manager))> blocks;
  while (blocks.size() < count) {
    blocks.push_back(make(manager));
    if (!blocks.back()) break;
  }
  b.watch().forget();
}

constexpr Disturbance kDisturbances[] = {
    {"trim(0)", [](Bench& b) { static_cast<void>(b.manager().trim(0).has_value()); }},
    {"initialize()", [](Bench& b) { static_cast<void>(b.manager().initialize().has_value()); }},
    {"get_memory_info()",
     [](Bench& b) { static_cast<void>(b.manager().get_memory_info().has_value()); }},
    {"requests that are out of memory",
     [](Bench& b) {
       const auto calls = {Call::mem_alloc,
                           Call::runtime_malloc,
                           Call::mem_create,
                           Call::mem_alloc_async,
                           Call::mem_host_alloc,
                           Call::mem_alloc_managed,
                           Call::mem_alloc_from_pool_async};
       for (const auto call : calls) b.watch().fail(call, {2, 2, 2});
       for (const auto kind : kKinds) {
         if (const auto block = try_make(b, kind, 24_MiB)) continue;
       }
       for (const auto call : calls) b.watch().fail(call, {});
     }},
    {"many other frees",
     [](Bench& b) {
       // Each is larger than those before, so that no pending block can serve it.
       const std::uint64_t count = b.subject().is_class ? 600 : 2'400;
       for (std::uint64_t i = 0; i < count; ++i) {
         const auto size = 64 + i / 2 * 16;
         if (const auto block = try_make(b, i % 2 == 0 ? Kind::mapped : Kind::managed, size))
           continue;
       }
     }},
    {"many frees of managed memory",
     [](Bench& b) {
       free_many_without(b, [](MemoryManager& manager) {
         return manager.memallocmanaged(4_KiB, AttachFlags::global);
       });
     }},
    {"many frees of mapped memory",
     [](Bench& b) {
       free_many_without(
           b, [](MemoryManager& manager) { return manager.memhostalloc(4_KiB, {.mapped = true}); });
     }},
    {"frees of 160 MiB",
     [](Bench& b) {
       for (std::uint64_t i = 0; i < 10; ++i) {
         const auto size = 16_MiB + i * 64_KiB;
         if (const auto block = try_make(b, i % 2 == 0 ? Kind::mapped : Kind::managed, size))
           continue;
       }
     }},
    {"the end of memory that a reset there had ended",
     [](Bench& b) {
       std::vector<BenchMemory> stale;
       for (const auto kind : kKinds) {
         if (auto block = try_make(b, kind, 64)) stale.push_back(*std::move(block));
       }
       b.reset();
     },
     true},
};

void check_lasting(Bench& b, Kind kind, const Observed& observed) {
  if (kind == Kind::device) return;  // its largest block leaves no room for the rest
  for (const auto size : {std::uint64_t{64}, std::uint64_t{2000}, 64_KiB, 1_MiB + 1}) {
    if (observed.host_size != 4_KiB) break;  // small blocks are not deferred
    auto deferred = b.defer();
    auto sized = observed;
    sized.host_size = size;
    FreedBlock block(b, kind, sized);
    if (!block.is_made()) return;
    block.drop();
    expect_held(b, block, kind, observed,
                text::format("inside a deferral, {} bytes where 4096 are held back", size));
    if (b.decided()) return;
    deferred.end();
    if (!b.manager().flush()) return;
  }
  for (const auto& [words, act, resets] : kDisturbances) {
    auto deferred = b.defer();
    FreedBlock before(b, kind, observed);
    std::optional<FreedBlock> after;
    // A reset may free live memory at once: the deferral does not hold that back.
    if (!resets) after.emplace(b, kind, observed);
    if (!before.is_made() || (after && !after->is_made())) return;
    before.drop();
    act(b);
    expect_held(b, before, kind, observed, text::format("inside a deferral, then {}", words));
    if (b.decided()) return;
    if (!after) after.emplace(b, kind, observed);
    if (!after->is_made()) return;
    after->drop();
    expect_held(b, *after, kind, observed,
                text::format("inside a deferral, after {} there", words));
    if (b.decided()) return;
    deferred.end();
    if (!b.manager().flush()) return;
  }
}

/// A kind of memory of which some frees wait: no free of it is made inside, of whatever size, and
/// however many of that size were freed before.
void check_every_size(Bench& b, Kind kind) {
  if (kind == Kind::device) return;
  struct Blocks {
    std::uint64_t size;
    std::size_t count;
  };
  // More of each size than the ten frees that the default manager lets wait outside a deferral.
  static constexpr Blocks kBlocks[] = {{64, 40}, {4_KiB, 200}, {300_KiB, 60}, {1_MiB, 20}};
  for (const auto& [size, count] : kBlocks) {
    auto deferred = b.defer();
    std::size_t first_back = 0;
    b.expect(holds_all(b, kind, count, first_back, size),
             text::format("{} blocks of {} bytes of {} freed inside a deferral", count, size,
                          name(kind)),
             text::format("the driver frees one at the free of number {}", first_back),
             "their frees wait, as those of other sizes do");
    if (b.decided()) return;
    deferred.end();
    if (!b.manager().flush()) return;
  }
}

/// Many GiB wait: more than any number of 32 bits, and than half of the device.
void check_lasting_of_large(Bench& b, Kind kind, const Observed& observed) {
  if (kind == Kind::device || !b.is_simulated() || b.subject().standins != nullptr) return;
  auto large = b.with_capacity("14GiB");
  if (!large) return b.inconclusive(describe(large.error()));
  auto& on = **large;
  on.untraceable();
  on.expect(true, {}, {}, {});
  auto deferred = on.defer();
  FreedBlock block(on, kind, observed);
  if (!block.is_made()) return;
  block.drop();
  free_many(on, kind, 3, 3_GiB + 512);
  expect_held(on, block, kind, observed, "inside a deferral, then frees of 9 GiB");
  deferred.end();
  b.take(on);
}

// Frees that a deferral makes sooner.

void check_no_sooner(Bench& b, Kind kind) {
  struct Blocks {
    std::uint64_t size;
    std::size_t count;
  };
  static constexpr Blocks kBlocks[] = {{64, 3}, {4_KiB, 3}, {300_KiB, 3}, {1_MiB, 20}};
  for (const auto& [size, count] : kBlocks) {
    bool waits_outside = true;
    std::atomic<bool> elsewhere{false};
    for (const bool is_inside : {false, true}) {
      const auto trial = fresh(b);
      if (!trial) return;
      trial->untraceable();
      trial->watch().during = [&elsewhere, home = std::this_thread::get_id()](const CallEvent&) {
        if (std::this_thread::get_id() != home) elsewhere = true;
      };
      const auto deferred = is_inside ? std::optional(trial->defer()) : std::nullopt;
      std::size_t first_back = 0;
      const auto holds = holds_all(*trial, kind, count, first_back, size);
      if (!is_inside) waits_outside = holds;
      if (elsewhere || !waits_outside) break;
      b.expect(holds, text::format("{} of {} bytes freed inside a deferral", name(kind), size),
               "its free is made at once, which outside waits",
               "the free waits inside as it does outside");
      trial->watch().during = nullptr;
    }
  }
}

// Frees that were held back and are then made inside the same deferral.

/// Frees more blocks of host or managed memory inside a deferral than a manager keeps for later. A
/// free that was not made when it returned must be made after the deferral, whatever comes.
void check_no_later_free(Bench& b, Kind kind) {
  struct Act {
    std::string_view words;
    void (*act)(Bench& bench, Kind kind);
  };
  static constexpr Act kActs[] = {
      {"trim(0)", [](Bench& on, Kind) { static_cast<void>(on.manager().trim(0).has_value()); }},
      {"a request that finds no memory",
       [](Bench& on, Kind) {
         for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
           on.watch().fail(call, {2, 2});
         for (const auto asked : kKinds) {
           if (const auto block = try_make(on, asked, 24_MiB)) continue;
         }
         for (const auto call : {Call::mem_alloc, Call::mem_host_alloc, Call::mem_alloc_managed})
           on.watch().fail(call, {});
       }},
      {"reset()", [](Bench& on, Kind) { on.reset(); }}};
  struct Blocks {
    std::size_t count;
    std::uint64_t size;
  };
  static constexpr Blocks kBlocks[] = {{200, 4_KiB}, {24, 1_MiB}};
  for (const auto& some : kBlocks) {
    for (const auto& [words, act] : kActs) {
      if (b.decided()) return;
      const auto trial = fresh(b);
      if (!trial) return;
      auto& on = *trial;
      on.untraceable();
      on.expect(true, {}, {}, {});
      const FreesElsewhere elsewhere(on);
      auto deferred = std::optional(on.manager().defer_cleanup());
      if (!deferred->is_active()) return;
      std::vector<BenchMemory> blocks;
      while (blocks.size() < some.count) {
        auto block = try_make(on, kind, some.size);
        if (!block) return;
        blocks.push_back(*std::move(block));
      }
      std::set<std::uint64_t> held_back;
      const auto judge = [&](std::string_view when) {
        for (const auto& event : on.watch().events()) {
          const bool frees = event.call == Call::mem_free_host || event.call == Call::mem_free;
          if (!frees || held_back.erase(event.pointer) == 0 || elsewhere) continue;
          on.expect(false,
                    text::format("{} blocks of {} bytes of {} freed inside a deferral; {} there",
                                 some.count, some.size, name(kind), when),
                    text::format("the driver frees one that an earlier free() had held back: {}",
                                 to_text(event)),
                    "its free is made once the deferral has ended");
        }
        on.watch().forget();
      };
      on.watch().forget();
      for (auto& block : blocks) {
        const auto thing = on.watch().ledger().find(ledger_kind(kind), block.address());
        const auto before = on.manager().state().pending_count;
        block.drop();
        judge("another free()");
        const auto after = on.manager().state().pending_count;
        if (!is_kept(before, after) && thing &&
            on.watch().ledger().find(ledger_kind(kind), thing->base) == thing)
          held_back.insert(thing->base);
      }
      act(on, kind);
      judge(words);
      deferred.reset();
      on.expect_ok("flush()", on.manager().flush());
      b.take(on);
    }
  }
}

// Frees that the manager itself calls deferred.

/// Makes a free whose work is pending, inside a deferral or before it. Then it lets the work end
/// and gives the manager reasons to look at its pending frees.
void check_told(Bench& b, Kind kind, std::uint64_t size, bool is_inside) {
  std::atomic<bool> elsewhere{false};
  const auto stream = b.stream();
  auto block = kind == Kind::device ? b.try_memalloc(size, stream) : try_make(b, kind, size);
  if (!block) return;
  if (block->device().value != 0 && !b.device().memset_d8_async(block->device(), 1, 4_KiB, stream))
    return;
  b.watch().during = [&elsewhere, home = std::this_thread::get_id()](const CallEvent&) {
    if (std::this_thread::get_id() != home) elsewhere = true;
  };
  b.observer().forget();
  auto deferred = is_inside ? std::optional(b.defer()) : std::nullopt;
  b.watch().forget();
  const auto freed = block->free(stream);
  if (!deferred) deferred.emplace(b.defer());
  const bool is_told = freed && !b.observer().added().empty();
  const auto made_before = is_inside ? 0 : b.observer().flushes().size();
  if (!is_inside) b.watch().forget();
  const bool is_done = b.device().ctx_synchronize().has_value();
  struct Step {
    std::string_view words;
    void (*act)(Bench& bench, StreamHandle stream);
  };
  static constexpr Step kSteps[] = {
      {"memory was asked for",
       [](Bench& bench, StreamHandle on) {
         for (int i = 0; i < 2; ++i) {
           const auto next = bench.try_memalloc(4_KiB, on);
           const auto info = bench.manager().get_memory_info();
         }
       }},
      {"flush()",
       [](Bench& bench, StreamHandle) { static_cast<void>(bench.manager().flush().has_value()); }},
      {"a request for more than there is",
       [](Bench& bench, StreamHandle on) {
         const auto info = bench.device().mem_get_info();
         const auto out = info ? bench.try_memalloc(info->free + 2_MiB, on) : info.error();
       }},
  };
  for (const auto& [words, act] : kSteps) {
    if (!is_told || !is_done) break;
    act(b, stream);
    if (elsewhere) break;  // another thread may have begun these frees earlier
    const auto events = b.watch().events();
    const bool frees = std::any_of(events.begin(), events.end(), [](const CallEvent& event) {
      return event.call == Call::mem_free || event.call == Call::mem_free_async ||
             event.call == Call::runtime_free || event.call == Call::mem_unmap ||
             event.call == Call::mem_free_host;
    });
    b.expect(b.observer().flushes().size() == made_before || !frees,
             text::format("{} bytes of {} freed {} a deferral, told by pending_added(); then its "
                          "work ended, and {} inside",
                          size, name(kind), is_inside ? "inside" : "before", words),
             "flushed() is told inside, and the driver frees memory",
             "the free waits until the deferral has ended");
  }
  b.watch().during = nullptr;
}

/// Frees more device memory inside a deferral than half of what there is.
void check_told_of_most(Bench& b) {
  const auto info = b.device().mem_get_info();
  if (!info) return;
  check_told(b, Kind::device, info->free / 10 * 6 & ~(2_MiB - 1), true);
}

/// Frees more than 20,000 blocks of device memory inside a deferral, if such frees are told to
/// wait.
void check_told_of_many(Bench& b) {
  // More than 20,000, which no queue of frees should be too short for.
  constexpr std::size_t kCount = 20'001;
  auto& manager = b.manager();
  const auto free_in_deferral = [&](std::size_t count) {
    b.expect_ok("flush()", manager.flush());
    b.observer().forget();
    const auto deferred = manager.defer_cleanup();
    std::vector<Result<MemoryPointer>> blocks;
    blocks.reserve(count);
    while (blocks.size() < count) {
      blocks.push_back(manager.memalloc(512));
      if (!blocks.back()) break;
    }
    blocks.clear();
    b.watch().forget();
    return std::pair(b.observer().added().size(), b.observer().flushes().size());
  };
  if (free_in_deferral(1) != std::pair(std::size_t{1}, std::size_t{0})) return;
  const auto [told, made] = free_in_deferral(kCount);
  b.expect(made == 0,
           text::format("{} blocks of 512 bytes freed inside a deferral, {} of them told by "
                        "pending_added()",
                        kCount, told),
           "flushed() is told inside", "the frees wait until the deferral has ended");
  b.expect_ok("flush()", manager.flush());
}

// Many deferred frees.

constexpr std::size_t kFrees = 200;  // in a deferral, far more than Numba's default limit of 10
constexpr int kCycles = 8;           // that must not leave more behind each time

/// Returns how many bytes, at most `most`, the manager serves in blocks of 2 MiB.
std::uint64_t room_for_blocks(Bench& b, std::uint64_t most) {
  std::vector<BenchMemory> blocks;
  while (blocks.size() * 2_MiB < most) {
    auto block = b.try_memalloc(2_MiB);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
  return blocks.size() * 2_MiB;
}

void check_no_block_is_lost(Bench& b, std::uint64_t left) {
  b.leave_on_device(left);
  b.manager();
  const auto room = room_for_blocks(b, left);
  b.expect_ok("flush()", b.manager().flush());
  const auto size = room / (kFrees + 8) & ~(4_KiB - 1);
  if (size == 0) return;
  std::size_t at_first = 0;
  for (int cycle = 1; cycle <= kCycles && !b.decided(); ++cycle) {
    auto deferred = b.defer();
    std::size_t served = 0;
    while (served < kFrees && b.try_memalloc(size)) ++served;
    deferred.end();
    b.expect_ok("flush()", b.manager().flush());
    // A real device decides how much of the freed memory it gives again at once.
    if (!b.is_simulated() && b.watch().ledger().live(CallLedger::Kind::device).count == 0) continue;
    if (cycle == 1) at_first = served;
    b.expect(served >= at_first,
             text::format("blocks of {} bytes asked for and freed inside one deferral, with {} MiB "
                          "left on the device, for the {}. time",
                          size, room / 1_MiB, cycle),
             text::format("{} are served, then memory is out: {} of {} frees of the deferral "
                          "before were lost",
                          served, at_first - served, at_first),
             text::format("{}, as the first time", at_first));
  }
  b.expect_balance("many frees in deferrals, then the manager's end");
}

void check_no_host_block_is_lost(Bench& b, Kind kind) {
  const auto& ledger = b.watch().ledger();
  const auto before = ledger.live(ledger_kind(kind)).count;
  const std::size_t most = b.subject().is_class ? 600 : 2'500;
  for (const std::size_t frees : {std::size_t{1}, kFrees, most}) {
    auto deferred = b.defer();
    {
      // Live at the same time, so that no pending block serves one
      std::vector<BenchMemory> blocks;
      while (blocks.size() < frees) {
        auto block = try_make(b, kind, 4_KiB);
        if (!block) return;
        blocks.push_back(*std::move(block));
      }
    }
    deferred.end();
    b.expect_ok("flush()", b.manager().flush());
    const auto lost = ledger.live(ledger_kind(kind)).count - before;
    if (frees == 1 && lost != 0) return;  // the manager keeps it for later
    b.expect(lost == 0,
             text::format("{} blocks of {} freed inside a deferral, its end and flush()", frees,
                          name(kind)),
             text::format("{} of the frees are not made", lost), "all are made");
  }
}

// The manager's end.

/// Ends a plugin's manager while a deferral holds back one free of each kind. A bundled manager may
/// expect its deferrals to end first.
void check_end_inside(Bench& b) {
  if (dynamic_cast<const plugin::ImportedManager*>(&b.manager()) == nullptr) return;
  std::vector<Result<BenchMemory>> alive;
  alive.push_back(b.try_pin(b.buffer()));
  auto deferred = b.manager().defer_cleanup();
  for (const auto kind : kKinds) {
    alive.push_back(try_make(b, kind, 4_KiB));
    if (const auto block = try_make(b, kind, 4_KiB)) continue;
  }
  alive.push_back(b.try_pin(b.buffer()));
  deferred.abandon();
  b.expect_balance(
      "a free of each kind inside a deferral, then the manager's end there, with memory of each "
      "kind alive");
}

/// What a reset has ended, and regions, in deferrals of two levels.
void check_end_inside_nested(Bench& b) {
  if (dynamic_cast<const plugin::ImportedManager*>(&b.manager()) == nullptr) return;
  const auto make_each = [&](std::vector<BenchMemory>& into) {
    for (const auto kind : kKinds) {
      if (auto block = try_make(b, kind, 4_KiB)) into.push_back(*std::move(block));
    }
    if (auto region = b.try_pin(b.buffer())) into.push_back(*std::move(region));
  };
  std::vector<BenchMemory> ended, freed;
  make_each(ended);
  auto outer = b.manager().defer_cleanup();
  b.reset();
  auto inner = b.manager().defer_cleanup();
  make_each(freed);
  freed.clear();
  ended.clear();
  inner.abandon();
  outer.abandon();
  b.expect_balance(
      "a reset inside a deferral and frees of each kind inside a nested one, then the manager's "
      "end there");
}

constexpr Clause kDeferralClauses[] = {
    {.id = "deferral/nests",
     .rule = "What one deferral holds back is held back until the last of several has ended, in "
             "whatever order they end.",
     .source = "NBEP 7; DOC; emm/defer_cleanup.hpp",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           for_each_deferred(b, [](Bench& trial, Kind kind, const Observed& observed) {
             check_nesting(trial, kind, observed);
             if (!trial.decided()) check_opening(trial, kind, observed);
             if (!trial.decided()) check_deep_nesting(trial, kind, observed);
           });
         }},

    {.id = "deferral/apart",
     .rule = "A deferral holds back the frees of its own manager, and of no other.",
     .source = "emm_plugin.h, defer_cleanup; DFR-6",
     .level = Level::must,
     .scope = Scope::all,
     .not_of_class = "Numba has one manager of a device at a time",
     .check = [](Bench& b) { for_each_deferred(b, check_apart); }},

    {.id = "deferral/threads",
     .rule = "A deferral is the manager's, and no thread's: it may begin on one, hold back the "
             "frees of another and end on a third.",
     .source = "emm_plugin.h, defer_cleanup",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           for_each_deferred(b, [](Bench& trial, Kind kind, const Observed& observed) {
             check_threads(trial, kind, observed);
             if (!trial.decided()) check_flush_under_way(trial, kind, observed);
             if (!trial.decided()) check_many_threads(trial, kind, observed);
           });
         }},

    {.id = "deferral/reset",
     .rule = "A reset inside a deferral does not end it.",
     .source = "emm/defer_cleanup.hpp; drv:840-847",
     .level = Level::must,
     .scope = Scope::all,
     .check = [](Bench& b) { for_each_deferred(b, check_reset); }},

    {.id = "deferral/flush",
     .rule = "A flush inside a deferral makes no deferred free, and does not end the deferral.",
     .source = "emm/memory_manager.hpp; emm_plugin.h, flush",
     .level = Level::must,
     .scope = Scope::all,
     .check = [](Bench& b) { for_each_deferred(b, check_flush); }},

    {.id = "deferral/lasts",
     .rule = "Neither a trim nor a request, not even one that is out of memory, nor many frees end "
             "a deferral or make what it holds back.",
     .source = "emm_plugin.h, defer_cleanup; drv:728-745",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "DEV-5 DFR-7 PD-13 deferral/told deferral/threads deferral/reset "
                      "deferral/flush deferral/no_sooner deferral/nests",
     .check =
         [](Bench& b) {
           for_each_deferred(b, [](Bench& trial, Kind kind, const Observed& observed) {
             check_lasting(trial, kind, observed);
             if (!trial.decided()) check_every_size(trial, kind);
             if (!trial.decided()) check_lasting_of_large(trial, kind, observed);
           });
         }},

    {.id = "deferral/no_sooner",
     .rule = "A free that waits outside of a deferral is not made at once inside one; what a free "
             "inside has not made by its end is made after the deferral.",
     .source = "emm_plugin.h, defer_cleanup",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "DFR-3 PD-18 deferral/lasts deferral/told",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.expect(true, {}, {}, {});
           for (const auto kind : {Kind::managed, Kind::mapped, Kind::pinned}) {
             check_no_sooner(b, kind);
             if (!b.is_numba()) check_no_later_free(b, kind);
           }
         }},

    {.id = "deferral/told",
     .rule = "A free that the manager itself tells of as waiting is not made inside a deferral, "
             "also where its work has ended, memory is out or a flush is asked for.",
     .source = "emm_plugin.h, defer_cleanup and pending_added",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with =
         "DEV-5 DFR-3 DFR-7 PD-13 PD-18 deferral/flush deferral/lasts deferral/no_sooner",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.expect(true, {}, {}, {});
           for (const auto kind : kKinds) {
             for (const bool is_inside : {true, false}) {
               if (b.decided()) return;
               const auto trial = fresh(b);
               if (!trial) return;
               trial->untraceable();
               trial->expect(true, {}, {}, {});
               check_told(*trial, kind, kind == Kind::device ? 5_MiB : 300_KiB, is_inside);
               b.take(*trial);
             }
           }
           if (b.is_simulated()) b.apart(check_told_of_most);
           if (!b.decided() && !b.is_numba()) b.apart(check_told_of_many);
         }},

    {.id = "deferral/nothing_lost",
     .rule = "However many frees a deferral holds back, all are made after it.",
     .source = "NBEP 7, defer_cleanup",
     .level = Level::must,
     .scope = Scope::all,
     .check =
         [](Bench& b) {
           b.untraceable();
           const auto plain = b.is_simulated() && b.subject().standins == nullptr;
           auto subject = b.subject();
           if (plain)
             subject.device = text::format("sim:capacity=1GiB,devices=2,seed={}", b.seed());
           auto large = Bench::create(subject, "deferral/nothing_lost");
           if (!large) return b.inconclusive(describe(large.error()));
           (*large)->untraceable();
           (*large)->expect(true, {}, {}, {});
           check_no_block_is_lost(**large, b.is_simulated() && !plain ? 64_MiB : 512_MiB);
           b.expect(true, {}, {}, {});
           b.take(**large);
           for (const auto kind : {Kind::managed, Kind::mapped, Kind::pinned}) {
             if (b.decided()) return;
             const auto trial = fresh(b);
             if (!trial) return;
             trial->untraceable();
             trial->expect(true, {}, {}, {});
             check_no_host_block_is_lost(*trial, kind);
             b.take(*trial);
           }
         }},

    {.id = "deferral/manager_end",
     .rule = "What a deferral held back is freed by the manager's end, where nothing else frees it "
             "before.",
     .source = "emm_plugin.h, destroy",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "accounts/balance threads/slots",
     .check =
         [](Bench& b) {
           b.untraceable();
           b.expect(true, {}, {}, {});
           auto deferred = b.defer();
           for (int i = 0; i < 40; ++i) {
             for (const auto kind : kKinds) {
               if (const auto block = try_make(b, kind, 4_KiB)) continue;
             }
           }
           deferred.end();
           b.expect_balance("160 frees inside a deferral, its end, then the manager's end");
           if (!b.decided() && !b.is_numba()) b.apart(check_end_inside);
           if (!b.decided() && !b.is_numba()) b.apart(check_end_inside_nested);
         }},
};

}  // namespace

extern constinit const ClauseGroup deferral_clauses{"Beyond the catalogue: deferral",
                                                    kDeferralClauses};

}  // namespace emm
