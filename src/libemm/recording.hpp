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

/// Writes down what the frameworks of this process ask of addressed memory. It writes a request
/// when it was answered and a free when it was asked for, so that no address is alive twice in the
/// trace. Any thread.
class Recording {
 public:
  static Recording& of_process();

  /// From now on writes to `file`, with times since `start_ns` of the monotonic clock. Null ends
  /// the recording, and so does fork() in the child. When this returns nobody uses the former file.
  void write_to(std::shared_ptr<TraceFile> file, std::uint64_t start_ns);

  /// Answers the time for a row, 0 where nothing is recorded.
  std::uint64_t now_ns() const noexcept;
  /// Writes a request that began at `began_ns`. Answers the memory's number in the trace, 0 where
  /// nothing is recorded.
  std::uint64_t made(int device, std::uint64_t size, StreamHandle stream, DevicePtr ptr,
                     std::uint64_t began_ns);
  void refused(int device, std::uint64_t size, StreamHandle stream, const Error& error,
               std::uint64_t began_ns);
  /// Writes memory that is older than the trace and answers its number. Where `number` is of this
  /// trace already, answers that and writes nothing.
  std::uint64_t alive(std::uint64_t number, int device, std::uint64_t size, StreamHandle stream,
                      DevicePtr ptr);
  /// Writes nothing for a number that is not of this trace, such as 0.
  void freed(std::uint64_t number, int device, StreamHandle stream);
  void used_on(std::uint64_t number, int device, StreamHandle stream);

 private:
  void forget();
  void write(std::string_view op, std::uint64_t number, int device, std::string_view members,
             StreamHandle stream);

  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> last_number_{0};
  std::atomic<std::uint64_t> first_{1};  ///< The first number of this trace.
  std::atomic<std::uint64_t> start_ns_{0};
  std::mutex mutex_;
  std::shared_ptr<TraceFile> file_;
};

}  // namespace emm::libemm
