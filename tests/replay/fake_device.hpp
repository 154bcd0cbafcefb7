#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace emm::replay {

/// A device of the size of a toy, whose every byte exists: for tests of what stands over a Driver.
/// Calls that a test has no use for answer not_supported.
class FakeDriver final : public Driver {
 public:
  static constexpr std::uint64_t kBase = 0x7f0000000000;
  static constexpr std::uint64_t kSize = 8 << 20;

  explicit FakeDriver(int ordinal = 0) : content(kSize), ordinal_(ordinal) {}

  std::vector<std::byte> content;
  std::uint64_t held = 0;   ///< What held_bytes() answers.
  std::uint64_t calls = 0;  ///< Counts the calls that move content.
  bool refuses_streams = false;

  std::byte* at(DevicePtr ptr) { return content.data() + (ptr.value - kBase); }
  bool inside(DevicePtr ptr, std::uint64_t size) const {
    return ptr.value >= kBase && size <= kSize && ptr.value - kBase <= kSize - size;
  }

  Result<MemoryInfo> mem_get_info() override {
    return MemoryInfo{.free = kSize - held, .total = kSize};
  }
  DeviceIdentity device_identity() const noexcept override {
    return {.pci_domain_id = 0, .pci_bus_id = ordinal_, .pci_device_id = 0};
  }
  std::string_view device_name() const noexcept override { return "toy"; }
  int device_ordinal() const noexcept override { return ordinal_; }
  bool can_map_host_memory() const noexcept override { return true; }
  /// The handle's first eight bytes are the address.
  Result<DevicePtr> ipc_open_mem_handle(const IpcMemHandle& handle) override {
    DevicePtr ptr;
    std::memcpy(&ptr, handle.bytes.data(), sizeof ptr);
    if (!inside(ptr, 1))
      return Error{.code = Errc::invalid_value, .native = 1, .call = "cuIpcOpenMemHandle"};
    return ptr;
  }
  Status ipc_close_mem_handle(DevicePtr) override { return {}; }
  Result<bool> can_access_peer(const DeviceIdentity&) override { return false; }
  Status memset_d8(DevicePtr ptr, std::uint8_t value, std::uint64_t size) override {
    if (!inside(ptr, size)) return Error{.code = Errc::invalid_value};
    std::memset(at(ptr), value, size);
    return {};
  }
  Status memset_d32(DevicePtr ptr, std::uint32_t value, std::uint64_t count) override {
    ++calls;
    if (!inside(ptr, 4 * count)) return Error{.code = Errc::invalid_value};
    for (std::uint64_t i = 0; i < count; ++i) std::memcpy(at(ptr) + 4 * i, &value, 4);
    return {};
  }
  Status memcpy_htod(DevicePtr to, std::span<const std::byte> from) override {
    ++calls;
    if (!inside(to, from.size())) return Error{.code = Errc::invalid_value};
    std::copy(from.begin(), from.end(), at(to));
    return {};
  }
  Status memcpy_dtoh(std::span<std::byte> to, DevicePtr from) override {
    ++calls;
    if (!inside(from, to.size())) return Error{.code = Errc::invalid_value};
    std::copy_n(at(from), to.size(), to.data());
    return {};
  }
  Result<StreamHandle> stream_create(StreamKind = StreamKind::blocking) override {
    if (refuses_streams) return no();
    return StreamHandle{++streams_};
  }
  Status stream_destroy(StreamHandle) override { return {}; }
  Status stream_synchronize(StreamHandle) override { return {}; }
  Status ctx_synchronize() override { return {}; }
  Status ctx_push_current() override { return {}; }
  Result<ContextHandle> ctx_pop_current() override { return context_handle(); }
  ContextHandle context_handle() const noexcept override { return {1}; }
  Status primary_ctx_reset() override { return {}; }
  std::uint64_t held_bytes() const noexcept override { return held; }
  std::uint64_t largest_free_bytes() const noexcept override { return kSize - held; }
  std::uint64_t log_address(const std::byte* ptr) const noexcept override {
    return ptr == nullptr ? 0 : 0x200000000000;  // the same in every run
  }

 private:
  static Error no() { return Error{.code = Errc::not_supported}; }

  int ordinal_;
  std::uint64_t streams_ = 0x10;
};

}  // namespace emm::replay
