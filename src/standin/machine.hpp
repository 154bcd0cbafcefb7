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

/// What the functions of the stand-in for libcuda.so.1 act on: the devices that EMM_STANDIN_DEVICE
/// names ("sim" where it is not set), one for the process, and each thread's stack of contexts.
/// Where EMM_STANDIN_LOG names a file, every call that reaches a device is a line at its end,
/// written before the function returns; where EMM_STANDIN_SCRIPT is set, a test scripts failures.
///
/// Codes are CUresults. Any thread may call. It is never destroyed: programs free in their exit
/// handlers.
class Machine {
 public:
  static constexpr std::int32_t kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2,
                                kNotInitialized = 3, kInvalidDevice = 101, kInvalidContext = 201,
                                kNotFound = 500, kNotReady = 600, kNotSupported = 801;

  /// One primary context: what a CUcontext of the stand-in points to.
  struct Context {
    int ordinal = 0;
    OpenedDevice device;
  };

  /// Null before start().
  static Machine* started() noexcept;
  /// cuInit. 100, no device, where EMM_STANDIN_DEVICE names none; then stderr says why.
  static std::int32_t start();

  /// What hears of every call of every device.
  static Tap& tap() noexcept;
  static Script& script() noexcept;

  int device_count() const noexcept { return platform_->device_count(); }
  Clock& clock() noexcept { return platform_->clock(); }
  /// For questions about the device that need no context. Null of an ordinal that there is not.
  Driver* device(int ordinal);

  /// Null of an ordinal that there is not.
  Context* retain(int ordinal);
  std::int32_t release(int ordinal);
  std::int32_t reset(int ordinal);
  bool is_active(int ordinal);

  /// The calling thread's; null where it has none.
  static Context* current() noexcept;
  static void set_current(Context* context);
  static void push(Context* context);
  static std::optional<Context*> pop();
  bool is_context(const Context* context);

 private:
  class Log;
  struct Primary {
    std::unique_ptr<Context> known;  // also before the first retain
    std::uint64_t retained = 0;
    std::vector<std::unique_ptr<Context>> past;  // a program may still name them
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
