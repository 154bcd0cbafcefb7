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
#include "base/text.hpp"
#include "conformance/bench_memory.hpp"
#include "conformance/stub_driver.hpp"
#include "conformance/subject.hpp"
#include "conformance/verdict.hpp"
#include "conformance/watch.hpp"
#include "order/checker.hpp"

namespace emm::conformance {

/// Records what a manager tells its observer. Any thread may tell and ask.
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
  /// Answers whether a failed free was reported on another thread than the one that made this.
  bool is_told_elsewhere() const;
  /// Forgets what was queued and flushed.
  void forget();
  /// Tells what a call without an answer did wrong, the first time; empty where none did.
  std::string misbehaviour() const;
  /// Called in each of the first three, without a lock; the manager waits for it.
  ReplaceableHook during;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added_;
  std::vector<Flush> flushes_;
  std::size_t failures_ = 0;
  bool is_told_elsewhere_ = false;
  const std::thread::id home_ = std::this_thread::get_id();
  std::string misbehaviour_;
};

class Bench;

/// While one lives, other threads of the check use the manager. What they hold or free just then is
/// not known, so that a refused request is judged by the device alone.
class OthersRun {
 public:
  explicit OthersRun(Bench& bench) noexcept;
  ~OthersRun();
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  Bench& bench_;
};

/// While one lives, it tells whether a thread of the manager's has called the driver. Such a thread
/// makes frees at any time: what is pending then changes while one looks, and an address may be
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

/// Passes the driver calls of a manager that calls CUDA itself on to a hook. It hears them behind
/// the stand-in for libcuda.so.1, and passes on only those that the manager makes while one of its
/// slots runs.
class Tapped final : public CallHook {
 public:
  Tapped(const plugin::StandIns* standins, CallHook& to);
  ~Tapped() override;
  Tapped(const Tapped&) = delete;
  Tapped& operator=(const Tapped&) = delete;
  void also(CallHook& order) { order_ = &order; }
  std::int32_t before(const CallEvent& event) override;
  void after(const CallEvent& event) override;

 private:
  static Tapped* newest;  ///< Benches begin and end on one thread, the later one first.

  const plugin::StandIns* standins_;
  CallHook& to_;
  CallHook* order_ = nullptr;
  Tapped* before_;  ///< Hears again of the calls when this ends.
};

/// A guard of defer_cleanup() whose begin and end are written to the trace.
class Deferral {
 public:
  Deferral(Deferral&& other) noexcept
      : bench_(other.bench_),
        scope_(std::exchange(other.scope_, 0)),
        guard_(std::move(other.guard_)) {}
  ~Deferral() { end(); }
  void end() noexcept;

 private:
  friend class Bench;
  Deferral(Bench& bench, std::uint64_t scope, DeferCleanup guard) noexcept
      : bench_(&bench), scope_(scope), guard_(std::move(guard)) {}
  Bench* bench_;
  std::uint64_t scope_;  // 0: has ended
  DeferCleanup guard_;
};

/// Where one clause judges one manager: a device of its own, whose calls are logged, counted and
/// failed at will, and a manager on it, made when it is first asked for.
///
/// The first expectation that does not hold decides the verdict; later ones change nothing, so that
/// a check runs to its end without asking. The clause is not applicable where the manager declines
/// (not_supported) a request that the check needs, and inconclusive where such a request fails or
/// where the check expected nothing. Any thread may expect and allocate.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const Subject& subject, std::string_view clause);
  /// A second bench for the same clause, on a simulated device of `capacity` ("64GiB"); on the same
  /// device where that is a real one, or stands behind the stand-in.
  Result<std::unique_ptr<Bench>> with_capacity(std::string_view capacity) const;
  /// Is it the model of a library that refuses while the device has memory?
  bool refuses_early() const noexcept;
  /// Is it the model of a library that keeps host memory by rules of its own? PyTorch's gives none
  /// back, and waits only for the streams that a program names to it.
  bool keeps_host_memory() const noexcept;
  /// Does it stand on Numba's host-only manager, as all of emmctl's do? That one allocates managed
  /// memory by itself, and knows nothing of the device memory of what derives from it.
  bool stands_on_host_only() const noexcept;
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Subject& subject() const noexcept { return subject_; }
  std::string_view clause() const noexcept { return clause_; }
  bool is_numba() const noexcept { return subject_.profile == Profile::numba; }
  /// Answers whether frees of mapped memory wait. As Numba, a host-only plugin has no capacity, and
  /// they do not (HST-9).
  bool queue_waits() const noexcept { return !is_numba() || subject_.promise == Scope::deflt; }
  /// Says how many times as much as usual is tried.
  std::uint64_t effort() const noexcept { return subject_.thorough ? 40 : 1; }
  Prng& random() noexcept { return random_; }
  /// The seed of random(); the same seed repeats what is random here.
  std::uint64_t seed() const noexcept { return subject_.seed; }

  // The manager.

  MemoryManager& manager();        ///< Initialized.
  MemoryManager& uninitialized();  ///< Made, if it was not; initialize() is the check's.
  void end_manager();              ///< As the end of its context does.

  // The device.

  Driver& driver() noexcept { return watched_; }  ///< As the manager has it.
  Driver& device() noexcept {
    return *opened_.driver;
  }  ///< Without the watch and the stub, for the check's own use.
  Runtime* runtime() noexcept { return runtime_ ? &*runtime_ : nullptr; }
  Platform& platform() noexcept { return *platform_; }
  OpenedDevice
  watched_device();  ///< For a context: the same driver and runtime; must end before this.
  StubDriver& stub() noexcept { return stub_; }
  Watch& watch() noexcept { return watch_; }
  RecordingObserver& observer() noexcept { return observer_; }
  StreamHandle stream();  ///< A stream of its own; ends with this.
  /// Checks the order of streams from here on. To be called before the manager is made. The checker
  /// hears of the manager's driver calls and of those of ordered(); the check tells it of memory.
  order::Checker& watch_order();
  Driver& ordered() noexcept { return *ordered_.driver; }  ///< After watch_order().
  bool is_simulated() const noexcept;
  /// Leaves `bytes`, to a page of 2 MiB, free on the device: the bench allocates the rest. A real
  /// device gives somewhat more than it says (measured on an H200, driver 580.159.04, CUDA 13.0).
  void leave_on_device(std::uint64_t bytes);
  /// Frees what leave_on_device() allocated, so that the device has its memory again.
  void release_ballast();
  /// What the manager can hold; found out when it is first asked for.
  const Capacity& capacity();
  /// Bytes of device memory beyond which it may refuse: its own limit, or the total that it tells
  /// of this device, once it is initialized, where that is less than the device's.
  std::optional<std::uint64_t> limit();
  /// Whether a block is larger than it gives at all. Its answer is then one of
  /// may_answer_to_large().
  bool is_too_large(std::uint64_t size);
  static bool may_answer_to_large(Errc code) noexcept;
  /// Bytes of device memory that can be expected of it, half of them in one block: `wanted`, or
  /// what its own limits and the device leave.
  std::uint64_t affordable(std::uint64_t wanted);
  /// Device memory that the manager has from the driver, as far as its calls are seen. Bytes.
  std::uint64_t held();
  /// Requests for device memory that the driver has had of the manager, as far as they are seen.
  std::uint64_t driver_requests();

  // Requests that the check needs: where one fails, the clause is not judged.

  BenchMemory memalloc(std::uint64_t size, StreamHandle stream = {});
  BenchMemory managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  BenchMemory mapped(std::uint64_t size) { return hosted(size, {.mapped = true}); }
  BenchMemory pinned(std::uint64_t size) { return hosted(size, {}); }
  BenchMemory hosted(std::uint64_t size, HostAllocFlags flags);
  BenchMemory pin(HostRange range, HostRegisterFlags flags = {},
                  std::shared_ptr<const void> owner = {});
  std::vector<BenchMemory> mapped_blocks(std::size_t count, std::uint64_t size);
  /// Device memory where the manager has it, else managed, else mapped host memory.
  BenchMemory any(std::uint64_t size);
  /// Page-aligned memory of the process, for pin(); page by page apart.
  HostRange buffer(std::uint64_t size = 4096);

  // Requests that the check judges.

  Result<BenchMemory> try_memalloc(std::uint64_t size, StreamHandle stream = {});
  Result<BenchMemory> try_managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  Result<BenchMemory> try_hosted(std::uint64_t size, HostAllocFlags flags);
  Result<BenchMemory> try_pin(HostRange range, HostRegisterFlags flags = {},
                              std::shared_ptr<const void> owner = {});
  void reset();
  [[nodiscard]] Deferral defer();
  /// Answers whether a request gave memory. Judges one that was refused: it may be out of memory
  /// where neither the device nor idle memory of the manager could have served it.
  bool gives(const Result<BenchMemory>& made, std::uint64_t size, StreamHandle stream = {});
  /// Says why a request that was answered with out of memory should have been served; empty where
  /// it may be refused, as far as can be seen.
  std::string why_wrongly_refused(std::uint64_t size, StreamHandle stream);

  // Content, read and written without the manager. fill() and holds() are false where the device
  // refuses.

  bool fill(const BenchMemory& block, std::uint8_t value) {
    return try_fill(block, value).has_value();
  }
  Status try_fill(const BenchMemory& block, std::uint8_t value);
  /// False on a real device after leave_on_device(). Managed memory moves to the device where the
  /// device writes it; where the device is full it cannot, whatever the manager did: the write is
  /// CUDA_ERROR_ILLEGAL_ADDRESS, and the context is lost (measured on an H200, driver 580.159.04,
  /// CUDA 13.0; sometimes with some MiB free).
  bool device_can_write_managed() const noexcept { return is_simulated() || ballast_.empty(); }
  /// Reads all of it up to 64 KiB, else both ends and three pieces of the middle.
  bool holds(const BenchMemory& block, std::uint8_t value);

  // The verdict.

  bool expect(bool holds, std::string_view done, std::string_view seen, std::string_view expected);
  template <class A, class B>
  bool expect_equal(std::string_view done, const A& seen, const B& expected) {
    if (seen == static_cast<A>(expected)) return expect(true, done, {}, {});
    return expect(false, done, text::format("{}", seen), text::format("{}", expected));
  }
  /// A request, or a call, that must succeed.
  template <class T>
  bool expect_ok(std::string_view done, const Result<T>& result) {
    if (result) return expect(true, done, {}, {});
    return expect(false, done, describe(result.error()), "success");
  }
  /// An error of that kind; a failure names the codes that would have done.
  template <class T>
  bool expect_error(std::string_view done, const Result<T>& result, Errc code,
                    std::string_view words = {}) {
    const auto said = result ? "success" : describe(result.error());
    const auto fits =
        !result && result.error().code == code && said.find(words) != std::string::npos;
    return expect(fits, done, said, words.empty() ? answers_of(code) : std::string(words));
  }
  /// Out of memory, or what a manager may answer to a block that is too large for it.
  bool expect_out_of_memory(std::string_view done, const Result<BenchMemory>& made,
                            std::uint64_t size);
  static std::string answers_of(Errc code);
  /// Expects these driver calls, queries included, since watch().forget().
  bool expect_calls(std::string_view done, std::initializer_list<Call> expected);
  /// Counts the frees of any kind since then.
  std::size_t ends() const;
  std::size_t count(Call call) const;
  /// Ends the manager, and expects that it has released all that it took from the device, once.
  bool expect_balance(std::string_view done);
  void not_applicable(std::string_view why);
  void inconclusive(std::string_view why);
  /// Says that a trace cannot express the operations of this check.
  void untraceable() { traceable_ = false; }
  /// Says what the check does, for the failure that tells where a manager hangs or ends the
  /// process. Empty: no more.
  void doing(std::string words);
  /// From now on a failure shows the calls of another bench, which the check judges; null: its own.
  void show_calls_of(const Bench* other) noexcept { shown_ = other; }
  /// As expect(), for the rule of another clause, which is watched throughout.
  bool expect_rule(std::string_view clause, bool holds, std::string_view done,
                   std::string_view seen, std::string_view expected);
  /// Finishes a second bench that the check made. Its failure is this bench's.
  void take(Bench& other);
  /// Runs a part of the check on a second bench, with a manager and a device of its own, whose
  /// trace would not show the failure. Its failure is this bench's.
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

  /// Ends the manager, and judges what must hold whatever a check did: the driver's ledger.
  Verdict finish();

 private:
  friend class BenchMemory;
  friend class Deferral;
  friend class OthersRun;
  bool others_run() const noexcept;
  std::optional<std::uint64_t> largest_block(std::optional<std::uint64_t> limit);
  const ManagerEntry* bundled() const noexcept;  ///< Null: it is a foreign one.
  Bench(const Subject& subject, std::string_view clause, std::unique_ptr<Platform> platform,
        OpenedDevice opened);
  BenchMemory need(Result<BenchMemory> result, std::uint64_t size, StreamHandle stream = {});
  void decide(Verdict verdict);
  std::uint64_t note(std::string_view op, std::string_view members, bool allocates);
  void add_note(std::string note);  ///< With mutex_.
  void note_free(const BenchMemory& block, StreamHandle stream, bool late);
  void judge_block(const BenchMemory& block, StreamHandle stream, bool managed);
  void judge_host_block(const BenchMemory& block);
  std::string place_among_live(const BenchMemory& block, StreamHandle stream);
  std::string take_places(const BenchMemory& block);
  void leave_places(std::uint64_t id);
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
  std::unique_ptr<order::Checker> order_;
  std::unique_ptr<CallHook> tapped_order_;
  OpenedDevice ordered_;
  RecordingObserver observer_;
  Prng random_;
  std::unique_ptr<MemoryManager> manager_;
  bool initialized_ = false;
  const Bench* shown_ = nullptr;  ///< Null: this one.
  std::atomic<unsigned> others_run_{0};
  const std::thread::id home_ = std::this_thread::get_id();  ///< The check's thread.
  std::vector<StreamHandle> streams_;
  std::vector<DevicePtr> ballast_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;

  /// Memory by its first address.
  struct Range {
    std::uint64_t end = 0;
    std::uint64_t id = 0;
    // Only idle memory has these two.
    StreamHandle stream{};                       ///< The stream that it was freed on.
    std::optional<CallLedger::Thing> part_of{};  ///< The driver's allocation that it lies in.
  };
  using Ranges = std::map<std::uint64_t, Range>;

  mutable std::mutex mutex_;  // of what follows
  std::optional<Verdict> verdict_;
  std::optional<Verdict> broken_;  ///< Of another clause, whose id is broken_id_.
  std::string broken_id_;
  bool broken_first_ = false;  ///< Before this clause failed.
  Ranges live_;                ///< Handed out.
  Ranges live_places_;         ///< Where their memory is, by the first of each range of places.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> places_of_;  ///< By id.
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

}  // namespace emm::conformance
