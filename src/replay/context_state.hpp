#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emm/context.hpp"
#include "emm/manager_observer.hpp"
#include "order/checker.hpp"
#include "replay/address_map.hpp"
#include "replay/address_shards.hpp"
#include "replay/engine.hpp"
#include "replay/manager_reports.hpp"

namespace emm::replay {

/// What the contexts of one device share, since CUDA has one primary context a device.
struct DeviceState {
  std::uint64_t held = 0;                 ///< Bytes held from the device at the last measurement.
  std::uint64_t held_most = 0;            ///< The most that `held` was in this pass.
  AddressMap addresses;                   ///< Live memory by address, where one thread replays.
  std::unique_ptr<AddressShards> shards;  ///< Takes its place where threads replay.

  /// Takes in the range of an allocation; where it overlaps another, answers with that one.
  std::optional<std::uint32_t> insert(std::uint64_t begin, std::uint64_t size,
                                      std::uint32_t number) {
    return shards ? shards->insert(begin, size, number) : addresses.insert(begin, size, number);
  }
  void erase(std::uint64_t begin, std::uint64_t size, std::uint32_t number) {
    if (shards) {
      shards->erase(begin, size, number);
    } else {
      addresses.erase(begin);
    }
  }
};

/// One context of a trace while it is replayed, with what belongs to it alone: its streams and its
/// open defer_cleanup guards. Observes its manager.
///
/// The context is made at first use. One that the trace destroys is kept, because pointers into it
/// may end later; the next use makes another.
class ContextState final : public ManagerObserver {
 public:
  /// `order`, which may be null, is told the names of streams and watches the driver.
  ContextState(std::uint32_t device, ManagerReports& reports, order::Checker* order) noexcept
      : device_(device), reports_(reports), order_(order) {}
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;
  ~ContextState() override;

  std::uint32_t device() const noexcept { return device_; }
  bool open() const noexcept { return context_ != nullptr; }
  Context& context() noexcept { return *context_; }
  Driver& driver() noexcept { return *driver_; }
  const Driver& driver() const noexcept { return *driver_; }
  Status create(Stack& stack);
  /// Closes the context, which ends all its memory. Where other contexts `share` the device, and so
  /// its primary context, it is reset instead.
  Status destroy(bool share);
  /// Ends the context, and those that were destroyed before. Reports of its manager still count.
  void end();

  /// The handle of stream number `stream` for a thread of the trace, made at its first use; the
  /// default stream where the device has no others.
  StreamHandle stream(std::size_t stream, ThreadId thread) {
    return stream == 0 ? StreamHandle{} : other_stream(stream, thread);
  }
  /// The handle of a stream that has one. Any thread may ask while none is being made.
  StreamHandle known_stream(std::size_t stream) const noexcept {
    return stream < streams_.size() ? streams_[stream] : StreamHandle{};
  }
  /// Makes stream number `stream`, unless it is there.
  void make_stream(std::size_t stream, StreamKind kind);
  /// Stream number `stream` is each thread's own default stream: "per_thread". Where `one_thread`
  /// replays all of the trace's, CUDA has only one such stream for them: the first thread that uses
  /// it gets it, and each other thread gets a blocking stream.
  void set_per_thread(std::size_t stream, bool one_thread);
  void drop_stream(std::size_t stream);
  std::uint64_t refused_streams() const noexcept { return refused_streams_; }

  void defer_cleanup() { guards_.push_back(context_->defer_cleanup()); }
  void end_defer_cleanup();
  void end_all_defer_cleanup();

  /// Asks the device for its capacity, which logs show; costs a driver call.
  void measure_capacity();
  const MemoryInfo& at_start() const noexcept { return at_start_; }
  std::uint64_t held_at_start() const noexcept { return held_at_start_; }

  DeviceState* device_state = nullptr;  ///< Set when the context is made.

  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  void call_failed(const Error& error) noexcept override;

 private:
  StreamHandle other_stream(std::size_t stream, ThreadId thread);
  StreamHandle per_thread_stream(ThreadId thread);
  StreamHandle create_stream(std::size_t stream, StreamKind kind);

  std::uint32_t device_;
  ManagerReports& reports_;
  order::Checker* order_;
  std::vector<std::unique_ptr<Context>> destroyed_;
  std::unique_ptr<Context> context_;
  Driver* driver_ = nullptr;
  std::vector<StreamHandle> streams_;
  std::size_t per_thread_ = 0;                    ///< Number of that stream; 0: there is none.
  bool one_thread_ = false;                       ///< Replays all threads of the trace.
  std::vector<StreamHandle> per_thread_streams_;  ///< By thread, where one_thread_.
  std::uint64_t refused_streams_ = 0;             ///< By the device.
  std::vector<Context::Deferred> guards_;
  MemoryInfo at_start_{};
  std::uint64_t held_at_start_ = 0;
};

}  // namespace emm::replay
