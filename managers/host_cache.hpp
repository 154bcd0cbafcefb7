#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocators/pytorch/settings.hpp"
#include "driver/driver.hpp"
#include "emm/epoch.hpp"
#include "emm/memory_pointer.hpp"
#include "emm/pending_deallocs.hpp"
#include "managers/live_records.hpp"

namespace emm {

/// Page-locked host memory, cached as by PyTorch's CachingHostAllocator: blocks of powers of two,
/// which are never split and are kept when they are freed. Of one power, the block that was freed
/// last is used first. Released blocks go through `deallocations`. Any thread may call; no driver
/// call is made with the lock held. The arguments of the constructor must outlive the cache.
class HostCache {
 public:
  using Settings = allocators::pytorch::HostSettings;

  HostCache(Driver* driver, PendingDeallocs& deallocations, const Settings& settings) noexcept
      : driver_(driver), deallocations_(deallocations), settings_(settings) {}
  HostCache(const HostCache&) = delete;
  HostCache& operator=(const HostCache&) = delete;

  Result<HostMemory> allocate(std::uint64_t size, HostAllocFlags flags);
  /// Ends all allocations, and releases all blocks.
  void end_all() noexcept;
  /// Reports the requests, and the memory that the driver gave for them. Empty if there were no
  /// requests.
  std::string report() const;

 private:
  struct HostBlock {
    std::uint64_t address = 0, size = 0;
    std::uint64_t on_device = 0;  ///< The device address; 0 if not mapped.
    unsigned flags = 0;
    bool reserved = false;  ///< Part of the reserve segment, which is released as a whole.
  };
  struct Segment {
    HostBlock block{};
    std::uint64_t used = 0;
    bool asked = false;
  };
  /// Blocks are kept apart by their flags and by the power of two that holds their size.
  using Key = std::pair<unsigned, int>;
  struct List {
    std::vector<HostBlock> free{};  ///< Has room for all blocks of its key.
    std::size_t blocks = 0;
  };

  static Key key_of(std::uint64_t size, unsigned flags) noexcept;
  std::optional<HostBlock> take_free(const Key& key, std::uint64_t size);
  Result<HostBlock> make(std::uint64_t size, HostAllocFlags flags);
  bool take_reserved(HostBlock& block);
  Result<HostBlock> ask(std::uint64_t size, HostAllocFlags flags);
  void release(const HostBlock& block) noexcept;
  static void finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept;

  Driver* driver_;
  PendingDeallocs& deallocations_;
  const Settings settings_;
  mutable std::mutex mutex_;
  std::map<Key, List> lists_;
  std::unordered_map<std::uint64_t, HostBlock> live_;  ///< By address.
  LiveRecords records_;
  Segment reserve_;
  Epoch epoch_;
  std::uint64_t requests_ = 0, asked_ = 0, bytes_ = 0, held_ = 0, peak_bytes_ = 0, peak_held_ = 0;
};

}  // namespace emm
