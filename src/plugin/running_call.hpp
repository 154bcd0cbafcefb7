#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace emm::plugin {

/// Keeps `name` until the process ends, for what may have to be named at any time.
const char* kept_name(std::string name);

/// Marks, while it exists, that a slot of a foreign manager runs on this thread. In a child of
/// run_in_child the mark survives the process. Marks nest, as in a plugin that loads another. A
/// mark costs a few stores to memory that belongs to this thread alone.
class RunningCall {
 public:
  /// `slot` is a literal.
  explicit RunningCall(const char* slot) noexcept;
  ~RunningCall();
  /// Whether a slot runs on this thread.
  static bool here() noexcept;
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  const char* outer_slot_;
  std::uint64_t outer_event_;
};

/// What one thread was last doing for a foreign manager.
struct alignas(64) CallMark {
  static constexpr std::uint64_t kNoEvent = ~std::uint64_t{0};
  std::atomic<bool> taken{false};              ///< A running thread owns this mark.
  std::atomic<std::uint32_t> depth{0};         ///< Calls that have not returned.
  std::atomic<std::uint64_t> changes{0};       ///< How often a call has begun or returned.
  std::atomic<const char*> slot{nullptr};      ///< The innermost such call, a literal.
  std::atomic<std::uint64_t> event{kNoEvent};  ///< The event that it serves.
};

/// The marks of all threads of a process.
struct CallMarks {
  static constexpr std::size_t kThreads = 1280;  ///< More share the last mark.
  static constexpr std::size_t kLength = 120;
  std::array<CallMark, kThreads> threads{};
  std::atomic<const char*> last{nullptr};    ///< The slot of the call that began last.
  std::array<char, kLength> operation{};     ///< What was being done, as mark_operation() was told.
  std::atomic<std::uint64_t> operations{0};  ///< How often it was told.

  /// What grows while the process gets on with its work: calls that begin or return, operations.
  std::uint64_t progress() const noexcept;
};
/// Moves the marks of this process into `marks`, which outlives every call from then on. To be
/// called before the first call of a slot.
void mark_calls_in(CallMarks& marks) noexcept;
/// Notes what is being done from now on, so that it can be told after this process has ended. Long
/// words are cut. One thread at a time, else the words may be torn.
void mark_operation(std::string_view words) noexcept;
/// Sets how a call learns which event it serves. `event()` is called on the thread of the call and
/// answers CallMark::kNoEvent where there is none.
void mark_events_of(std::uint64_t (*event)() noexcept) noexcept;

}  // namespace emm::plugin
