#include "emm/observer_relay.hpp"

#include <new>

#include "driver/call.hpp"

namespace emm {
namespace {

thread_local ObserverRelay::Hold* innermost = nullptr;

}  // namespace

ObserverRelay::Hold::Hold(const ObserverRelay& relay) noexcept : relay_(relay), outer_(innermost) {
  innermost = this;
}

ObserverRelay::Hold::~Hold() {
  innermost = outer_;
  for (const auto& tell : told_) tell(*relay_.observer_);
}

template <class... Args>
void ObserverRelay::pass_on(void (ManagerObserver::*tell)(Args...) noexcept,
                            std::type_identity_t<Args>... args) const noexcept {
  if (observer_ == nullptr) return;
  for (auto* hold = innermost; hold != nullptr; hold = hold->outer_) {
    if (&hold->relay_ != this) continue;
    try {
      hold->told_.emplace_back(
          [tell, args...](ManagerObserver& observer) { (observer.*tell)(args...); });
      return;
    } catch (const std::bad_alloc&) {
      break;  // told under the lock rather than not at all
    }
  }
  (observer_->*tell)(args...);
}

void ObserverRelay::pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept {
  pass_on(&ManagerObserver::pending_added, dtor, size);
}

void ObserverRelay::flushed(std::size_t count, std::uint64_t bytes) noexcept {
  pass_on(&ManagerObserver::flushed, count, bytes);
}

void ObserverRelay::free_failed(const Error& error) noexcept {
  pass_on(&ManagerObserver::free_failed, error);
}

void ObserverRelay::call_failed(const Error& error) noexcept {
  pass_on(&ManagerObserver::call_failed, error);
}

}  // namespace emm
