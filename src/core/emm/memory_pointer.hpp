#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/result.hpp"
#include "driver/types.hpp"
#include "emm/epoch.hpp"

namespace emm {

/// The callback by which a manager learns that an allocation is no longer needed. Three machine
/// words, so that it crosses a C boundary as it is. It runs at most once, on any thread, perhaps
/// late. It cannot fail; the manager counts errors in it.
struct Finalizer {
  void (*run)(void* self, std::uint64_t cookie, StreamHandle stream) noexcept = nullptr;
  void* self = nullptr;
  std::uint64_t cookie = 0;
};

/// A non-owning part of device memory: an address and a size (contract: PTR-9).
struct MemoryView {
  DevicePtr device_pointer;
  std::uint64_t size = 0;

  /// [start, stop) of this view; without `stop`, up to its end. The range must lie inside, which
  /// numba does not check (PTR-12). Error invalid_value, in numba's words if it has any (PTR-11).
  Result<MemoryView> view(std::uint64_t start, std::optional<std::uint64_t> stop = {}) const;
};

/// Whether a finalizer also runs after a reset has ended the memory.
enum class LateFinalizer : bool {
  skipped,
  runs  ///< For a manager that wants to know, as a plugin does; not after the manager's end.
};

/// Owns a finalizer, which runs at the latest when this is destroyed. If the manager has been reset
/// since, the memory is gone, and the finalizer runs only with LateFinalizer::runs (RST-6, RST-7).
/// It never runs after the manager's end.
class Lifetime {
 public:
  Lifetime() = default;
  Lifetime(Finalizer finalizer, Epoch::Mark mark,
           LateFinalizer late = LateFinalizer::skipped) noexcept
      : finalizer_(finalizer), mark_(mark), late_(late) {}
  Lifetime(Lifetime&& other) noexcept
      : finalizer_(other.take_finalizer()),
        mark_(other.mark_),
        freed_(other.freed_),
        late_(other.late_) {}
  Lifetime& operator=(Lifetime&& other) noexcept {
    if (this != &other) {
      end({});
      finalizer_ = other.take_finalizer();
      mark_ = other.mark_;
      freed_ = other.freed_;
      late_ = other.late_;
    }
    return *this;
  }
  ~Lifetime() { end({}); }

  /// Answers whether it has or had a finalizer (numba's is_managed).
  bool managed() const noexcept { return finalizer_.run != nullptr || freed_; }
  /// Answers whether it was not freed, and no reset ended it.
  bool alive() const noexcept { return !freed_ && mark_.current(); }
  /// The mark for a lifetime that wraps this one and must end with it.
  Epoch::Mark mark() const noexcept { return mark_; }
  /// Runs the finalizer now. Does nothing for memory without one. Error dead_pointer, "Freeing dead
  /// memory", if it was freed before or reset ended it (PTR-5, RST-6).
  Status free(StreamHandle stream) {
    if (finalizer_.run == nullptr || !mark_.current()) return free_nothing();
    freed_ = true;
    std::exchange(finalizer_.run, nullptr)(finalizer_.self, finalizer_.cookie, stream);
    return {};
  }

 private:
  void end(StreamHandle stream) noexcept {
    const auto run = std::exchange(finalizer_.run, nullptr);
    if (run == nullptr) return;
    freed_ = true;
    if (mark_.current() || (late_ == LateFinalizer::runs && mark_.has_manager()))
      run(finalizer_.self, finalizer_.cookie, stream);
  }
  Status free_nothing() const;
  Finalizer take_finalizer() noexcept {
    return {std::exchange(finalizer_.run, nullptr), finalizer_.self, finalizer_.cookie};
  }

  Finalizer finalizer_{};
  Epoch::Mark mark_{};
  bool freed_ = false;
  LateFinalizer late_ = LateFinalizer::skipped;
};

/// NBEP-7's MemoryPointer: owns device memory, and runs its finalizer at its end. Move-only.
class MemoryPointer {
 public:
  MemoryPointer() = default;
  /// `size` in bytes. Without a finalizer this owns nothing (foreign memory).
  MemoryPointer(DevicePtr ptr, std::uint64_t size, Lifetime lifetime = {}) noexcept
      : ptr_(ptr), size_(size), lifetime_(std::move(lifetime)) {}

  DevicePtr device_pointer() const noexcept { return ptr_; }
  std::uint64_t size() const noexcept { return size_; }
  bool is_managed() const noexcept { return lifetime_.managed(); }
  bool alive() const noexcept { return lifetime_.alive(); }
  /// Ends the memory now, although views of it may remain; `stream` orders the end after work
  /// there.
  Status free(StreamHandle stream = {}) { return lifetime_.free(stream); }
  /// Error dead_pointer if the memory is no longer alive; else like MemoryView::view().
  Result<MemoryView> view(std::uint64_t start = 0, std::optional<std::uint64_t> stop = {}) const;
  /// Gives up the ownership to the one that moves from the result; this then owns nothing.
  Lifetime&& take_lifetime() && noexcept { return std::move(lifetime_); }

 private:
  DevicePtr ptr_{};
  std::uint64_t size_ = 0;
  Lifetime lifetime_{};
};

/// NBEP-7's PinnedMemory: page-locked host memory that devices do not see.
class PinnedMemory {
 public:
  PinnedMemory(HostRange range, Lifetime lifetime, std::shared_ptr<const void> owner = {}) noexcept
      : range_(range), owner_(std::move(owner)), lifetime_(std::move(lifetime)) {}
  PinnedMemory(PinnedMemory&&) noexcept = default;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    lifetime_ = std::move(other.lifetime_);  // first: unpinning needs the owner
    owner_ = std::move(other.owner_);
    range_ = other.range_;
    return *this;
  }
  ~PinnedMemory() = default;

  HostPtr host_pointer() const noexcept { return range_.pointer; }
  std::uint64_t size() const noexcept { return range_.size; }
  bool alive() const noexcept { return lifetime_.alive(); }
  Status free() { return lifetime_.free({}); }
  Lifetime take_lifetime() && noexcept { return std::move(lifetime_); }

 private:
  HostRange range_;
  std::shared_ptr<const void> owner_;  ///< Outlives the finalizer (PIN-4): declared before it.
  Lifetime lifetime_;
};

/// NBEP-7's MappedMemory: page-locked host memory with a device address.
class MappedMemory {
 public:
  MappedMemory(HostRange range, DevicePtr ptr, Lifetime lifetime,
               std::shared_ptr<const void> owner = {}) noexcept
      : range_(range), ptr_(ptr), owner_(std::move(owner)), lifetime_(std::move(lifetime)) {}
  MappedMemory(MappedMemory&&) noexcept = default;
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    lifetime_ = std::move(other.lifetime_);  // first: unpinning needs the owner
    owner_ = std::move(other.owner_);
    ptr_ = other.ptr_;
    range_ = other.range_;
    return *this;
  }
  ~MappedMemory() = default;

  HostPtr host_pointer() const noexcept { return range_.pointer; }
  DevicePtr device_pointer() const noexcept { return ptr_; }
  std::uint64_t size() const noexcept { return range_.size; }
  bool alive() const noexcept { return lifetime_.alive(); }
  Status free() { return lifetime_.free({}); }
  Lifetime take_lifetime() && noexcept { return std::move(lifetime_); }
  Result<MemoryView> view(std::uint64_t start = 0, std::optional<std::uint64_t> stop = {}) const;

 private:
  HostRange range_;
  DevicePtr ptr_;
  std::shared_ptr<const void> owner_;
  Lifetime lifetime_;
};

/// What memhostalloc and mempin give: mapped if that was asked for, else pinned (HST-2, PIN-3).
using HostMemory = std::variant<PinnedMemory, MappedMemory>;

/// Managed memory: one address on host and device (MAN-4). A MemoryPointer that the host may read.
class ManagedMemory {
 public:
  explicit ManagedMemory(MemoryPointer memory) noexcept : memory_(std::move(memory)) {}

  MemoryPointer& memory() noexcept { return memory_; }
  const MemoryPointer& memory() const noexcept { return memory_; }
  DevicePtr device_pointer() const noexcept { return memory_.device_pointer(); }
  std::uint64_t size() const noexcept { return memory_.size(); }
  bool alive() const noexcept { return memory_.alive(); }
  Status free(StreamHandle stream = {}) { return memory_.free(stream); }

 private:
  MemoryPointer memory_;
};

/// A shared reference to memory, or to part of it. The memory ends with its last reference (PTR-4,
/// PTR-10). Copies and views share the memory. One thread at a time for each object. The count is
/// atomic, so copies may end on any thread. free() must not run while another thread uses the
/// memory.
class OwnedPointer {
 public:
  OwnedPointer() = default;

  DevicePtr device_pointer() const noexcept { return view_.device_pointer; }
  std::uint64_t size() const noexcept { return view_.size; }
  bool alive() const noexcept { return memory_ != nullptr && memory_->alive(); }
  /// How many OwnedPointers share the memory (numba's refct).
  long references() const noexcept { return memory_.use_count(); }
  /// Ends the memory now for all references; their later ends do nothing (PTR-6). A view owns
  /// nothing, and its free() does nothing (PTR-5, PTR-9).
  Status free(StreamHandle stream = {});
  Result<OwnedPointer> view(std::uint64_t start = 0, std::optional<std::uint64_t> stop = {}) const;

 private:
  friend OwnedPointer own(MemoryPointer memory);
  OwnedPointer(std::shared_ptr<MemoryPointer> memory, MemoryView view, bool is_view) noexcept
      : memory_(std::move(memory)), view_(view), is_view_(is_view) {}

  std::shared_ptr<MemoryPointer> memory_;
  MemoryView view_;
  bool is_view_ = false;
};

/// Turns sole ownership into shared. `own(std::move(memory))` stands for numba's AutoFreePointer,
/// which frees itself when its last owned reference ends (PTR-3). If the memory is dead, so is the
/// result (PTR-7).
OwnedPointer own(MemoryPointer memory);

}  // namespace emm
