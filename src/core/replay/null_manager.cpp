#include "replay/null_manager.hpp"

#include <atomic>

#include "emm/defer_cleanup.hpp"
#include "emm/epoch.hpp"
#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"

namespace emm::replay {
namespace {

constexpr std::uint64_t kRange = std::uint64_t{1}
                                 << 46;  ///< The size of each thread's address range.
constexpr std::uint64_t kRanges = std::uint64_t{1} << 16;  // threads share a range from here on
constexpr std::uint64_t kStep = 256;  // bytes: CUDA promises addresses of this alignment

/// Returns the next address of this thread's range.
std::uint64_t place(std::uint64_t size) noexcept {
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t begin = (1 + threads++ % kRanges) * kRange;
  thread_local std::uint64_t offset = 0;
  const auto taken = (size / kStep + 1) * kStep;
  if (taken > kRange - offset) offset = 0;
  const auto at = begin + offset;
  offset += taken;
  return at;
}

class NullManager final : public MemoryManager {
 public:
  Status initialize() override { return {}; }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle) override {
    if (size >= kRange) return Error{.code = Errc::out_of_memory, .native = 2};
    return MemoryPointer({place(size)}, size, Lifetime({.run = &nothing}, epoch_.mark()));
  }
  Result<HostMemory> memhostalloc(std::uint64_t, HostAllocFlags) override { return declined(); }
  Result<HostMemory> mempin(HostRange, HostRegisterFlags, std::shared_ptr<const void>) override {
    return declined();
  }
  Result<IpcHandle> get_ipc_handle(MemoryView) override { return declined(); }
  Result<MemoryInfo> get_memory_info() override { return declined(); }
  void reset() noexcept override { epoch_.advance(); }
  DeferCleanup defer_cleanup() override { return {}; }

 private:
  static void nothing(void*, std::uint64_t, StreamHandle) noexcept {}
  static Error declined() { return {.code = Errc::not_supported, .native = 801}; }

  Epoch epoch_;
};

}  // namespace

ManagerFactory null_manager() {
  return {.name = "null",
          .make = [](const ManagerContext&) -> Result<std::unique_ptr<MemoryManager>> {
            return std::make_unique<NullManager>();
          }};
}

}  // namespace emm::replay
