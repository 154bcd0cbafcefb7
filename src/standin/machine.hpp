#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/decorate/call_hook.hpp"
#include "driver/device_entry.hpp"
#include "standin/script.hpp"
#include "standin/tap.hpp"

namespace emm::standin {

/// The state behind the functions of the stand-in for libcuda.so.1: the devices that
/// EMM_STANDIN_DEVICE names ("sim" where it is not set) and each thread's stack of contexts. There
/// is one for the process. Where EMM_STANDIN_LOG names a file, every call that reaches a device is
/// appended to it as a line before the function returns. Where EMM_STANDIN_SCRIPT is set, a test
/// scripts failures.
///
/// Codes are CUresults. Any thread may call. The machine is never destroyed, because programs free
/// memory in their exit handlers. For the same reason a context is kept after its reset: another
/// thread may hold its pointer, or have it current, and must be answered 709 rather than crash.
class Machine {
 public:
  static constexpr std::int32_t kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2,
                                kNotInitialized = 3, kInvalidDevice = 101, kInvalidContext = 201,
                                kNotFound = 500, kNotReady = 600, kNotSupported = 801;

  /// One primary context. A CUcontext of the stand-in points to one.
  struct Context {
    int ordinal = 0;
    OpenedDevice device;
  };

  /// Null before start().
  static Machine* started() noexcept;
  /// Does cuInit. Answers 100 (no device) where EMM_STANDIN_DEVICE names none, and tells stderr
  /// why.
  static std::int32_t start();

  /// The hook around every call of every device.
  static Tap& tap() noexcept;
  static Script& script() noexcept;
  /// Answers `code`, and counts a call that came before cuInit or without a current context.
  static std::int32_t stray(std::int32_t code) noexcept;
  static std::uint64_t strays() noexcept;

  int device_count() const noexcept { return platform_->device_count(); }
  Clock& clock() noexcept { return platform_->clock(); }
  /// The driver of a device, for questions that need no context. Null where there is no such
  /// device.
  Driver* device(int ordinal);

  /// Null where there is no such device.
  Context* retain(int ordinal);
  std::int32_t release(int ordinal);
  std::int32_t reset(int ordinal);
  bool is_active(int ordinal);

  /// The calling thread's context, null where it has none.
  static Context* current() noexcept;
  static void set_current(Context* context);
  static void push(Context* context);
  static std::optional<Context*> pop();
  bool is_context(const Context* context);

 private:
  class Log;
  struct Primary {
    std::unique_ptr<Context> known;  // the current one, which may not be retained yet
    std::uint64_t retained = 0;
    std::vector<std::unique_ptr<Context>> past;  // those that were reset
  };

  explicit Machine(std::unique_ptr<Platform> platform);
  std::unique_ptr<Context> open(int ordinal);
  std::int32_t end(Primary& primary);
  Primary* primary(int ordinal);

  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Log> log_;
  std::mutex mutex_;
  std::vector<Primary> primaries_;
};

}  // namespace emm::standin
