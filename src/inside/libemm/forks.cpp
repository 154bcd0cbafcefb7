#include "libemm/forks.hpp"

#include <pthread.h>

namespace emm::libemm {

void begin_to_see_forks() noexcept {
  [[maybe_unused]] static const int done = pthread_atfork(
      nullptr, nullptr, [] { forks_so_far.fetch_add(1, std::memory_order_relaxed); });
}

Error made_before_the_fork() {
  return {.code = Errc::not_initialized,
          .message =
              "this process was forked after its manager had been made, and a forked child "
              "cannot use the CUDA of its parent"};
}

}  // namespace emm::libemm
