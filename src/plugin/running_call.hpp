#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace emm::plugin {

/// `name` for as long as the process lives, for what may have to be named at any time.
const char* kept_name(std::string name);

/// Says, for as long as it lives, that a slot of a foreign manager runs on this thread. What is
/// said survives the process where a child of run_in_child says it. Nests, as in a plugin that
/// loads another. Costs a few stores to memory that is this thread's alone.
class RunningCall {
 public:
  /// A literal.
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
  std::atomic<bool> taken{false};              ///< A thread that lives says here what it does.
  std::atomic<std::uint32_t> depth{0};         ///< Calls that have not returned.
  std::atomic<std::uint64_t> changes{0};       ///< How often a call has begun or returned.
  std::atomic<const char*> slot{nullptr};      ///< Of the innermost such call; a literal.
  std::atomic<std::uint64_t> event{kNoEvent};  ///< That it serves.
};

/// What was last said in a process.
struct CallMarks {
  static constexpr std::size_t kThreads = 1280;  ///< More share the last mark.
  static constexpr std::size_t kLength = 120;
  std::array<CallMark, kThreads> threads{};
  std::atomic<const char*> last{nullptr};  ///< The slot of the call that began last.
  std::array<char, kLength> operation{};   ///< What was being done, as mark_operation() was told.
};
/// Where this process says it: `marks` outlives every call from here on. Before the first call.
void mark_calls_in(CallMarks& marks) noexcept;
/// Says what is being done from here on, for what may have to be told after this process has ended;
/// cut where it is long. One thread at a time, else it may be torn.
void mark_operation(std::string_view words) noexcept;
/// How a call learns which event it serves: `event()` is asked on its thread, and answers
/// CallMark::kNoEvent where there is none.
void mark_events_of(std::uint64_t (*event)() noexcept) noexcept;

}  // namespace emm::plugin
