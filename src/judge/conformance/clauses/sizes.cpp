#include <algorithm>
#include <array>
#include <bit>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_statistics.hpp"

// Beyond the catalogue: every size, many blocks, blocks beyond 4 GiB, over memory in pieces; and
// what may be refused. Bench judges each block when it is handed out: it must be aligned, overlap
// no live block, and be memory throughout.

namespace emm {
namespace {

using namespace emm::conformance;

/// A block with its own mark at both ends and at every 4 GiB.
class Marked {
 public:
  Marked(Bench& bench, BenchMemory block, std::uint8_t mark)
      : bench_(&bench), block_(std::move(block)), mark_(mark) {
    for_each_place([&](DevicePtr at, std::uint64_t size) {
      bench_->expect_ok("a block is written", bench_->device().memset_d8(at, mark_, size));
      return true;
    });
  }
  std::uint64_t size() const noexcept { return block_.size(); }
  DevicePtr address() const noexcept { return block_.device(); }
  bool is_whole() const {
    bool whole = true;
    for_each_place([&](DevicePtr at, std::uint64_t size) {
      std::array<std::byte, kMark> seen{};
      whole = whole && bench_->device().memcpy_dtoh(std::span(seen).first(size), at) &&
              std::all_of(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(size),
                          [&](std::byte byte) { return byte == std::byte{mark_}; });
      return whole;
    });
    return whole;
  }
  /// Checks the marks and frees the block.
  void end() {
    bench_->expect(is_whole(), text::format("a block of {} bytes, when it is freed", size()),
                   "other content at its ends", "what was written");
    bench_->expect_ok("free()", block_.free());
  }

 private:
  static constexpr std::uint64_t kMark = 16;  // bytes that are written at each place

  template <class F>
  void for_each_place(F f) const {
    const auto mark = std::min(kMark, size());
    for (std::uint64_t at = 0; at < size(); at += 4_GiB) {
      if (!f(block_.device() + at, std::min(mark, size() - at))) return;
    }
    f(block_.device() + (size() - mark), mark);
  }

  Bench* bench_;
  BenchMemory block_;
  std::uint8_t mark_;
};

/// Requests memory on a device that has plenty, and marks what it gets.
class Asking {
 public:
  /// `judges` says whether a request that fails with out of memory is judged.
  explicit Asking(Bench& bench, bool judges = true) : b_(bench), judges_(judges) {}

  /// Requests memory and marks it. Returns nothing if the manager may refuse or the clause is
  /// decided.
  std::optional<Marked> ask(std::uint64_t size) {
    if (b_.decided()) return std::nullopt;
    auto block = b_.try_memalloc(size);
    const auto is_out = !block && block.error().code == Errc::out_of_memory;
    if (is_out && !judges_) return std::nullopt;
    if (!b_.gives(block, size)) return std::nullopt;
    b_.expect_equal("the size of a block", block->size(), size);
    return Marked(b_, *std::move(block), static_cast<std::uint8_t>(++marks_ % 251 + 1));
  }

 private:
  Bench& b_;
  bool judges_;
  std::uint64_t marks_ = 0;
};

/// Runs `check` on a simulated device with `capacity`, or on the real one.
template <class Check>
void on_roomy_device(Bench& b, std::string_view capacity, Check check) {
  auto fresh = b.with_capacity(capacity);
  if (!fresh) return b.inconclusive(describe(fresh.error()));
  b.expect(true, {}, {}, {});
  (*fresh)->expect(true, {}, {}, {});
  check(**fresh);
  b.take(**fresh);
}

/// Frees every second of several neighbours of `size`. A block slightly larger than a hole must not
/// be placed there.
void leave_holes(Bench& b, Asking& asking, std::uint64_t size) {
  std::vector<Marked> kept;
  std::vector<std::optional<Marked>> holes;
  for (int i = 0; i < 3; ++i) {
    auto before = asking.ask(size);
    auto hole = asking.ask(size);
    if (!before || !hole) break;
    kept.push_back(*std::move(before));
    holes.push_back(std::move(hole));
  }
  if (auto last = asking.ask(size)) kept.push_back(*std::move(last));
  for (auto& hole : holes) hole->end();
  b.expect_ok("flush()", b.manager().flush());  // a pending free leaves no hole
  for (const auto more : {std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{512}, 2_MiB}) {
    if (auto larger = asking.ask(size + more)) kept.push_back(*std::move(larger));
  }
  if (auto same = asking.ask(size)) kept.push_back(*std::move(same));
  if (auto less = asking.ask(size - size / 3)) kept.push_back(*std::move(less));
  for (std::size_t i = 0; i < kept.size(); i += 2) kept[i].end();
  for (std::size_t i = 1; i < kept.size(); i += 2) kept[i].end();
}

/// Requests blocks of `size` beside a small one. A slab has nearly room for the last of them, which
/// must go elsewhere.
void fill_beside_a_small_one(Bench& b, Asking& asking, std::uint64_t size) {
  constexpr int kBlocks = 17;  // one more than a slab of sixteen has places for
  std::vector<std::optional<Marked>> kept;
  for (const auto small : {std::uint64_t{1}, std::uint64_t{600}}) {
    kept.push_back(asking.ask(small));
    for (int i = 0; i < kBlocks; ++i) kept.push_back(asking.ask(size));
  }
  for (auto& one : kept) {
    if (one) one->end();
  }
  // If a slab has `size` bytes, two parts that sum to `size` do not fit side by side beside the
  // small block.
  for (std::uint64_t eighths = 1; eighths <= 4; ++eighths) {
    const auto part = size / 8 * eighths;
    std::array<std::optional<Marked>, 4> parts{asking.ask(1), asking.ask(part),
                                               asking.ask(size - part), asking.ask(1)};
    for (auto& one : parts) {
      if (one) one->end();
    }
    b.expect_ok("flush()", b.manager().flush());
  }
}

/// Requests blocks of so many sizes that each is less than a hundredth larger than the one before,
/// so that a fault in any band of sizes meets one. Each lies beside a block that fills its place,
/// whatever size classes the manager has. Many live at once, so that they are cut one after the
/// other.
void sweep_bands(Bench& b, Asking& asking) {
  // Bytes, and the factor between two sizes: some ninety to an octave.
  constexpr double kLeast = 1'000, kMost = 64.0 * 1024 * 1024, kStep = 1.008;
  const auto most_live = b.affordable(24_MiB);
  std::vector<Marked> kept;
  std::uint64_t live = 0;
  const auto end_all = [&] {
    for (auto& one : kept) one.end();
    kept.clear();
    live = 0;
    b.expect_ok("flush()", b.manager().flush());
  };
  for (double exact = kLeast; exact < kMost && !b.decided(); exact *= kStep) {
    const auto size = static_cast<std::uint64_t>(exact);
    const auto full = std::bit_floor(size);
    for (const auto bytes : {full, size, size}) {
      if (live + bytes > most_live) end_all();
      auto block = asking.ask(bytes);
      if (!block) continue;
      kept.push_back(*std::move(block));
      live += bytes;
    }
  }
  end_all();
}

/// Returns the driver's range around the address if the manager cuts blocks from larger ones.
std::optional<AddressRange> segment_of(Bench& b, DevicePtr at, std::uint64_t size) {
  const auto range = b.device().mem_get_address_range(at);
  if (!range || range->size < size + 512 || range->size > 256_MiB) return std::nullopt;
  return *range;
}

/// Finds the segment that the manager takes from the device for a first request. Then requests from
/// a fresh one what nearly fits into its rest.
void fill_segments(Bench& b, Asking& asking) {
  const auto end_all = [&](std::initializer_list<std::optional<Marked>*> blocks) {
    for (auto* one : blocks) {
      if (*one) (*one)->end();
    }
    b.reset();
    b.expect_ok("flush()", b.manager().flush());
  };
  b.reset();
  for (const auto first : {std::uint64_t{1}, 600 * std::uint64_t{1}, 5_KiB, 70_KiB, 300_KiB,
                           1_MiB + 1, 3_MiB, 5_MiB, 9_MiB}) {
    auto block = asking.ask(first);
    const auto segment = block ? segment_of(b, block->address(), first) : std::nullopt;
    end_all({&block});
    if (!segment) continue;
    const auto whole = segment->size;
    for (const auto less : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256},
                            std::uint64_t{512}, 4_KiB, first / 2, first - 1, first, first + 512}) {
      if (less >= whole) continue;
      auto small = asking.ask(first);
      auto rest = asking.ask(whole - less);
      auto last = asking.ask(first);
      end_all({&small, &rest, &last});
    }
    for (std::uint64_t sixteenths = 1; sixteenths < 16; ++sixteenths) {
      const auto part = whole / 16 * sixteenths;
      for (const auto less : {std::uint64_t{0}, std::uint64_t{256}, first - 1}) {
        if (part + less >= whole) continue;
        auto small = asking.ask(first);
        auto middle = asking.ask(part);
        auto rest = asking.ask(whole - part - less);
        auto last = asking.ask(1);
        end_all({&small, &middle, &rest, &last});
      }
    }
  }
}

/// What a manager serves to a program whose blocks lie side by side, after two neighbours were
/// freed.
struct Joined {
  std::size_t served = 0;  ///< How many of its four requests were served.
  std::uint64_t fill = 0;  ///< Eighths of a unit that filled the rest of the device.
  bool is_served = false;  ///< The freed neighbours served a request together.
  std::string done;
};

Joined ask_for_joined(Bench& on, std::uint64_t unit) {
  on.untraceable();
  on.expect(true, {}, {}, {});
  on.leave_on_device(24 * unit);
  on.manager();
  const auto ask = [&](std::uint64_t size) { return on.try_memalloc(size); };
  Joined seen;
  if (auto first = ask(20 * unit)) ++seen.served;
  const auto small = ask(1_MiB);
  auto below = ask(6 * unit);
  auto above = ask(6 * unit);
  for (const auto* one : {&small, &std::as_const(below), &std::as_const(above)})
    seen.served += one->has_value() ? 1u : 0u;
  if (!below || !above) return seen;
  std::vector<BenchMemory> rest;
  for (const auto size : {2 * unit, unit / 2, unit / 8}) {
    while (rest.size() < 200) {
      auto block = ask(size);
      if (!block) break;
      seen.fill += size / (unit / 8);
      rest.push_back(*std::move(block));
    }
  }
  below->drop();
  above->drop();
  on.expect_ok("flush()", on.manager().flush());
  const auto large = ask(11 * unit);
  seen.is_served = large.has_value();
  seen.done = text::format(
      "{} bytes asked for, where two neighbours of {} were freed and the rest "
      "of the device is full",
      11 * unit, 6 * unit);
  return seen;
}

/// Expects a manager to serve requests of GiB as it serves those of MiB.
void compare_joined(Bench& b) {
  if (!b.is_simulated() || b.subject().standins != nullptr || b.capacity().limit) return;
  std::array<Joined, 2> seen;
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 2> kDevices{
      {{"3GiB", 64_MiB}, {"40GiB", 1_GiB}}};
  for (std::size_t i = 0; i < kDevices.size(); ++i) {
    auto fresh = b.with_capacity(kDevices[i].first);
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    seen[i] = ask_for_joined(**fresh, kDevices[i].second);
    b.take(**fresh);
    if (b.decided()) return;
  }
  const auto& [small, large] = seen;
  b.expect(large.served >= small.served,
           "20 GiB asked for and freed, then 1 MiB and 6 GiB twice, where 24 GiB are left",
           text::format("{} requests are served", large.served),
           text::format("{}, as of MiB times 64", small.served));
  b.expect(!small.is_served || large.is_served, large.done, "out of memory",
           text::format("memory, as where it is {} bytes", 11 * kDevices[0].second));
  b.expect(large.fill >= small.fill || large.served < small.served,
           "a device of 24 GiB filled beside blocks of 6 GiB",
           text::format("{} eighths of a GiB", large.fill),
           text::format("{}, as of 64 MiB on a device of 1.5 GiB", small.fill));
}

/// Makes random requests and frees, of a class of Python's a third of the steps. Most blocks are
/// small, some have up to `largest` bytes.
void go_at_random(Bench& b, Asking& asking, std::uint64_t most_steps, std::uint64_t largest,
                  std::size_t most = 160) {
  const auto steps = b.subject().is_class ? most_steps / 3 : most_steps;
  auto& random = b.random();
  std::vector<Marked> live;
  bool grows = true;
  for (std::uint64_t i = 0; i < steps && !b.decided(); ++i) {
    if (live.size() >= most) grows = false;
    if (live.size() < most / 8) grows = true;
    if (live.empty() || random.chance(grows ? 0.7 : 0.3)) {
      if (auto block = asking.ask(random.log_uniform(1, largest))) {
        live.push_back(*std::move(block));
        continue;
      }
      grows = false;
      if (live.empty()) return;
    }
    const auto at = random.below(live.size());
    std::swap(live[at], live.back());
    live.back().end();
    live.pop_back();
    if (i % 16 == 0) b.expect_ok("flush()", b.manager().flush());
  }
  for (auto& one : live) one.end();
}

/// Holds enough blocks of `size` at once to fill a slab of several MiB to its end.
void fill_slab(Bench& on, std::uint64_t size) {
  const auto count = (size >= 4_KiB ? 4_MiB + 512_KiB : 1_MiB + 64_KiB) / size;
  std::vector<BenchMemory> blocks;
  while (blocks.size() < count && !on.decided()) {
    auto block = on.try_memalloc(size);
    if (!on.gives(block, size)) return;
    blocks.push_back(*std::move(block));
  }
}

/// Requests what is left of a device, block after block, to its last bytes.
void fill_to_the_end(Bench& b) {
  b.leave_on_device(4_MiB);
  std::vector<BenchMemory> blocks;
  for (const auto size : {1_MiB, 128_KiB, 16_KiB, std::uint64_t{2000}}) {
    constexpr int kMost = 300;  // blocks of a size: then the room left is smaller than that
    for (int i = 0; i < kMost && !b.decided(); ++i) {
      auto block = b.try_memalloc(size);
      if (!b.gives(block, size)) break;
      blocks.push_back(*std::move(block));
    }
  }
}

/// Requests large memory of other kinds. The bench looks up their ends in the driver's allocation,
/// and nothing touches the middle, so it takes no memory of this machine. A kind is judged only if
/// a small request for it is served and frees succeed, because faults at every size belong to other
/// clauses.
void ask_for_other_kinds(Bench& on) {
  struct Kind {
    std::string_view slot;
    Result<BenchMemory> (*make)(Bench& bench, std::uint64_t size);
  };
  static constexpr Kind kKinds[] = {
      {"memallocmanaged", [](Bench& bench, std::uint64_t size) { return bench.try_managed(size); }},
      {"memhostalloc", [](Bench& bench, std::uint64_t size) { return bench.try_hosted(size, {}); }},
      {"memhostalloc, mapped,",
       [](Bench& bench, std::uint64_t size) { return bench.try_hosted(size, {.mapped = true}); }},
  };
  std::vector<Kind> offered;
  for (const auto& kind : kKinds)
    if (kind.make(on, 64_KiB)) offered.push_back(kind);
  if (!on.manager().flush()) return;
  for (const auto size : {4_GiB, 4_GiB + 4_KiB, 5_GiB + 1, 2_MiB, 4_GiB}) {
    for (const auto& [slot, make] : offered) {
      const auto block = make(on, size);
      if (!block) {
        // The manager may have a limit of its own.
        on.expect(
            block.error().code == Errc::not_supported || block.error().code == Errc::out_of_memory,
            text::format("{}({})", slot, size), answer_of(block.error()), "memory");
        continue;
      }
      on.expect_equal(text::format("the size of {}({})", slot, size), block->size(), size);
    }
    on.expect_ok("flush()", on.manager().flush());
  }
}

/// Holds many regions and page-locked blocks. The driver may limit how many there are at once.
void hold_many_host_blocks(Bench& b) {
  constexpr std::size_t kCount = 1'100;  // more than 1,024, at which tables often end
  constexpr std::uint64_t kPage = 4096;  // bytes: regions are pinned in pages of the host
  b.untraceable();
  b.expect(true, {}, {}, {});
  const auto pages = b.buffer(kCount * kPage);
  const auto page = [&](std::size_t at) {
    return HostRange{.pointer = pages.pointer + at * kPage, .size = kPage};
  };
  const auto driver_registers = [&](HostRange range) {
    return b.device().mem_host_register(range, {}).has_value() &&
           b.device().mem_host_unregister(range.pointer).has_value();
  };
  const auto driver_gives = [&] {
    const auto pointer = b.device().mem_host_alloc(64, {});
    return pointer && b.device().mem_free_host(*pointer).has_value();
  };
  for (const bool pins : {true, false}) {
    std::vector<BenchMemory> blocks;
    while (blocks.size() < kCount) {
      const auto at = blocks.size();
      auto block = pins ? b.try_pin(page(at)) : b.try_hosted(64, {});
      if (block) {
        blocks.push_back(*std::move(block));
        continue;
      }
      if (blocks.empty()) break;  // not offered, or refused for another reason than their number
      b.expect(
          !(pins ? driver_registers(page(at)) : driver_gives()),
          text::format("{}, {} of them alive", pins ? "mempin of a page" : "memhostalloc(64)", at),
          text::format("{}; the driver {}", answer_of(block.error()),
                       pins ? "registers it" : "gives as much"),
          "success");
      break;
    }
  }
}

/// Asks for a small block without the bench, which would take longer than the manager. Where it is
/// refused, the bench asks once more and judges. `number` blocks have been asked for so before.
Result<MemoryPointer> ask_without(Bench& on, std::size_t number, std::size_t alive) {
  constexpr std::size_t kLogged = 4'096;  // requests after which the log of driver calls is emptied
  if (number % kLogged == 0) on.watch().forget();
  auto block = on.manager().memalloc(256);
  if (block || block.error().code == Errc::not_supported) return block;
  const auto why = on.why_wrongly_refused(256, {});
  on.expect(why.empty(), text::format("block {} of 256 bytes, {} of them alive", number, alive),
            text::format("{}: {}", answer_of(block.error()), why), "memory");
  return block;
}

/// Asks for 200,000 blocks: at first one after the other, which leaves a manager no free blocks to
/// search, and at last more at once than a number of 16 bits counts.
void hold_many_blocks(Bench& on) {
  // 200,000 together, and more than 65,536 of them alive at last.
  constexpr std::size_t kInTurn = 134'000, kAtOnce = 66'000;
  // Memory of the driver for every other block takes longer than all the rest.
  constexpr std::size_t kSome = 500;
  on.untraceable();
  on.manager();
  if (on.capacity().limit) return;
  std::vector<MemoryPointer> blocks;
  blocks.reserve(kAtOnce);
  auto requests = on.driver_requests();
  for (std::size_t number = 0; number < kInTurn; ++number) {
    if (!ask_without(on, number, 0)) return;
    if (number == kSome && on.driver_requests() - requests >= kSome / 2) break;
  }
  requests = on.driver_requests();
  while (blocks.size() < kAtOnce) {
    auto block = ask_without(on, kInTurn + blocks.size(), blocks.size());
    if (!block) return;
    blocks.push_back(*std::move(block));
    if (blocks.size() == kSome && on.driver_requests() - requests >= kSome / 2) break;
  }
  // The newest is freed first, which needs no long search in any manager.
  while (!blocks.empty()) blocks.pop_back();
}

/// Requests sizes around those at which a pool changes how it rounds, up to 16 GiB. The bench
/// judges alignment, ends and extents of each. A hole that is slightly too small must not serve a
/// request, although single precision cannot tell the two sizes apart.
void sweep_large(Bench& on) {
  const auto info = on.device().mem_get_info();
  if (!info || info->free < 39_GiB || on.affordable(39_GiB) < 39_GiB) return;
  Asking asking(on, false);
  for (auto power = 64_MiB; power <= 16_GiB && !on.decided(); power *= 2) {
    for (const auto size : {power, power + power / 2}) {
      for (const auto more : {-1, 0, 1, 300}) {
        auto block = asking.ask(size + static_cast<std::uint64_t>(more));
        if (block) block->end();
      }
    }
    on.expect_ok("flush()", on.manager().flush());
    if (power < 256_MiB) continue;
    auto hole = asking.ask(power - 512);
    const auto neighbour = asking.ask(1_MiB);
    if (!hole || !neighbour) continue;
    hole->end();
    on.expect_ok("flush()", on.manager().flush());
    if (auto larger = asking.ask(power)) larger->end();
    if (!on.manager().trim(0)) return;
  }
}

/// Frees many blocks of nearly one size and expects the largest to serve a request of its size,
/// wherever it stands in the manager's list. With `after_a_refusal`, a larger request is refused
/// first, so that the manager has already merged and released what it can.
void find_the_one_that_fits(Bench& on, bool after_a_refusal) {
  constexpr std::uint64_t kBlocks = 24;  // places in a list: first, last and between
  const auto room = on.affordable(64_MiB);
  on.leave_on_device(64_MiB);
  const auto largest = room / 4 / kBlocks & ~(4_KiB - 1);
  if (largest < 256_KiB) return;
  std::vector<BenchMemory> blocks, kept;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    auto block = on.try_memalloc(largest - i * 512);
    auto between = on.try_memalloc(largest - i * 512);  // keeps two of them apart
    if (!block || !between) return;
    blocks.push_back(*std::move(block));
    kept.push_back(*std::move(between));
  }
  for (const auto size : {1_MiB, 128_KiB, 4_KiB}) {
    while (auto rest = on.try_memalloc(size)) kept.push_back(*std::move(rest));
  }
  for (auto& block : blocks) block.drop();  // the largest first
  on.expect_ok("flush()", on.manager().flush());
  if (after_a_refusal && on.try_memalloc(room)) return;
  on.gives(on.try_memalloc(largest), largest);
}

/// Where the driver has no more host or managed memory, the manager can release what it keeps.
void refuse_while_some_is_idle(Bench& b) {
  struct Kind {
    std::string_view slot;
    Call call;
    CallLedger::Kind ledger;
    Result<BenchMemory> (*make)(Bench& bench, std::uint64_t size);
  };
  static constexpr Kind kKinds[] = {
      {"memhostalloc", Call::mem_host_alloc, CallLedger::Kind::host,
       [](Bench& bench, std::uint64_t size) { return bench.try_hosted(size, {}); }},
      {"memhostalloc, mapped,", Call::mem_host_alloc, CallLedger::Kind::host,
       [](Bench& bench, std::uint64_t size) { return bench.try_hosted(size, {.mapped = true}); }},
      {"memallocmanaged", Call::mem_alloc_managed, CallLedger::Kind::managed,
       [](Bench& bench, std::uint64_t size) { return bench.try_managed(size); }},
  };
  for (const auto& [slot, call, ledger, make] : kKinds) {
    const auto alive = [&b, kept = ledger] { return b.watch().ledger().live(kept).count; };
    const auto before = alive();
    { const std::array blocks{make(b, 64_KiB), make(b, 200_KiB), make(b, 900_KiB)}; }
    b.expect_ok("flush()", b.manager().flush());
    if (b.decided() || alive() <= before) continue;
    bool was_refused = false;
    // Like a driver that is out of memory, refuses until something has been freed.
    b.watch().during = [&, call = call](const CallEvent& event) {
      if (event.call != call || alive() <= before) return;
      was_refused = true;
      b.watch().fail(call, {2});
    };
    const auto block = make(b, 2_MiB);
    b.watch().during = nullptr;
    if (!was_refused || block || block.error().code != Errc::out_of_memory) continue;
    b.expect(alive() <= before,
             text::format("{}(2097152), which the driver refuses while the manager "
                          "holds idle memory of the kind",
                          slot),
             text::format("{}; {} idle allocations of the kind are not released",
                          answer_of(block.error()), alive() - before),
             "idle memory is released, and the driver asked again");
  }
}

constexpr Clause kSizesClauses[] = {
    {.id = "suite/serves",
     .rule = "Memory is out only where neither the device nor idle memory of the manager can serve "
             "the request.",
     .source = "numba#2046; rmm, pool_mr_tests; NBEP 7, memalloc",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "* HST-5 HST-8 MAN-2 PD-18",
     .check =
         [](Bench& b) {
           b.expect(true, {}, {}, {});
           if (!b.keeps_host_memory()) b.apart(refuse_while_some_is_idle);
           for (const bool after_a_refusal : {false, true})
             b.apart([&](Bench& on) { find_the_one_that_fits(on, after_a_refusal); });
           b.leave_on_device(96_MiB);
           // Memory that the last size left idle or pending must serve the next one.
           for (const auto size :
                {4_MiB, 12_MiB, 3_MiB + 1, 256_KiB, 24_MiB, 9_MiB, 1_MiB, 24_MiB, 2_MiB}) {
             std::vector<BenchMemory> blocks;
             const auto ask = [&] {
               auto block = b.try_memalloc(size);
               if (!b.gives(block, size)) return false;
               blocks.push_back(*std::move(block));
               return true;
             };
             while (!b.decided() && blocks.size() < 128_MiB / size && ask()) {
             }
             for (int round = 0; round < 3 && !b.decided(); ++round) {
               const auto had = blocks.size();
               std::size_t at = 0;
               std::erase_if(blocks, [&](const BenchMemory&) { return at++ % 2 == 1; });
               while (blocks.size() < had && ask()) {
               }
             }
           }
           // This also holds while work on the memory has not ended: the request may wait for it.
           {
             const auto stream = b.stream();
             const auto size = b.affordable(60_MiB);
             auto block = b.try_memalloc(size, stream);
             if (block && b.device().memset_d8_async(block->device(), 1, size, stream) &&
                 block->free(stream))
               b.gives(b.try_memalloc(size, stream), size, stream);
           }
           // Freed memory serves again, however often memory was out.
           const auto fill = [&] {
             std::vector<BenchMemory> blocks;
             while (blocks.size() < 24) {
               auto block = b.try_memalloc(4_MiB);
               if (!block) break;
               blocks.push_back(*std::move(block));
             }
             for (int i = 0; i < 150; ++i) {
               if (const auto more = b.try_memalloc(i % 2 == 0 ? 64_MiB : 200_MiB)) continue;
             }
             return blocks.size();
           };
           const auto first = fill();
           b.expect_ok("flush()", b.manager().flush());
           const auto second = fill();
           b.expect(second >= first, "4 MiB asked for until memory is out, after 150 refusals",
                    text::format("{} are served", second), text::format("{}, as before", first));
           if (b.decided() || !b.is_simulated()) return;
           b.release_ballast();  // other users of the device have left
           {
             const auto large = b.affordable(400_MiB);
             const auto block = b.try_memalloc(large);
             b.gives(block, large);
           }
           if (!b.decided()) fill_to_the_end(b);
         }},

    {.id = "suite/many",
     .rule = "Thousands of blocks live side by side, large and small, and tens of thousands one "
             "after the other; a thousand regions and page-locked blocks do.",
     .source = "rmm, mr_ref_test",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "reset/ends_all",
     .wants_all_memory = true,
     .check =
         [](Bench& b) {
           if (auto fresh = Bench::create(b.subject(), b.clause())) {
             hold_many_host_blocks(**fresh);
             b.take(**fresh);
             if (b.decided()) return;
           }
           on_roomy_device(b, "64GiB", [](Bench& on) {
             // Numbers of 16 or 17 bits repeat after 65,536 or 131,072 requests. Half of the oldest
             // blocks outlive the first point and half the second; they end while blocks that were
             // made after it live. The loop replaces the other blocks in turn. It reaches each of
             // them because 11 and their number have no common factor.
             // Python's numbers have no such width, and its requests take ten times as long.
             const bool is_short = on.subject().is_class;
             constexpr std::uint64_t kOldest = 2'000;
             const std::uint64_t kLive = is_short ? 4'000 : 8'500;
             const std::uint64_t kInTurn = is_short ? 12'000 : 134'000;
             const std::uint64_t kFirstEnd = is_short ? 8'000 : 70'000;
             const std::uint64_t kSecondEnd = is_short ? 11'500 : 133'500;
             std::vector<BenchMemory> oldest, blocks;
             for (std::uint64_t i = 0; i < kInTurn && !on.decided(); ++i) {
               const auto size = i % 64 == 63 ? 1 + i * 37 % 40'000 : 1 + i % 256;
               if (i == kFirstEnd && oldest.size() == kOldest)
                 oldest.erase(oldest.begin(), oldest.begin() + kOldest / 2);
               if (i == kSecondEnd) oldest.clear();
               auto block = on.try_memalloc(size);
               if (!block && block.error().code != Errc::not_supported) {
                 const auto why = on.why_wrongly_refused(size, {});
                 on.expect(why.empty(),
                           text::format("block {}, {} of them alive", i + 1,
                                        oldest.size() + blocks.size()),
                           text::format("{}: {}", answer_of(block.error()), why), "memory");
                 if ((oldest.empty() && blocks.empty()) || on.decided()) return;
                 oldest.clear();
                 blocks.clear();
                 continue;
               }
               if (!on.gives(block, size)) return;
               if (i < kOldest) {
                 oldest.push_back(*std::move(block));
               } else if (blocks.size() < kLive) {
                 blocks.push_back(*std::move(block));
               } else {
                 blocks[i * 11 % kLive] = *std::move(block);
               }
             }
           });
           if (b.decided()) return;
           on_roomy_device(b, "64GiB", hold_many_blocks);
           if (b.decided()) return;
           on_roomy_device(b, "64GiB", [](Bench& on) {
             // Each of these may be an allocation of the driver.
             constexpr std::size_t kLarge = 1'100;
             std::vector<BenchMemory> blocks;
             if (const auto limit = on.own_limit()) {
               // A limit in bytes is the same for requests of any size.
               while (auto block = on.try_memalloc(17_MiB)) {
                 blocks.push_back(*std::move(block));
                 if (blocks.size() == kLarge) break;
               }
               const auto served = blocks.size() * 17_MiB;
               on.expect(
                   served <= 2 * *limit + 64_MiB,
                   text::format("requests for 1 MiB until one is refused, with {} bytes held "
                                "of the device; then, of another manager, for 17 MiB",
                                *limit),
                   text::format("{} bytes are served: the limit is a number of pieces", served),
                   "about as many bytes of either size");
               return;
             }
             while (blocks.size() < kLarge && !on.decided()) {
               auto block = on.try_memalloc(17_MiB);
               if (!on.gives(block, 17_MiB)) return;
               blocks.push_back(*std::move(block));
             }
           });
         }},

    {.id = "suite/sweep",
     .rule = "Around every power of two, and in every band of sizes, memory in pieces gives blocks "
             "that are whole and apart.",
     .source = "what memory is",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "**",
     .check =
         [](Bench& b) {
           on_roomy_device(b, "4GiB", [](Bench& on) {
             Asking asking(on);
             sweep_bands(on, asking);  // first, while blocks of one size lie side by side
             for (std::uint64_t power = 256; power <= 64_MiB && !on.decided(); power *= 2) {
               for (const auto granule : {std::uint64_t{1}, std::uint64_t{512}, 64_KiB, 2_MiB}) {
                 if (granule < power) leave_holes(on, asking, power - granule);
                 leave_holes(on, asking, power + granule);
               }
               leave_holes(on, asking, power);
               if (power <= 32_MiB) fill_beside_a_small_one(on, asking, power);
               if (power <= 32_MiB) fill_beside_a_small_one(on, asking, power - power / 4);
               for (std::uint64_t i = 0; i < 3 * on.effort(); ++i)
                 leave_holes(on, asking, on.random().between(power, 2 * power));
             }
             if (!on.is_numba()) fill_segments(on, asking);
           });
           if (b.decided()) return;
           on_roomy_device(b, "4GiB", [](Bench& on) {
             for (std::uint64_t power = 512; power <= 1_MiB; power *= 2)
               for (std::uint64_t quarter = 4; quarter < 8; ++quarter)
                 fill_slab(on, power / 4 * quarter);
           });
         }},

    {.id = "suite/fragments",
     .rule = "Through thousands of random requests and ends, blocks are whole and apart.",
     .source = "what memory is",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "**",
     .check =
         [](Bench& b) {
           on_roomy_device(b, "4GiB", [](Bench& on) {
             Asking asking(on);
             go_at_random(on, asking, 12'000 * on.effort(), 64_MiB);
             go_at_random(on, asking, 6'000 * on.effort(), 256_KiB);
             go_at_random(on, asking, 9'000 * on.effort(), 16_KiB, 1'500);
           });
           // When memory is short, freed neighbours must be merged.
           on_roomy_device(b, "4GiB", [](Bench& on) {
             on.leave_on_device(48_MiB);
             Asking asking(on, false);  // idle memory may be cut for other sizes
             go_at_random(on, asking, 1'500 * on.effort(), 8_MiB);
             go_at_random(on, asking, 1'500 * on.effort(), 2_MiB);
             const auto deferred = on.defer();
             go_at_random(on, asking, 1'500 * on.effort(), 8_MiB);
           });
         }},

    {.id = "suite/beyond_4GiB",
     .rule = "Blocks of more than 4 GiB are cut and joined as small ones are, and memory of every "
             "kind may be so large.",
     .source = "arithmetic of 32 bits",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "suite/too_large",
     .wants_all_memory = true,
     .check =
         [](Bench& b) {
           if (b.capacity().limit) return b.not_applicable("the manager has a limit of its own");
           on_roomy_device(b, "40GiB", [](Bench& on) {
             // What the device leaves of 40 GiB to a manager that keeps some.
             constexpr auto kRoom = 40_GiB - 64_MiB;
             const auto info = on.device().mem_get_info();
             if (!info || info->free < kRoom)
               return on.not_applicable("the device has less than 40 GiB free");
             if (on.affordable(kRoom) < kRoom)
               return on.not_applicable("the manager's own limit is less than 40 GiB");
             if (!on.is_simulated()) on.leave_on_device(kRoom);
             Asking asking(on);
             std::vector<std::optional<Marked>> live;
             const auto ask = [&](std::uint64_t size) {
               const auto largest = on.manager().state().largest_free_bytes;
               const auto before = on.driver_requests();
               live.push_back(asking.ask(size));
               if (largest && live.back() && on.watch().total() != 0 &&
                   on.driver_requests() == before)
                 on.expect_rule("accounts/reserved", *largest >= size,
                                text::format("a request for {} bytes, which needs nothing of the "
                                             "device",
                                             size),
                                text::format("largest_free_bytes was {}", *largest),
                                text::format("{} or more", size));
             };
             const auto end = [&](std::size_t at) {
               if (live[at]) live[at]->end();
               live[at].reset();
               on.expect_ok("flush()", on.manager().flush());
             };
             const auto judge_live_bytes = [&] {
               std::uint64_t bytes = 0;
               for (const auto& one : live) bytes += one ? one->size() : 0;
               if (const auto said = on.manager().state().live_bytes)
                 on.expect_rule("accounts/live_bytes", *said == bytes, "blocks of many GiB",
                                text::format("live bytes {}", *said), text::format("{}", bytes));
               if (const auto said = on.manager().statistics().requested_bytes.current)
                 on.expect_rule("accounts/peaks", *said == bytes,
                                "requested_bytes.all.current of statistics(), with blocks of many "
                                "GiB alive",
                                text::format("{}", *said), text::format("{}", bytes));
               if (const auto said = on.manager().state().reserved_bytes)
                 on.expect_rule("accounts/reserved", *said >= bytes, "blocks of many GiB",
                                text::format("reserved bytes {}", *said),
                                text::format("{} or more, which are alive", bytes));
             };
             for (const auto size : {9_GiB, 13_GiB + 512, 6_GiB - 1}) ask(size);
             end(1);
             for (const auto size : {4_GiB + 512, 5_GiB, 3_GiB}) ask(size);
             end(0);
             end(3);
             for (const auto size : {8_GiB + 2_MiB, 4_GiB, 1_MiB, 512_MiB}) ask(size);
             end(4);
             end(5);
             ask(12_GiB);
             judge_live_bytes();
             for (std::size_t at = 0; at < live.size(); ++at) end(at);
             ask(21_GiB);
             ask(4_GiB + 1);
             judge_live_bytes();
             end(live.size() - 2);
             end(live.size() - 1);
             for (int i = 0; i < 4; ++i) ask(5_GiB);
             for (std::size_t at = live.size() - 4; at < live.size(); ++at) end(at);
             for (int i = 0; i < 12; ++i) ask(3_GiB + 512);
           });
           if (!b.decided()) compare_joined(b);
           if (!b.decided()) on_roomy_device(b, "40GiB", sweep_large);
           if (!b.decided() && b.is_simulated() && b.subject().standins == nullptr)
             on_roomy_device(b, "40GiB", ask_for_other_kinds);
         }},
};

}  // namespace

extern constinit const ClauseGroup sizes_clauses{"Beyond the catalogue: sizes and numbers",
                                                 kSizesClauses};

}  // namespace emm
