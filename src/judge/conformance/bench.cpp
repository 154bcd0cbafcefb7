#include "conformance/bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/options.hpp"
#include "base/shell_word.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "driver/call.hpp"
#include "driver/decorate/call_log.hpp"
#include "format/json_writer.hpp"
#include "plugin/imported_manager.hpp"
#include "plugin/running_call.hpp"
#include "stream_order/watch.hpp"

namespace emm::conformance {
namespace {

/// The free memory of the device, beyond twice the request, below which a correct manager may
/// refuse: a slab of 32 MiB and what the driver takes for itself. An H200 that reports 33.1 MiB
/// free has no slab left for cuMemAllocFromPoolAsync.
constexpr std::uint64_t kDeviceSlack = 36_MiB;
constexpr std::uint64_t kAlignment = 256;  // CUDA guarantees this for cuMemAlloc

std::atomic<int> benches{0};  // alive in this process

std::string on(StreamHandle stream) {
  return stream.value == 0 ? std::string() : text::format(",\"stream\":{}", stream.value);
}

std::string_view true_or_false(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string answer_of(const Error& error) {
  if (error.native == 0) return describe(error);
  constexpr std::string_view kNoName = "a CUDA error without a name here";
  const auto name = native_name(error.native);
  auto out =
      text::format("{} ({})", name == kNoName ? std::string_view("status") : name, error.native);
  if (!error.message.empty()) out += text::format(": \"{}\"", error.message);
  return out;
}

Tapped* Tapped::newest = nullptr;

Tapped::Tapped(const plugin::StandIns* standins, CallHook& to)
    : standins_(standins), to_(to), before_(newest) {
  newest = this;
  if (standins_ != nullptr) standins_->tap(this);
}
Tapped::~Tapped() {
  newest = before_;
  if (standins_ != nullptr) standins_->tap(before_);
}
std::int32_t Tapped::before(const CallEvent& event) {
  if (!plugin::RunningCall::here()) return 0;
  const auto native = to_.before(event);
  return native != 0 || order_ == nullptr ? native : order_->before(event);
}
void Tapped::after(const CallEvent& event) {
  if (!plugin::RunningCall::here()) return;
  to_.after(event);
  if (order_ != nullptr) order_->after(event);
}

void RecordingObserver::pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
  during({.call = dtor});
  const std::lock_guard lock(mutex_);
  added_.emplace_back(dtor, size);
}
void RecordingObserver::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  during({});
  const std::lock_guard lock(mutex_);
  flushes_.push_back({count, bytes});
}
void RecordingObserver::free_failed(const Error& error) noexcept {
  during({.native = error.native});
  const std::lock_guard lock(mutex_);
  ++failures_;
  is_told_elsewhere_ |= std::this_thread::get_id() != home_;
}
void RecordingObserver::call_failed(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (misbehaviour_.empty()) misbehaviour_ = describe(error);
}
void RecordingObserver::forget() {
  const std::lock_guard lock(mutex_);
  added_.clear();
  flushes_.clear();
}
std::string RecordingObserver::misbehaviour() const {
  const std::lock_guard lock(mutex_);
  return misbehaviour_;
}
std::vector<std::pair<Call, std::optional<std::uint64_t>>> RecordingObserver::added() const {
  const std::lock_guard lock(mutex_);
  return added_;
}
std::vector<RecordingObserver::Flush> RecordingObserver::flushes() const {
  const std::lock_guard lock(mutex_);
  return flushes_;
}
bool RecordingObserver::is_told_elsewhere() const {
  const std::lock_guard lock(mutex_);
  return is_told_elsewhere_;
}
std::size_t RecordingObserver::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

std::string device_of(const Subject& subject, std::string_view capacity) {
  constexpr std::string_view kSim = "sim:";
  auto spec = subject.device == "sim" ? std::string(kSim) : subject.device;
  if (!spec.starts_with(kSim)) return spec;
  const auto given = Options::parse(std::string_view(spec).substr(kSim.size()));
  if (!given) return spec;  // open_platform() words the error
  const auto add = [&](std::string_view option) {
    if (spec != kSim) spec += ',';
    spec += option;
  };
  if (!given->has("capacity") && !given->has("reserved")) {
    add(text::format("capacity={}", capacity));
    if (!given->has("devices")) add("devices=2");
  }
  if (!given->has("seed")) add(text::format("seed={}", subject.seed));
  return spec;
}

Result<std::unique_ptr<Bench>> Bench::create(const Subject& subject, std::string_view clause) {
  auto platform = open_platform(device_of(subject), {});
  if (!platform) return std::move(platform).error();
  auto opened = (*platform)->open(0);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Bench>(
      new Bench(subject, clause, *std::move(platform), *std::move(opened)));
}

Result<std::unique_ptr<Bench>> Bench::with_capacity(std::string_view capacity) const {
  auto subject = subject_;
  if (platform_->kind() == "sim")
    subject.device = text::format("sim:capacity={},seed={}", capacity, seed());
  return create(subject, clause_);
}

Bench::Bench(const Subject& subject, std::string_view clause, std::unique_ptr<Platform> platform,
             OpenedDevice opened)
    : subject_(subject),
      clause_(clause),
      platform_(std::move(platform)),
      opened_(std::move(opened)),
      stub_(*opened_.driver),
      tapped_(subject.standins, watch_),
      watched_(stub_, watch_),
      random_(subject.seed) {
  ++benches;
  if (opened_.runtime) runtime_.emplace(*opened_.runtime, watch_);
}

Bench::~Bench() {
  watch_.during = nullptr;
  watch_.fail_all(0);
  manager_.reset();
  for (const auto stream : streams_) {
    if (!opened_.driver->stream_destroy(stream)) continue;  // the whole device is reset next
  }
  // Benches on libcuda's device share its primary context, so the last one resets it.
  const bool is_last = --benches == 0;
  if (!is_last && platform_->kind() != "sim") {
    for (const auto piece : ballast_) {
      if (!opened_.driver->mem_free(piece)) return;
    }
    return;
  }
  if (!opened_.driver->primary_ctx_reset()) return;  // a clause has reset it already
}

// The manager.

MemoryManager& Bench::uninitialized() {
  if (manager_) return *manager_;
  auto made = subject_.factory.make({.driver = order_ ? ordered_.driver.get() : &watched_,
                                     .runtime = order_ ? ordered_.runtime.get() : runtime(),
                                     .clock = &platform_->clock(),
                                     .observer = &observer_,
                                     .profile = subject_.profile});
  EMM_ASSERT(made);  // judge() has made a manager with this factory before
  manager_ = *std::move(made);
  return *manager_;
}

MemoryManager& Bench::manager() {
  auto& made = uninitialized();
  if (initialized_) return made;
  initialized_ = true;
  note("initialize", "", false);
  if (auto ready = made.initialize(); !ready) {
    inconclusive(text::format("initialize: {}", describe(ready.error())));
  }
  held_at_first_ = held();
  return made;
}

void Bench::end_manager() {
  {
    const std::lock_guard lock(mutex_);
    forget_memory();
  }
  manager_.reset();
}

OpenedDevice Bench::watched_device() {
  OpenedDevice device;
  device.driver = std::make_unique<ForwardingDriver>(stub_, watch_);
  if (opened_.runtime)
    device.runtime = std::make_unique<ForwardingRuntime>(*opened_.runtime, watch_);
  return device;
}

StreamHandle Bench::stream() {
  auto made = opened_.driver->stream_create();
  // A stream takes memory of a real device, too, and leave_on_device() has taken that.
  if (!made && made.error().code == Errc::out_of_memory && !ballast_.empty()) {
    const auto left = opened_.driver->mem_get_info();
    if (left && opened_.driver->mem_free(ballast_.back())) {
      ballast_.pop_back();
      made = opened_.driver->stream_create();
      static_cast<void>(take_all_but(*opened_.driver, left->free, ballast_));
    }
  }
  if (!made) {
    inconclusive(text::format("a stream: {}", describe(made.error())));
    return {};
  }
  note("stream_create", text::format(",\"id\":{}", made->value), false);
  streams_.push_back(*made);
  return *made;
}

stream_order::Checker& Bench::watch_order() {
  EMM_ASSERT(!manager_);
  order_ = std::make_unique<stream_order::Checker>([]() noexcept -> std::uint64_t { return 0; });
  ordered_ = order_->watch(watched_device(), 0);
  tapped_order_ = std::make_unique<stream_order::Watch>(*order_, 0);
  tapped_.set_order_hook(*tapped_order_);
  return *order_;
}

bool Bench::is_simulated() const noexcept {
  return platform_->kind() == "sim" ||
         (subject_.standins != nullptr && !subject_.standin_is_over_driver);
}

bool take_all_but(Driver& driver, std::uint64_t bytes, std::vector<DevicePtr>& taken) {
  constexpr auto kPage = 2_MiB;   // a device gives memory in pages of this size
  auto most = ~std::uint64_t{0};  // a real device may refuse a piece that it gives as two
  while (most >= kPage) {
    const auto info = driver.mem_get_info();
    if (!info || info->free < kPage || info->free - kPage < bytes) return true;
    const auto piece = std::min(most, info->free - bytes) & ~(kPage - 1);
    if (auto held = driver.mem_alloc(piece)) {
      taken.push_back(*held);
    } else {
      most = piece / 2;
    }
  }
  return false;
}

void Bench::leave_on_device(std::uint64_t bytes) {
  traceable_ = false;
  // Capacity() measures on this very device, once, so it must run while the device is empty
  if (!is_simulated()) capacity();
  if (!take_all_but(*opened_.driver, bytes, ballast_))
    inconclusive("the device reports free memory and refuses to give any");
}

void Bench::release_ballast() {
  for (const auto piece : std::exchange(ballast_, {})) {
    if (!opened_.driver->mem_free(piece)) return inconclusive("the device refuses to free memory");
  }
}

const ManagerEntry* Bench::bundled() const noexcept {
  // The subject names a bundled manager inside libemm after ":name=".
  constexpr std::string_view kName = ":name=";
  const auto at = subject_.manager.find(kName);
  const auto spec = at == std::string::npos
                        ? std::string_view(subject_.manager)
                        : std::string_view(subject_.manager).substr(at + kName.size());
  return find_entry(spec.substr(0, spec.find(',')));
}

bool Bench::refuses_early() const noexcept {
  const auto* const entry = bundled();
  return entry != nullptr && !entry->fills_device;
}

bool Bench::limits_requested() const noexcept {
  const auto* const entry = bundled();
  return entry == nullptr || entry->limits_requested;
}

bool Bench::keeps_host_memory() const noexcept {
  const auto* const entry = bundled();
  return entry != nullptr && entry->promise == Promise::contract;
}

/// Asks for blocks of `piece` until one is refused or `most` are given. Returns what the manager
/// holds of the device then, if that is a limit of its own.
std::optional<std::uint64_t> Bench::filled(std::uint64_t piece, std::uint64_t most,
                                           bool& has_device_memory) {
  std::vector<BenchMemory> blocks;
  while (blocks.size() < most) {
    auto block = try_memalloc(piece);
    if (block) {
      blocks.push_back(*std::move(block));
      continue;
    }
    has_device_memory = !blocks.empty() || block.error().code != Errc::not_supported;
    const auto info = device().mem_get_info();
    const bool has_more = info && info->free > kDeviceSlack;
    // Only a limit in bytes counts here. A manager that refuses after a few blocks is wrong.
    if (!has_more || block.error().code != Errc::out_of_memory) return std::nullopt;
    return held();
  }
  has_device_memory = true;
  return std::nullopt;
}

const Capacity& Bench::capacity() {
  auto& known = *subject_.capacity;
  if (known) return *known;
  // As many as the device holds: a manager may be told to take half of it.
  constexpr auto kPiece = 1_MiB, kSmaller = 4_GiB, kLarger = 8_GiB;
  const auto on_device = [&](std::uint64_t bytes) {
    if (platform_->kind() == "sim") return with_capacity(text::format("{}", bytes));
    return create(subject_, "capacity");
  };
  Capacity found;
  if (auto fresh = on_device(kSmaller))
    found.limit = (**fresh).filled(kPiece, kSmaller / kPiece, found.device_memory);
  if (!found.device_memory) return known.emplace(found);
  if (found.limit && platform_->kind() == "sim") {
    bool ignored = false;
    const auto clearly_more = *found.limit + *found.limit / 4;
    if (auto larger = on_device(kLarger);
        larger && !(**larger).filled(kPiece, clearly_more / kPiece, ignored))
      found.of_total = kSmaller;
  }
  if (auto fresh = on_device(kSmaller)) found.block = (**fresh).largest_block(found.limit);
  return known.emplace(found);
}

std::optional<std::uint64_t> Bench::own_limit() {
  const auto& known = capacity();
  if (!known.limit || known.of_total == 0) return known.limit;
  const auto info = opened_.driver->mem_get_info();
  if (!info) return known.limit;
  return static_cast<std::uint64_t>(static_cast<double>(*known.limit) /
                                    static_cast<double>(known.of_total) *
                                    static_cast<double>(info->total));
}

/// Measures with one block at a time, on an empty device.
std::optional<std::uint64_t> Bench::largest_block(std::optional<std::uint64_t> limit) {
  constexpr auto kMost = 512_MiB;  // no clause asks for a larger block
  const auto info = opened_.driver->mem_get_info();
  if (!info || info->free < kDeviceSlack) return std::nullopt;
  const auto room = std::min(info->free - kDeviceSlack, limit.value_or(info->free));
  const auto is_refused = [&](std::uint64_t size) {
    const auto block = try_memalloc(size);
    return !block && may_answer_to_large(block.error().code);
  };
  std::uint64_t given = 64_KiB, refused = std::min(kMost, room / 2);
  if (refused <= given || is_refused(given) || !is_refused(refused)) return std::nullopt;
  while (refused - given > 1) {
    const auto middle = given + (refused - given) / 2;
    (is_refused(middle) ? refused : given) = middle;
  }
  return given;
}

bool Bench::may_answer_to_large(Errc code) noexcept {
  return code == Errc::out_of_memory || code == Errc::invalid_value || code == Errc::not_supported;
}

bool Bench::expect_out_of_memory(std::string_view done, const Result<BenchMemory>& made,
                                 std::uint64_t size) {
  const bool is_other =
      !made && made.error().code != Errc::out_of_memory && may_answer_to_large(made.error().code);
  if (is_other && is_too_large(size)) return expect(true, done, {}, {});
  return expect_error(done, made, Errc::out_of_memory);
}

bool Bench::is_too_large(std::uint64_t size) {
  const auto largest = capacity().block;
  return largest && size > *largest;
}

std::optional<std::uint64_t> Bench::limit() {
  auto least = own_limit();
  if (!manager_ || !initialized_) return least;
  const auto told = manager_->get_memory_info();
  const auto info = opened_.driver->mem_get_info();
  // A growing pool tells what it holds (INF-6), which is no limit. One that took all that it tells
  // before the first request may never ask for more.
  const bool is_limit =
      told && info && told->total < info->total &&
      (told->total > held() || (held_at_first_ != 0 && told->total <= held_at_first_));
  if (is_limit) least = std::min(told->total, least.value_or(told->total));
  return least;
}

std::uint64_t Bench::affordable(std::uint64_t wanted) {
  auto most = std::min(wanted, limit().value_or(wanted));
  if (const auto largest = capacity().block) most = std::min(most, 2 * *largest);
  // A check that has called leave_on_device() knows how much the device has.
  if (!ballast_.empty() || (!is_simulated() && watch_.total() == 0)) return most;
  const auto info = opened_.driver->mem_get_info();
  return info ? std::min(most, info->free + held()) : most;
}

std::uint64_t Bench::leave_idle(std::size_t count, std::uint64_t size) {
  std::vector<BenchMemory> blocks;
  while (blocks.size() < count) {
    auto block = try_memalloc(size);
    if (!block) break;
    blocks.push_back(*std::move(block));
  }
  return blocks.size() * size;
}

std::uint64_t Bench::held() {
  const auto& ledger = watch_.ledger();
  const auto seen = ledger.live(CallLedger::Kind::device).bytes +
                    ledger.live(CallLedger::Kind::managed).bytes + ledger.physical_bytes();
  const std::lock_guard lock(mutex_);
  return watch_.total() != 0 ? seen : live_bytes_;
}

std::uint64_t Bench::driver_requests() {
  std::uint64_t made = 0;
  for (const auto call : {Call::mem_alloc, Call::mem_create, Call::runtime_malloc,
                          Call::mem_alloc_async, Call::mem_alloc_from_pool_async})
    made += watch_.ledger().calls(call).made;
  return made;
}

OthersRun::OthersRun(Bench& bench) noexcept : bench_(bench) { ++bench_.others_run_; }
OthersRun::~OthersRun() { --bench_.others_run_; }

FreesElsewhere::FreesElsewhere(Bench& bench) : bench_(bench) {
  bench_.watch().during = [this, home = std::this_thread::get_id()](const CallEvent&) {
    if (std::this_thread::get_id() != home) seen_ = true;
  };
}
FreesElsewhere::~FreesElsewhere() { bench_.watch().during = nullptr; }

bool Bench::others_run() const noexcept {
  return others_run_ != 0 || std::this_thread::get_id() != home_;
}

std::string Bench::why_wrongly_refused(std::uint64_t size, StreamHandle stream) {
  if (refuses_early() || is_too_large(size)) return {};
  if (others_run()) {
    // Others may have freed since the request, but hardly half of the device.
    const auto info = opened_.driver->mem_get_info();
    if (!info || limit() || info->free < info->total / 2 || size > info->total / 8) return {};
    return text::format("refused, while the device has {} bytes free", info->free);
  }
  // Memory that is mapped at several addresses may be whole and idle at one of them and cut up at
  // another.
  const auto& ledger = watch_.ledger();
  const bool mapped_twice = ledger.live(CallLedger::Kind::mapping).bytes > ledger.physical_bytes();
  {
    const std::lock_guard lock(mutex_);
    if (deferrals_ != 0 || watch_.any_refused()) return {};
  }
  const auto most = limit();
  {
    const std::lock_guard lock(mutex_);
    // The limit may be one of live bytes.
    if (most && (size > *most || live_bytes_ > *most - size)) return {};
    for (const auto& [begin, range] : idle_) {
      if (mapped_twice) break;
      if (range.end - begin < size || range.stream != stream) continue;
      // Is the range still the manager's? It may have released the range or a piece of it, and the
      // device may have handed out the addresses again.
      auto is_memory_until = begin;
      while (is_memory_until < range.end) {
        const auto piece = opened_.driver->mem_get_address_range({is_memory_until});
        if (!piece) break;
        const auto end = piece->base.value + piece->size;
        if (end <= is_memory_until) break;
        is_memory_until = end;
      }
      if (is_memory_until < range.end) continue;
      if (ledger.find(CallLedger::Kind::device, begin) != range.part_of) continue;
      return text::format(
          "refused, while {} bytes at {} that were freed on the same stream are idle",
          range.end - begin, text::hex(begin));
    }
  }
  if (size != 0) {
    // If the manager serves the request after flush() or trim(), it could have made that room
    // during the request.
    const auto serves_after = [&](const Status& done) {
      if (!done) return false;
      auto memory = manager().memalloc(size, stream);
      return memory && memory->free(stream);
    };
    if (serves_after(manager().flush())) return "refused, and served after flush()";
    if (serves_after(manager().trim(0))) return "refused, and served after trim(0)";
  }
  const auto needed = 2 * size + kDeviceSlack;  // it may round up, and take a whole slab
  if (needed < size) return {};
  if (most && held() + needed > *most) return {};
  const auto info = opened_.driver->mem_get_info();
  if (!info || info->free < needed) return {};
  return text::format("refused, while the device has {} bytes free", info->free);
}

std::string Bench::answers_of(Errc code) {
  constexpr std::int32_t kLastNative = 999;  // CUDA_ERROR_UNKNOWN
  std::string answers;
  for (std::int32_t native = 1; native < kLastNative; ++native) {
    if (meaning_of(native) != code || code == Errc::driver_error) continue;
    if (!answers.empty()) answers += " or ";
    answers += text::format("{} ({})", native_name(native), native);
  }
  return answers.empty() ? describe(Error{.code = code}) : answers;
}

bool Bench::gives(const Result<BenchMemory>& made, std::uint64_t size, StreamHandle stream) {
  if (made) return true;
  if (may_answer_to_large(made.error().code) && is_too_large(size)) return false;
  if (made.error().code == Errc::not_supported) {
    not_applicable(describe(made.error()));
    return false;
  }
  const auto done = text::format("memalloc({})", size);
  if (made.error().code != Errc::out_of_memory) {
    expect_ok(done, made);
    return false;
  }
  const auto why = why_wrongly_refused(size, stream);
  expect_rule("suite/serves", why.empty(), done, why, "memory");
  return false;
}

// Requests.

/// Returns the memory of a request that the check depends on. If the request failed, decides
/// whether the clause is not applicable or inconclusive, or the refusal was wrong.
BenchMemory Bench::need(Result<BenchMemory> result, std::uint64_t size, StreamHandle stream) {
  if (result) return *std::move(result);
  const auto& error = result.error();
  if (error.code == Errc::not_supported ||
      (may_answer_to_large(error.code) && is_too_large(size))) {
    not_applicable(describe(error));
  } else if (error.code != Errc::out_of_memory) {
    inconclusive(text::format("a request that this stands on: {}", answer_of(error)));
  } else if (gives(result, size, stream); !decided()) {
    const auto most = limit();
    const auto why = text::format("it needs {} bytes more than the manager gives", size);
    if (most || refuses_early() || others_run()) {
      not_applicable(most ? text::format("{}, whose limit is {} bytes", why, *most) : why);
    } else {
      inconclusive(why);
    }
  }
  return {};
}

Result<BenchMemory> Bench::try_memalloc(std::uint64_t size, StreamHandle stream) {
  auto& to = manager();
  const auto id = note("memalloc", text::format(",\"size\":{}{}", size, on(stream)), true);
  auto memory = to.memalloc(size, stream);
  if (!memory) return std::move(memory).error();
  return wrap(id, *std::move(memory), stream);
}

Result<BenchMemory> Bench::try_managed(std::uint64_t size, AttachFlags attach) {
  auto& to = manager();
  const auto id = note("memallocmanaged", text::format(",\"size\":{}", size), true);
  auto memory = to.memallocmanaged(size, attach);
  if (!memory) return std::move(memory).error();
  auto block = wrap(id, std::move(memory->memory()), {}, true);
  block.mapped_ = true;
  return block;
}

BenchMemory Bench::wrap(std::uint64_t id, MemoryPointer memory, StreamHandle stream, bool managed) {
  BenchMemory block;
  block.bench_ = this;
  block.id_ = id;
  block.device_ = memory.device_pointer();
  block.address_ = block.device_.value;
  block.size_ = memory.size();
  block.lifetime_ = std::move(memory).take_lifetime();
  judge_block(block, stream, managed);
  return block;
}

BenchMemory Bench::wrap(Bench& bench, std::uint64_t id, HostMemory memory) {
  BenchMemory block;
  block.bench_ = &bench;
  block.id_ = id;
  if (auto* mapped = std::get_if<MappedMemory>(&memory)) {
    block.host_ = mapped->host_pointer();
    block.device_ = mapped->device_pointer();
    block.size_ = mapped->size();
    block.mapped_ = true;
    block.lifetime_ = std::move(*mapped).take_lifetime();
  } else {
    auto& pinned = std::get<PinnedMemory>(memory);
    block.host_ = pinned.host_pointer();
    block.size_ = pinned.size();
    block.lifetime_ = std::move(pinned).take_lifetime();
  }
  block.address_ = reinterpret_cast<std::uint64_t>(block.host_);
  return block;
}

// Rules for every block, whatever is judged.

/// Expects the block to be aligned, to overlap no live block, and to be memory throughout.
void Bench::judge_block(const BenchMemory& block, StreamHandle stream, bool managed) {
  const auto begin = block.address();
  if (begin == 0) return;
  const auto size = block.size();
  const auto end = begin + std::max<std::uint64_t>(size, 1);
  std::string other;
  {
    const std::lock_guard lock(mutex_);
    other = note_live(block, stream);
    if (other.empty() && size != 0) other = note_places(block);
    live_bytes_ += size;
    for (auto idle = idle_.lower_bound(begin); idle != idle_.end() && idle->first < end;)
      idle = idle_.erase(idle);
    if (const auto after = idle_.lower_bound(begin); after != idle_.begin()) {
      if (const auto before = std::prev(after); before->second.end > begin) idle_.erase(before);
    }
  }
  const auto done = [&] { return text::format("a request for {} bytes", size); };
  if (!other.empty())
    expect_rule("live/overlap_address", false, done(), other, "memory of its own");
  if (size == 0) return;
  if (!managed && watch_.ledger().find(CallLedger::Kind::managed, begin))
    expect_rule("DEV-1", false, done(), "managed memory", "device memory");
  if (begin % kAlignment != 0)
    expect_rule("suite/alignment", false, done(), text::format("address {}", text::hex(begin)),
                "a multiple of 256");
  if (is_simulated()) judge_extent(block);
}

/// Expects the block to overlap no live block and to be page-locked throughout.
void Bench::judge_host_block(const BenchMemory& block) {
  if (block.address() == 0) return;
  std::string other;
  {
    const std::lock_guard lock(mutex_);
    other = note_live(block, {});
  }
  const auto done = text::format("a request for {} bytes of host memory", block.size());
  if (!other.empty()) expect_rule("live/overlap_address", false, done, other, "memory of its own");
  const auto thing = watch_.ledger().find(CallLedger::Kind::host, block.address());
  if (thing && block.address() + block.size() > thing->base + thing->size)
    expect_rule("HST-2", false, done,
                text::format("{} bytes to the end of what cuMemHostAlloc gave",
                             thing->base + thing->size - block.address()),
                "all of it is page-locked");
}

// The caller holds mutex_.

/// Notes a live block. If it overlaps another one, returns a description of that.
std::string Bench::note_live(const BenchMemory& block, StreamHandle stream) {
  const auto begin = block.address();
  const auto end = begin + std::max<std::uint64_t>(block.size(), 1);
  std::string other;
  if (auto after = live_.lower_bound(end); after != live_.begin()) {
    const auto& [at, range] = *std::prev(after);
    if (range.end > begin)
      other = text::format("{} of {} bytes lies in live memory [{}, {})", text::hex(begin),
                           block.size(), text::hex(at), text::hex(range.end));
  }
  live_[begin] = {.end = end, .id = block.id_, .stream = stream};
  return other;
}

/// Notes which memory is behind a block. If another block reaches the same memory through another
/// address, returns a description of that.
std::string Bench::note_places(const BenchMemory& block) {
  std::string other;
  auto& own = places_of_[block.id_];
  for (const auto& [first, last] : watch_.places(block.address(), block.size())) {
    if (auto after = live_places_.lower_bound(last); after != live_places_.begin()) {
      const auto& range = std::prev(after)->second;
      if (range.end > first)
        other = text::format("{} of {} bytes is mapped to physical memory of another live block",
                             text::hex(block.address()), block.size());
    }
    live_places_[first] = {.end = last, .id = block.id_};
    own.push_back(first);
  }
  return other;
}

void Bench::forget_places(std::uint64_t id) {
  const auto found = places_of_.find(id);
  if (found == places_of_.end()) return;
  for (const auto first : found->second) {
    const auto at = live_places_.find(first);
    if (at != live_places_.end() && at->second.id == id) live_places_.erase(at);
  }
  places_of_.erase(found);
}

void Bench::forget_memory() {
  live_.clear();
  live_places_.clear();
  places_of_.clear();
  idle_.clear();
  live_bytes_ = 0;
}

/// Expects the block to lie in one allocation, which may consist of several mappings in a row.
void Bench::judge_extent(const BenchMemory& block) {
  const auto end = block.address() + block.size();
  auto at = block.address();
  for (const auto kind : {CallLedger::Kind::device, CallLedger::Kind::managed}) {
    const auto thing = watch_.ledger().find(kind, at);
    if (!thing || end <= thing->base + thing->size) continue;
    expect_rule("suite/sizes", false, text::format("a request for {} bytes", block.size()),
                text::format("{} bytes to the end of the driver's allocation",
                             thing->base + thing->size - at),
                "all of it is memory");
    return;
  }
  while (at < end) {
    const auto range = opened_.driver->mem_get_address_range({at});
    if (!range && range.error().native == kIllegalAddress) return;  // the context is lost
    if (!range) break;
    at = range->base.value + range->size;
  }
  if (at < end)
    expect_rule("suite/sizes", false, text::format("a request for {} bytes", block.size()),
                text::format("{} bytes from its beginning on are memory", at - block.address()),
                "all of it is memory");
}

Result<BenchMemory> Bench::try_hosted(std::uint64_t size, HostAllocFlags flags) {
  auto& to = manager();
  const auto id =
      note("memhostalloc",
           text::format(",\"size\":{},\"mapped\":{}", size, true_or_false(flags.mapped)), true);
  auto memory = to.memhostalloc(size, flags);
  if (!memory) return std::move(memory).error();
  auto block = wrap(*this, id, *std::move(memory));
  judge_host_block(block);
  return block;
}

Result<BenchMemory> Bench::try_pin(HostRange range, HostRegisterFlags flags,
                                   std::shared_ptr<const void> owner) {
  auto& to = manager();
  const auto id = note(
      "mempin", text::format(",\"size\":{},\"mapped\":{}", range.size, true_or_false(flags.mapped)),
      true);
  auto memory = to.mempin(range, flags, owner);
  if (!memory) return std::move(memory).error();
  auto block = wrap(*this, id, *std::move(memory));
  block.owner_ = std::move(owner);
  return block;
}

BenchMemory Bench::memalloc(std::uint64_t size, StreamHandle stream) {
  return need(try_memalloc(size, stream), size, stream);
}
BenchMemory Bench::managed(std::uint64_t size, AttachFlags attach) {
  return need(try_managed(size, attach), size);
}
BenchMemory Bench::hosted(std::uint64_t size, HostAllocFlags flags) {
  return need(try_hosted(size, flags), size);
}
BenchMemory Bench::pin(HostRange range, HostRegisterFlags flags,
                       std::shared_ptr<const void> owner) {
  return need(try_pin(range, flags, std::move(owner)), range.size);
}

std::vector<BenchMemory> Bench::mapped_blocks(std::size_t count, std::uint64_t size) {
  std::vector<BenchMemory> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(mapped(size));
  return blocks;
}

BenchMemory Bench::any(std::uint64_t size) {
  const auto declined = [](const Result<BenchMemory>& block) {
    return !block && block.error().code == Errc::not_supported;
  };
  auto block = try_memalloc(size);
  if (declined(block)) block = try_managed(size);
  if (declined(block)) block = try_hosted(size, {.mapped = true});
  return need(std::move(block), size);
}

HostRange Bench::buffer(std::uint64_t size) {
  constexpr std::uint64_t kPage = 4096;  // bytes: regions are pinned in pages of the host
  buffers_.push_back(std::make_unique<std::byte[]>(size + 2 * kPage));
  const auto begin =
      (reinterpret_cast<std::uint64_t>(buffers_.back().get()) + kPage - 1) & ~(kPage - 1);
  return {.pointer = reinterpret_cast<HostPtr>(begin), .size = size};
}

void Bench::reset() {
  auto& to = uninitialized();
  note("reset", "", false);
  {
    const std::lock_guard lock(mutex_);
    forget_memory();
  }
  to.reset();
}

Deferral Bench::defer() {
  auto& to = manager();
  std::uint64_t scope = 0;
  {
    const std::lock_guard lock(mutex_);
    scope = ++next_scope_;
    ++deferrals_;
  }
  note("defer_cleanup", text::format(",\"scope\":{}", scope), false);
  return {*this, scope, to.defer_cleanup()};
}

void Deferral::end() noexcept {
  if (const auto scope = std::exchange(scope_, 0); scope != 0) {
    bench_->note("end_defer_cleanup", text::format(",\"scope\":{}", scope), false);
    const std::lock_guard lock(bench_->mutex_);
    --bench_->deferrals_;
  }
  guard_.end();
}

// Content.

Status Bench::try_fill(const BenchMemory& block, std::uint8_t value) {
  if (block.size() == 0) return {};
  if (block.host() != nullptr) {
    std::fill_n(block.host(), block.size(), std::byte{value});
    return {};
  }
  return device().memset_d8(block.device(), value, block.size());
}

bool Bench::holds(const BenchMemory& block, std::uint8_t value) {
  // Bytes that are compared; of a large block five pieces are.
  constexpr std::uint64_t kPiece = 4096;
  std::array<std::byte, kPiece> bytes;
  const auto whole = block.size() <= 64_KiB;
  const auto step = whole ? kPiece : std::max(kPiece, (block.size() - kPiece) / 4);
  for (std::uint64_t at = 0; at < block.size(); at += step) {
    const auto size = std::min(kPiece, block.size() - at);
    const std::byte* piece = bytes.data();
    if (block.host() != nullptr) {
      piece = block.host() + at;
    } else if (!device().memcpy_dtoh({bytes.data(), size}, block.device() + at)) {
      return false;
    }
    // Each byte is as the one before it.
    if (*piece != std::byte{value} || std::memcmp(piece, piece + 1, size - 1) != 0) return false;
  }
  return true;
}

// The trace.

std::uint64_t Bench::note(std::string_view op, std::string_view members, bool allocates) {
  const std::lock_guard lock(mutex_);
  const auto id = allocates ? ++next_id_ : 0;
  add_note(text::format("{\"op\":\"{}\"", op) +
           (allocates ? text::format(",\"id\":{}", id) : std::string()) + std::string(members) +
           "}");
  return id;
}

void Bench::note_free(const BenchMemory& block, StreamHandle stream, bool late) {
  const auto id = block.id_;
  const std::lock_guard lock(mutex_);
  if (const auto found = live_.find(block.address_);
      found != live_.end() && found->second.id == id) {
    if (block.host_ == nullptr) live_bytes_ -= block.size_;
    forget_places(id);
    const bool device_memory = block.host_ == nullptr && !block.mapped_ && block.size_ != 0;
    if (device_memory && found->second.stream == stream) {
      found->second.id = 0;
      found->second.part_of = watch_.ledger().find(CallLedger::Kind::device, block.address_);
      idle_[block.address_] = found->second;
    }
    live_.erase(found);
  }
  add_note(text::format("{\"op\":\"free\",\"id\":{}", id) + on(stream) +
           (late ? ",\"cause\":\"finalizer\"" : "") + "}");
}

void Bench::add_note(std::string note) {
  notes_.push_back(std::move(note));
  plugin::mark_operation(text::format("operation {}: {}{}{}", notes_.size(), notes_.back(),
                                      doing_.empty() ? "" : ", in ", doing_));
}

void Bench::set_doing(std::string words) {
  const std::lock_guard lock(mutex_);
  doing_ = std::move(words);
  if (!doing_.empty()) plugin::mark_operation(doing_);
}

std::string Bench::trace() const {
  std::string name;
  format::append_json_string(name, clause_);
  auto out = "{\"format\":\"emmctl-trace\",\"version\":\"1.0\",\"name\":" + name +
             ",\"level\":\"synthetic\",\"events\":[\n";
  for (std::size_t i = 0; i < notes_.size(); ++i) out += (i == 0 ? "  " : ",\n  ") + notes_[i];
  return out + "\n]}\n";
}

// The verdict.

void Bench::decide(Verdict verdict) {
  const std::lock_guard lock(mutex_);
  if (!verdict_) verdict_ = std::move(verdict);
}

void Bench::take(Bench& other) {
  auto verdict = other.finish();
  if (!verdict.broken.empty()) {
    const std::lock_guard lock(mutex_);
    if (!broken_ && !verdict_) {
      if (auto evidence = Verdict::from_bytes(verdict.evidence)) broken_ = *std::move(evidence);
      broken_id_ = verdict.broken;
      broken_first_ = true;
    }
    verdict.broken.clear();
    verdict.evidence.clear();
  }
  if (verdict.kind != Verdict::Kind::pass) decide(std::move(verdict));
}

void Bench::ask_class() {
  untraceable();
  constexpr char kBetween = '\x1e';  // ASCII's record separator, which no answer has
  const auto* const asked = dynamic_cast<const plugin::ImportedManager*>(&manager());
  auto answer = asked == nullptr ? std::string() : asked->ask_class(clause_);
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= answer.size();) {
    const auto end = std::min(answer.find(kBetween, at), answer.size());
    parts.push_back(answer.substr(at, end - at));
    at = end + 1;
  }
  if (parts[0] == "pass") {
    // Failures of requests and of programs are asked for here. What they leave shows in the end.
    if (parts.size() > 1) return static_cast<void>(expect(true, {}, {}, {}));
    expect_balance(text::format("what {} asks, then the manager's end", clause_));
  } else if (parts[0] == "not asked" && parts.size() == 2) {
    not_applicable(parts[1]);
  } else if (parts[0] == "broken" && parts.size() == 4) {
    expect(false, parts[1], parts[2], parts[3]);
  } else {
    inconclusive("the class gave no answer");
  }
}

bool Bench::decided() const {
  const std::lock_guard lock(mutex_);
  return verdict_.has_value();
}

void Bench::not_applicable(std::string_view why) {
  decide({.kind = Verdict::Kind::not_applicable, .words = std::string(why)});
}

void Bench::inconclusive(std::string_view why) {
  decide({.kind = Verdict::Kind::inconclusive, .words = std::string(why)});
}

std::string Bench::last_calls() const {
  if (shown_ != nullptr) return shown_->last_calls();
  constexpr std::size_t kShown = 16;  // calls that a finding shows
  const auto events = watch_.events();
  std::string lines;
  for (auto i = events.size() < kShown ? 0 : events.size() - kShown; i < events.size(); ++i) {
    lines += to_text(events[i], *opened_.driver) + "\n";
  }
  return lines;
}

bool Bench::expect(bool holds, std::string_view done, std::string_view seen,
                   std::string_view expected) {
  const std::lock_guard lock(mutex_);
  ++expected_;
  if (holds || verdict_) return holds;
  verdict_ = failure(done, seen, expected);
  return false;
}

bool Bench::expect_rule(std::string_view clause, bool holds, std::string_view done,
                        std::string_view seen, std::string_view expected) {
  if (clause == clause_) return expect(holds, done, seen, expected);
  const std::lock_guard lock(mutex_);
  if (holds || broken_) return holds;
  broken_ = failure(done, seen, expected);
  broken_id_ = clause;
  broken_first_ = !verdict_;
  return false;
}

/// The caller holds mutex_.
Verdict Bench::failure(std::string_view done, std::string_view seen,
                       std::string_view expected) const {
  Verdict failed{.kind = Verdict::Kind::fail,
                 .words = std::string(done),
                 .seen = std::string(seen),
                 .expected = std::string(expected),
                 .calls = last_calls()};
  if (subject_.is_class) {
    const auto* const asked = dynamic_cast<const plugin::ImportedManager*>(manager_.get());
    if (asked != nullptr) failed.story = asked->story_of_class();
  }
  const auto& ledger = watch_.ledger();
  if (ledger.double_ends() + ledger.foreign_ends() > 0) failed.cause = kWrongEnds;
  if (traceable_ && next_id_ != 0) {
    failed.trace = trace();
    failed.options =
        text::format("--manager {} --device {} --verify{}", text::shell_word(subject_.manager),
                     platform_->spec(), watch_.faults());
  }
  return failed;
}

bool Bench::expect_calls(std::string_view done, std::initializer_list<Call> expected) {
  const auto words = [](const auto& calls) {
    std::string out;
    for (const auto call : calls) (out += out.empty() ? "" : ", ") += call_info(call).name;
    return out.empty() ? std::string("no call") : out;
  };
  std::vector<Call> seen;
  for (const auto& event : watch_.events()) seen.push_back(event.call);
  return expect(std::equal(seen.begin(), seen.end(), expected.begin(), expected.end()), done,
                words(seen), words(expected));
}

std::size_t Bench::ends() const {
  const auto events = watch_.events();
  return static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(), [](const auto& event) { return is_end(event.call); }));
}

std::size_t Bench::count(Call call) const {
  const auto events = watch_.events();
  return static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(), [&](const auto& event) { return event.call == call; }));
}

bool Bench::expect_balance(std::string_view done) {
  if (is_numba() && manager_ && !manager_->flush())
    return expect(false, done, "flush() fails", "balanced");  // ERR-3
  end_manager();
  if (watch_.total() == 0) {
    inconclusive("the driver calls of this manager are not seen here");
    return true;
  }
  const auto balances = watch_.ledger().balances();
  return expect(balances, done, balances ? "" : watch_.ledger().verdict(), "balanced");
}

int Bench::fork_process() {
  const std::scoped_lock all(mutex_, observer_.mutex_, observer_.during.mutex_, watch_.mutex_,
                             watch_.during.mutex_, watch_.ledger().lock_of_forks());
  return fork();
}

/// Expects that the manager has returned everything that it took from the driver, each thing once,
/// and that the driver has refused no call that it can serve.
void Bench::judge_ledger() {
  if (!manager_ && watch_.total() == 0) return;
  watch_.during = nullptr;
  const bool was_failed = watch_.any_refused();
  const auto done = text::format("all of {}, then the manager's end", clause_);
  if (const auto words = observer_.misbehaviour(); !words.empty())
    expect_rule("abi/answers", false, done, words, "answers as emm_plugin.h says");
  if (const auto* plugin = dynamic_cast<const plugin::ImportedManager*>(manager_.get())) {
    const auto words = plugin->wrong_answer();
    expect_rule("abi/answers", words.empty(), done, words,
                "an answer without tokens and addresses where the call fails, and without a "
                "host_pointer where the host has none");
    if (const auto* const slot = plugin->slot_that_mapped_unasked(); slot != nullptr)
      expect_rule(slot == std::string_view("mempin") ? "PIN-3" : "HST-2", false, done,
                  text::format("{} gave page-locked memory that was not to be mapped a "
                               "device_pointer",
                               slot),
                  "a device_pointer of 0");
    expect_rule("MAN-4", !plugin->has_managed_of_two_addresses(), done,
                "memallocmanaged gave a host_pointer that is not the device_pointer",
                "one address for both");
  }
  watch_.fail_all(0);
  end_manager();
  if (watch_.total() == 0 || is_numba()) return;  // numba abandons pinned memory: ERR-3
  const auto& ledger = watch_.ledger();
  const bool once = ledger.double_ends() == 0 && ledger.foreign_ends() == 0;
  if (!(was_failed ? once : ledger.balances()))
    expect_rule("accounts/balance", false, done, ledger.verdict(), "balanced");
  if (const auto refused = watch_.first_uninvited(); refused && !was_failed)
    expect_rule("accounts/calls", false, done, to_text(*refused), "calls that the driver makes");
}

Verdict Bench::finish() {
  judge_ledger();
  auto own = verdict();
  if (broken_ && (broken_first_ || own.kind != Verdict::Kind::fail)) {
    own.broken = broken_id_;
    own.evidence = broken_->to_bytes();
  }
  return own;
}

Verdict Bench::verdict() const {
  if (verdict_) return *verdict_;
  if (expected_ == 0 && refuses_early())
    return {.kind = Verdict::Kind::not_applicable, .words = "it gave nothing that could be judged"};
  if (expected_ == 0) return {.words = "nothing was judged"};
  return {.kind = Verdict::Kind::pass};
}

std::string describe(const stream_order::Hazard& hazard) {
  using How = stream_order::Hazard::How;
  const auto end = hazard.how == How::handed_out
                       ? text::format("was handed out as block {}", hazard.to)
                   : hazard.how == How::unmapped ? std::string("was unmapped")
                                                 : std::string("was released to the device");
  return text::format("memory of block {} {} while work on it may be pending", hazard.id, end);
}

}  // namespace emm::conformance
