#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "conformance/bench.hpp"
#include "emm/memory_manager.hpp"

// Beyond the catalogue: compares get_memory_info with cuMemGetInfo and with what the manager holds,
// at many moments.

namespace emm {
namespace {

using namespace emm::conformance;

/// What was true at one moment, and what the manager reported.
struct InfoSample {
  std::string when;
  MemoryInfo said;
  MemoryInfo device;       ///< Just before the request. A thread of the manager may free meanwhile.
  MemoryInfo after;        ///< Just after the request.
  std::uint64_t held = 0;  ///< Bytes of the device that the manager held before the request.
  std::uint64_t asked = 0;  ///< What it asked of the driver of these. The driver gives whole pages.
  std::uint64_t live = 0;   ///< Bytes of its live blocks, as requested.
  std::size_t blocks = 0;   ///< How many blocks were live.
};

/// The least and the most bytes that may be reported free.
struct FreeBounds {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
  bool hold(const InfoSample& one) const noexcept {
    return one.said.free >= least && one.said.free <= most;
  }
};

std::uint64_t less(std::uint64_t a, std::uint64_t b) noexcept { return a > b ? a - b : 0; }

/// Uses a manager's memory in every way that changes how much is free, and asks after each step.
class InfoProgram {
 public:
  InfoProgram(Bench& bench, std::uint64_t unit) : b_(bench), unit_(unit) {}

  /// Leaves `left` bytes free; others use the rest of the device.
  void run(std::uint64_t left) {
    b_.leave_on_device(left);
    const auto before = b_.device().mem_get_info();
    if (!before) return b_.inconclusive(describe(before.error()));
    free_before_ = before->free;
    if (const auto first = b_.manager().get_memory_info(); !first)
      return b_.not_applicable(describe(first.error()));
    ask("with nothing asked for");
    {
      const auto deferred = b_.defer();
      if (auto host = b_.try_hosted(16_MiB * unit_, {})) host->drop();
      ask("after host memory was freed inside a deferral");
    }
    if (!take(64_KiB)) return;
    ask("with 64 KiB alive");
    if (!take(24_MiB * unit_)) return;
    ask("with 24 MiB alive besides");
    if (!take(12_MiB * unit_)) return;
    ask("with 12 MiB alive besides");
    for (const bool is_taken : {true, false}) {
      if (!others_take(is_taken ? 8_MiB * unit_ : 0)) return;
      ask(is_taken ? "after others took memory of the device" : "after others released it");
    }
    end(1);
    ask("after the 24 MiB were freed");
    fill_up();
    ask("with memory filled up");
    full_ = samples_.back();
    while (live_.size() > 4) end(live_.size() - 2);
    ask("after most was freed");
    live_.clear();
    ask("after all was freed");
    if (b_.manager().flush()) ask("after flush()");
    if (b_.manager().trim(0)) ask("after trim(0)");
    {
      const auto deferred = b_.defer();
      if (take(40_MiB * unit_)) ask("with 40 MiB alive, inside a deferral");
      live_.clear();
      ask("after the 40 MiB were freed inside a deferral");
    }
    if (b_.manager().flush()) ask("after the deferral and flush()");
    take(40_MiB * unit_);
    if (!b_.is_numba()) {
      b_.reset();
      live_.clear();
      ask("after a reset");
    }
    live_.clear();
    if (!b_.manager().flush()) return;
    fill_up();
    ask("with memory filled up again");
    live_.clear();
    if (b_.manager().flush()) ask("after all was freed again");
    if (!b_.is_simulated() || !b_.manager().trim(0)) return;
    for (const auto rest : {24_MiB * unit_, 6_MiB * unit_}) {
      if (const auto now = b_.device().mem_get_info(); now && others_take(less(now->free, rest)))
        ask("while others hold nearly all of the device");
      if (!others_take(0)) return;
    }
  }

  void judge() {
    b_.expect(true, {}, {}, {});
    const auto fits = [&](bool (InfoProgram::*explains)(const InfoSample&) const) {
      return std::all_of(samples_.begin(), samples_.end(),
                         [&](const InfoSample& one) { return (this->*explains)(one); });
    };
    if (samples_.empty() || fits(&InfoProgram::is_device) || fits(&InfoProgram::is_cap) ||
        fits(&InfoProgram::is_pool))
      return;
    const bool capped = std::all_of(samples_.begin(), samples_.end(), [&](const InfoSample& one) {
      return one.said.total < one.device.total && one.live <= one.said.total;
    });
    for (const auto& one : samples_) {
      if (capped ? is_cap(one) : is_device(one)) continue;
      const auto total = capped ? samples_.front().said.total : one.device.total;
      const auto bounds = capped ? of_cap(one) : of_device(one);
      b_.watch().forget();  // later calls do not belong to this moment
      b_.expect(false, text::format("get_memory_info() {}", one.when),
                text::format("{} bytes free of {}; cuMemGetInfo says {} of {}, the manager holds "
                             "{}, of which {} are alive",
                             one.said.free, one.said.total, one.device.free, one.device.total,
                             one.held, one.live),
                text::format("from {} to {} free of {}", bounds.least, bounds.most, total));
      return;
    }
  }

 private:
  /// Makes others than the manager hold `size` more than at first.
  bool others_take(std::uint64_t size) {
    if (others_.value != 0) {
      if (!b_.device().mem_free(std::exchange(others_, {}))) return false;
      free_before_ += taken_;
    }
    taken_ = size;
    if (size == 0) return true;
    const auto before = b_.device().mem_get_info();
    const auto made = b_.device().mem_alloc(size);
    const auto after = b_.device().mem_get_info();
    if (!before || !made || !after) return false;
    others_ = *made;
    taken_ = less(before->free, after->free);
    free_before_ -= taken_;
    return true;
  }
  bool take(std::uint64_t size) {
    auto block = b_.try_memalloc(size);
    if (!block && block.error().code == Errc::not_supported) block = b_.try_managed(size);
    if (!block) return block.error().code == Errc::out_of_memory;
    live_.push_back(*std::move(block));
    return true;
  }
  void end(std::size_t at) {
    if (at < live_.size()) live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void fill_up() {
    const auto most = live_.size() + 40;
    for (auto before = live_.size(); live_.size() < most && take(4_MiB * unit_);) {
      if (live_.size() == std::exchange(before, live_.size())) return;
    }
  }

  void ask(std::string_view when) {
    const auto device = b_.device().mem_get_info();
    const auto said = b_.manager().get_memory_info();
    const auto after = b_.device().mem_get_info();
    if (!said || !device || !after) return;  // INF-5 judges that
    InfoSample one{.when = std::string(when),
                   .said = *said,
                   .device = *device,
                   .after = *after,
                   .held = less(free_before_, device->free),
                   .asked = 0,
                   .live = 0,
                   .blocks = live_.size()};
    one.asked = b_.watch().total() == 0 ? one.held : std::min(one.held, b_.held());
    for (const auto& block : live_) one.live += block.size();
    samples_.push_back(std::move(one));
  }

  /// Answers may be off by this much, because other processes use a real device too.
  std::uint64_t slack() const noexcept { return b_.is_simulated() ? 256_KiB : 128_MiB; }
  /// Returns how much of the device the manager held when it refused more although the device had
  /// more.
  std::uint64_t cap() const noexcept {
    const auto piece = 4_MiB * unit_;
    return full_.device.free > 2 * piece + slack() ? full_.held + piece : ~std::uint64_t{0};
  }

  // Returns the bounds that the device's own figures allow. Idle memory of the manager may count as
  // free, and a manager with a limit may stop at that.
  FreeBounds of_device(const InfoSample& one) const noexcept {
    const auto least = std::min(one.device.free, one.after.free);
    const auto within = std::min(least, less(cap(), one.held + 8_MiB * unit_));
    const auto most = std::max(one.device.free, one.after.free);
    return {less(within, slack()), most + less(one.held, one.live) + slack()};
  }
  bool is_device(const InfoSample& one) const noexcept {
    return one.said.total == one.device.total && of_device(one).hold(one);
  }

  // Returns the bounds for a manager with a limit, which is its total.
  FreeBounds of_cap(const InfoSample& one) const noexcept {
    const auto total = samples_.front().said.total;
    return {less(std::min(less(total, one.held), one.device.free), slack()),
            less(total, one.live) + slack()};
  }
  bool is_cap(const InfoSample& one) const noexcept {
    return one.said.total == samples_.front().said.total && one.said.total < one.device.total &&
           one.live <= one.said.total + slack() && of_cap(one).hold(one);
  }

  // Answers whether the figures are a pool's own: what it holds, and how much of that is idle
  // (INF-6).
  bool is_pool(const InfoSample& one) const noexcept {
    const auto rounding = one.blocks * 2_MiB + slack();
    const auto idle = less(one.asked, one.live);
    const auto freed = less(one.after.free, one.device.free);
    return one.said.total + slack() + freed >= one.asked && one.said.total <= one.held + slack() &&
           one.said.free + rounding + freed >= idle &&
           one.said.free <= less(one.held, one.live) + slack();
  }

  Bench& b_;
  std::uint64_t unit_;
  std::uint64_t free_before_ = 0;
  DevicePtr others_;
  std::uint64_t taken_ = 0;
  InfoSample full_;
  std::vector<BenchMemory> live_;
  std::vector<InfoSample> samples_;
};

constexpr Clause kMemoryInfoClauses[] = {
    {.id = "memory_info/true",
     .rule = "At any moment get_memory_info gives the device's bytes, idle memory counted as free "
             "or not; or those of the manager's limit, or of its own pool.",
     .source = "NBEP 7; DOC; drv:904; INF-6",
     .level = Level::must,
     .scope = Scope::all,
     .may_fail_with = "INF-1 INF-2",
     .check =
         [](Bench& b) {
           const auto judge = [](Bench& on, std::uint64_t unit, std::uint64_t left) {
             on.untraceable();
             InfoProgram program(on, unit);
             program.run(left * unit);
             if (!on.decided()) program.judge();
           };
           judge(b, b.is_simulated() ? 1 : 16, 96_MiB);
           if (b.decided() || !b.is_simulated() || b.subject().standins != nullptr) return;
           // A device with more bytes than 32 bits can count.
           auto large = b.with_capacity("64GiB");
           if (!large) return b.inconclusive(describe(large.error()));
           judge(**large, 256, 96_MiB);
           b.take(**large);
           if (b.decided() || !b.capacity().limit) return;
           // A device that has more than the manager's own limit.
           auto roomy = b.with_capacity("2GiB");
           if (!roomy) return b.inconclusive(describe(roomy.error()));
           judge(**roomy, 1, 1_GiB);
           b.take(**roomy);
         }},
};

}  // namespace

extern constinit const ClauseGroup memory_info_clauses{"Beyond the catalogue: memory information",
                                                       kMemoryInfoClauses};

}  // namespace emm
