#include "standin/script.hpp"

#include <utility>

namespace emm::standin {
namespace {

/// Answers whether a script may fail the call. It must not fail a query for a device address,
/// because Numba then leaks the memory.
bool can_fail(Call call) noexcept {
  switch (call) {
    case Call::mem_alloc:
    case Call::mem_free:
    case Call::mem_alloc_managed:
    case Call::mem_host_alloc:
    case Call::mem_free_host:
    case Call::mem_host_register:
    case Call::mem_host_unregister:
    case Call::mem_get_info:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Script::fail(std::uint64_t mask, std::int32_t first, std::int32_t later) {
  const std::lock_guard lock(mutex_);
  mask_ = mask;
  first_ = first;
  later_ = later;
  made_ = 0;
}

std::string Script::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(kept_, {});
}

std::int32_t Script::before(const CallEvent& event) {
  if (!can_fail(event.call)) return 0;
  const std::lock_guard lock(mutex_);
  const auto at = made_++;
  if (at >= 64 || (mask_ >> at & 1) == 0) return 0;
  auto refused = event;
  refused.native = at == 0 ? first_ : later_;
  kept_ += to_text(refused) + '\n';
  return refused.native;
}

void Script::after(const CallEvent& event) {
  if (!can_fail(event.call) && event.call != Call::mem_host_get_device_pointer) return;
  const std::lock_guard lock(mutex_);
  kept_ += to_text(event) + '\n';
}

}  // namespace emm::standin
