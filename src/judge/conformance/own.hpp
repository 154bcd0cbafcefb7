#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "emm/context.hpp"
#include "emm/selection.hpp"

namespace emm::conformance {

/// emmctl's own functions, as the clauses about them call them. Each method calls its namesake. A
/// mutant overrides one.
class Own {
 public:
  virtual ~Own() = default;

  virtual Result<std::unique_ptr<Context>> make_context(OpenedDevice& device, Clock& clock,
                                                        const ManagerFactory& factory,
                                                        Profile profile) const;
  virtual Context::Deferred defer_cleanup(Context& context) const {
    return context.defer_cleanup();
  }
  virtual void reset(Context& context) const { context.reset(); }
  virtual Status push(Context& context) const { return context.push(); }
  virtual Status close(Context& context) const { return context.close(); }

  virtual MemoryPointer make_pointer(MemoryView memory, Finalizer finalizer,
                                     Epoch::Mark mark) const {
    return {memory.device_pointer, memory.size, Lifetime(finalizer, mark)};
  }
  virtual Status free(MemoryPointer& memory) const { return memory.free(); }
  virtual Status free(OwnedPointer& memory) const { return memory.free(); }
  virtual OwnedPointer own(MemoryPointer memory) const { return emm::own(std::move(memory)); }
  virtual Result<MemoryView> view(const MemoryPointer& memory, std::uint64_t start,
                                  std::optional<std::uint64_t> stop = {}) const {
    return memory.view(start, stop);
  }
  virtual Result<OwnedPointer> view(const OwnedPointer& memory, std::uint64_t start,
                                    std::optional<std::uint64_t> stop = {}) const {
    return memory.view(start, stop);
  }

  virtual Status add(PendingDeallocs& queue, Call dtor, std::uint64_t handle,
                     std::optional<std::uint64_t> size) const {
    return queue.add(dtor, handle, size);
  }
  virtual Status clear(PendingDeallocs& queue) const { return queue.clear(); }

  virtual IpcHandle exported(const IpcHandle::Fields& fields, OwnedPointer base) const {
    return IpcHandle::exported(fields, std::move(base));
  }
  virtual Result<MemoryView> open(IpcHandle& handle, Context& destination) const {
    return handle.open(destination);
  }
  virtual Result<MemoryView> open_direct(IpcHandle& handle, Driver& driver) const {
    return handle.open_direct(driver);
  }
  virtual Result<MemoryView> open_staged(IpcHandle& handle, Context& source,
                                         Context& destination) const {
    return handle.open_staged(source, destination);
  }
  virtual Status close(IpcHandle& handle) const { return handle.close(); }
  virtual Result<IpcHandle> deserialize(std::string_view line) const {
    return IpcHandle::deserialize(line);
  }

  virtual Status set(ManagerFactory factory) const {
    return set_memory_manager(std::move(factory));
  }
  virtual Result<ManagerFactory> get() const { return get_memory_manager(); }
  virtual void unset() const { unset_memory_manager(); }
};

/// Returns emmctl's own functions, unchanged.
const Own& emmctl_own() noexcept;

}  // namespace emm::conformance
