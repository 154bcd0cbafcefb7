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

/// Which driver calls of one operation fail. Bit k of `mask` is the operation's k-th call, counted
/// from 0, whatever call it is. The first call fails with `first`, others with `later`.
struct Faults {
  std::uint64_t mask = 0;
  std::int32_t first = 0;  ///< CUresult
  std::int32_t later = 0;  ///< CUresult
};

inline constexpr int kNoSlot = -1;  // no memory

/// One operation. It carries its faults and the name of its memory, so that a sequence stays valid
/// when other operations are removed.
struct Operation {
  Ask ask = Ask::initialize;
  int slot = kNoSlot;  ///< The memory that is made, dropped or freed. A slot is filled only once.
  std::uint64_t size = 0;  ///< Bytes.
  HostAllocFlags host{};   ///< For memhostalloc; `mapped` also for mempin.
  AttachFlags attach = AttachFlags::global;
  int region = 0;          ///< Which host region mempin pins; below kRegions.
  std::size_t which = 0;   ///< Which of the live guards end_defer_cleanup ends.
  bool elsewhere = false;  ///< It runs on another thread while the first one waits.
  int nested = kNoSlot;    ///< The driver drops this inside the operation's first free (PD-10).
  Faults faults{};
};

inline constexpr int kRegions = 4;  // buffers of the host that a sequence may pin

/// The properties of the scripted device.
struct DeviceSetup {
  std::uint64_t total = 0;          ///< Bytes, as mem_get_info reports them; may be 0 (INI-4).
  std::uint64_t capacity = 0;       ///< Bytes that all device allocations together may have.
  std::uint64_t host_capacity = 0;  ///< Bytes that all page-locked host memory may have.
  bool accepts_zero = false;        ///< Size 0 gives memory; otherwise it is an error, as in CUDA.
};

struct Sequence {
  std::uint64_t seed = 0;
  DeviceSetup setup{};
  int slots = 0;  ///< All slots are below this.
  std::vector<Operation> operations;
};

/// Generates the sequence of a seed: 10 to 200 operations near the limits of the contract.
Sequence generate(std::uint64_t seed);

/// Returns one line: "memalloc slot 3 size 200, call 0 fails with 2".
std::string describe(const Operation& operation);

}  // namespace emm::model
