#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace emm::plugin {

/// `name` for as long as the process lives, for what may have to be named at any time.
const char* kept_name(std::string name);

/// Says, for as long as it lives, that a slot of a foreign manager runs on this thread. What is
/// said survives the process where a child of run_in_child says it. Nests, as in a plugin that
/// loads another. Costs two stores.
class RunningCall {
 public:
  /// Both outlive the process's last call of a plugin: a kept_name() and a literal.
  RunningCall(const char* plugin, const char* slot) noexcept;
  ~RunningCall();
  /// Whether a slot runs on this thread.
  static bool here() noexcept;
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  const char* outer_plugin_;
  const char* outer_slot_;
};

/// What was last said in a process.
struct CallMark {
  static constexpr std::size_t kLength = 120;
  std::atomic<std::uint32_t> inside{0};    ///< How many calls have not returned.
  std::atomic<const char*> last{nullptr};  ///< The slot of the call that began last; a literal.
  std::array<char, kLength> operation{};   ///< What was being done, as mark_operation() was told.
};
/// Where this process says it: `mark` outlives every call from here on.
void mark_calls_in(CallMark& mark) noexcept;
/// Says what is being done from here on, for what may have to be told after this process has ended; cut where it is long.
/// One thread at a time, else it may be torn.
void mark_operation(std::string_view words) noexcept;

/// What is done where a foreign manager ends this process, while one of these lives; one at a time.
///
/// A signal that is a crash (SEGV, BUS, FPE, ILL, ABRT) inside a call of a plugin says on stderr
/// which, runs `rescue` and ends the process by that signal. exit() inside such a call does the
/// same and ends with exit code 1. `rescue` runs on the thread that crashed and must make do with
/// what is whole; it has two seconds.
class LastWords {
 public:
  explicit LastWords(std::function<void()> rescue);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace emm::plugin
