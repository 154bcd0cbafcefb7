#include "replay/accounts.hpp"

#include <algorithm>

namespace emm::replay {

void Accounts::add_threads(std::uint64_t peak_live, log::FourWay& outcomes) noexcept {
  std::uint64_t waited = 0;
  for (auto* thread : threads) {
    live_bytes += static_cast<std::uint64_t>(thread->live_bytes.exchange(0));
    live_count += static_cast<std::uint64_t>(std::exchange(thread->live_count, 0));
    pass.allocs += std::exchange(thread->allocs, 0);
    pass.frees += std::exchange(thread->frees, 0);
    outcomes.succeeded_as_recorded += std::exchange(thread->succeeded_as_recorded, 0);
    waited = std::max(waited, std::exchange(thread->waited_ns, 0));
  }
  waited_ns += waited;
  pass.peak_live_bytes = std::max({pass.peak_live_bytes, live_bytes, peak_live});
  raise_requested(pass.peak_live_bytes);
}

void Accounts::add_thread_times() noexcept {
  for (const auto* thread : threads) {
    alloc_times.add(thread->alloc_times);
    free_times.add(thread->free_times);
    lateness.add(thread->lateness);
  }
}

}  // namespace emm::replay
