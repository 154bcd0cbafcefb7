#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "emm/ipc_handle.hpp"
#include "emm/memory_manager.hpp"
#include "emm/memory_pointer.hpp"
#include "wrong.hpp"

namespace emm::mutants {

inline Error fault(Errc code) { return {.code = code}; }
/// A value that a wrong manager remembers.
template <class T>
std::shared_ptr<T> remembers(T value = {}) {
  return std::make_shared<T>(value);
}
inline std::shared_ptr<std::atomic<bool>> remembers(bool value) {
  return std::make_shared<std::atomic<bool>>(value);
}
/// Keeps in order what a wrong manager puts off. Any thread.
template <class T>
class PutOff {
 public:
  static std::shared_ptr<PutOff> make() { return std::make_shared<PutOff>(); }
  void add(T what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(what));
  }
  std::vector<T> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(all_, {});
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<T> all_;
};
/// Drops the answer of a call whose failure changes nothing for the mutant.
inline void ignore(const Status&) noexcept {}
/// Returns the same memory with the same end under another address and size.
inline MemoryPointer as(MemoryPointer memory, DevicePtr ptr, std::uint64_t size) {
  return {ptr, size, std::move(memory).take_lifetime()};
}

// The ways of breaking a rule that both a clause's mutant and a stranger use.

/// Requests of `from` bytes or more and less than `to` begin `by` bytes into a larger block.
void misalign(WrongManager& manager, std::uint64_t from, std::uint64_t to, std::uint64_t by);
/// Requests that rounding up by `by` bytes would overflow get 512 bytes.
void round_largest_to_nothing(WrongManager& manager, std::uint64_t by);
/// A flush follows the end of the last deferral where `least` frees or more are pending.
void flush_at_end_of_deferral(WrongManager& manager, std::uint64_t least);
void free_managed_at_once(WrongManager& manager);
void free_host_at_once(WrongManager& manager, bool mapped);
void take_host_address_for_device(WrongManager& manager);
void give_pinned_as_mapped(WrongManager& manager);
void keep_owners(WrongManager& manager);
/// The owners of all regions are dropped at once, or of mapped ones alone.
void let_owners_go(WrongManager& manager, bool of_mapped_alone);
void leave_regions_in_reset(WrongManager& manager);
void leave_unmappable_registered(WrongManager& manager);
void swap_free_and_total(WrongManager& manager);
/// `change` gives the fields of each handle that is exported.
void change_exports(WrongManager& manager,
                    Hook<IpcHandle::Fields(MemoryView, IpcHandle::Fields)> change);
void export_no_offset(WrongManager& manager);

}  // namespace emm::mutants
