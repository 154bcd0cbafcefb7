#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "driver/decorate/call_hook.hpp"
#include "driver/device_entry.hpp"
#include "driver/gpu_profile.hpp"
#include "standin/library_memory.hpp"
#include "standin/script.hpp"
#include "standin/tap.hpp"

namespace emm {
class SimPlatform;
}

namespace emm::standin {

/// The state behind the functions of the stand-in for libcuda.so.1: the devices that
/// EMM_STANDIN_DEVICE names ("sim" if it is not set) and each thread's stack of contexts. The
/// process has one machine. If EMM_STANDIN_OVER is the file of a driver, its devices instead. If
/// EMM_STANDIN_LOG names a file, every call that reaches a device is appended to it as a line
/// before the function returns. If EMM_STANDIN_SCRIPT is set, a test scripts failures. If
/// EMM_STANDIN_PROGRAM names a folder, a whole program runs on the devices: kernels are skipped,
/// and what the program held is reported there.
///
/// Codes are CUresults. Any thread may call. The machine is never destroyed, because programs free
/// memory in their exit handlers. A context is also kept after its reset: another thread may hold
/// its pointer, or have it current, and must get 709 instead of a crash.
class Machine {
 public:
  // The CUresults that the stand-in itself gives.
  static constexpr std::int32_t kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2,
                                kNotInitialized = 3, kInvalidDevice = 101, kInvalidContext = 201,
                                kNoDevice = 100, kNotFound = 500, kNotReady = 600,
                                kNotSupported = 801;

  /// A primary context. The stand-in's CUcontext points to one.
  struct Context {
    int ordinal = 0;                       // the program's number
    int number = 0;                        // the machine's
    std::atomic<bool> has_kernels{false};  // of a library of CUDA's
    LibraryUse libraries{};
    std::unique_ptr<CallHook> report{};  // outlives the device, whose calls it sees
    OpenedDevice device;
  };

  /// Null before start().
  static Machine* started() noexcept;
  /// Does the work of cuInit. If EMM_STANDIN_DEVICE names no device, returns 100 (no device) and
  /// prints the reason to stderr. Likewise, without a word, if CUDA_VISIBLE_DEVICES shows none.
  static std::int32_t start();
  /// Between its begin and its end, the calling thread sees the machine as NVML does: all devices,
  /// by the machine's numbers, whatever CUDA_VISIBLE_DEVICES says and whether or not CUDA was
  /// started.
  static void see_all(bool begins) noexcept;

  /// The hook around every call of every device.
  static Tap& tap() noexcept;
  static Script& script() noexcept;
  /// Counts a call that came before cuInit or without a current context, and returns `code`.
  static std::int32_t stray(std::int32_t code) noexcept;
  static std::uint64_t strays() noexcept;

  int device_count() const noexcept;
  /// What the devices are.
  const GpuProfile& gpu() const noexcept {
    const auto* const known = platform_->gpu();
    return known != nullptr ? *known : gpu_profiles().front();
  }
  Clock& clock() noexcept { return platform_->clock(); }
  /// What CUDA's libraries take of a device for themselves; null where that does not count.
  const LibraryMemory* libraries() noexcept;
  /// Null if the devices are those of a real driver.
  SimPlatform* simulated() noexcept;
  /// The driver of a device, for queries that need no context. Null if there is no such device.
  Driver* device(int ordinal);

  /// Null if there is no such device.
  Context* retain(int ordinal);
  std::int32_t release(int ordinal);
  std::int32_t reset(int ordinal);
  bool is_active(int ordinal);

  /// The calling thread's context; null if it has none.
  static Context* current() noexcept;
  static void set_current(Context* context);
  static void push(Context* context);
  static std::optional<Context*> pop();
  bool is_context(const Context* context);

 private:
  class Log;
  struct Primary {
    std::unique_ptr<Context> known;  // the live one, perhaps not yet retained
    std::uint64_t retained = 0;
    std::vector<std::unique_ptr<Context>> past;  // contexts that were reset
  };

  explicit Machine(std::unique_ptr<Platform> platform);
  void show(const char* visible_devices);
  /// The machine's number of the calling thread's device `ordinal`; -1 if there is none.
  int of_machine(int ordinal) const noexcept;
  std::unique_ptr<Context> open(int ordinal);
  std::int32_t end(Primary& primary);
  Primary* primary(int ordinal);

  std::unique_ptr<Platform> platform_;
  std::unique_ptr<Log> log_;
  std::mutex mutex_;
  std::vector<Primary> primaries_;  // by the machine's numbers
  std::vector<int> visible_;        // likewise, in the program's order
};

}  // namespace emm::standin
