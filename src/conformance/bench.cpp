#include "conformance/bench.hpp"

#include <algorithm>
#include <array>

#include "base/units.hpp"
#include "driver/decorate/call_log.hpp"
#include "format/json_writer.hpp"
#include "order/watch.hpp"
#include "plugin/running_call.hpp"

namespace emm::conformance {
namespace {

constexpr std::string_view kSimulated = "sim:capacity=134217728,devices=2,seed=";

std::string on(StreamHandle stream) {
  return stream.value == 0 ? std::string() : text::format(",\"stream\":{}", stream.value);
}

std::string_view true_or_false(bool value) { return value ? "true" : "false"; }

}  // namespace

Tapped::Tapped(const plugin::StandIns* standins, CallHook& to) : standins_(standins), to_(to) {
  if (standins_ != nullptr) standins_->tap(this);
}
Tapped::~Tapped() {
  if (standins_ != nullptr) standins_->tap(nullptr);
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
  const std::lock_guard lock(mutex_);
  added_.emplace_back(dtor, size);
}
void RecordingObserver::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  flushes_.push_back({count, bytes});
}
void RecordingObserver::free_failed(const Error&) noexcept {
  const std::lock_guard lock(mutex_);
  ++failures_;
}
std::vector<std::pair<Call, std::optional<std::uint64_t>>> RecordingObserver::added() const {
  const std::lock_guard lock(mutex_);
  return added_;
}
std::vector<RecordingObserver::Flush> RecordingObserver::flushes() const {
  const std::lock_guard lock(mutex_);
  return flushes_;
}
std::size_t RecordingObserver::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

Result<std::unique_ptr<Bench>> Bench::create(const Subject& subject, std::string_view clause) {
  const auto spec =
      subject.device == "sim" ? text::format("{}{}", kSimulated, subject.seed) : subject.device;
  auto platform = open_platform(spec, {});
  if (!platform) return std::move(platform).error();
  auto opened = (*platform)->open(0);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Bench>(
      new Bench(subject, clause, *std::move(platform), *std::move(opened)));
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
  if (opened_.runtime) runtime_.emplace(*opened_.runtime, watch_);
}

Bench::~Bench() {
  watch_.during = nullptr;
  watch_.fail_all(0);
  manager_.reset();
  for (const auto stream : streams_) {
    if (!opened_.driver->stream_destroy(stream)) continue;  // the whole device goes next
  }
  if (!opened_.driver->primary_ctx_reset()) return;  // a clause has done so
}

// The manager.

MemoryManager& Bench::uninitialized() {
  if (manager_) return *manager_;
  auto made = subject_.factory.make({.driver = order_ ? ordered_.driver.get() : &watched_,
                                     .runtime = order_ ? ordered_.runtime.get() : runtime(),
                                     .clock = &platform_->clock(),
                                     .observer = &observer_,
                                     .profile = subject_.profile});
  EMM_ASSERT(made);  // judge() has made one before
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
  return made;
}

void Bench::end_manager() { manager_.reset(); }

OpenedDevice Bench::watched_device() {
  OpenedDevice device;
  device.driver = std::make_unique<ForwardingDriver>(stub_, watch_);
  if (opened_.runtime)
    device.runtime = std::make_unique<ForwardingRuntime>(*opened_.runtime, watch_);
  return device;
}

StreamHandle Bench::stream() {
  auto made = opened_.driver->stream_create();
  if (!made) {
    inconclusive(text::format("a stream: {}", describe(made.error())));
    return {};
  }
  note("stream_create", text::format(",\"id\":{}", made->value), false);
  streams_.push_back(*made);
  return *made;
}

order::Checker& Bench::watch_order() {
  EMM_ASSERT(!manager_);
  order_ = std::make_unique<order::Checker>([]() noexcept -> std::uint64_t { return 0; });
  ordered_ = order_->watch(watched_device(), 0);
  tapped_order_ = std::make_unique<order::Watch>(*order_, 0);
  tapped_.also(*tapped_order_);
  return *order_;
}

bool Bench::is_simulated() const noexcept {
  return platform_->kind() == "sim" || subject_.standins != nullptr;
}

void Bench::leave_on_device(std::uint64_t bytes) {
  traceable_ = false;
  constexpr auto kPage = 2_MiB;
  auto most = ~std::uint64_t{0};  // a real device may refuse in one piece what it gives in two
  while (most >= kPage) {
    const auto info = opened_.driver->mem_get_info();
    if (!info || info->free < bytes + kPage) return;
    const auto piece = std::min(most, info->free - bytes) & ~(kPage - 1);
    if (auto held = opened_.driver->mem_alloc(piece)) {
      ballast_.push_back(*held);
    } else {
      most = piece / 2;
    }
  }
  inconclusive("the device says that memory is free, and gives none");
}

// Requests.

template <class T>
BenchMemory Bench::need(Result<T> result) {
  if (result) return *std::move(result);
  if (result.error().code == Errc::not_supported) {
    not_applicable(describe(result.error()));
  } else {
    inconclusive(text::format("a request that this stands on: {}", describe(result.error())));
  }
  return {};
}

Result<BenchMemory> Bench::try_memalloc(std::uint64_t size, StreamHandle stream) {
  auto& to = manager();
  const auto id = note("memalloc", text::format(",\"size\":{}{}", size, on(stream)), true);
  auto memory = to.memalloc(size, stream);
  if (!memory) return std::move(memory).error();
  return wrap(id, *std::move(memory));
}

Result<BenchMemory> Bench::try_managed(std::uint64_t size, AttachFlags attach) {
  auto& to = manager();
  const auto id = note("memallocmanaged", text::format(",\"size\":{}", size), true);
  auto memory = to.memallocmanaged(size, attach);
  if (!memory) return std::move(memory).error();
  auto block = wrap(id, std::move(memory->memory()));
  block.mapped_ = true;
  return block;
}

BenchMemory Bench::wrap(std::uint64_t id, MemoryPointer memory) {
  BenchMemory block;
  block.bench_ = this;
  block.id_ = id;
  block.device_ = memory.device_pointer();
  block.address_ = block.device_.value;
  block.size_ = memory.size();
  block.lifetime_ = std::move(memory).take_lifetime();
  return block;
}

BenchMemory Bench::wrap(std::uint64_t id, HostMemory memory) {
  BenchMemory block;
  block.bench_ = this;
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

Result<BenchMemory> Bench::try_hosted(std::uint64_t size, HostAllocFlags flags) {
  auto& to = manager();
  const auto id =
      note("memhostalloc",
           text::format(",\"size\":{},\"mapped\":{}", size, true_or_false(flags.mapped)), true);
  auto memory = to.memhostalloc(size, flags);
  if (!memory) return std::move(memory).error();
  return wrap(id, *std::move(memory));
}

Result<BenchMemory> Bench::try_pin(HostRange range, HostRegisterFlags flags,
                                   std::shared_ptr<const void> owner) {
  auto& to = manager();
  const auto id = note(
      "mempin", text::format(",\"size\":{},\"mapped\":{}", range.size, true_or_false(flags.mapped)),
      true);
  auto memory = to.mempin(range, flags, owner);
  if (!memory) return std::move(memory).error();
  auto block = wrap(id, *std::move(memory));
  block.owner_ = std::move(owner);
  return block;
}

BenchMemory Bench::memalloc(std::uint64_t size, StreamHandle stream) {
  return need(try_memalloc(size, stream));
}
BenchMemory Bench::managed(std::uint64_t size, AttachFlags attach) {
  return need(try_managed(size, attach));
}
BenchMemory Bench::hosted(std::uint64_t size, HostAllocFlags flags) {
  return need(try_hosted(size, flags));
}
BenchMemory Bench::pin(HostRange range, HostRegisterFlags flags,
                       std::shared_ptr<const void> owner) {
  return need(try_pin(range, flags, std::move(owner)));
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
  return need(std::move(block));
}

HostRange Bench::buffer(std::uint64_t size) {
  constexpr std::uint64_t kPage = 4096;
  buffers_.push_back(std::make_unique<std::byte[]>(size + 2 * kPage));
  const auto begin =
      (reinterpret_cast<std::uint64_t>(buffers_.back().get()) + kPage - 1) & ~(kPage - 1);
  return {.pointer = reinterpret_cast<HostPtr>(begin), .size = size};
}

void Bench::reset() {
  auto& to = uninitialized();
  note("reset", "", false);
  to.reset();
}

Deferral Bench::defer() {
  auto& to = manager();
  std::uint64_t scope = 0;
  {
    const std::lock_guard lock(mutex_);
    scope = ++next_scope_;
  }
  note("defer_cleanup", text::format(",\"scope\":{}", scope), false);
  return {*this, scope, to.defer_cleanup()};
}

void Deferral::end() noexcept {
  if (const auto scope = std::exchange(scope_, 0); scope != 0) {
    bench_->note("end_defer_cleanup", text::format(",\"scope\":{}", scope), false);
  }
  guard_.end();
}

// Content.

bool Bench::fill(const BenchMemory& block, std::uint8_t value) {
  if (block.size() == 0) return true;
  if (block.host() != nullptr) {
    std::fill_n(block.host(), block.size(), std::byte{value});
    return true;
  }
  return device().memset_d8(block.device(), value, block.size()).has_value();
}

bool Bench::holds(const BenchMemory& block, std::uint8_t value) {
  constexpr std::uint64_t kPiece = 4096;
  std::array<std::byte, kPiece> bytes;
  const auto whole = block.size() <= 64_KiB;
  const auto step = whole ? kPiece : std::max(kPiece, (block.size() - kPiece) / 4);
  for (std::uint64_t at = 0; at < block.size(); at += step) {
    const auto size = std::min(kPiece, block.size() - at);
    const std::span<std::byte> piece(bytes.data(), size);
    if (block.host() != nullptr) {
      std::copy_n(block.host() + at, size, piece.begin());
    } else if (!device().memcpy_dtoh(piece, block.device() + at)) {
      return false;
    }
    if (!std::all_of(piece.begin(), piece.end(),
                     [&](std::byte byte) { return byte == std::byte{value}; })) {
      return false;
    }
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

void Bench::note_free(std::uint64_t id, StreamHandle stream, bool late) {
  const std::lock_guard lock(mutex_);
  add_note(text::format("{\"op\":\"free\",\"id\":{}", id) + on(stream) +
           (late ? ",\"cause\":\"finalizer\"" : "") + "}");
}

void Bench::add_note(std::string note) {
  notes_.push_back(std::move(note));
  plugin::mark_operation(text::format("operation {}: {}", notes_.size(), notes_.back()));
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

void Bench::take(Verdict verdict) {
  if (verdict.kind != Verdict::Kind::pass) decide(std::move(verdict));
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
  constexpr std::size_t kShown = 16;
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
  verdict_ = Verdict{.kind = Verdict::Kind::fail,
                     .words = std::string(done),
                     .seen = std::string(seen),
                     .expected = std::string(expected),
                     .calls = last_calls()};
  if (traceable_ && next_id_ != 0) {
    verdict_->trace = trace();
    verdict_->options = text::format("--manager {} --device {} --verify{}", subject_.manager,
                                     platform_->spec(), watch_.faults());
  }
  return false;
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

Verdict Bench::verdict() {
  const std::lock_guard lock(mutex_);
  if (verdict_) return *verdict_;
  if (expected_ == 0) return {.words = "nothing was judged"};
  return {.kind = Verdict::Kind::pass};
}

}  // namespace emm::conformance
