#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/types.hpp"

namespace emm::model {

/// What a sequence may ask of a manager.
enum class Ask : std::uint8_t {
  initialize,
  memalloc,
  memhostalloc,
  mempin,
  memallocmanaged,
  drop,  ///< The pointer's destructor.
  free,  ///< The pointer's free().
  flush,
  defer_cleanup,
  end_defer_cleanup,
  reset,
  get_memory_info,
};

/// Which driver calls of one operation fail: bit k of `mask` is the k-th that the operation makes,
/// counted from 0, whatever it is. The first call of the operation fails with `first`, others with
/// `later`.
struct Faults {
  std::uint64_t mask = 0;
  std::int32_t first = 0;  ///< CUresult
  std::int32_t later = 0;  ///< CUresult
};

inline constexpr int kNoSlot = -1;

/// One operation. It stands by itself: its faults and the name of its memory travel with it, so
/// that a sequence stays a sequence when others are left out.
struct Operation {
  Ask ask = Ask::initialize;
  int slot = kNoSlot;      ///< Names the memory that is made, dropped or freed; made once only.
  std::uint64_t size = 0;  ///< Bytes.
  HostAllocFlags host{};   ///< Of memhostalloc; `mapped` also of mempin.
  AttachFlags attach = AttachFlags::global;
  int region = 0;          ///< Which host region mempin pins, below kRegions.
  std::size_t which = 0;   ///< Of the guards alive, which one end_defer_cleanup ends.
  bool elsewhere = false;  ///< On another thread, which the first waits for.
  int nested = kNoSlot;    ///< Dropped by the driver inside the first free made here (PD-10).
  Faults faults{};
};

inline constexpr int kRegions = 4;

/// What the scripted device is like.
struct DeviceSetup {
  std::uint64_t total = 0;          ///< As mem_get_info tells it, bytes; may be 0 (INI-4).
  std::uint64_t capacity = 0;       ///< What device allocations may add up to, bytes.
  std::uint64_t host_capacity = 0;  ///< What page-locked host memory may add up to, bytes.
  bool accepts_zero = false;  ///< Size 0 gives memory; else CUDA_ERROR_INVALID_VALUE, as CUDA's.
};

struct Sequence {
  std::uint64_t seed = 0;
  DeviceSetup setup{};
  int slots = 0;  ///< Slots are below this.
  std::vector<Operation> operations;
};

/// The sequence of a seed: 10 to 200 operations around the limits of the contract.
Sequence generate(std::uint64_t seed);

/// One line: "memalloc slot 3 size 200, call 0 fails with 2".
std::string describe(const Operation& operation);

}  // namespace emm::model
