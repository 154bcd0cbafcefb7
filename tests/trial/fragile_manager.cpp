#include "fragile_manager.hpp"

#include <csignal>
#include <memory>

#include "managers/host_only.hpp"

namespace emm::trial {
namespace {

class Fragile final : public HostOnlyManager {
 public:
  explicit Fragile(const ManagerContext& context) : HostOnlyManager(context, {}) {}
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    if (size == 7 && ++asked_ > 2) std::raise(SIGKILL);
    ++asked_;
    return HostOnlyManager::memhostalloc(size, flags);
  }

 private:
  int asked_ = 0;
};

}  // namespace

ManagerFactory fragile_manager() {
  return {.name = "fragile", .make = [](const ManagerContext& context) {
            return Result<std::unique_ptr<MemoryManager>>(std::make_unique<Fragile>(context));
          }};
}

}  // namespace emm::trial
