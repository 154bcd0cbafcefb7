#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/model/operation.hpp"
#include "driver/call.hpp"
#include "driver/types.hpp"

namespace emm::model {

/// One driver call and its result.
struct CallRecord {
  Call call{};
  std::int32_t result = 0;     ///< CUresult
  std::uint64_t argument = 0;  ///< An allocation's size in bytes; else the call's address.
  std::uint64_t flags = 0;     ///< CUDA's bits. mem_host_register has its address above them.
  bool operator==(const CallRecord&) const = default;
};

std::string describe(const CallRecord& record);

/// A device made of integers. It counts bytes, hands out addresses, refuses what CUDA refuses,
/// fails when told to, and logs every call. It hands out the address freed last first, so that
/// stale records show.
class ScriptedDevice {
 public:
  /// Empties the device. `log` receives the calls and must outlive the run.
  void restart(const DeviceSetup& setup, std::vector<CallRecord>& log);
  /// Counts faults from here on. `in_first_free`, unless null, is called once, inside the next
  /// free.
  void begin_operation(const Faults& faults, std::function<void()> in_first_free);
  void end_operation();

  // All return a CUresult, and set their result only when they succeed.
  std::int32_t mem_get_info(MemoryInfo& info);
  std::int32_t mem_alloc(std::uint64_t size, std::uint64_t& address);
  std::int32_t mem_alloc_managed(std::uint64_t size, unsigned attach, std::uint64_t& address);
  std::int32_t mem_free(std::uint64_t address);
  std::int32_t mem_host_alloc(std::uint64_t size, unsigned flags, std::uint64_t& address);
  std::int32_t mem_free_host(std::uint64_t address);
  std::int32_t mem_host_register(std::uint64_t address, std::uint64_t size, unsigned flags);
  std::int32_t mem_host_unregister(std::uint64_t address);
  std::int32_t mem_host_get_device_pointer(std::uint64_t address, std::uint64_t& device_address);
  /// Logs and refuses a call that the contract does not provide for.
  std::int32_t log_unexpected(Call call);

  static std::uint64_t region_address(int region) noexcept;

 private:
  enum class MemoryKind : std::uint8_t { none, device, host };
  struct DeviceBlock {
    MemoryKind kind = MemoryKind::none;
    std::uint64_t size = 0;
  };

  /// Returns the fault of this call, or 0.
  std::int32_t take_fault() noexcept;
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
  std::vector<std::size_t> vacant_;  ///< Indexes of free blocks. The last one is used next.
  std::array<std::uint64_t, kRegions> registered_{};
  std::array<bool, kRegions> is_registered_{};
  std::uint64_t used_ = 0;
  std::uint64_t host_used_ = 0;
  Faults faults_{};
  unsigned calls_in_operation_ = 0;
  std::function<void()> in_first_free_;
};

}  // namespace emm::model
