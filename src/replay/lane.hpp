#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emm/context.hpp"
#include "emm/manager_observer.hpp"
#include "log/summary.hpp"
#include "order/checker.hpp"
#include "replay/address_map.hpp"
#include "replay/address_shards.hpp"
#include "replay/engine.hpp"
#include "replay/serving.hpp"

namespace emm::replay {

/// One context of a trace while it is replayed, with what belongs to it alone: its streams, its
/// open defer_cleanup guards, and what it was last seen to hold. Hears of its manager's flushes.
///
/// The context is made at first use. One that the trace destroys is kept, because pointers into it
/// may end later; the next use makes another.
class Lane final : public ManagerObserver {
 public:
  struct Seen {
    std::mutex mutex;  ///< Managers tell of their doings on any thread.
    std::vector<log::Flush> flushes;
    std::uint64_t failed_frees = 0;  ///< That no return value shows.
    std::string first_failed_free, last_failed_free;
    std::uint64_t excused_frees = 0;  ///< Of those: their context was gone, and the memory with it.
    std::uint64_t failed_calls = 0;   ///< Others without an answer.
    std::string last_failed_call;
    std::atomic<std::uint64_t> failed{0};  ///< Of both: whether there is something to hear.
    std::uint64_t failed_at = 0;           ///< The event of the last.
    std::uint64_t streams_refused = 0;
  };

  /// `order` hears of streams and stands around the driver; null: nobody does.
  Lane(std::uint32_t device, Seen& seen, order::Checker* order) noexcept
      : device_(device), seen_(seen), order_(order) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() override;

  std::uint32_t device() const noexcept { return device_; }
  bool open() const noexcept { return context_ != nullptr; }
  Context& context() noexcept { return *context_; }
  Driver& driver() noexcept { return *driver_; }
  const Driver& driver() const noexcept { return *driver_; }
  Status create(Stack& stack);
  /// Closes the context, which ends all its memory. Where contexts `share` the device, whose
  /// primary context is one and theirs too, it is reset instead.
  Status destroy(bool share);

  /// Ends the context, and those that were destroyed before. What its manager still says is heard.
  void end();

  /// The handle of stream number `stream` for a thread of the trace, made at its first use; the
  /// default stream where the device has no others.
  StreamHandle stream(std::size_t stream, ThreadId thread) {
    return stream == 0 ? StreamHandle{} : other_stream(stream, thread);
  }
  /// As stream(), of one that is made; any thread may ask while none is being made.
  StreamHandle known_stream(std::size_t stream) const noexcept {
    return stream < streams_.size() ? streams_[stream] : StreamHandle{};
  }
  /// Makes stream number `stream`, unless it is there.
  void make_stream(std::size_t stream, StreamKind kind);
  /// Stream number `stream` is each thread's own default stream: "per_thread". Where `one_thread`
  /// replays all of the trace's, CUDA has but one for it: it is that of the first who uses it, and
  /// a blocking stream is each other's.
  void set_per_thread(std::size_t stream, bool one_thread);
  void drop_stream(std::size_t stream);

  void enter() { guards_.push_back(context_->defer_cleanup()); }
  void leave();
  void leave_all();

  /// What the device says at the beginning, for logs; costs a driver call.
  void note_capacity();
  const MemoryInfo& at_start() const noexcept { return at_start_; }
  std::uint64_t held_at_start() const noexcept { return held_at_start_; }

  /// What the contexts of one device share, which is all that a device knows of them: one primary
  /// context.
  struct Device {
    std::uint64_t held = 0;       ///< Bytes, when last asked,
    std::uint64_t held_most = 0;  ///< and the most in this pass.
    AddressMap addresses;         ///< Of what is live; where threads replay at once in `shards`.
    std::unique_ptr<AddressShards> shards;
  };
  Device* shared = nullptr;  ///< Set when the context is made.

  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  void call_failed(const Error& error) noexcept override;

 private:
  StreamHandle other_stream(std::size_t stream, ThreadId thread);
  StreamHandle per_thread_stream(ThreadId thread);
  StreamHandle create_stream(std::size_t stream, StreamKind kind);

  std::uint32_t device_;
  Seen& seen_;
  order::Checker* order_;
  std::vector<std::unique_ptr<Context>> destroyed_;
  std::unique_ptr<Context> context_;
  Driver* driver_ = nullptr;
  std::vector<StreamHandle> streams_;
  std::size_t per_thread_ = 0;            ///< Of those; 0: none.
  bool one_thread_ = false;               ///< Replays all.
  std::vector<StreamHandle> of_threads_;  ///< What per_thread then is, by thread.
  std::vector<Context::Deferred> guards_;
  MemoryInfo at_start_{};
  std::uint64_t held_at_start_ = 0;
};

}  // namespace emm::replay
