#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "driver/call.hpp"
#include "emm/manager_observer.hpp"

namespace emm {

/// Passes on what a manager tells its observer. What a thread tells during a Hold is passed on when
/// the Hold ends. A manager that tells under a lock makes a Hold before it takes the lock, so that
/// the observer is called without the lock and may call the manager. Any thread may call.
class ObserverRelay final : public ManagerObserver {
 public:
  /// `observer` may be null.
  explicit ObserverRelay(ManagerObserver* observer) noexcept : observer_(observer) {}

  void pending_added(Call dtor, std::optional<std::uint64_t> size) noexcept override;
  void flushed(std::size_t count, std::uint64_t bytes) noexcept override;
  void free_failed(const Error& error) noexcept override;
  void call_failed(const Error& error) noexcept override;

  /// Ends on the thread that made it.
  class Hold {
   public:
    explicit Hold(const ObserverRelay& relay) noexcept;
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    friend ObserverRelay;
    const ObserverRelay& relay_;
    Hold* outer_;  ///< The thread's next Hold, of this relay or of another.
    std::vector<std::function<void(ManagerObserver&)>> told_;
  };

 private:
  template <class... Args>
  void pass_on(void (ManagerObserver::*tell)(Args...) noexcept,
               std::type_identity_t<Args>... args) const noexcept;

  ManagerObserver* observer_;
};

}  // namespace emm
