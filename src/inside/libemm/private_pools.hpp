#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::libemm {

/// The memory that CUDA graphs were captured with. A replay writes where the capture wrote, even to
/// memory that was freed since. So nobody else may have this memory while a graph exists. There is
/// one pool for each id from PyTorch. A pool keeps freed memory for later requests of the same
/// pool.
///
/// One thread at a time.
class PrivatePools {
 public:
  using Id = std::pair<std::uint64_t, std::uint64_t>;
  using Filter = std::function<bool(StreamHandle)>;
  struct KeptMemory {
    DevicePtr address;
    std::uint64_t size = 0;
    StreamHandle stream;
    Lifetime lifetime;
  };

  /// Lets the pool `id` serve the requests on the streams that `takes` accepts, and adds a use of
  /// the pool.
  void begin(const Id& id, Filter takes);
  /// Ends the serving that begin() began. The pool and its memory stay.
  void end(const Id& id);
  /// Ends one use of the pool. After the last one drop_unused() drops the pool.
  void release(const Id& id);
  /// Counts the begin() calls without an end() so far.
  std::size_t open() const noexcept { return open_; }

  /// Returns the number of the pool that serves requests on `stream`, or 0.
  std::uint64_t of(StreamHandle stream) const;
  /// Takes memory of `size` to twice `size` that the pool kept for this stream. If there is none,
  /// the result has size 0.
  KeptMemory take(std::uint64_t pool, std::uint64_t size, StreamHandle stream);
  /// Keeps freed memory. `again` says whether it may serve another request. Returns false if the
  /// pool is gone; the caller must then free the memory.
  bool keep(std::uint64_t pool, KeptMemory& memory, bool again);
  /// Drops the pools without a use and returns the memory that they kept.
  std::vector<KeptMemory> drop_unused();
  bool empty() const noexcept { return pools_.empty(); }

 private:
  struct Pool {
    std::uint64_t number = 0;
    std::uint64_t uses = 0;
    Filter takes;                                     ///< Empty while the pool serves no requests.
    std::multimap<std::uint64_t, KeptMemory> idle{};  ///< By size.
    std::vector<KeptMemory> retired{};
  };
  Pool* numbered(std::uint64_t number);

  std::map<Id, Pool> pools_;
  std::uint64_t last_number_ = 0;
  std::size_t open_ = 0;
};

}  // namespace emm::libemm
