#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/error.hpp"
#include "base/result.hpp"
#include "driver/types.hpp"

namespace emm::libemm {

class TraceFile;

/// Records the requests of this process's frameworks for addressed memory. It writes a request
/// after its answer and a free before the memory is freed, so that no address is live twice in the
/// trace. Any thread.
class Recording {
 public:
  static Recording& of_process();

  /// Whether anything is recorded now.
  static bool is_on() noexcept { return on_.load(std::memory_order_acquire); }
  /// Records into `file` from now on, with times since `start_ns` of the monotonic clock. Null ends
  /// the recording, and so does fork() in the child. When this returns, no thread uses the former
  /// file.
  void write_to(std::shared_ptr<TraceFile> file, std::uint64_t start_ns);

  /// Returns the time for a row, or 0 if nothing is recorded.
  std::uint64_t now_ns() const noexcept;
  /// Writes a request that began at `began_ns`. Returns the memory's number in the trace, or 0 if
  /// nothing is recorded.
  std::uint64_t made(int device, std::uint64_t size, StreamHandle stream, DevicePtr ptr,
                     std::uint64_t began_ns);
  void refused(int device, std::uint64_t size, StreamHandle stream, const Error& error,
               std::uint64_t began_ns);
  /// Writes memory that is older than the trace and returns its new number. If `number` belongs to
  /// this trace already, writes nothing and returns it.
  std::uint64_t alive(std::uint64_t number, int device, std::uint64_t size, StreamHandle stream,
                      DevicePtr ptr);
  /// Writes nothing if the number does not belong to this trace. 0 never does.
  void freed(std::uint64_t number, int device, StreamHandle stream);
  void used_on(std::uint64_t number, int device, StreamHandle stream);

 private:
  void forget();
  void write(std::string_view op, std::uint64_t number, int device, std::string_view members,
             StreamHandle stream);

  static inline std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> last_number_{0};
  std::atomic<std::uint64_t> first_{1};  ///< The first number of this trace.
  std::atomic<std::uint64_t> start_ns_{0};
  std::mutex mutex_;
  std::shared_ptr<TraceFile> file_;
};

}  // namespace emm::libemm
