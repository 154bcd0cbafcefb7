#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/model/operation.hpp"
#include "driver/types.hpp"

namespace emm::model {

/// One driver call as it was made and answered.
struct CallRecord {
  Call call{};
  std::int32_t result = 0;     ///< CUresult
  std::uint64_t argument = 0;  ///< Size in bytes of what makes memory; address of all else.
  std::uint64_t flags = 0;     ///< CUDA's bits; of mem_host_register, the address above them.
  bool operator==(const CallRecord&) const = default;
};

std::string describe(const CallRecord& record);

/// A device of integers: it counts bytes, hands out addresses, refuses what CUDA refuses, fails
/// when told, and writes down every call. The address freed last is handed out first, so that stale
/// records show.
class ScriptedDevice {
 public:
  /// Empties the device. `log` receives the calls and outlives the run.
  void restart(const DeviceSetup& setup, std::vector<CallRecord>& log);
  /// Counts faults from here on. `in_first_free`, if not null, is called once, inside the next
  /// free.
  void begin_operation(const Faults& faults, std::function<void()> in_first_free);
  void end_operation();

  // All answer a CUresult; what they give is set on success only.
  std::int32_t mem_get_info(MemoryInfo& info);
  std::int32_t mem_alloc(std::uint64_t size, std::uint64_t& address);
  std::int32_t mem_alloc_managed(std::uint64_t size, unsigned attach, std::uint64_t& address);
  std::int32_t mem_free(std::uint64_t address);
  std::int32_t mem_host_alloc(std::uint64_t size, unsigned flags, std::uint64_t& address);
  std::int32_t mem_free_host(std::uint64_t address);
  std::int32_t mem_host_register(std::uint64_t address, std::uint64_t size, unsigned flags);
  std::int32_t mem_host_unregister(std::uint64_t address);
  std::int32_t mem_host_get_device_pointer(std::uint64_t address, std::uint64_t& device_address);
  /// Any call that the contract has no place for: it is written down, and refused.
  std::int32_t unexpected(Call call);

  static std::uint64_t region_address(int region) noexcept;

 private:
  enum class MemoryKind : std::uint8_t { none, device, host };
  struct DeviceBlock {
    MemoryKind kind = MemoryKind::none;
    std::uint64_t size = 0;
  };

  /// The fault of this call, or 0.
  std::int32_t next_fault() noexcept;
  std::int32_t record(Call call, std::int32_t result, std::uint64_t argument,
                      std::uint64_t flags = 0);
  std::int32_t make(MemoryKind kind, std::uint64_t size, std::uint64_t& address);
  std::int32_t unmake(MemoryKind kind, std::uint64_t address);
  void run_nested();
  static std::uint64_t block_address(MemoryKind kind, std::size_t index) noexcept;
  DeviceBlock* find(MemoryKind kind, std::uint64_t address) noexcept;

  DeviceSetup setup_{};
  std::vector<CallRecord>* log_ = nullptr;
  std::vector<DeviceBlock> blocks_;
  std::vector<std::size_t> vacant_;  ///< Indexes of blocks that are free; the back is used next.
  std::array<std::uint64_t, kRegions> registered_{};
  std::array<bool, kRegions> is_registered_{};
  std::uint64_t used_ = 0;
  std::uint64_t host_used_ = 0;
  Faults faults_{};
  unsigned calls_in_operation_ = 0;
  std::function<void()> in_first_free_;
};

}  // namespace emm::model
