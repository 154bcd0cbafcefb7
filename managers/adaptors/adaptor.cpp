#include "managers/adaptors/adaptor.hpp"

#include <algorithm>
#include <variant>

namespace emm {
namespace {

std::uint64_t number_of(HostPtr pointer) noexcept {
  return reinterpret_cast<std::uint64_t>(pointer);
}

}  // namespace

Result<MemoryPointer> Adaptor::memalloc(std::uint64_t size, StreamHandle stream) {
  const Request request{.kind = MemoryKind::device, .size = size, .stream = stream};
  if (auto admitted = admit(request); !admitted) return std::move(admitted).error();
  auto memory = upstream_->memalloc(size, stream);
  if (!memory) {
    failed(request, memory.error());
    return memory;
  }
  const auto ptr = memory->device_pointer();
  return MemoryPointer(ptr, size, hold(request, ptr.value, (*std::move(memory)).take_lifetime()));
}

Result<ManagedMemory> Adaptor::memallocmanaged(std::uint64_t size, AttachFlags attach) {
  const Request request{.kind = MemoryKind::managed, .size = size};
  if (auto admitted = admit(request); !admitted) return std::move(admitted).error();
  auto memory = upstream_->memallocmanaged(size, attach);
  if (!memory) {
    failed(request, memory.error());
    return memory;
  }
  const auto ptr = memory->device_pointer();
  return ManagedMemory(MemoryPointer(
      ptr, size, hold(request, ptr.value, std::move(memory->memory()).take_lifetime())));
}

Result<HostMemory> Adaptor::memhostalloc(std::uint64_t size, HostAllocFlags flags) {
  const Request request{.kind = flags.mapped ? MemoryKind::host_mapped : MemoryKind::host_pinned,
                        .size = size};
  if (auto admitted = admit(request); !admitted) return std::move(admitted).error();
  auto memory = upstream_->memhostalloc(size, flags);
  if (!memory) {
    failed(request, memory.error());
    return memory;
  }
  return wrap(request, *std::move(memory), {});
}

Result<HostMemory> Adaptor::mempin(HostRange range, HostRegisterFlags flags,
                                   std::shared_ptr<const void> owner) {
  const Request request{.kind = flags.mapped ? MemoryKind::pinned_mapped : MemoryKind::pinned,
                        .size = range.size};
  if (auto admitted = admit(request); !admitted) return std::move(admitted).error();
  auto memory = upstream_->mempin(range, flags, owner);
  if (!memory) {
    failed(request, memory.error());
    return memory;
  }
  return wrap(request, *std::move(memory), std::move(owner));
}

HostMemory Adaptor::wrap(const Request& request, HostMemory memory,
                         std::shared_ptr<const void> owner) {
  if (auto* mapped = std::get_if<MappedMemory>(&memory)) {
    const HostRange range{.pointer = mapped->host_pointer(), .size = mapped->size()};
    const auto on_device = mapped->device_pointer();
    auto lifetime = hold(request, number_of(range.pointer), std::move(*mapped).take_lifetime());
    return MappedMemory(range, on_device, std::move(lifetime), std::move(owner));
  }
  auto& pinned = std::get<PinnedMemory>(memory);
  const HostRange range{.pointer = pinned.host_pointer(), .size = pinned.size()};
  auto lifetime = hold(request, number_of(range.pointer), std::move(pinned).take_lifetime());
  return PinnedMemory(range, std::move(lifetime), std::move(owner));
}

Lifetime Adaptor::hold(const Request& request, std::uint64_t address, Lifetime upstream) {
  if (!upstream.managed()) return upstream;
  // The memory lives as long as the upstream says, so the wrapper takes the upstream's mark if
  // there is one.
  const auto mark = upstream.mark().bound() ? upstream.mark() : epoch_.mark();
  Allocation allocation{.request = request, .address = address};
  std::uint64_t cookie = 0;
  {
    const std::lock_guard lock(mutex_);
    allocation.number = ++handed_out_;
    if (idle_.empty()) {
      idle_.push_back(static_cast<std::uint32_t>(held_.size()));
      held_.emplace_back();
      idle_.reserve(held_.capacity());
    }
    const auto at = idle_.back();
    idle_.pop_back();
    auto& held = held_[at];
    held.allocation = allocation;
    held.upstream = std::move(upstream);
    cookie = (std::uint64_t{++held.generation} << 32) | at;
  }
  handed_out(allocation);
  return Lifetime({.run = finalize, .self = this, .cookie = cookie}, mark);
}

void Adaptor::finalize(void* self, std::uint64_t cookie, StreamHandle stream) noexcept {
  auto& adaptor = *static_cast<Adaptor*>(self);
  const auto at = static_cast<std::uint32_t>(cookie);
  Allocation allocation;
  Lifetime upstream;
  {
    const std::lock_guard lock(adaptor.mutex_);
    if (at >= adaptor.held_.size() || adaptor.held_[at].generation != cookie >> 32) return;
    auto& held = adaptor.held_[at];
    allocation = held.allocation;
    upstream = std::move(held.upstream);
    ++held.generation;
    adaptor.idle_.push_back(at);
  }
  adaptor.ending(allocation, stream);
  if (!upstream.free(stream)) return;  // a reset of the upstream has already ended it
}

void Adaptor::reset() noexcept {
  upstream_->reset();
  std::vector<Allocation> ended;
  {
    const std::lock_guard lock(mutex_);
    epoch_.advance();
    for (std::uint32_t at = 0; at < held_.size(); ++at) {
      auto& held = held_[at];
      if (held.generation % 2 == 0 || (held.upstream.mark().bound() && held.upstream.alive()))
        continue;
      ended.push_back(held.allocation);
      held.upstream = {};
      ++held.generation;
      idle_.push_back(at);
    }
  }
  std::sort(ended.begin(), ended.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  for (const auto& allocation : ended) ending(allocation, {});
}

std::vector<Allocation> Adaptor::living() const {
  std::vector<Allocation> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& held : held_) {
      if (held.generation % 2 == 1) alive.push_back(held.allocation);
    }
  }
  std::sort(alive.begin(), alive.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return alive;
}

}  // namespace emm
