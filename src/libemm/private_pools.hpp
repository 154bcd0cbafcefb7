#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "driver/types.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::libemm {

/// Memory that CUDA graphs were captured with, which nobody else may have while a graph lives: a
/// replay writes where the capture did, whatever was freed since. One pool for each id, as PyTorch
/// gives them. It keeps what is freed for requests of the same pool.
///
/// One thread at a time.
class PrivatePools {
 public:
  using Id = std::pair<std::uint64_t, std::uint64_t>;
  using Filter = std::function<bool(StreamHandle)>;
  struct Memory {
    DevicePtr address;
    std::uint64_t size = 0;
    StreamHandle stream;
    Lifetime lifetime;
  };

  /// From here on the requests on streams that `takes` has are of the pool `id`, which is used once
  /// more.
  void begin(const Id& id, Filter takes);
  /// Such requests end; the pool stays.
  void end(const Id& id);
  /// A use of the pool ends, and with the last one the pool: drop_unused().
  void release(const Id& id);
  /// How many begin() have not met their end().
  std::size_t open() const noexcept { return open_; }

  /// The number of the pool that a request on `stream` is of; 0 where of none.
  std::uint64_t of(StreamHandle stream) const;
  /// What was kept in the pool for this stream and holds `size`, at most twice that; else nothing.
  Memory take(std::uint64_t pool, std::uint64_t size, StreamHandle stream);
  /// False where the pool is gone: the memory is the caller's then. `again` where it may serve
  /// another request.
  bool keep(std::uint64_t pool, Memory& memory, bool again);
  /// What pools without a use kept. They are gone then.
  std::vector<Memory> drop_unused();
  bool empty() const noexcept { return pools_.empty(); }

 private:
  struct Pool {
    std::uint64_t number = 0;
    std::uint64_t uses = 0;
    Filter takes;                                 ///< Empty where no request comes here.
    std::multimap<std::uint64_t, Memory> idle{};  ///< By size.
    std::vector<Memory> retired{};
  };
  Pool* numbered(std::uint64_t number);

  std::map<Id, Pool> pools_;
  std::uint64_t last_number_ = 0;
  std::size_t open_ = 0;
};

}  // namespace emm::libemm
