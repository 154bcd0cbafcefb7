#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/error.hpp"
#include "driver/types.hpp"

namespace emm::libemm {

class TraceFile;

/// What the frameworks of this process ask of addressed memory, written down as they ask: a request
/// when it was answered, a free when it was asked for. So no address lives twice in the trace. Any
/// thread.
class Recording {
 public:
  static Recording& of_process();

  /// From here on to `file`, with times since `start_ns` of the monotonic clock; null ends it, and
  /// so does fork() in the child. When this returns nobody uses the file before.
  void write_to(std::shared_ptr<TraceFile> file, std::uint64_t start_ns);

  /// Of the clock of the rows; 0 where nothing is recorded.
  std::uint64_t now_ns() const noexcept;
  /// The number of the memory in the trace; 0 where nothing is recorded. The request began at
  /// `began_ns`.
  std::uint64_t made(int device, std::uint64_t size, StreamHandle stream, DevicePtr ptr,
                     std::uint64_t began_ns);
  void refused(int device, std::uint64_t size, StreamHandle stream, const Error& error,
               std::uint64_t began_ns);
  /// The same of memory that was made before, unless `number` is of this trace; then that.
  std::uint64_t alive(std::uint64_t number, int device, std::uint64_t size, StreamHandle stream,
                      DevicePtr ptr);
  /// Nothing of a number that is not of this trace, as 0.
  void freed(std::uint64_t number, int device, StreamHandle stream);
  void used_on(std::uint64_t number, int device, StreamHandle stream);

 private:
  void forget();
  void write(std::string_view op, std::uint64_t number, int device, std::string_view members,
             StreamHandle stream);

  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> last_number_{0};
  std::atomic<std::uint64_t> first_{1};  ///< Of this trace.
  std::atomic<std::uint64_t> start_ns_{0};
  std::mutex mutex_;
  std::shared_ptr<TraceFile> file_;
};

}  // namespace emm::libemm
