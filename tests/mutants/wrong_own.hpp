#pragma once

#include <memory>
#include <vector>

#include "conformance/own.hpp"
#include "wrong.hpp"

namespace emm::mutants {

using conformance::Own;

/// emmctl's own parts, with what is set doing something else. A wrong context is the right one with
/// a wrong manager between it and its own, or over a wrong driver: from outside nobody can tell.
class WrongOwn final : public Own {
 public:
  Hook<void(WrongManager&)> between;  ///< Between each context and its manager.
  Hook<void(WrongDriver&)> below;     ///< Below each context and its manager.
  Hook<void(const ManagerFactory&)> before_context;
  Hook<void(Context&)> on_context;                       ///< Of each that is made.
  Hook<void()> on_event_destroyed;                       ///< For a driver below to call.
  mutable std::vector<Context*> contexts;                ///< All that were made, also if gone.
  mutable std::vector<std::unique_ptr<Driver>> drivers;  ///< Below those of contexts.

  Hook<Context::Deferred(Context&)> on_defer_cleanup;
  Hook<void(Context&)> on_reset;
  Hook<Status(Context&)> on_push;
  Hook<Status(Context&)> on_close_context;
  Hook<MemoryPointer(MemoryView, Finalizer, Epoch::Mark)> on_make_pointer;
  Hook<Status(MemoryPointer&)> on_free;
  Hook<Status(OwnedPointer&)> on_free_owned;
  Hook<OwnedPointer(MemoryPointer)> on_own;
  Hook<Result<MemoryView>(const MemoryPointer&, std::uint64_t, std::optional<std::uint64_t>)>
      on_view;
  Hook<Result<OwnedPointer>(const OwnedPointer&, std::uint64_t, std::optional<std::uint64_t>)>
      on_view_owned;
  Hook<Status(PendingDeallocs&, Call, std::uint64_t, std::optional<std::uint64_t>)> on_add;
  Hook<Status(PendingDeallocs&)> on_clear;
  Hook<IpcHandle(const IpcHandle::Fields&, OwnedPointer)> on_exported;
  Hook<Result<MemoryView>(IpcHandle&, Context&)> on_open;
  Hook<Result<MemoryView>(IpcHandle&, Driver&)> on_open_direct;
  Hook<Result<MemoryView>(IpcHandle&, Context&, Context&)> on_open_staged;
  Hook<Status(IpcHandle&)> on_close;
  Hook<Result<IpcHandle>(std::string_view)> on_deserialize;
  Hook<Status(ManagerFactory)> on_set;
  Hook<Result<ManagerFactory>()> on_get;
  Hook<void()> on_unset;

  Result<std::unique_ptr<Context>> make_context(OpenedDevice& device, Clock& clock,
                                                const ManagerFactory& factory,
                                                Profile profile) const override;
  Context::Deferred defer_cleanup(Context& c) const override {
    return on_defer_cleanup ? on_defer_cleanup(c) : Own::defer_cleanup(c);
  }
  void reset(Context& c) const override { on_reset ? on_reset(c) : Own::reset(c); }
  Status push(Context& c) const override { return on_push ? on_push(c) : Own::push(c); }
  Status close(Context& c) const override {
    return on_close_context ? on_close_context(c) : Own::close(c);
  }
  MemoryPointer make_pointer(MemoryView memory, Finalizer finalizer,
                             Epoch::Mark mark) const override {
    return on_make_pointer ? on_make_pointer(memory, finalizer, mark)
                           : Own::make_pointer(memory, finalizer, mark);
  }
  Status free(MemoryPointer& memory) const override {
    return on_free ? on_free(memory) : Own::free(memory);
  }
  Status free(OwnedPointer& memory) const override {
    return on_free_owned ? on_free_owned(memory) : Own::free(memory);
  }
  OwnedPointer own(MemoryPointer memory) const override {
    return on_own ? on_own(std::move(memory)) : Own::own(std::move(memory));
  }
  Result<MemoryView> view(const MemoryPointer& memory, std::uint64_t start,
                          std::optional<std::uint64_t> stop) const override {
    return on_view ? on_view(memory, start, stop) : Own::view(memory, start, stop);
  }
  Result<OwnedPointer> view(const OwnedPointer& memory, std::uint64_t start,
                            std::optional<std::uint64_t> stop) const override {
    return on_view_owned ? on_view_owned(memory, start, stop) : Own::view(memory, start, stop);
  }
  Status add(PendingDeallocs& queue, Call dtor, std::uint64_t handle,
             std::optional<std::uint64_t> size) const override {
    return on_add ? on_add(queue, dtor, handle, size) : Own::add(queue, dtor, handle, size);
  }
  Status clear(PendingDeallocs& queue) const override {
    return on_clear ? on_clear(queue) : Own::clear(queue);
  }
  IpcHandle exported(const IpcHandle::Fields& fields, OwnedPointer base) const override {
    return on_exported ? on_exported(fields, std::move(base))
                       : Own::exported(fields, std::move(base));
  }
  Result<MemoryView> open(IpcHandle& handle, Context& to) const override {
    return on_open ? on_open(handle, to) : Own::open(handle, to);
  }
  Result<MemoryView> open_direct(IpcHandle& handle, Driver& driver) const override {
    return on_open_direct ? on_open_direct(handle, driver) : Own::open_direct(handle, driver);
  }
  Result<MemoryView> open_staged(IpcHandle& handle, Context& source, Context& to) const override {
    return on_open_staged ? on_open_staged(handle, source, to)
                          : Own::open_staged(handle, source, to);
  }
  Status close(IpcHandle& handle) const override {
    return on_close ? on_close(handle) : Own::close(handle);
  }
  Result<IpcHandle> deserialize(std::string_view line) const override {
    return on_deserialize ? on_deserialize(line) : Own::deserialize(line);
  }
  Status set(ManagerFactory factory) const override {
    return on_set ? on_set(std::move(factory)) : Own::set(std::move(factory));
  }
  Result<ManagerFactory> get() const override { return on_get ? on_get() : Own::get(); }
  void unset() const override { on_unset ? on_unset() : Own::unset(); }
};

struct OwnMutant {
  std::string_view clause;
  std::string_view wrong;
  void (*make)(WrongOwn& own);
};
std::span<const OwnMutant> all_own_mutants();

/// The default manager, judged with `own` for emmctl's parts. `own` must outlive it.
conformance::Subject subject_of(const OwnMutant& mutant, WrongOwn& own);

}  // namespace emm::mutants
