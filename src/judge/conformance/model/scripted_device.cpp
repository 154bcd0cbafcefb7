#include "conformance/model/scripted_device.hpp"

#include <algorithm>
#include <utility>

#include "base/text_format.hpp"
#include "conformance/cuda_results.hpp"
#include "driver/call.hpp"

namespace emm::model {

using conformance::kAlreadyRegistered, conformance::kInvalidValue, conformance::kNotRegistered,
    conformance::kOutOfMemory;

namespace {

// Apart from each other, so that an address tells its kind.
constexpr std::uint64_t kDeviceBase = 0x7000'0000'0000;
constexpr std::uint64_t kHostBase = 0x5000'0000'0000;
constexpr std::uint64_t kRegionBase = 0x6000'0000'0000;
/// A device address minus its host address.
constexpr std::uint64_t kDeviceViewOfHost = 0x0100'0000'0000;
constexpr int kStrideBits = 28;

}  // namespace

std::string describe(const CallRecord& record) {
  return text::format("{}({}, {}) = {}", call_info(record.call).name, record.argument, record.flags,
                      record.result);
}

std::uint64_t ScriptedDevice::region_address(int region) noexcept {
  return kRegionBase + (static_cast<std::uint64_t>(region) << kStrideBits);
}

std::uint64_t ScriptedDevice::block_address(MemoryKind kind, std::size_t index) noexcept {
  return (kind == MemoryKind::device ? kDeviceBase : kHostBase) +
         (static_cast<std::uint64_t>(index) << kStrideBits);
}

ScriptedDevice::DeviceBlock* ScriptedDevice::find(MemoryKind kind, std::uint64_t address) noexcept {
  const auto index = static_cast<std::size_t>((address - block_address(kind, 0)) >> kStrideBits);
  if (index >= blocks_.size() || block_address(kind, index) != address) return nullptr;
  return blocks_[index].kind == kind ? &blocks_[index] : nullptr;
}

void ScriptedDevice::restart(const DeviceSetup& setup, std::vector<CallRecord>& log) {
  setup_ = setup;
  log_ = &log;
  blocks_.clear();
  vacant_.clear();
  is_registered_.fill(false);
  used_ = host_used_ = 0;
  end_operation();
}

void ScriptedDevice::begin_operation(const Faults& faults, std::function<void()> in_first_free) {
  faults_ = faults;
  calls_in_operation_ = 0;
  in_first_free_ = std::move(in_first_free);
}

void ScriptedDevice::end_operation() { begin_operation({}, nullptr); }

std::int32_t ScriptedDevice::take_fault() noexcept {
  const auto call = calls_in_operation_++;
  if (call >= 64 || (faults_.mask >> call & 1) == 0) return 0;
  return call == 0 ? faults_.first : faults_.later;
}

std::int32_t ScriptedDevice::record(Call call, std::int32_t result, std::uint64_t argument,
                                    std::uint64_t flags) {
  log_->push_back({call, result, argument, flags});
  return result;
}

std::int32_t ScriptedDevice::make(MemoryKind kind, std::uint64_t size, std::uint64_t& address) {
  if (const auto fault = take_fault(); fault != 0) return fault;
  if (size == 0 && !setup_.accepts_zero) return kInvalidValue;
  auto& used = kind == MemoryKind::device ? used_ : host_used_;
  const auto capacity = kind == MemoryKind::device ? setup_.capacity : setup_.host_capacity;
  if (size > capacity - used) return kOutOfMemory;

  auto index = blocks_.size();
  if (vacant_.empty()) {
    blocks_.emplace_back();
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  blocks_[index] = {kind, size};
  used += size;
  address = block_address(kind, index);
  return 0;
}

std::int32_t ScriptedDevice::unmake(MemoryKind kind, std::uint64_t address) {
  if (const auto fault = take_fault(); fault != 0) return fault;
  auto* block = find(kind, address);
  if (block == nullptr) return kInvalidValue;
  (kind == MemoryKind::device ? used_ : host_used_) -= block->size;
  *block = {};
  vacant_.push_back(static_cast<std::size_t>(block - blocks_.data()));
  return 0;
}

void ScriptedDevice::run_nested() {
  if (!in_first_free_) return;
  const auto nested = std::exchange(in_first_free_, nullptr);
  nested();
}

std::int32_t ScriptedDevice::mem_get_info(MemoryInfo& info) {
  auto result = take_fault();
  if (result == 0) info = {std::min(setup_.total, setup_.capacity - used_), setup_.total};
  return record(Call::mem_get_info, result, 0);
}

std::int32_t ScriptedDevice::mem_alloc(std::uint64_t size, std::uint64_t& address) {
  return record(Call::mem_alloc, make(MemoryKind::device, size, address), size);
}

std::int32_t ScriptedDevice::mem_alloc_managed(std::uint64_t size, unsigned attach,
                                               std::uint64_t& address) {
  return record(Call::mem_alloc_managed, make(MemoryKind::device, size, address), size, attach);
}

std::int32_t ScriptedDevice::mem_free(std::uint64_t address) {
  const auto result = record(Call::mem_free, unmake(MemoryKind::device, address), address);
  run_nested();
  return result;
}

std::int32_t ScriptedDevice::mem_host_alloc(std::uint64_t size, unsigned flags,
                                            std::uint64_t& address) {
  return record(Call::mem_host_alloc, make(MemoryKind::host, size, address), size, flags);
}

std::int32_t ScriptedDevice::mem_free_host(std::uint64_t address) {
  const auto result = record(Call::mem_free_host, unmake(MemoryKind::host, address), address);
  run_nested();
  return result;
}

std::int32_t ScriptedDevice::mem_host_register(std::uint64_t address, std::uint64_t size,
                                               unsigned flags) {
  const auto region = static_cast<std::size_t>((address - kRegionBase) >> kStrideBits);
  auto result = take_fault();
  if (result == 0 && (region >= kRegions || region_address(static_cast<int>(region)) != address))
    result = kInvalidValue;
  if (result == 0 && size == 0 && !setup_.accepts_zero) result = kInvalidValue;
  if (result == 0 && is_registered_[region]) result = kAlreadyRegistered;
  if (result == 0 && size > setup_.host_capacity - host_used_) result = kOutOfMemory;
  if (result == 0) {
    is_registered_[region] = true;
    registered_[region] = size;
    host_used_ += size;
  }
  return record(Call::mem_host_register, result, size, address | flags);
}

std::int32_t ScriptedDevice::mem_host_unregister(std::uint64_t address) {
  const auto region = static_cast<std::size_t>((address - kRegionBase) >> kStrideBits);
  auto result = take_fault();
  if (result == 0 && (region >= kRegions || !is_registered_[region])) result = kNotRegistered;
  if (result == 0) {
    is_registered_[region] = false;
    host_used_ -= registered_[region];
  }
  return record(Call::mem_host_unregister, result, address);
}

std::int32_t ScriptedDevice::mem_host_get_device_pointer(std::uint64_t address,
                                                         std::uint64_t& device_address) {
  const auto region = static_cast<std::size_t>((address - kRegionBase) >> kStrideBits);
  auto result = take_fault();
  const bool known =
      find(MemoryKind::host, address) != nullptr || (region < kRegions && is_registered_[region]);
  if (result == 0 && !known) result = kInvalidValue;
  if (result == 0) device_address = address + kDeviceViewOfHost;
  return record(Call::mem_host_get_device_pointer, result, address);
}

std::int32_t ScriptedDevice::log_unexpected(Call call) {
  calls_in_operation_++;
  return record(call, kInvalidValue, 0);
}

}  // namespace emm::model
