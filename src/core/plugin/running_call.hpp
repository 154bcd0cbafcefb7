#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace emm::plugin {

/// Keeps `name` until the process ends, so that it may be printed at any time.
const char* kept_name(std::string name);

/// While one exists, a slot of a foreign manager runs on this thread. In a child of run_in_child
/// the mark survives the process. Marks nest, since a plugin may load another. A mark costs a few
/// stores to memory that belongs to this thread alone.
class RunningCall {
 public:
  /// `slot` must be a literal.
  explicit RunningCall(const char* slot) noexcept;
  ~RunningCall();
  /// Whether a slot runs on this thread.
  static bool here() noexcept;
  /// The slot that runs on this thread, or null.
  static const char* slot() noexcept;
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  const char* outer_slot_;
  std::uint64_t outer_event_;
};

/// What one thread did last for a foreign manager.
struct alignas(64) CallMark {
  static constexpr std::uint64_t kNoEvent = ~std::uint64_t{0};  // no event of a trace
  std::atomic<bool> taken{false};              ///< A running thread owns this mark.
  std::atomic<std::uint32_t> depth{0};         ///< Calls that have not returned.
  std::atomic<std::uint64_t> changes{0};       ///< How often a call has begun or returned.
  std::atomic<const char*> slot{nullptr};      ///< The innermost such call. A literal.
  std::atomic<std::uint64_t> event{kNoEvent};  ///< The event that it serves.
};

/// The marks of all threads of a process.
struct CallMarks {
  static constexpr std::size_t kThreads = 1280;  ///< More share the last mark.
  static constexpr std::size_t kLength = 240;    // bytes; longer words are cut
  std::array<CallMark, kThreads> threads{};
  std::atomic<const char*> last{nullptr};    ///< The slot of the call that began last.
  std::array<char, kLength> operation{};     ///< The last words of mark_operation().
  std::atomic<std::uint64_t> operations{0};  ///< How often mark_operation() was called.

  /// A number that grows while the process makes progress: with each call that begins or returns,
  /// and each operation.
  std::uint64_t progress() const noexcept;
};
/// Moves the marks of this process into `marks`, which must outlive every later call. Must be
/// called before the first call of a slot.
void mark_calls_in(CallMarks& marks) noexcept;
/// Records the current operation, so that it is known after this process has ended. Long words are
/// cut. One thread at a time, otherwise the words may be torn.
void mark_operation(std::string_view words) noexcept;
/// Sets the function that tells a call which event it serves. It runs on the thread of the call and
/// returns CallMark::kNoEvent if there is no event.
void mark_events_of(std::uint64_t (*event)() noexcept) noexcept;

}  // namespace emm::plugin
