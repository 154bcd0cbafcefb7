#include "conformance/spy.hpp"

#include <algorithm>

#include "emm/memory_manager.hpp"

namespace emm::conformance {
namespace {

class SpyManager final : public MemoryManager {
 public:
  explicit SpyManager(SpyLog& log) : log_(log) {}

  Status initialize() override { return answer("initialize()"); }
  Result<MemoryPointer> memalloc(std::uint64_t size, StreamHandle stream) override {
    if (auto asked = answer(text::format("memalloc({}, {})", size, stream.value)); !asked)
      return std::move(asked).error();
    return MemoryPointer(next(), size);
  }
  Result<HostMemory> memhostalloc(std::uint64_t size, HostAllocFlags flags) override {
    auto asked = answer(
        text::format("memhostalloc({}, {}, {}, {})", size, flags.mapped, flags.portable, flags.wc));
    if (!asked) return std::move(asked).error();
    return HostMemory(PinnedMemory({reinterpret_cast<HostPtr>(next().value), size}, {}));
  }
  Result<HostMemory> mempin(HostRange range, HostRegisterFlags flags,
                            std::shared_ptr<const void> owner) override {
    auto asked = answer(text::format("mempin({}, {})", range.size, flags.mapped));
    if (!asked) return std::move(asked).error();
    return HostMemory(PinnedMemory(range, {}, std::move(owner)));
  }
  Result<ManagedMemory> memallocmanaged(std::uint64_t size, AttachFlags attach) override {
    auto asked =
        answer(text::format("memallocmanaged({}, {})", size, static_cast<unsigned>(attach)));
    if (!asked) return std::move(asked).error();
    return ManagedMemory(MemoryPointer(next(), size));
  }
  Result<IpcHandle> get_ipc_handle(MemoryView memory) override {
    if (auto asked = answer("get_ipc_handle()"); !asked) return std::move(asked).error();
    IpcHandle::Fields fields;
    fields.size = memory.size;
    return IpcHandle::exported(fields);
  }
  Result<MemoryInfo> get_memory_info() override {
    if (auto asked = answer("get_memory_info()"); !asked) return std::move(asked).error();
    return MemoryInfo{.free = 11, .total = 22};
  }
  void reset() noexcept override {
    if (!answer("reset()")) return;
  }
  DeferCleanup defer_cleanup() override {
    if (!answer("defer_cleanup()")) return {};
    const auto leave = [](void* self) noexcept {
      if (!static_cast<SpyManager*>(self)->answer("end_defer_cleanup()")) return;
    };
    return DeferCleanup(leave, this);
  }
  Status flush() override { return answer("flush()"); }
  int interface_version() const noexcept override {
    return log_.version.value_or(kInterfaceVersion);
  }

 private:
  Status answer(std::string words) {
    log_.asked.push_back(std::move(words));
    if (log_.during) log_.during(log_.asked.back());
    if (log_.fails) return Error{.code = log_.fails_with};
    return {};
  }
  DevicePtr next() { return {last_ += 0x1000}; }

  SpyLog& log_;
  std::uint64_t last_ = 0;
};

}  // namespace

std::size_t SpyLog::count(std::string_view begin) const {
  return static_cast<std::size_t>(std::count_if(
      asked.begin(), asked.end(), [&](const auto& words) { return words.starts_with(begin); }));
}

std::string SpyLog::text() const { return asked.empty() ? "nothing" : text::join(asked); }

ManagerFactory spy_factory(SpyLog& log, std::string name) {
  return {.name = std::move(name),
          .make = [&log](const ManagerContext& context) -> Result<std::unique_ptr<MemoryManager>> {
            ++log.made;
            if (context.driver == nullptr) ++log.probes;
            return std::make_unique<SpyManager>(log);
          }};
}

ContextFixture::ContextFixture(Bench& bench, const ManagerFactory& factory, int ordinal) {
  device_ = std::make_unique<OpenedDevice>();
  if (ordinal == 0) {
    *device_ = bench.watched_device();
  } else if (auto opened = bench.platform().open(ordinal); opened) {
    *device_ = *std::move(opened);
  } else {
    bench.inconclusive(describe(opened.error()));
    return;
  }
  auto made = own_of(bench).make_context(*device_, bench.platform().clock(), factory,
                                         bench.subject().profile);
  if (made) {
    context_ = *std::move(made);
  } else {
    bench.inconclusive(describe(made.error()));
  }
}

const Own& own_of(const Bench& bench) noexcept {
  return bench.subject().own != nullptr ? *bench.subject().own : emmctl_own();
}

}  // namespace emm::conformance
