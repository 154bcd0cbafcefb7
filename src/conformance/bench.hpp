#pragma once

#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.hpp"
#include "base/text.hpp"
#include "conformance/bent_driver.hpp"
#include "conformance/block.hpp"
#include "conformance/subject.hpp"
#include "conformance/verdict.hpp"
#include "conformance/watch.hpp"
#include "order/checker.hpp"

namespace emm::conformance {

/// What a manager told its observer.
class Heard final : public ManagerObserver {
 public:
  struct Flush {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };
  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added() const;
  std::vector<Flush> flushes() const;
  std::size_t failures() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Call, std::optional<std::uint64_t>>> added_;
  std::vector<Flush> flushes_;
  std::size_t failures_ = 0;
};

class Bench;

/// The calls of a manager that calls CUDA itself, heard behind a stand-in: those that are made
/// inside its slots.
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
  const plugin::StandIns* standins_;
  CallHook& to_;
  CallHook* order_ = nullptr;
};

/// A deferral that a trace can tell of.
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

/// Where one clause judges one manager: a device of its own, every call seen, counted and failed at
/// will, and a manager on it, made when it is first asked for.
///
/// A check says what it expects; the first expectation that does not hold is the verdict, and what
/// follows is not judged any more. So a check runs on to its end and need not ask. Where a request
/// that the check stands on is declined (not_supported) the clause is not applicable; where it
/// fails, inconclusive. A check that expected nothing is inconclusive. Any thread may expect and
/// allocate.
class Bench {
 public:
  /// REQUIRES: the subject outlives this.
  static Result<std::unique_ptr<Bench>> create(const Subject& subject, std::string_view clause);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Subject& subject() const noexcept { return subject_; }
  bool is_numba() const noexcept { return subject_.profile == Profile::numba; }
  /// Whether frees of mapped memory wait: as Numba, a host-only plugin has no capacity, and they do
  /// not (HST-9).
  bool queue_waits() const noexcept { return !is_numba() || subject_.promise == Scope::deflt; }
  Prng& random() noexcept { return random_; }
  /// What `seed=` would replay of anything random here.
  std::uint64_t seed() const noexcept { return subject_.seed; }

  // The manager.

  MemoryManager& manager();        ///< Initialized.
  MemoryManager& uninitialized();  ///< Made, if it was not; initialize() is the check's.
  void end_manager();              ///< As the end of its context does.

  // The device.

  Driver& driver() noexcept { return watched_; }  ///< As the manager has it.
  Driver& device() noexcept {
    return *opened_.driver;
  }  ///< Unseen and unbent, for the check's own use.
  Runtime* runtime() noexcept { return runtime_ ? &*runtime_ : nullptr; }
  Platform& platform() noexcept { return *platform_; }
  OpenedDevice
  watched_device();  ///< For a context: the same driver and runtime; must end before this.
  BentDriver& bent() noexcept { return bent_; }
  Watch& watch() noexcept { return watch_; }
  Heard& heard() noexcept { return heard_; }
  StreamHandle stream();  ///< A stream of its own; ends with this.
  /// Looks at the order of streams from here on: before the manager is made. The checker hears of
  /// its driver calls, and of those of ordered(); of memory the check tells it.
  order::Checker& watch_order();
  Driver& ordered() noexcept { return *ordered_.driver; }  ///< After watch_order().
  bool is_simulated() const noexcept;
  /// So many bytes are all that the device says is free from here on, to a page of 2 MiB; what is
  /// over is held by the bench. A real device gives somewhat more than it says (measured on an
  /// H200, driver 580.159.04, CUDA 13.0).
  void leave_on_device(std::uint64_t bytes);

  // Requests that the check stands on.

  Block memalloc(std::uint64_t size, StreamHandle stream = {});
  Block managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  Block mapped(std::uint64_t size) { return hosted(size, {.mapped = true}); }
  Block pinned(std::uint64_t size) { return hosted(size, {}); }
  Block hosted(std::uint64_t size, HostAllocFlags flags);
  Block pin(HostRange range, HostRegisterFlags flags = {}, std::shared_ptr<const void> owner = {});
  std::vector<Block> mapped_blocks(std::size_t count, std::uint64_t size);
  /// Device memory where the manager has it, else managed, else mapped host memory.
  Block any(std::uint64_t size);
  /// Page-aligned memory of the process, for pin(); page by page apart.
  HostRange buffer(std::uint64_t size = 4096);

  // Requests that are themselves judged.

  Result<Block> try_memalloc(std::uint64_t size, StreamHandle stream = {});
  Result<Block> try_managed(std::uint64_t size, AttachFlags attach = AttachFlags::global);
  Result<Block> try_hosted(std::uint64_t size, HostAllocFlags flags);
  Result<Block> try_pin(HostRange range, HostRegisterFlags flags = {},
                        std::shared_ptr<const void> owner = {});
  void reset();
  [[nodiscard]] Deferral defer();

  // Content, past the manager. False where the device refuses.

  bool fill(const Block& block, std::uint8_t value);
  /// All of it up to 64 KiB, else both ends and some of the middle.
  bool holds(const Block& block, std::uint8_t value);

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
  template <class T>
  bool expect_error(std::string_view done, const Result<T>& result, Errc code,
                    std::string_view words = {}) {
    if (result) return expect(false, done, "success", words.empty() ? "an error" : words);
    const auto said = describe(result.error());
    const auto fits = result.error().code == code && said.find(words) != std::string::npos;
    return expect(fits, done, said, words.empty() ? "another error" : words);
  }
  /// The driver calls since watch().forget(), questions among them.
  bool expect_calls(std::string_view done, std::initializer_list<Call> expected);
  /// Frees of any kind since then.
  std::size_t ends() const;
  std::size_t count(Call call) const;
  /// Ends the manager; all that it took from the device is given back then, once.
  bool expect_balance(std::string_view done);
  void not_applicable(std::string_view why);
  void inconclusive(std::string_view why);
  /// The operations that led here cannot be told by a trace.
  void untraceable() { traceable_ = false; }
  /// What a bench of this check's own came to: a failure is this one's.
  void take(Verdict verdict);
  bool decided() const;

  Verdict verdict();

 private:
  friend class Block;
  friend class Deferral;
  Bench(const Subject& subject, std::string_view clause, std::unique_ptr<Platform> platform,
        OpenedDevice opened);
  template <class T>
  Block need(Result<T> result);
  void decide(Verdict verdict);
  std::uint64_t note(std::string_view op, std::string_view members, bool allocates);
  void add_note(std::string note);  ///< With mutex_.
  void note_free(std::uint64_t id, StreamHandle stream, bool late);
  Block wrap(std::uint64_t id, MemoryPointer memory);
  Block wrap(std::uint64_t id, HostMemory memory);
  std::string trace() const;
  std::string last_calls() const;

  const Subject& subject_;
  std::string clause_;
  std::unique_ptr<Platform> platform_;
  OpenedDevice opened_;
  BentDriver bent_;
  Watch watch_;
  Tapped tapped_;
  ForwardingDriver watched_;
  std::optional<ForwardingRuntime> runtime_;
  std::unique_ptr<order::Checker> order_;
  std::unique_ptr<CallHook> tapped_order_;
  OpenedDevice ordered_;
  Heard heard_;
  Prng random_;
  std::unique_ptr<MemoryManager> manager_;
  bool initialized_ = false;
  std::vector<StreamHandle> streams_;
  std::vector<DevicePtr> ballast_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;

  mutable std::mutex mutex_;  // of what follows
  std::optional<Verdict> verdict_;
  std::uint64_t expected_ = 0;
  std::vector<std::string> notes_;
  std::uint64_t next_id_ = 0;
  std::uint64_t next_scope_ = 0;
  bool traceable_ = true;
};

}  // namespace emm::conformance
