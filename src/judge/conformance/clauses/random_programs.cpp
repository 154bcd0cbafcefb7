#include <algorithm>
#include <list>
#include <optional>
#include <thread>

#include "base/host_memory.hpp"
#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "conformance/model/comparison.hpp"
#include "conformance/model/manager_subject.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: generated programs. Each may fail together with any other clause, because
// it judges all rules at once.

namespace emm {
namespace {

using namespace emm::conformance;

/// A random program over every operation of a manager. It checks the rules that always hold between
/// the steps.
class Program {
 public:
  Program(Bench& bench, std::uint64_t seed) : b_(bench), random_(seed), seed_(seed) {}

  void run(int steps) {
    streams_ = {{}, b_.stream(), b_.stream()};
    b_.manager();
    for (int i = 0; i < steps && !b_.decided(); ++i) {
      step();
      const auto& ledger = b_.watch().ledger();
      b_.expect(ledger.double_ends() == 0 && ledger.foreign_ends() == 0, "", ledger.verdict(),
                "each thing ended once");
    }
    while (!live_.empty() && !b_.decided()) end(live_.size() - 1);
    live_.clear();
    guards_.clear();
    b_.expect(held_.expired() || b_.decided(), told("every region ended"), "an owner is alive",
              "its owners are let go");
  }

 private:
  struct Live {
    BenchMemory block;
    std::optional<std::uint8_t> value{};  ///< Nothing if it was not written.
    std::weak_ptr<const void> owner;  ///< For a pinned region; must not expire while it is pinned.
  };

  std::string told(std::string_view what) const { return text::format("{}, seed {}", what, seed_); }

  void step() {
    switch (random_.below(16)) {
      case 0:
        return info();
      case 1:
        return defer();
      case 2:
        return flush();
      case 3:
        return handle();
      case 4:
        if (random_.chance(0.2)) return reset();
        return look(random_.below(live_.size() + 1));
      case 5:
        b_.expect_ok(told("initialize(), again"), b_.manager().initialize());
        b_.expect_equal(told("interface_version()"), b_.manager().interface_version(),
                        kInterfaceVersion);
        return;
      case 6:
        return random_.chance(0.2) ? out_of_memory() : state();
      default:
        return live_.size() < 24 && random_.chance(0.6) ? make()
                                                        : end(random_.below(live_.size() + 1));
    }
  }

  /// Accepts what a request may answer: memory, not_supported, or out of memory when much is in
  /// use.
  template <class T>
  bool judge_request(std::string_view request, const Result<T>& made, std::uint64_t size,
                     StreamHandle stream = {}) {
    if (made) return true;
    const auto declined = made.error().code == Errc::not_supported;
    const auto out = made.error().code == Errc::out_of_memory;
    const auto too_large = Bench::may_answer_to_large(made.error().code) && b_.is_too_large(size);
    b_.expect(declined || out || too_large, told(request), answer_of(made.error()), "memory");
    if (out) {
      const auto why = b_.why_wrongly_refused(size, stream);
      b_.expect_rule("suite/serves", why.empty(), told(request), why, "memory");
    }
    return false;
  }

  void make() {
    const auto size = random_.chance(0.2)
                          ? random_.between(1, 64)
                          : random_.log_uniform(1, random_.chance(0.1) ? 20_MiB : 1_MiB);
    const auto kind = random_.below(8);
    Live one;
    if (kind == 0) {
      const auto attach = random_.chance(0.5) ? AttachFlags::global : AttachFlags::host;
      auto made = b_.try_managed(size, attach);
      if (!judge_request("memallocmanaged", made, size)) return;
      one.block = *std::move(made);
    } else if (kind <= 2) {
      const HostAllocFlags flags{.mapped = random_.chance(0.5),
                                 .portable = random_.chance(0.5),
                                 .wc = random_.chance(0.5)};
      auto made = b_.try_hosted(size, flags);
      if (!judge_request("memhostalloc", made, size)) return;
      one.block = *std::move(made);
      b_.expect_equal(told("whether host memory is mapped"), one.block.is_mapped(), flags.mapped);
    } else if (kind == 3) {
      auto range = b_.buffer(size + 4096);
      range = {range.pointer + random_.below(4096), size};
      auto owner = std::make_shared<int>();
      const HostRegisterFlags flags{.mapped = random_.chance(0.5)};
      auto made = b_.try_pin(range, flags, owner);
      one.owner = held_ = owner;
      if (!judge_request("mempin", made, size)) return;
      one.block = *std::move(made);
      b_.expect(one.block.host() == range.pointer, told("a region that was pinned"),
                "another address", "the region's");
    } else {
      const auto stream = streams_[random_.below(streams_.size())];
      auto made = b_.try_memalloc(size, stream);
      if (!judge_request("memalloc", made, size, stream)) return;
      one.block = *std::move(made);
    }
    b_.expect_equal(told("the size of what was asked for"), one.block.size(), size);
    b_.expect(one.block.alive(), told("memory that was handed out"), "it is dead", "it is alive");
    const auto value = static_cast<std::uint8_t>(random_.below(256));
    if (kind != 0 || b_.device_can_write_managed()) {
      b_.expect_ok(told("a block filled"), b_.try_fill(one.block, value));
      one.value = value;
    }
    if (one.block.is_mapped() && one.block.host() != nullptr) see_through_device(one);
    live_.push_back(std::move(one));
  }

  void see_through_device(const Live& one) {
    std::byte first{};
    const auto copied = b_.device().memcpy_dtoh({&first, 1}, one.block.device());
    b_.expect(copied && first == std::byte{*one.value},
              told("mapped memory, read at its device address"), "other content",
              "what the host wrote");
  }

  void look(std::size_t at) {
    if (at >= live_.size()) return;
    const auto& one = live_[at];
    b_.expect(one.block.alive(), told("a live block"), "it is dead", "it is alive");
    if (!one.value) return;
    b_.expect(b_.holds(one.block, *one.value), told("a live block"),
              text::format("{} bytes have other content", one.block.size()), "what was written");
  }

  void end(std::size_t at) {
    if (at >= live_.size()) return;
    look(at);
    auto one = std::move(live_[at]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    const auto stream = streams_[random_.below(streams_.size())];
    switch (random_.below(4)) {
      case 0:
        b_.expect_ok(told("free()"), one.block.free(stream));
        b_.expect(!one.block.alive(), told("free()"), "the block is alive", "it is dead");
        b_.expect_error(told("free(), again"), one.block.free(stream), Errc::dead_pointer);
        one.block.drop();
        break;
      case 1:
        start_thread([&] { one.block.drop(); }).join();
        break;
      default:
        one.block.drop();
    }
    b_.expect(one.owner.expired(), told("a region's end"), "its owner is alive",
              "its owner is let go");
  }

  void info() {
    const auto info = b_.manager().get_memory_info();
    if (!info) {
      b_.expect(info.error().code == Errc::not_supported, told("get_memory_info()"),
                answer_of(info.error()), "free and total");
      return;
    }
    b_.expect(info->free <= info->total, told("get_memory_info()"),
              text::format("{} of {} free", info->free, info->total), "no more free than there is");
    if (const auto whole = b_.device().mem_get_info()) {
      b_.expect(info->total <= whole->total, told("get_memory_info()"),
                text::format("a total of {}", info->total),
                text::format("no more than the device's {}", whole->total));
    }
  }

  void defer() {
    if (guards_.size() < 3 && random_.chance(0.5)) return guards_.push_back(b_.defer());
    if (!guards_.empty())
      guards_.erase(
          std::next(guards_.begin(), static_cast<std::ptrdiff_t>(random_.below(guards_.size()))));
  }

  void flush() {
    b_.expect_ok(told("flush()"), b_.manager().flush());
    const auto pending = b_.manager().state().pending_count;
    if (guards_.empty() && pending) b_.expect_equal(told("what waits after flush()"), *pending, 0u);
  }

  void state() {
    const auto state = b_.manager().state();
    std::uint64_t device = 0, managed = 0, host = 0;
    for (const auto& one : live_) {
      (one.block.host() != nullptr ? host
       : one.block.is_mapped()     ? managed
                                   : device) += one.block.size();
    }
    // The manager decides whether host memory counts.
    if (state.live_bytes && *state.live_bytes != device + managed + host)
      b_.expect_equal(told("live bytes"), *state.live_bytes, device + managed);
    if (!state.reserved_bytes) return;
    b_.expect(device <= *state.reserved_bytes,
              told(text::format("{} bytes of live device memory", device)),
              text::format("{} reserved", *state.reserved_bytes), "no less");
  }

  void handle() {
    if (live_.empty()) return;
    const auto& block = live_[random_.below(live_.size())].block;
    if (block.host() != nullptr || block.is_mapped()) return;
    const auto start = random_.below(block.size());
    const MemoryView view{block.device() + start, block.size() - start};
    const auto made = b_.manager().get_ipc_handle(view);
    const auto range = b_.device().mem_get_address_range(view.device_pointer);
    if (!made || !range) return;
    const auto& fields = made->fields();
    b_.expect_equal(told("the size in a handle"), fields.size, view.size);
    b_.expect_equal(told("the offset in a handle"), fields.offset,
                    view.device_pointer.value - range->base.value);
    b_.expect(fields.source_info && *fields.source_info == b_.device().device_identity(),
              told("the device in a handle"), "none, or another", "the block's");
    const auto raw = b_.device().ipc_get_mem_handle(range->base);
    b_.expect(!b_.is_simulated() || (raw && *raw == fields.handle), told("a handle"),
              "another allocation's, or nobody's", "its own allocation's");
  }

  void out_of_memory() {
    const auto size = std::uint64_t{1} << (40 + random_.below(23));
    const auto made = b_.try_memalloc(size);
    if (made || made.error().code != Errc::not_supported)
      b_.expect_out_of_memory(told("a request for too much"), made, size);
  }

  void reset() {
    b_.reset();
    std::vector<Live> kept;
    for (auto& one : live_) {
      const auto numba_keeps = b_.is_numba() && one.block.alive();
      b_.expect(numba_keeps || !one.block.alive(), told("reset()"), "memory is alive",
                "all of it is dead");
      if (numba_keeps) kept.push_back(std::move(one));
    }
    live_ = std::move(kept);
  }

  Bench& b_;
  Prng random_;
  std::uint64_t seed_;
  std::vector<StreamHandle> streams_;
  std::vector<Live> live_;
  std::list<Deferral> guards_;
  std::weak_ptr<const void> held_;
};

/// Runs the programs, each on a device of its own, until the manager's end.
void run_programs(Bench& b) {
  const std::uint64_t kPrograms = 8 * b.effort();
  b.expect(true, {}, {}, {});
  for (std::uint64_t i = 0; i < kPrograms && !b.decided(); ++i) {
    auto subject = b.subject();
    subject.seed += i;
    auto fresh = Bench::create(subject, "random/program");
    if (!fresh) return b.inconclusive(describe(fresh.error()));
    auto& trial = **fresh;
    if (i % 2 == 1) trial.leave_on_device(96_MiB);  // so that memory runs out
    Program(trial, subject.seed).run(160);
    if (!trial.decided() && trial.watch().total() != 0) {
      trial.expect_balance(
          text::format("a random program, seed {}, then the manager's end", subject.seed));
      trial.expect_equal("contexts that were made current, less those that are again",
                         trial.count(Call::ctx_push_current), trial.count(Call::ctx_pop_current));
    }
    b.take(trial);
  }
}

void compare_with_model(Bench& b) {
  constexpr std::size_t kSequences = 1500;  // of operations by chance, from the seed
  const auto& subject = b.subject();
  auto rules = b.is_numba() ? model::Rules::numba() : model::Rules::standard();
  b.untraceable();
  if (subject.promise != Scope::deflt) {
    const auto device_memory = b.try_memalloc(64);
    if (device_memory || device_memory.error().code != Errc::not_supported) {
      return b.not_applicable(
          "how it gets device memory is its own business; random/program judges it");
    }
    rules = model::Rules::host_only(rules);
  }
  const auto mismatch = model::find_mismatch(model::runner_of(rules),
                                             model::runner_of(subject.factory, subject.profile),
                                             subject.seed * kSequences + 1, kSequences);
  b.expect(
      !mismatch,
      "random requests and ends, on a device of a few thousand bytes whose calls fail at times",
      mismatch ? "at the arrow, what is marked as actual\n" + mismatch->story : std::string(),
      "what is marked as expected");
}

constexpr Clause kRandomProgramsClauses[] = {
    {.id = "random/program",
     .rule = "Through random programs of every operation, memory is whole, apart, aligned, and "
             "released once.",
     .source = "all of the contract that every manager promises",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "** stream/hazards",
     .check = run_programs},

    {.id = "random/model",
     .rule = "Through random sequences with failures, a manager makes the driver calls that a "
             "model of the contract predicts.",
     .source = "all of the contract that Numba's own managers promise",
     .level = Level::must,
     .scope = Scope::host,
     .may_fail_with = "** deferral/nests",
     .check = compare_with_model},
};

}  // namespace

extern constinit const ClauseGroup random_programs_clauses{"Beyond the catalogue: random programs",
                                                           kRandomProgramsClauses};

}  // namespace emm
