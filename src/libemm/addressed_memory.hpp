#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "driver/types.hpp"
#include "libemm/exported_manager.hpp"

namespace emm::libemm {

/// Device memory of a manager for callers that name it by its address alone. Any thread.
///
/// Memory that other streams were recorded for is given back to the manager when the work that
/// was on those streams at its free is done; nobody is made to wait for that, but a request that
/// finds no memory.
class AddressedMemory {
 public:
  /// `manager` must outlive it.
  AddressedMemory(ExportedManager& manager, int device) noexcept
      : manager_(manager), device_(device) {}

  Result<DevicePtr> take(std::uint64_t size, StreamHandle stream);
  /// In the order of the stream that it was taken on. An address that is not known is ignored.
  void give_back(DevicePtr ptr);
  bool holds(DevicePtr ptr);
  /// `ptr`, which is alive, is used on `stream` too.
  void record_stream(DevicePtr ptr, StreamHandle stream);
  /// What may be alive at a time; a request beyond it is out of memory.
  void set_limit(std::uint64_t bytes);
  /// Until everything that was given back is the manager's again.
  void wait();

 private:
  struct Block {
    emm_token token = 0;
    std::uint64_t size = 0;
    std::uint64_t number = 0;  ///< In the recording; 0 where it was made before.
    StreamHandle stream;
    std::vector<StreamHandle> others;
  };
  struct Waiting {
    emm_token token = 0;
    StreamHandle stream;
    std::vector<EventHandle> events;
  };

  Result<MemoryPointer> request(std::uint64_t size, StreamHandle stream);
  /// Of those that wait, oldest first: all that are done, or, where `all`, all of them.
  void reap(bool all);
  bool is_done(const Waiting& waiting);

  ExportedManager& manager_;
  const int device_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Block> blocks_;  // by address; its order reaches no output
  std::deque<Waiting> waiting_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace emm::libemm
