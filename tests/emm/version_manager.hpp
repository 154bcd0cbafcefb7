#pragma once

#include "emm/memory_manager.hpp"

namespace emm::test {

/// A manager of the interface version that it is told. It makes nothing.
class VersionManager final : public MemoryManager {
 public:
  explicit VersionManager(int version) : version_(version) {}
  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t, StreamHandle) override {
    return Error{.code = Errc::not_supported};
  }
  Result<HostMemory> memhostalloc(std::uint64_t, HostAllocFlags) override {
    return Error{.code = Errc::not_supported};
  }
  Result<HostMemory> mempin(HostRange, HostRegisterFlags, std::shared_ptr<const void>) override {
    return Error{.code = Errc::not_supported};
  }
  Result<IpcHandle> get_ipc_handle(MemoryView) override {
    return Error{.code = Errc::not_supported};
  }
  Result<MemoryInfo> get_memory_info() override { return Error{.code = Errc::not_supported}; }
  void reset() noexcept override {}
  DeferCleanup defer_cleanup() override { return {}; }
  int interface_version() const noexcept override { return version_; }

 private:
  int version_;
};

}  // namespace emm::test
