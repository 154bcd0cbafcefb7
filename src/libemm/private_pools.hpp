#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::libemm {

/// The memory that CUDA graphs were captured with. Nobody else may have it while a graph exists,
/// because a replay writes where the capture wrote, whatever was freed since. There is one pool for
/// each id that PyTorch gives. A pool keeps what is freed for later requests of the same pool.
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

  /// From now on the pool `id` serves the requests on streams that `takes` accepts. It has one use
  /// more.
  void begin(const Id& id, Filter takes);
  /// Ends that. The pool and its memory stay.
  void end(const Id& id);
  /// Ends a use of the pool. After the last one drop_unused() ends the pool.
  void release(const Id& id);
  /// How many begin() have had no end() yet.
  std::size_t open() const noexcept { return open_; }

  /// Answers the number of the pool that serves requests on `stream`, 0 where none does.
  std::uint64_t of(StreamHandle stream) const;
  /// Takes memory that the pool kept for this stream, of `size` to twice `size`. Else nothing.
  KeptMemory take(std::uint64_t pool, std::uint64_t size, StreamHandle stream);
  /// Keeps memory that was freed. False where the pool is gone: the caller then frees it. `again`
  /// says whether it may serve another request.
  bool keep(std::uint64_t pool, KeptMemory& memory, bool again);
  /// Ends the pools without a use and answers the memory that they kept.
  std::vector<KeptMemory> drop_unused();
  bool empty() const noexcept { return pools_.empty(); }

 private:
  struct Pool {
    std::uint64_t number = 0;
    std::uint64_t uses = 0;
    Filter takes;  ///< Empty where the pool serves no requests now.
    std::multimap<std::uint64_t, KeptMemory> idle{};  ///< By size.
    std::vector<KeptMemory> retired{};
  };
  Pool* numbered(std::uint64_t number);

  std::map<Id, Pool> pools_;
  std::uint64_t last_number_ = 0;
  std::size_t open_ = 0;
};

}  // namespace emm::libemm
