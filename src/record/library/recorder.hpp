#pragma once

#include <atomic>
#include <cstdint>

#include "record/raw.hpp"

/// The recorder inside a recorded program: between the wrappers of the driver's functions and the
/// file. It has no exceptions, takes no lock that a fork could freeze, allocates nothing on the
/// heap, and prints nothing but one sentence on stderr where it cannot record at all.
namespace emm::record {

using Code = std::int32_t;      // CUresult
using Address = std::uint64_t;  // CUdeviceptr
using Handle = std::uint64_t;   // CUstream, CUevent, CUmemoryPool, ...
using Size = std::size_t;

/// More bytes of addresses than a device's range of them has.
inline constexpr std::uint64_t kAddresses = std::uint64_t{1} << 47;

enum class OrderPoint : std::uint8_t {
  enter,   ///< The call takes something: its place in the order is where it began.
  exit,    ///< The call gives something: its place is where it ended.
  exit_ok  ///< As exit, and only an answer of 0 is recorded: a question.
};

/// What a thread writes to. Zero where it has written nothing.
struct Thread {
  Record* next;
  Record* end;
  Record* kernels;  ///< The newest record where that counts kernels.
  std::uint8_t device, context;
  bool context_known;
  bool inside;               ///< In a wrapper: what the driver itself calls is not the program's.
  std::uint64_t request;     ///< What a framework asked for, while it is answered; 0: nothing.
  std::uint32_t window;      ///< The Control's `on` when the thread last recorded.
  std::uint64_t placed;      ///< The ticks at which its newest call took its place.
  std::uint32_t unmeasured;  ///< Calls since one of which the duration was measured.
  bool dense;                ///< Its newest two calls took their places within kDenseTicks.
};
/// Calls of a thread that follow each other so closely, in ticks or ns, are dense: of these the
/// duration of one in kDenseCalls is measured.
inline constexpr std::uint64_t kDenseTicks = 1u << 18;
inline constexpr std::uint32_t kDenseCalls = 16;
extern constinit thread_local Thread self __attribute__((tls_model("initial-exec")));

/// What all threads share. The counter has a cache line of its own.
struct Shared {
  std::uint32_t mode = 0;  ///< See mode.
  bool has_tsc = false;
  bool clock_orders = false;      ///< The time stamp counter is one for all processors.
  std::uint64_t first_ticks = 0;  ///< Of the time stamp counter; places are counted from it.
  const volatile std::uint32_t* on = nullptr;
  alignas(64) std::atomic<std::uint64_t> seq{0};
  char apart[56] = {};
};
extern Shared shared;

namespace mode {
inline constexpr std::uint32_t recording = 1;
inline constexpr std::uint32_t gating = 2;      ///< `emmctl run`
inline constexpr std::uint32_t keeping = 4;     ///< What lives is known while nothing is recorded.
inline constexpr std::uint32_t annotating = 8;  ///< Records say who made the call.
}  // namespace mode

std::uint64_t clock_ns() noexcept;
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  if (shared.has_tsc) return __builtin_ia32_rdtsc();
#endif
  return clock_ns();
}
/// A time, and the place of that moment in the order of the process.
struct Moment {
  std::uint64_t ticks, seq;
};
/// The time stamp counter gives both where it is one for all processors, so that threads share
/// nothing. `rdtscp` waits until the thread has what it read before: a free comes behind the
/// allocation that gave it the address, and an allocation behind the free that made room for it.
inline Moment moment() noexcept {
#if defined(__x86_64__)
  if (shared.clock_orders) [[likely]] {
    unsigned processor = 0;
    const auto now = __builtin_ia32_rdtscp(&processor);
    return {now, now - shared.first_ticks};
  }
#endif
  return {ticks(), shared.seq.fetch_add(1, std::memory_order_relaxed) + 1};
}

/// Reads the environment and prepares, without a file. Once, before any call.
/// `settings` are what `emmctl record` wrote into the library, as setting() takes them.
void begin(const char* settings) noexcept;
/// A variable of the environment; where the program or who started it has cleared that, the value
/// of the recording: "NAME=VALUE" texts, the last of which is empty. Null where neither has it.
const char* setting(const char* name) noexcept;
/// Opens the file and describes the devices. After cuInit.
void describe_devices() noexcept;
/// Takes a block where room for a record is needed. Null where there is none.
Record* take_block(Thread& thread) noexcept;
/// Finds out which context the thread is in.
void look_up_context(Thread& thread) noexcept;
void count_bypassed() noexcept;
/// cuInit failed: tells `emmctl record` the driver's answer.
void tell_init_failed(Code code) noexcept;
/// Memory was given of which no account can be kept while nothing is recorded.
void count_unkept() noexcept;
/// Puts a record before that of a call, which says who made it.
void annotate(Thread& thread, Call call, const void* caller) noexcept;
/// Called at the thread's first call since recording began, or began again.
void begin_window(Thread& thread, std::uint32_t window) noexcept;
/// The context has ended: another may have its handle, or its number.
void forget_context(Handle context) noexcept;
/// Returns the number that records give a context; 0 where none names it.
std::uint64_t number_of_context(Handle context) noexcept;

inline Record* room(Thread& thread) noexcept {
  if (thread.next != thread.end) [[likely]]
    return thread.next;
  return take_block(thread);
}
inline void publish(Thread& thread, Record& record, std::uint64_t seq) noexcept {
  std::atomic_ref<std::uint64_t>(record.seq).store(seq, std::memory_order_release);
  thread.next = &record + 1;
}

/// `emmctl run`: refuses a call before it reaches the driver. 0: it may go on. `asks`: it is a
/// query, which is recorded as the wait that it stands for.
Code gate_before(Call call, Size wants, bool asks, const Record& record) noexcept;
/// Accounts for what the call did. What it gave is freed again where the device has no room for it,
/// which the answer says: not 0.
Code gate_after(Call call, Size wants, const Record& record) noexcept;
/// What `emmctl run` lets the program see of the device.
void gate_memory_info(Size* free, Size* total) noexcept;
Size gate_total(Size total) noexcept;
void begin_gate() noexcept;
/// Tells `emmctl run` that a process has begun to use the driver through the library.
void gate_begun() noexcept;

void live_before(const Record& record) noexcept;
void live_after(const Record& record) noexcept;

/// The real function behind the wrapper `index`.
extern void* real_functions[];

/// The lines of the next records come while the program is at other things: a driver's first lock
/// would wait for them. An address beyond the block is no fault.
inline void fetch_ahead([[maybe_unused]] const Record* record) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(record[2]));
#endif
}

/// The thread's next record.
template <Call kCall, class Fill>
[[gnu::always_inline]] inline void write_record(Thread& thread, std::uint64_t seq,
                                                std::uint64_t begun, std::uint64_t took, Code code,
                                                std::uint32_t flags, const Fill& fill) noexcept {
  auto* const record = room(thread);
  if (record == nullptr) [[unlikely]]
    return;
  fetch_ahead(record);
  record->ticks = begun;
  record->duration =
      took < ~std::uint32_t{0} ? static_cast<std::uint32_t>(took) : ~std::uint32_t{0};
  record->call = kCall;
  record->device = thread.device;
  record->context = thread.context;
  record->result = code;
  record->flags = flags;
  fill(*record, code == 0);
  thread.kernels = nullptr;
  publish(thread, *record, seq);
}

/// A call that is more than recorded, or not: the thread's first, and those while something is
/// refused, kept account of, or named.
template <Call kCall, OrderPoint kOrderPoint, class Make, class Fill>
[[gnu::noinline]] Code recorded_with_more(Size wants, Make make, Fill fill,
                                          const void* caller) noexcept {
  auto& thread = self;
  if (shared.mode == 0 || thread.inside) return make();
  const auto window = *shared.on;
  const bool records = (shared.mode & mode::recording) != 0 && window != 0;
  const bool gates = (shared.mode & (mode::gating | mode::keeping)) != 0;
  if (!records && !gates) return make();
  thread.inside = true;
  if (!thread.context_known) look_up_context(thread);
  if (records && window != thread.window) begin_window(thread, window);
  const auto begun = kOrderPoint == OrderPoint::enter && records ? moment() : Moment{ticks(), 0};
  Code code = 0;
  std::uint32_t flags = 0;
  if (gates) {
    Record asked{};
    asked.call = kCall;
    asked.device = thread.device;
    asked.context = thread.context;
    const bool keeps = (shared.mode & mode::keeping) != 0;
    const bool refuses = (shared.mode & mode::gating) != 0;
    if (refuses || kOrderPoint == OrderPoint::enter) fill(asked, false);
    if (refuses) code = gate_before(kCall, wants, kOrderPoint == OrderPoint::exit_ok, asked);
    if (code != 0) {
      flags = record_flag::injected;
    } else {
      if (keeps && kOrderPoint == OrderPoint::enter) live_before(asked);
      code = make();
    }
    asked.result = code;
    asked.flags = flags;
    fill(asked, code == 0);
    if (refuses) {
      if (const auto refused = gate_after(kCall, wants, asked); refused != 0) {
        asked.result = code = refused;
        asked.flags = flags = record_flag::injected;
      }
    }
    if (keeps) live_after(asked);
  } else {
    code = make();
  }
  if (records && (kOrderPoint != OrderPoint::exit_ok || code == 0)) {
    const auto ended = kOrderPoint == OrderPoint::enter ? Moment{ticks(), begun.seq} : moment();
    if ((shared.mode & mode::annotating) != 0) annotate(thread, kCall, caller);
    write_record<kCall>(thread, ended.seq, begun.ticks, ended.ticks - begun.ticks, code, flags,
                        fill);
  }
  thread.inside = false;
  return code;
}

/// One call of a wrapper: `make` calls the driver, `fill` says of the record what only this
/// function knows.
template <Call kCall, OrderPoint kOrderPoint, class Make, class Fill>
[[gnu::always_inline]] inline Code recorded(Size wants, Make make, Fill fill) noexcept {
  auto& thread = self;
  const auto window = *shared.on;
  const bool plain = shared.mode == mode::recording && window == thread.window && window != 0 &&
                     thread.context_known && !thread.inside;
  if (!plain) [[unlikely]]
    return recorded_with_more<kCall, kOrderPoint>(wants, make, fill, __builtin_return_address(0));
  thread.inside = true;
  // A time stamp is most of what a record costs. Where calls follow each other at once, the
  // durations of some do.
  const bool measures = !thread.dense || ++thread.unmeasured == kDenseCalls;
  Moment place{};
  std::uint64_t begun = 0;
  if constexpr (kOrderPoint == OrderPoint::enter) {
    place = moment();
    begun = place.ticks;
  } else if (measures) {
    begun = ticks();
  }
  const auto code = make();
  if (kOrderPoint != OrderPoint::exit_ok || code == 0) {
    if constexpr (kOrderPoint != OrderPoint::enter) {
      place = moment();
      if (!measures) begun = place.ticks;
    }
    std::uint64_t took = 0;
    if (measures) {
      took = (kOrderPoint == OrderPoint::enter ? ticks() : place.ticks) - begun;
      thread.unmeasured = 0;
    }
    thread.dense = place.ticks - thread.placed < kDenseTicks;
    thread.placed = place.ticks;
    write_record<kCall>(thread, place.seq, begun, took, code,
                        measures ? 0 : record_flag::unmeasured, fill);
  }
  thread.inside = false;
  return code;
}

/// A launch: the thread's newest record counts it where that is of the same stream.
void count_kernel(Handle stream) noexcept;

}  // namespace emm::record
