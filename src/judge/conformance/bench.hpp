#pragma once

#include <atomic>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/prng.hpp"
#include "base/text_format.hpp"
#include "conformance/bench_memory.hpp"
#include "conformance/cuda_results.hpp"
#include "conformance/stub_driver.hpp"
#include "conformance/subject.hpp"
#include "conformance/verdict.hpp"
#include "conformance/watch.hpp"
#include "driver/call.hpp"
#include "emm/defer_cleanup.hpp"
#include "emm/memory_pointer.hpp"
#include "stream_order/checker.hpp"

namespace emm::conformance {

/// An error as a failure shows it, its status first: `CUDA_ERROR_NOT_FOUND (500): "nothing"`.
std::string answer_of(const Error& error);

/// Records what a manager tells its observer. Any thread may call it.
class RecordingObserver final : public ManagerObserver {
 public:
  struct Flush {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };
  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  void call_failed(const Error& error) noexcept override;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added() const;
  std::vector<Flush> flushes() const;
  std::size_t failures() const;
  /// Answers whether a failed free was reported on another thread than the one that made this
  /// observer.
  bool is_told_elsewhere() const;
  /// Forgets the pending frees and flushes that were reported.
  void forget();
  /// Describes the first fault in a call without a return value; empty if there was none.
  std::string misbehaviour() const;
  /// Called in each of the first three, without a lock. The manager waits for it.
  ReplaceableHook during;

 private:
  friend class Bench;  // which forks
  mutable std::mutex mutex_;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added_;
  std::vector<Flush> flushes_;
  std::size_t failures_ = 0;
  bool is_told_elsewhere_ = false;
  const std::thread::id home_ = std::this_thread::get_id();
  std::string misbehaviour_;
};

class Bench;

/// While one lives, other threads of the check use the manager. What they hold or free is not known
/// at any moment, so a refused request is judged only by what the device has free.
class OthersRun {
 public:
  explicit OthersRun(Bench& bench) noexcept;
  ~OthersRun();
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  Bench& bench_;
};

/// While one lives, it tells whether a thread of the manager has called the driver. Such a thread
/// may free at any time, so pending counts can change between two queries, and an address can be
/// handed out again before the ledger hears of its free.
class FreesElsewhere {
 public:
  explicit FreesElsewhere(Bench& bench);
  ~FreesElsewhere();
  FreesElsewhere(const FreesElsewhere&) = delete;
  FreesElsewhere& operator=(const FreesElsewhere&) = delete;
  explicit operator bool() const noexcept { return seen_; }

 private:
  Bench& bench_;
  std::atomic<bool> seen_{false};
};

/// Passes the driver calls of a manager that calls CUDA itself to a hook. It hears all calls of the
/// stand-in for libcuda.so.1, and passes on those made while one of the manager's slots runs.
class Tapped final : public CallHook {
 public:
  Tapped(const plugin::StandIns* standins, CallHook& to);
  ~Tapped() override;
  Tapped(const Tapped&) = delete;
  Tapped& operator=(const Tapped&) = delete;
  void set_order_hook(CallHook& order) { order_ = &order; }
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  /// Benches nest on one thread: the one made last ends first.
  static Tapped* newest;

  const plugin::StandIns* standins_;
  CallHook& to_;
  CallHook* order_ = nullptr;
  Tapped* before_;  ///< It hears the calls again when this ends.
};

/// Takes device memory until no more than `bytes`, and a page of 2 MiB, are free. False where the
/// device reports more and refuses to give it.
bool take_all_but(Driver& driver, std::uint64_t bytes, std::vector<DevicePtr>& taken);

/// A guard of defer_cleanup() that writes its begin and end to the trace.
class Deferral {
 public:
  Deferral(Deferral&& other) noexcept
      : bench_(other.bench_),
        scope_(std::exchange(other.scope_, 0)),
        guard_(std::move(other.guard_)) {}
  ~Deferral() { end(); }
  void end() noexcept;
  /// The manager ends before it.
  void abandon() noexcept { guard_.abandon(); }

 private:
  friend class Bench;
  Deferral(Bench& bench, std::uint64_t scope, DeferCleanup guard) noexcept
      : bench_(&bench), scope_(scope), guard_(std::move(guard)) {}
  Bench* bench_;
  std::uint64_t scope_;  // 0: it has ended
  DeferCleanup guard_;
};

/// The place where one clause judges one manager. It has a device of its own, whose calls are
/// logged, counted and failed at will, and a manager on it, which is made when it is first asked
/// for.
///
/// The first expectation that fails decides the verdict. Later ones change nothing, so a check need
/// not ask before it goes on. The clause is not applicable when the manager declines
/// (not_supported) a request that the check needs. It is inconclusive when such a request fails, or
/// when the check expected nothing. Any thread may expect and allocate.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const Subject& subject, std::string_view clause);
  /// Makes a second bench for the same clause on a simulated device of `capacity` ("64GiB"). On a
  /// real device, or one behind the stand-in, the second bench uses the same device.
  Result<std::unique_ptr<Bench>> with_capacity(std::string_view capacity) const;
  /// Answers whether the manager is one of emmctl's own, also where libemm offers it.
  bool is_bundled() const noexcept { return bundled() != nullptr; }
  /// Answers whether the manager models a library that refuses while the device still has memory.
  bool refuses_early() const noexcept;
  /// False for a model of a library whose limit counts what it takes of the device.
  bool limits_requested() const noexcept;
  /// Answers whether the manager models a library with its own rules for host memory. PyTorch
  /// returns none to the driver and waits only for streams that the program names to it.
  bool keeps_host_memory() const noexcept;
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Subject& subject() const noexcept { return subject_; }
  std::string_view clause() const noexcept { return clause_; }
  bool is_numba() const noexcept { return subject_.profile == Profile::numba; }
  /// Answers whether frees of mapped memory wait. With Numba's profile a host-only plugin has no
  /// capacity, so they do not (HST-9).
  bool queue_waits() const noexcept { return !is_numba() || subject_.promise == Scope::deflt; }
  /// Returns the factor by which random programs and sweeps grow when the run is thorough.
  std::uint64_t effort() const noexcept { return subject_.thorough ? 40 : 1; }
  Prng& random() noexcept { return random_; }
  /// The seed of random(). The same seed repeats the random choices.
  std::uint64_t seed() const noexcept { return subject_.seed; }

  // The manager.

  MemoryManager& manager();        ///< Makes and initializes the manager when it is not yet.
  MemoryManager& uninitialized();  ///< Makes the manager if needed. The check calls initialize().
  void end_manager();              ///< Ends the manager as the end of its context does.

  // The device.

  Driver& driver() noexcept { return watched_; }  ///< The device as the manager sees it.
  /// The device without the watch and the stub, for the check's own calls.
  Driver& device() noexcept { return *opened_.driver; }
  Runtime* runtime() noexcept { return runtime_ ? &*runtime_ : nullptr; }
  Platform& platform() noexcept { return *platform_; }
  /// The same driver and runtime, for a context that must end before this bench.
  OpenedDevice watched_device();
  StubDriver& stub() noexcept { return stub_; }
  Watch& watch() noexcept { return watch_; }
  RecordingObserver& observer() noexcept { return observer_; }
  StreamHandle stream();  ///< Makes a stream that lives as long as the bench.
  /// Checks stream order from here on. Must be called before the manager is made. The checker hears
  /// the driver calls of the manager and of ordered(); the check tells it about memory.
  stream_order::Checker& watch_order();
  /// The driver that the checker hears. Requires watch_order().
  Driver& ordered() noexcept { return *ordered_.driver; }
  bool is_simulated() const noexcept;
  /// True after leave_on_device().
  bool is_filled() const noexcept { return !ballast_.empty(); }
  /// Allocates until only `bytes`, to a page of 2 MiB, are free on the device. A real device gives
  /// somewhat more than it reports (measured on an H200, driver 580.159.04, CUDA 13.0).
  void leave_on_device(std::uint64_t bytes);
  /// Frees what leave_on_device() allocated.
  void release_ballast();
  /// Returns what the manager can hold. The first call measures it.
  const Capacity& capacity();
  /// The manager's own limit on this bench's device, in bytes taken of the device.
  std::optional<std::uint64_t> own_limit();
  /// Returns the bytes of device memory beyond which the manager may refuse: its measured limit, or
  /// the total that it reports once it is initialized, if that is below the device's total.
  std::optional<std::uint64_t> limit();
  /// Answers whether a block is larger than any that the manager gives. It then answers one of
  /// may_answer_to_large().
  bool is_too_large(std::uint64_t size);
  static bool may_answer_to_large(Errc code) noexcept;
  /// Returns how much device memory a check can expect, at most `wanted` and half of it in one
  /// block, given the manager's limits and what the device has.
  std::uint64_t affordable(std::uint64_t wanted);
  /// Allocates up to `count` blocks of `size` bytes, until one is refused, and frees them. Returns
  /// the bytes of the blocks.
  std::uint64_t leave_idle(std::size_t count, std::uint64_t size);
  /// Returns the bytes of device memory that the manager has taken from the driver, as far as its
  /// calls are seen.
  std::uint64_t held();
  /// Requests for device memory that the driver has had of the manager, as far as they are seen.
  std::uint64_t driver_requests();

  // Requests that the check needs. If one fails, the clause is not judged.

  BenchMemory memalloc(std::uint64_t size, StreamHandle stream = {});
  BenchMemory managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  BenchMemory mapped(std::uint64_t size) { return hosted(size, {.mapped = true}); }
  BenchMemory pinned(std::uint64_t size) { return hosted(size, {}); }
  BenchMemory hosted(std::uint64_t size, HostAllocFlags flags);
  BenchMemory pin(HostRange range, HostRegisterFlags flags = {},
                  std::shared_ptr<const void> owner = {});
  std::vector<BenchMemory> mapped_blocks(std::size_t count, std::uint64_t size);
  /// Requests device memory, or managed memory if that is not offered, or else mapped host memory.
  BenchMemory any(std::uint64_t size);
  /// Returns page-aligned process memory for pin(). No two buffers share a page.
  HostRange buffer(std::uint64_t size = 4096);

  // Requests that the check judges.

  Result<BenchMemory> try_memalloc(std::uint64_t size, StreamHandle stream = {});
  Result<BenchMemory> try_managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  Result<BenchMemory> try_hosted(std::uint64_t size, HostAllocFlags flags);
  Result<BenchMemory> try_pin(HostRange range, HostRegisterFlags flags = {},
                              std::shared_ptr<const void> owner = {});
  void reset();
  [[nodiscard]] Deferral defer();
  /// Answers whether a request returned memory, and judges a refusal. A request may fail with out
  /// of memory only if neither the device nor idle memory of the manager could serve it.
  bool gives(const Result<BenchMemory>& made, std::uint64_t size, StreamHandle stream = {});
  /// Explains why a request that failed with out of memory should have been served. Empty if the
  /// refusal is justified as far as can be seen.
  std::string why_wrongly_refused(std::uint64_t size, StreamHandle stream);

  // Content, read and written without the manager. fill() and holds() return false when the device
  // refuses.

  bool fill(const BenchMemory& block, std::uint8_t value) {
    return try_fill(block, value).has_value();
  }
  Status try_fill(const BenchMemory& block, std::uint8_t value);
  /// False on a real device after leave_on_device(). Managed memory moves to the device when the
  /// device writes to it. On a full device it cannot, whatever the manager did: the write fails
  /// with CUDA_ERROR_ILLEGAL_ADDRESS and the context is lost (measured on an H200, driver
  /// 580.159.04, CUDA 13.0; sometimes with a few MiB free).
  bool device_can_write_managed() const noexcept { return is_simulated() || ballast_.empty(); }
  /// Compares all of it up to 64 KiB, and of larger blocks both ends and three pieces in the
  /// middle.
  bool holds(const BenchMemory& block, std::uint8_t value);

  // The verdict.

  bool expect(bool holds, std::string_view done, std::string_view seen, std::string_view expected);
  template <class A, class B>
  bool expect_equal(std::string_view done, const A& seen, const B& expected) {
    if (seen == static_cast<A>(expected)) return expect(true, done, {}, {});
    return expect(false, done, text::format("{}", seen), text::format("{}", expected));
  }
  /// Expects a request or another call to succeed.
  template <class T>
  bool expect_ok(std::string_view done, const Result<T>& result) {
    if (result) return expect(true, done, {}, {});
    return expect(false, done, answer_of(result.error()), "success");
  }
  /// Expects an error of this kind. A failure names the native codes that would have been accepted.
  template <class T>
  bool expect_error(std::string_view done, const Result<T>& result, Errc code,
                    std::string_view words = {}) {
    const auto fits = !result && result.error().code == code &&
                      describe(result.error()).find(words) != std::string::npos;
    return expect(fits, done, result ? "success" : answer_of(result.error()),
                  words.empty() ? answers_of(code) : std::string(words));
  }
  /// Expects out of memory. If the block is too large for the manager, its other answers are
  /// accepted too.
  bool expect_out_of_memory(std::string_view done, const Result<BenchMemory>& made,
                            std::uint64_t size);
  static std::string answers_of(Errc code);
  /// Expects exactly these driver calls, queries included, since watch().forget().
  bool expect_calls(std::string_view done, std::initializer_list<Call> expected);
  /// Counts the calls since watch().forget() that end something.
  std::size_t ends() const;
  std::size_t count(Call call) const;
  /// Ends the manager, and expects that it returned everything that it took from the device, each
  /// thing once.
  bool expect_balance(std::string_view done);
  /// Asks the question of the clause's name of a class of Python's (python_questions.py), and
  /// judges by its answer.
  void ask_class();
  void not_applicable(std::string_view why);
  void inconclusive(std::string_view why);
  /// Says that a trace cannot express the operations of this check.
  void untraceable() { traceable_ = false; }
  /// fork(). Threads of the manager's may be in a driver call or in a report meanwhile: the child
  /// finds no lock of the bench's taken.
  int fork_process();
  /// Sets what the check is doing. The failure shows it if the manager hangs or ends the process.
  /// Empty clears it.
  void set_doing(std::string words);
  /// Makes failures show the calls of another bench, which the check judges; null: of this one.
  void show_calls_of(const Bench* other) noexcept { shown_ = other; }
  /// Like expect(), but for the rule of another clause, which every clause watches.
  bool expect_rule(std::string_view clause, bool holds, std::string_view done,
                   std::string_view seen, std::string_view expected);
  /// Finishes a second bench that the check made, and takes over its failure.
  void take(Bench& other);
  /// Runs a part of the check on a second bench with its own manager and device, and takes over its
  /// failure. No trace is shown, because the first bench's would not reproduce it.
  template <class Part>
  void apart(Part part) {
    auto second = create(subject(), clause());
    if (!second) return inconclusive(describe(second.error()));
    (*second)->untraceable();
    (*second)->expect(true, {}, {}, {});
    part(**second);
    take(**second);
  }
  bool decided() const;

  /// Ends the manager, judges the driver's ledger, which must balance after every check, and
  /// returns the verdict.
  Verdict finish();

 private:
  friend class BenchMemory;
  friend class Deferral;
  friend class OthersRun;
  bool others_run() const noexcept;
  std::optional<std::uint64_t> filled(std::uint64_t piece, std::uint64_t most,
                                      bool& has_device_memory);
  std::optional<std::uint64_t> largest_block(std::optional<std::uint64_t> limit);
  const ManagerEntry* bundled() const noexcept;  ///< Null: the manager is a foreign one.
  Bench(const Subject& subject, std::string_view clause, std::unique_ptr<Platform> platform,
        OpenedDevice opened);
  BenchMemory need(Result<BenchMemory> result, std::uint64_t size, StreamHandle stream = {});
  void decide(Verdict verdict);
  std::uint64_t note(std::string_view op, std::string_view members, bool allocates);
  void add_note(std::string note);  ///< The caller holds mutex_.
  void note_free(const BenchMemory& block, StreamHandle stream, bool late);
  void judge_block(const BenchMemory& block, StreamHandle stream, bool managed);
  void judge_host_block(const BenchMemory& block);
  std::string note_live(const BenchMemory& block, StreamHandle stream);
  std::string note_places(const BenchMemory& block);
  void forget_places(std::uint64_t id);
  void forget_memory();
  void judge_extent(const BenchMemory& block);
  void judge_ledger();
  Verdict failure(std::string_view done, std::string_view seen, std::string_view expected) const;
  Verdict verdict() const;
  BenchMemory wrap(std::uint64_t id, MemoryPointer memory, StreamHandle stream = {},
                   bool managed = false);
  static BenchMemory wrap(Bench& bench, std::uint64_t id, HostMemory memory);
  std::string trace() const;
  std::string last_calls() const;

  const Subject subject_;
  std::string clause_;
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  StubDriver stub_;
  Watch watch_;
  Tapped tapped_;
  ForwardingDriver watched_;
  std::optional<ForwardingRuntime> runtime_;
  std::unique_ptr<stream_order::Checker> order_;
  std::unique_ptr<CallHook> tapped_order_;
  OpenedDevice ordered_;
  RecordingObserver observer_;
  Prng random_;
  std::unique_ptr<MemoryManager> manager_;
  bool initialized_ = false;
  std::uint64_t held_at_first_ = 0;  // bytes that initialize() took
  const Bench* shown_ = nullptr;     ///< Null: this bench.
  std::atomic<unsigned> others_run_{0};
  const std::thread::id home_ = std::this_thread::get_id();  ///< The check's thread.
  std::vector<StreamHandle> streams_;
  std::vector<DevicePtr> ballast_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;

  /// A range of memory. Maps of ranges use the first address as key.
  struct Range {
    std::uint64_t end = 0;
    std::uint64_t id = 0;
    // Only idle memory has these two.
    StreamHandle stream{};                       ///< The stream that it was freed on.
    std::optional<CallLedger::Thing> part_of{};  ///< The driver's allocation that contains it.
  };
  using Ranges = std::map<std::uint64_t, Range>;

  mutable std::mutex mutex_;  // guards the members below
  std::optional<Verdict> verdict_;
  std::optional<Verdict> broken_;  ///< Verdict on another clause, whose id is broken_id_.
  std::string broken_id_;
  bool broken_first_ = false;  ///< It came before this clause failed.
  Ranges live_;                ///< Blocks that are handed out.
  Ranges live_places_;  ///< Which memory is behind live blocks, by the first address of each range
                        ///< of places.
  /// Keys of live_places_, by block.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> places_of_;
  Ranges idle_;  ///< Freed device memory, until any of it is handed out again.
  std::uint64_t live_bytes_ = 0;
  std::uint64_t deferrals_ = 0;
  std::uint64_t expected_ = 0;
  std::vector<std::string> notes_;
  std::string doing_;
  std::uint64_t next_id_ = 0;
  std::uint64_t next_scope_ = 0;
  bool traceable_ = true;
};

/// Answers whether freed memory was kept in a cache: state() counts no more frees as pending after
/// the free than `before`. A manager may release such memory at any time, also inside a deferral.
inline bool is_kept(std::optional<std::uint64_t> before, std::optional<std::uint64_t> after) {
  return before && after && *after <= *before;
}

/// What happened to the memory of a block before the work on it was known to be done.
std::string describe(const stream_order::Hazard& hazard);

}  // namespace emm::conformance
