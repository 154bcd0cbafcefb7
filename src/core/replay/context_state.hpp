#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "emm/context.hpp"
#include "emm/manager_observer.hpp"
#include "replay/address_map.hpp"
#include "replay/address_shards.hpp"
#include "replay/engine.hpp"
#include "replay/manager_reports.hpp"
#include "stream_order/checker.hpp"

namespace emm::replay {

/// State that the contexts of one device share, because CUDA has one primary context per device.
struct DeviceState {
  std::uint64_t held = 0;                 ///< Bytes held from the device at the last measurement.
  std::uint64_t held_most = 0;            ///< The most that `held` was in this pass.
  AddressMap addresses;                   ///< Live memory by address, if one thread replays.
  std::unique_ptr<AddressShards> shards;  ///< Replaces `addresses` if threads replay.

  /// Adds the range of an allocation. If it overlaps another, returns that one's number instead.
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

/// A context of a trace during the replay, with its streams and its open defer_cleanup guards.
/// Observes its manager.
///
/// The context is made at first use. If the trace destroys it, it is kept, because pointers into it
/// may end later, and the next use makes another.
class ContextState final : public ManagerObserver {
 public:
  /// `order` learns the names of streams and watches the driver; it may be null.
  ContextState(std::uint32_t device, ManagerReports& reports, stream_order::Checker* order) noexcept
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
  /// Closes the context, which ends all its memory. If other contexts `share` the device, and so
  /// its primary context, resets it instead.
  Status destroy(bool share);
  /// Ends the context and those that the trace destroyed. Their managers may still report.
  void end();

  /// The handle of stream number `stream` for a thread of the trace. Makes the stream at its first
  /// use; the default stream if the device makes no others.
  StreamHandle stream(std::size_t stream, ThreadId thread) {
    return stream == 0 ? StreamHandle{} : other_stream(stream, thread);
  }
  /// The handle of a stream that is already made, else the default stream. Any thread may call
  /// while no stream is being made.
  StreamHandle known_stream(std::size_t stream) const noexcept {
    return stream < streams_.size() ? streams_[stream] : StreamHandle{};
  }
  /// Makes stream number `stream` unless it exists.
  void make_stream(std::size_t stream, StreamKind kind);
  /// Declares stream number `stream` to be "per_thread", each thread's default stream. If
  /// `one_thread` replays all threads of the trace, CUDA has only one such stream for them. The
  /// first thread that uses it gets that one; each other thread gets a blocking stream.
  void set_per_thread(std::size_t stream, bool one_thread);
  void drop_stream(std::size_t stream);
  std::uint64_t refused_streams() const noexcept { return refused_streams_; }

  void defer_cleanup() { guards_.push_back(context_->defer_cleanup()); }
  void end_defer_cleanup();
  void end_all_defer_cleanup();

  /// Asks the device for its capacity, which logs show. Costs driver calls.
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
  stream_order::Checker* order_;
  std::vector<std::unique_ptr<Context>> destroyed_;
  std::unique_ptr<Context> context_;
  Driver* driver_ = nullptr;
  std::vector<StreamHandle> streams_;
  std::size_t per_thread_ = 0;  ///< Number of the "per_thread" stream; 0 if the trace has none.
  bool one_thread_ = false;     ///< One thread replays all threads of the trace.
  std::vector<StreamHandle> per_thread_streams_;  ///< By thread, if one_thread_.
  std::uint64_t refused_streams_ = 0;             ///< Streams that the device refused to make.
  std::vector<Context::Deferred> guards_;
  MemoryInfo at_start_{};
  std::uint64_t held_at_start_ = 0;
};

}  // namespace emm::replay
