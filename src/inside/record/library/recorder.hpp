#pragma once

#include <atomic>
#include <cstdint>

#include "raw/raw.hpp"

/// The recorder inside a recorded program. It stands between the wrappers of the driver's functions
/// and the file. It throws nothing, takes no lock that a fork could freeze and allocates nothing on
/// the heap. It prints one sentence on stderr when it cannot record at all, and nothing else.
namespace emm::record {

using Code = std::int32_t;      // CUresult
using Address = std::uint64_t;  // CUdeviceptr
using Handle = std::uint64_t;   // CUstream, CUevent, CUmemoryPool, ...
using Size = std::size_t;

/// Exceeds the address range of every device.
inline constexpr std::uint64_t kAddresses = std::uint64_t{1} << 47;

enum class OrderPoint : std::uint8_t {
  enter,   ///< The call ends something. Its place in the order is where it began.
  exit,    ///< The call gives something. Its place is where it ended.
  exit_ok  ///< A query. As exit, but recorded only when it returns 0.
};

/// A thread's state. All zero before the thread has recorded anything.
struct Thread {
  CallRecord* next;
  CallRecord* end;
  CallRecord* kernels;  ///< The newest record, if it counts kernels.
  std::uint8_t device, context;
  bool context_known;
  bool inside;  ///< In a wrapper: calls that the driver itself makes are not the program's.
  std::uint64_t request;     ///< The framework's request that is being served; 0: none.
  std::uint32_t window;      ///< Control's `on` when the thread last recorded.
  std::uint64_t placed;      ///< The ticks at which its newest call took its place in the order.
  std::uint32_t unmeasured;  ///< Calls since the last one whose duration was measured.
  bool dense;                ///< Its newest two calls took their places within kDenseTicks.
};
/// Calls of a thread that follow each other within so many ticks, or ns, are dense. The duration of
/// one in kDenseCalls of them is measured.
inline constexpr std::uint64_t kDenseTicks = 1u << 18;
inline constexpr std::uint32_t kDenseCalls = 64;
extern constinit thread_local Thread self __attribute__((tls_model("initial-exec")));

/// State that all threads share. The counter has a cache line of its own.
struct Shared {
  std::uint32_t mode = 0;  ///< Flags of namespace mode.
  bool has_tsc = false;
  bool clock_orders = false;      ///< All processors agree on the time stamp counter.
  std::uint64_t first_ticks = 0;  ///< Places are counted from this value of the time stamp counter.
  const volatile std::uint32_t* on = nullptr;
  alignas(64) std::atomic<std::uint64_t> seq{0};
  char apart[56] = {};
};
extern Shared shared;

namespace mode {
inline constexpr std::uint32_t recording = 1;
inline constexpr std::uint32_t gating = 2;  ///< `emmctl run`
/// Live memory is kept account of while nothing is recorded.
inline constexpr std::uint32_t keeping = 4;
inline constexpr std::uint32_t annotating = 8;  ///< Records say who made the call.
}  // namespace mode

std::uint64_t clock_ns() noexcept;
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  if (shared.has_tsc) return __builtin_ia32_rdtsc();
#endif
  return clock_ns();
}
/// A time and the place of that moment in the order of the process.
struct Moment {
  std::uint64_t ticks, seq;
};
/// Where all processors agree on the time stamp counter, it gives both, and threads share nothing.
/// `rdtscp` waits until the thread's earlier loads are done. So a free comes after the allocation
/// that returned its address, and an allocation comes after the free that made room for it.
inline Moment take_moment() noexcept {
#if defined(__x86_64__)
  if (shared.clock_orders) [[likely]] {
    unsigned processor = 0;
    const auto now = __builtin_ia32_rdtscp(&processor);
    return {now, now - shared.first_ticks};
  }
#endif
  return {ticks(), shared.seq.fetch_add(1, std::memory_order_relaxed) + 1};
}

/// Reads the environment and prepares to record, without opening a file. Called once, before any
/// other function. `settings` are what `emmctl record` wrote into the library, as setting() reads
/// them.
void begin(const char* settings) noexcept;
/// Returns a variable of the environment. If the program or its parent has cleared it, returns its
/// value in begin()'s settings: "NAME=VALUE" strings that an empty one ends. Null when neither has
/// it.
const char* setting(const char* name) noexcept;
/// Opens the file and describes the devices. Called after cuInit.
void describe_devices() noexcept;
/// Takes a block when the thread needs room for a record. Returns null when there is none.
CallRecord* take_block(Thread& thread) noexcept;
/// Finds out which context is current in the thread.
void look_up_context(Thread& thread) noexcept;
/// Counts a call that found no room. What describes a call, such as its stack, does not count.
void count_lost() noexcept;
void count_bypassed() noexcept;
/// Tells `emmctl record` what the driver answered to a cuInit that failed.
void tell_init_failed(Code code) noexcept;
/// Counts memory of which no account can be kept while nothing is recorded.
void count_unkept() noexcept;
/// Writes a record before that of a call to say who made it.
void annotate(Thread& thread, Call call, const void* caller) noexcept;
/// Called at the thread's first call after recording began, or began again.
void begin_window(Thread& thread, std::uint32_t window) noexcept;
/// Forgets a context that has ended, because another one may get its handle or its number.
void forget_context(Handle context) noexcept;
/// Returns the number that records use for a context, or 0 when it has none.
std::uint64_t number_of_context(Handle context) noexcept;

inline CallRecord* make_room(Thread& thread) noexcept {
  if (thread.next != thread.end) [[likely]]
    return thread.next;
  return take_block(thread);
}
inline void publish(Thread& thread, CallRecord& record, std::uint64_t seq) noexcept {
  std::atomic_ref<std::uint64_t>(record.seq).store(seq, std::memory_order_release);
  thread.next = &record + 1;
}

/// Decides for `emmctl run` whether a call may reach the driver. Returns 0 when it may, else the
/// error for the program. `asks`: the call is a query, which is recorded as the matching wait.
Code gate_before(Call call, Size wants, bool asks, const CallRecord& record) noexcept;
/// Updates the account after a call. Frees memory again when the capacity turns out to be too small
/// for it, and then returns the error for the program; else returns 0.
Code gate_after(Call call, Size wants, const CallRecord& record) noexcept;
/// Reduces the figures to what `emmctl run` lets the program see.
void gate_memory_info(Size* free, Size* total) noexcept;
Size gate_total(Size total) noexcept;
void begin_gate() noexcept;
/// Tells `emmctl run` that a process has begun to use the driver through the library.
void gate_report_use() noexcept;
struct RunReport;
/// What `emmctl run` reads at the end. Null before cuInit, and if it cannot be written to.
RunReport* run_report() noexcept;

void live_before(const CallRecord& record) noexcept;
void live_after(const CallRecord& record) noexcept;

/// The real function behind the wrapper `index`.
extern void* real_functions[];

/// Prefetches the lines of the next records while the program does other things; otherwise the next
/// locked instruction in the driver would wait for them. Prefetching past the block causes no
/// fault.
inline void fetch_ahead([[maybe_unused]] const CallRecord* record) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(record[2]));
#endif
}

/// Writes the thread's next record.
template <Call kCall, class Fill>
[[gnu::always_inline]] inline void write_record(Thread& thread, std::uint64_t seq,
                                                std::uint64_t begun, std::uint64_t took, Code code,
                                                std::uint32_t flags, const Fill& fill) noexcept {
  auto* const record = make_room(thread);
  if (record == nullptr) [[unlikely]]
    return count_lost();
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

/// Handles every call that is more than simply recorded: a thread's first one, and all calls that
/// may be refused, are kept account of or say who made them. Also handles calls that are not
/// recorded.
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
  const auto begun =
      kOrderPoint == OrderPoint::enter && records ? take_moment() : Moment{ticks(), 0};
  Code code = 0;
  std::uint32_t flags = 0;
  if (gates) {
    CallRecord asked{};
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
    const auto ended =
        kOrderPoint == OrderPoint::enter ? Moment{ticks(), begun.seq} : take_moment();
    if ((shared.mode & mode::annotating) != 0) annotate(thread, kCall, caller);
    write_record<kCall>(thread, ended.seq, begun.ticks, ended.ticks - begun.ticks, code, flags,
                        fill);
  }
  thread.inside = false;
  return code;
}

/// Handles one call of a wrapper. `make` calls the driver, and `fill` adds what only this function
/// knows to the record.
template <Call kCall, OrderPoint kOrderPoint, class Make, class Fill>
[[gnu::always_inline]] inline Code recorded(Size wants, Make make, Fill fill) noexcept {
  auto& thread = self;
  const auto window = *shared.on;
  const bool plain = shared.mode == mode::recording && window == thread.window && window != 0 &&
                     thread.context_known && !thread.inside;
  if (!plain) [[unlikely]]
    return recorded_with_more<kCall, kOrderPoint>(wants, make, fill, __builtin_return_address(0));
  thread.inside = true;
  // Reading the time stamp is most of the cost of a record. So dense calls measure only some
  // durations.
  const bool measures = !thread.dense || ++thread.unmeasured == kDenseCalls;
  Moment place{};
  std::uint64_t begun = 0;
  if constexpr (kOrderPoint == OrderPoint::enter) {
    place = take_moment();
    begun = place.ticks;
  } else if (measures) {
    begun = ticks();
  }
  const auto code = make();
  if (kOrderPoint != OrderPoint::exit_ok || code == 0) {
    if constexpr (kOrderPoint != OrderPoint::enter) {
      place = take_moment();
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

/// Records a kernel launch. Counts it in the thread's newest record if that counts launches on the
/// same stream.
void count_kernel(Handle stream) noexcept;

}  // namespace emm::record
