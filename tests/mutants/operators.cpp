#include "operators.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/text_format.hpp"
#include "conformance/suite.hpp"
#include "driver/call.hpp"
#include "emm/memory_manager.hpp"
#include "wrong.hpp"

namespace emm::mutants {
namespace {

using Kind = Operator::Kind;

constexpr std::array<std::string_view, 12> kNames{
    "dropped",     "made twice",        "made late",     "its error ignored", "its success denied",
    "a byte less", "a byte more",       "half the size", "twice the size",    "512 bytes off",
    "other flags", "the default stream"};

/// Counts the calls of one kind, and makes the mistake in those that are meant.
class Mistake {
 public:
  Mistake(Kind kind, std::uint64_t nth) noexcept : kind_(kind), nth_(nth) {}

  bool is(Kind kind) const noexcept { return kind == kind_; }
  bool hits() noexcept {
    const auto n = seen_.fetch_add(1) + 1;
    return nth_ == 0 || n == nth_;
  }
  std::uint64_t size(std::uint64_t size) const noexcept {
    switch (kind_) {
      case Kind::size_less:
        return size > 1 ? size - 1 : size;
      case Kind::size_more:
        return size + 1;
      case Kind::size_half:
        return size > 1 ? size / 2 : size;
      case Kind::size_twice:
        return size * 2;
      default:
        return size;
    }
  }

 private:
  const Kind kind_;
  const std::uint64_t nth_;
  std::atomic<std::uint64_t> seen_{0};
};

/// A request: `make(size)` gives what the device answers.
template <class Make>
auto wrong_request(Mistake& mistake, Call call, std::uint64_t size, Make make)
    -> decltype(make(size)) {
  if (!mistake.hits()) return make(size);
  if (mistake.is(Kind::twice)) {
    auto first = make(size);
    const auto second = make(size);
    return first;
  }
  auto answer = make(mistake.size(size));
  if (mistake.is(Kind::invent_error) && answer) return driver_error(call, 2);
  if constexpr (std::is_same_v<typename decltype(make(size))::value_type, DevicePtr>) {
    if (mistake.is(Kind::next_address) && answer) answer->value += 512;
    if (mistake.is(Kind::ignore_error) && !answer) return DevicePtr{0x5000};
  }
  return answer;
}

/// An end, of what `end` ends.
template <class Handle, class End>
Status wrong_end(Mistake& mistake, Call call, Handle what, Handle& waiting, End end) {
  if (!mistake.hits()) return end(what);
  if (mistake.is(Kind::drop)) return {};
  if (mistake.is(Kind::late)) {
    const auto before = std::exchange(waiting, what);
    return before == Handle{} ? Status() : end(before);
  }
  auto done = end(what);
  if (mistake.is(Kind::twice) && !end(what)) return done;
  if (mistake.is(Kind::ignore_error)) return {};
  if (mistake.is(Kind::invent_error) && done) return driver_error(call, 1);
  return done;
}

template <class Handle>
Hook<Status(Handle)> wrong_end(const std::shared_ptr<Mistake>& mistake, Call call,
                               Hook<Status(Handle)> end) {
  auto waiting = std::make_shared<Handle>();
  auto mutex = std::make_shared<std::mutex>();
  return [=](Handle what) {
    const std::lock_guard lock(*mutex);
    return wrong_end(*mistake, call, what, *waiting, end);
  };
}

/// A call that gives nothing and ends nothing that has a name.
template <class Step>
Status wrong_step(Mistake& mistake, Call call, Step step) {
  if (!mistake.hits()) return step();
  if (mistake.is(Kind::drop)) return {};
  auto done = step();
  if (mistake.is(Kind::twice) && done) return step();
  if (mistake.is(Kind::ignore_error)) return {};
  if (mistake.is(Kind::invent_error) && done) return driver_error(call, 1);
  return done;
}

void put(WrongDriver& driver, Call call, const std::shared_ptr<Mistake>& mistake) {
  auto& to = driver.to;
  switch (call) {
    case Call::mem_alloc:
      driver.on_mem_alloc = [=, &to](auto size) {
        return wrong_request(*mistake, call, size, [&](auto asked) { return to.mem_alloc(asked); });
      };
      return;
    case Call::mem_alloc_managed:
      driver.on_mem_alloc_managed = [=, &to](auto size, auto attach) {
        const auto flags =
            mistake->is(Kind::other_flags)
                ? (attach == AttachFlags::global ? AttachFlags::host : AttachFlags::global)
                : attach;
        return wrong_request(*mistake, call, size,
                             [&](auto asked) { return to.mem_alloc_managed(asked, flags); });
      };
      return;
    case Call::mem_host_alloc:
      driver.on_mem_host_alloc = [=, &to](auto size, auto flags) {
        if (mistake->is(Kind::other_flags)) flags.wc = !flags.wc;
        return wrong_request(*mistake, call, size,
                             [&](auto asked) { return to.mem_host_alloc(asked, flags); });
      };
      return;
    case Call::mem_host_register:
      driver.on_mem_host_register = [=, &to](auto range, auto flags) -> Status {
        if (!mistake->hits()) return to.mem_host_register(range, flags);
        if (mistake->is(Kind::drop)) return {};
        if (mistake->is(Kind::other_flags)) flags.mapped = !flags.mapped;
        range.size = mistake->size(range.size);
        auto done = to.mem_host_register(range, flags);
        if (mistake->is(Kind::ignore_error)) return {};
        if (mistake->is(Kind::invent_error) && done) return driver_error(call, 2);
        return done;
      };
      return;
    case Call::mem_host_get_device_pointer:
      driver.on_mem_host_get_device_pointer = [=, &to](auto ptr) {
        return wrong_request(*mistake, call, 0,
                             [&](auto) { return to.mem_host_get_device_pointer(ptr); });
      };
      return;
    case Call::mem_get_info:
      driver.on_mem_get_info = [=, &to]() -> Result<MemoryInfo> {
        auto info = to.mem_get_info();
        if (!mistake->hits()) return info;
        if (mistake->is(Kind::twice)) return to.mem_get_info();
        if (mistake->is(Kind::invent_error)) return driver_error(call, 2);
        if (info && !mistake->is(Kind::drop)) info->total = mistake->size(info->total);
        if (mistake->is(Kind::drop)) return MemoryInfo{};
        return info;
      };
      return;
    case Call::mem_get_address_range:
      driver.on_mem_get_address_range = [=, &to](auto ptr) -> Result<AddressRange> {
        auto range = to.mem_get_address_range(ptr);
        if (!mistake->hits()) return range;
        if (mistake->is(Kind::twice)) return to.mem_get_address_range(ptr);
        if (range && mistake->is(Kind::next_address)) range->base.value += 512;
        if (range && mistake->is(Kind::drop)) range->base = ptr;
        return range;
      };
      return;
    case Call::ipc_get_mem_handle:
      driver.on_ipc_get_mem_handle = [=, &to](auto ptr) -> Result<IpcMemHandle> {
        if (!mistake->hits()) return to.ipc_get_mem_handle(ptr);
        if (mistake->is(Kind::drop)) return IpcMemHandle{};
        if (mistake->is(Kind::twice)) {
          const auto first = to.ipc_get_mem_handle(ptr);
        }
        return to.ipc_get_mem_handle(ptr);
      };
      return;
    case Call::mem_free:
      driver.on_mem_free =
          wrong_end<DevicePtr>(mistake, call, [&to](auto ptr) { return to.mem_free(ptr); });
      return;
    case Call::mem_free_host:
      driver.on_mem_free_host =
          wrong_end<HostPtr>(mistake, call, [&to](auto ptr) { return to.mem_free_host(ptr); });
      return;
    case Call::mem_host_unregister:
      driver.on_mem_host_unregister = wrong_end<HostPtr>(
          mistake, call, [&to](auto ptr) { return to.mem_host_unregister(ptr); });
      return;
    case Call::stream_wait_event:
      driver.on_stream_wait_event = [=, &to](auto stream, auto event) -> Status {
        if (!mistake->hits()) return to.stream_wait_event(stream, event);
        if (mistake->is(Kind::drop)) return {};
        return to.stream_wait_event(StreamHandle{}, event);
      };
      return;
    case Call::ctx_synchronize:
      driver.on_ctx_synchronize = [=, &to]() -> Status {
        if (mistake->hits()) return {};
        return to.ctx_synchronize();
      };
      return;
    case Call::mem_create:
      driver.on_mem_create = [=, &to](auto size) {
        return wrong_request(*mistake, call, size,
                             [&](auto asked) { return to.mem_create(asked); });
      };
      return;
    case Call::mem_release:
      driver.on_mem_release = wrong_end<PhysicalHandle>(
          mistake, call, [&to](auto handle) { return to.mem_release(handle); });
      return;
    case Call::mem_map:
      driver.on_mem_map = [=, &to](auto ptr, auto size, auto handle) {
        return wrong_step(*mistake, call, [&] { return to.mem_map(ptr, size, 0, handle); });
      };
      return;
    case Call::mem_set_access:
      driver.on_mem_set_access = [=, &to](auto ptr, auto size) {
        const auto access =
            mistake->is(Kind::other_flags) ? AccessFlags::read : AccessFlags::read_write;
        return wrong_step(*mistake, call, [&] { return to.mem_set_access(ptr, size, access); });
      };
      return;
    case Call::mem_unmap:
      driver.on_mem_unmap = [=, &to](auto ptr, auto size) {
        return wrong_step(*mistake, call, [&] { return to.mem_unmap(ptr, size); });
      };
      return;
    default:
      return;
  }
}

struct Applied {
  Call call;
  std::initializer_list<Kind> kinds;
};

}  // namespace

std::string Operator::name() const {
  return text::format("{}: {}, {}, {}", manager, call_info(call).name,
                      kNames[static_cast<std::size_t>(kind)],
                      nth == 0 ? std::string("all") : text::format("call {}", nth));
}

std::vector<Operator> all_operators() {
  const Applied kApplied[] = {
      {Call::mem_alloc,
       {Kind::twice, Kind::ignore_error, Kind::invent_error, Kind::size_less, Kind::size_more,
        Kind::size_half, Kind::size_twice, Kind::next_address}},
      {Call::mem_alloc_managed,
       {Kind::twice, Kind::ignore_error, Kind::invent_error, Kind::size_less, Kind::size_more,
        Kind::size_half, Kind::size_twice, Kind::next_address, Kind::other_flags}},
      {Call::mem_host_alloc,
       {Kind::twice, Kind::invent_error, Kind::size_less, Kind::size_more, Kind::size_half,
        Kind::size_twice, Kind::other_flags}},
      {Call::mem_host_register,
       {Kind::drop, Kind::ignore_error, Kind::invent_error, Kind::size_less, Kind::size_more,
        Kind::size_half, Kind::size_twice, Kind::other_flags}},
      {Call::mem_host_get_device_pointer,
       {Kind::twice, Kind::ignore_error, Kind::invent_error, Kind::next_address}},
      {Call::mem_get_info,
       {Kind::drop, Kind::twice, Kind::invent_error, Kind::size_half, Kind::size_twice}},
      {Call::mem_get_address_range, {Kind::drop, Kind::twice, Kind::next_address}},
      {Call::ipc_get_mem_handle, {Kind::drop, Kind::twice}},
      {Call::mem_free,
       {Kind::drop, Kind::twice, Kind::late, Kind::ignore_error, Kind::invent_error}},
      {Call::mem_free_host,
       {Kind::drop, Kind::twice, Kind::late, Kind::ignore_error, Kind::invent_error}},
      {Call::mem_host_unregister,
       {Kind::drop, Kind::twice, Kind::late, Kind::ignore_error, Kind::invent_error}},
  };
  const Applied kMapping[] = {
      {Call::mem_create, {Kind::twice, Kind::invent_error, Kind::size_half, Kind::size_twice}},
      {Call::mem_map, {Kind::drop, Kind::twice, Kind::ignore_error, Kind::invent_error}},
      {Call::mem_set_access, {Kind::drop, Kind::invent_error, Kind::other_flags}},
      {Call::mem_unmap, {Kind::drop, Kind::twice, Kind::ignore_error, Kind::invent_error}},
      {Call::mem_release,
       {Kind::drop, Kind::twice, Kind::late, Kind::ignore_error, Kind::invent_error}},
      {Call::ctx_synchronize, {Kind::drop}},
      {Call::stream_wait_event, {Kind::drop, Kind::wrong_stream}},
  };
  std::vector<Operator> operators;
  const auto apply = [&](const char* manager, const Applied& applied) {
    for (const auto kind : applied.kinds) {
      for (const std::uint64_t nth : {0u, 1u, 2u})
        operators.push_back({manager, kind, applied.call, nth});
    }
  };
  for (const auto* manager : {"default", "pool:backing=cumem"}) {
    for (const auto& applied : kApplied) apply(manager, applied);
  }
  for (const auto& applied : kMapping) apply("pool", applied);
  return operators;
}

conformance::Subject subject_of(const Operator& mistake) {
  auto upstream = find_manager(mistake.manager);
  EMM_ASSERT(upstream);
  conformance::Subject subject{.manager = mistake.manager,
                               .promise = conformance::promise_of(mistake.manager)};
  subject.factory = wrong_factory(*std::move(upstream), [kind = mistake.kind, nth = mistake.nth,
                                                         call = mistake.call](WrongManager& m) {
    put(*m.driver, call, std::make_shared<Mistake>(kind, nth));
  });
  subject.patience = std::chrono::milliseconds(2000);
  return subject;
}

const conformance::Clause* first_that_fails(const conformance::Subject& subject,
                                            std::span<const conformance::Clause* const> clauses) {
  for (const auto* clause : clauses) {
    const auto verdict = conformance::judge(*clause, subject);
    if (!verdict.broken.empty()) return conformance::find_clause(verdict.broken);
    if (verdict.kind == conformance::Verdict::Kind::fail) return clause;
  }
  return nullptr;
}

}  // namespace emm::mutants
